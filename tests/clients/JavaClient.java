import java.io.FileInputStream;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpTimeoutException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * POSTs bodies by Java's own client over HTTP/2 and prints one line for each request: the path, the size, and the status
 * or the error.
 *
 * <p>Usage: java JavaClient.java BASE CA JOB... (CA: a file; JOB: PATH:SIZE:COUNT)
 */
class JavaClient {
    static final Duration TIMEOUT = Duration.ofSeconds(40);
    /** A client that waits in vain so often is not asked further. */
    static final int MAX_TIMEOUTS = 4;

    /** As many zeros as are asked for. */
    static final class Zeros extends InputStream {
        private long left;

        Zeros(long size) {
            left = size;
        }

        @Override
        public int read() {
            return left-- > 0 ? 0 : -1;
        }

        @Override
        public int read(byte[] bytes, int offset, int length) {
            if (left <= 0) return -1;
            int read = (int) Math.min(left, length);
            left -= read;
            return read;
        }
    }

    static SSLContext trusting(String file) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (InputStream pem = new FileInputStream(file)) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        return context;
    }

    static BodyPublisher body(long size) {
        if (size == 0) return BodyPublishers.noBody();
        return BodyPublishers.fromPublisher(BodyPublishers.ofInputStream(() -> new Zeros(size)), size);
    }

    static String post(HttpClient client, String url, long size) {
        HttpRequest request = HttpRequest.newBuilder(URI.create(url)).timeout(TIMEOUT).POST(body(size)).build();
        try {
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            boolean http2 = answer.version() == HttpClient.Version.HTTP_2;
            return http2 ? String.valueOf(answer.statusCode()) : "spoke " + answer.version();
        } catch (HttpTimeoutException error) {
            return "timeout: " + error.getMessage();
        } catch (Exception error) {
            return error.toString();
        }
    }

    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_2)
                .sslContext(trusting(arguments[1]))
                .build();
        int timeouts = 0;
        for (int at = 2; at < arguments.length && timeouts < MAX_TIMEOUTS; at++) {
            String[] job = arguments[at].split(":");
            for (int number = 0; number < Integer.parseInt(job[2]); number++) {
                String result = post(client, arguments[0] + job[0], Long.parseLong(job[1]));
                System.out.println(job[0] + " " + job[1] + " " + result.replace('\n', ' '));
                if (result.startsWith("timeout")) {
                    timeouts++;
                    break;
                }
            }
        }
        // The client's own threads would keep the process for a while.
        System.exit(0);
    }
}
