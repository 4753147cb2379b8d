//! Requests to the authority: one connection each, bounded in time and size. What the authority sends is checked before
//! the library of the protocol reads it.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, RETRY_AFTER, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use instant_acme::{BodyWrapper, BytesResponse, Error as AcmeError, HttpClient};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::settings::AcmeSettings;
use crate::clock::Clock;
use crate::net::TlsClientConfig;
use crate::net::service_connection::ServiceConnection;

/// The timeout of a request, all included.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest response.
const MAX_ANSWER: usize = 1 << 20;
/// The range of `retry-after` where the state of an order is asked again, and of an error.
const MIN_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(7 * 86_400);

/// Sends requests to one authority.
#[derive(Clone)]
pub struct AuthorityClient(Arc<Authority>);

struct Authority {
    directory: String,
    tls: Option<TlsClientConfig>,
    is_plain: bool,
    seen: Mutex<AuthorityHints>,
}

/// What the authority has said beside its answers.
#[derive(Clone, Debug, Default)]
pub struct AuthorityHints {
    /// The `retry-after` of its last error.
    pub retry_after: Option<Duration>,
    /// Where it tells when to renew certificates.
    pub renewal_info: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityFault {
    /// There is no connection, or it ended.
    #[error("{0}")]
    Connection(String),
    /// It took too long.
    #[error("no answer within {TIMEOUT:?}")]
    Timeout,
    /// It names a URL that is not asked.
    #[error("it names `{0}`, which is not `https://` with a host")]
    Url(String),
    /// The answer is longer than 1 MiB, or broke off.
    #[error("its answer is longer than 1 MiB, or broke off")]
    Body,
    /// An error without an explanation.
    #[error("it answered {0}")]
    Status(http::StatusCode),
    /// The directory is none.
    #[error("what its URL shows is not the directory of an authority")]
    Directory,
}

impl fmt::Debug for AuthorityClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthorityClient").field("directory", &self.0.directory).finish_non_exhaustive()
    }
}

impl AuthorityClient {
    /// A client of this authority.
    pub fn new(settings: &AcmeSettings) -> Self {
        Self(Arc::new(Authority {
            directory: settings.directory.clone(),
            tls: settings.tls.clone(),
            is_plain: settings.is_plain,
            seen: Mutex::default(),
        }))
    }

    /// What the authority has said so far.
    pub fn seen(&self) -> AuthorityHints {
        self.0.seen.lock().clone()
    }

    /// Forgets the wish of an earlier error.
    pub fn forget_wish(&self) {
        self.0.seen.lock().retry_after = None;
    }

    /// Gets this URL.
    ///
    /// # Errors
    ///
    /// See [`AuthorityFault`].
    pub async fn get(&self, url: &str) -> Result<Response<Bytes>, AuthorityFault> {
        let request = Request::get(url).body(Bytes::new());
        self.exchange(request.map_err(|_| AuthorityFault::Url(shown(url)))?).await
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, AuthorityFault> {
        let is_directory = request.method() == Method::GET && request.uri() == self.0.directory.as_str();
        let exchange = timeout(TIMEOUT, self.send(request));
        let mut response = exchange.await.map_err(|_| AuthorityFault::Timeout)??;
        let wish = retry_after(response.headers());
        let status = response.status();
        response.headers_mut().remove(RETRY_AFTER);
        if let Some(wish) = wish {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wish.as_secs()));
        }
        if status.is_client_error() || status.is_server_error() {
            self.0.seen.lock().retry_after = wish;
            let is_problem = serde_json::from_slice::<serde_json::Map<_, _>>(response.body());
            if is_problem.is_err() {
                return Err(AuthorityFault::Status(status));
            }
        } else if is_directory {
            self.check_directory(response.body())?;
        }
        Ok(response)
    }

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, AuthorityFault> {
        let (parts, body) = request.into_parts();
        let address = self.address(&parts.uri)?;
        let tls = self.0.tls.as_ref().filter(|_| address.is_secure);
        let broken = |error: &dyn fmt::Display| AuthorityFault::Connection(error.to_string());
        let connection = ServiceConnection::open(&address.host, address.port, tls).await;
        let mut connection = connection.map_err(|error| broken(&error))?;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut next = Request::builder().method(parts.method).uri(path);
        for (name, value) in parts.headers.iter().filter(|(name, _)| *name != USER_AGENT) {
            next = next.header(name, value);
        }
        let next = next
            .header(HOST, address.authority)
            .header(USER_AGENT, concat!("tollgate/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close")
            .body(Full::new(body))
            .map_err(|error| broken(&error))?;
        let response = connection.send(next).await.map_err(|error| broken(&error))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|_| AuthorityFault::Body)?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    }

    /// Where a URL leads: only over TLS, unless the whole authority is on this machine.
    fn address(&self, url: &Uri) -> Result<Address, AuthorityFault> {
        let refused = || AuthorityFault::Url(shown(&url.to_string()));
        let is_secure = url.scheme() == Some(&Scheme::HTTPS);
        let authority =
            url.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(refused)?;
        let host = authority.host();
        let is_allowed =
            is_secure || (self.0.is_plain && is_loopback(host) && url.scheme() == Some(&Scheme::HTTP));
        let port = authority.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        match is_allowed && !host.is_empty() {
            true => Ok(Address {
                is_secure,
                host: host.trim_matches(['[', ']']).to_owned(),
                port,
                authority: authority.as_str().to_owned(),
            }),
            false => Err(refused()),
        }
    }

    /// The library takes the URLs of a directory for granted.
    fn check_directory(&self, body: &[u8]) -> Result<(), AuthorityFault> {
        let directory: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(body).map_err(|_| AuthorityFault::Directory)?;
        for name in ["newNonce", "newAccount", "newOrder"] {
            let url =
                directory.get(name).and_then(serde_json::Value::as_str).ok_or(AuthorityFault::Directory)?;
            self.address(&url.parse().map_err(|_| AuthorityFault::Url(shown(url)))?)?;
        }
        let renewal_info = directory.get("renewalInfo").and_then(serde_json::Value::as_str);
        self.0.seen.lock().renewal_info = renewal_info.map(str::to_owned);
        Ok(())
    }
}

struct Address {
    is_secure: bool,
    host: String,
    port: u16,
    /// As in a Host header.
    authority: String,
}

/// Whether a host is this machine by its name alone.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

fn shown(url: &str) -> String {
    super::certificate::plain(url, 200)
}

/// `retry-after` (RFC 9110 §10.2.3), in the range that is obeyed.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        // Too many digits are a very long time.
        true => text.parse().unwrap_or(u64::MAX),
        false => {
            let date = httpdate::parse_http_date(text).ok()?;
            let since_epoch = date.duration_since(std::time::UNIX_EPOCH).ok()?;
            since_epoch.as_secs().saturating_sub(Clock::system().wall_now().seconds())
        }
    };
    Some(Duration::from_secs(seconds).clamp(MIN_WAIT, MAX_WAIT))
}

impl HttpClient for AuthorityClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, AcmeError>> + Send>> {
        let this = self.clone();
        Box::pin(async move {
            let other = |error: Box<dyn StdError + Send + Sync>| AcmeError::Other(error);
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(|never| other(Box::new(never)))?.to_bytes();
            let response = this.exchange(Request::from_parts(parts, body)).await;
            let (parts, body) = response.map_err(|fault| other(Box::new(fault)))?.into_parts();
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::acme::settings::ChallengeKind;

    fn client(directory: &str) -> AuthorityClient {
        AuthorityClient::new(&AcmeSettings {
            email: None,
            directory: directory.into(),
            is_plain: directory.starts_with("http://"),
            tls: None,
            state: "state".into(),
            challenge: ChallengeKind::Http01,
            external_account: None,
            secret: None,
        })
    }

    #[test]
    fn urls_lead_over_tls_or_stay_on_this_machine() {
        let is_asked = |client: &AuthorityClient, url: &str| client.address(&url.parse().unwrap()).is_ok();
        let (public, local) = (client("https://ca.example/dir"), client("http://127.0.0.1:14000/dir"));
        for url in ["https://ca.example/x", "https://other.example:99/x", "https://[2001:db8::1]/"] {
            assert!(is_asked(&public, url), "{url}");
        }
        for url in [
            "http://ca.example/x",
            "http://127.0.0.1/",
            "/x",
            "https://user@ca.example/",
            "ftp://ca.example/",
        ] {
            assert!(!is_asked(&public, url), "{url}");
        }
        for url in ["http://127.0.0.1:1/", "http://[::1]/", "http://localhost/", "https://ca.example/"] {
            assert!(is_asked(&local, url), "{url}");
        }
        for url in ["http://10.0.0.1/", "http://metadata/", "http://localhost.example/"] {
            assert!(!is_asked(&local, url), "{url}");
        }
        assert_eq!(local.address(&"http://[::1]/".parse().unwrap()).unwrap().host, "::1");
    }

    /// Time is virtual: it passes where all tasks wait.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_comes_byte_by_byte_takes_no_longer_than_the_timeout() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let directory = format!("http://{}/dir", listener.local_addr().expect("bound"));
        let authority = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            for byte in
                "HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".bytes().chain(std::iter::repeat(b'x'))
            {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if stream.write_all(&[byte]).await.is_err() {
                    return;
                }
            }
        });
        let begin = crate::clock::now();
        let fault = client(&directory).get(&directory).await.expect_err("no answer in time");
        assert!(matches!(fault, AuthorityFault::Timeout), "{fault}");
        assert!((TIMEOUT..TIMEOUT * 2).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        authority.await.expect("the connection ends with the request");
    }

    #[test]
    fn a_directory_without_usable_urls_is_refused() {
        let client = client("https://ca.example/dir");
        let sound = r#"{"newNonce":"https://ca.example/n","newAccount":"https://ca.example/a","newOrder":"https://ca.example/o","renewalInfo":"https://ca.example/r"}"#;
        assert!(client.check_directory(sound.as_bytes()).is_ok());
        assert_eq!(client.seen().renewal_info.as_deref(), Some("https://ca.example/r"));
        let faulty = [
            sound.replace("https://ca.example/n", "not a url"),
            sound.replace("https://ca.example/n", "http://ca.example/n"),
            sound.replace("newOrder", "neworder"),
            sound.replace(r#""https://ca.example/a""#, "[7]"),
            "[]".to_owned(),
            "<html>".to_owned(),
        ];
        for text in faulty {
            assert!(client.check_directory(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_wish_to_wait_has_bounds() {
        let wish = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers).map(|wish| wish.as_secs())
        };
        let longest = Some(7 * 86_400);
        assert_eq!(
            ["120", "0", "18446744073709551615", &"9".repeat(99)].map(wish),
            [Some(120), Some(1), longest, longest]
        );
        assert_eq!(["", "-1", "soon", "1.5", "١"].map(wish), [None; 5]);
        assert_eq!(wish("Fri, 31 Dec 9999 23:59:59 GMT"), longest);
        assert_eq!(wish("Thu, 01 Jan 1970 00:00:00 GMT"), Some(1));
    }

    proptest! {
        #[test]
        fn any_directory_and_any_wish_are_read_without_a_panic(bytes: Vec<u8>, url in "\\PC{0,60}", wish: Vec<u8>) {
            let client = client("http://127.0.0.1:14000/dir");
            client.check_directory(&bytes).ok();
            let urls = serde_json::json!({ "newNonce": url, "newAccount": url, "newOrder": url, "renewalInfo": url });
            client.check_directory(urls.to_string().as_bytes()).ok();
            if let Ok(value) = HeaderValue::from_bytes(&wish) {
                let headers = HeaderMap::from_iter([(RETRY_AFTER, value)]);
                prop_assert!(retry_after(&headers).is_none_or(|wish| (MIN_WAIT..=MAX_WAIT).contains(&wish)));
            }
        }
    }
}
