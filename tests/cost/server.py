"""A server that tells the cost of a request in its response, as the APIs of docs/cost.md and docs/model-apis.md do. It
prints its port.

Responses depend on requests only, so that two equal requests have equal responses, byte for byte.

Headers of requests that no API knows:
    x-coding   the content coding (gzip, deflate, br), if the client accepts it
    x-order    after each event the server waits for `POST /seen/NAME`, with this name
    x-older    message_delta has output tokens only, as in older versions of the API
    x-late     the last chunk comes once the server has got `POST /seen/NAME`, with this name
    x-short    the text is one piece
    x-cut      the body is sent in two chunks, of which the first has this number of bytes; with `all`, byte for byte
    x-fingerprint  the `system_fingerprint` of a completion
"""

import collections
import json
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import brotli
import model_apis

TIMEOUT = 20
# How often each name was seen.
SEEN = collections.Counter()
CHANGED = threading.Condition()


class Identity:
    def part(self, data):
        return data

    def end(self):
        return b""


class Zlib:
    def __init__(self, window):
        self.coder = zlib.compressobj(wbits=window)

    def part(self, data):
        return self.coder.compress(data) + self.coder.flush(zlib.Z_SYNC_FLUSH)

    def end(self):
        return self.coder.flush()


class Brotli:
    def __init__(self):
        self.coder = brotli.Compressor()

    def part(self, data):
        return self.coder.process(data) + self.coder.flush()

    def end(self):
        return self.coder.finish()


CODERS = {"gzip": lambda: Zlib(31), "deflate": lambda: Zlib(15), "br": Brotli}


APIS = {
    "/v1/chat/completions": model_apis.completion,
    "/v1/responses": model_apis.response,
    "/v1/embeddings": model_apis.embeddings,
    "/v1/messages": model_apis.message,
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def coding(self):
        wanted = self.headers.get("x-coding", "")
        accepted = [name.strip() for name in self.headers.get("accept-encoding", "").split(",")]
        return wanted if wanted in CODERS and wanted in accepted else None

    def head(self, status, kind, length, coding=None):
        self.send_response(status)
        self.send_header("content-type", kind)
        if coding:
            self.send_header("content-encoding", coding)
        framing = ("transfer-encoding", "chunked") if length is None else ("content-length", str(length))
        self.send_header(*framing)
        self.end_headers()

    def whole(self, body, status=200, kind="application/json"):
        body = body if isinstance(body, bytes) else json.dumps(body, indent=1).encode()
        coding = self.coding()
        if coding:
            coder = CODERS[coding]()
            body = coder.part(body) + coder.end()
        if cut := self.headers.get("x-cut"):
            return self.pieces(cut, body, status, kind, coding)
        self.head(status, kind, len(body), coding)
        self.wfile.write(body)

    def pieces(self, cut, body, status, kind, coding):
        """A body in chunks that end anywhere."""
        self.head(status, kind, None, coding)
        ends = range(1, len(body)) if cut == "all" else [int(cut)]
        begin = 0
        for end in [*ends, len(body)]:
            self.chunk(body[begin:end])
            begin = end
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, data):
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    def stream(self, events, kind="text/event-stream; charset=utf-8"):
        coding, name = self.coding(), self.headers.get("x-order")
        coder = CODERS[coding]() if coding else Identity()
        if cut := self.headers.get("x-cut"):
            body = b"".join(coder.part(event.encode()) for event in events) + coder.end()
            return self.pieces(cut, body, 200, kind, coding)
        self.head(200, kind, None, coding)
        for count, event in enumerate(events, 1):
            self.chunk(coder.part(event.encode()))
            if name and not wait_until_seen(name, count):
                # The client lacks an event that was sent: its stream ends here.
                self.close_connection = True
                return
        if late := self.headers.get("x-late"):
            wait_until_seen(late, 1)
        self.chunk(coder.end())
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self):
        path = self.path.removeprefix("/plain")
        if path.startswith("/downloads/"):
            self.whole(bytes(int(path.rsplit("/", 1)[1])), kind="application/octet-stream")
        elif path == "/reports/year":
            self.whole({"rows": 3})
        else:
            self.whole({"error": "not found"}, 404)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path, _, query = self.path.removeprefix("/plain").partition("?")
        if path.startswith("/seen/"):
            with CHANGED:
                SEEN[path.removeprefix("/seen/")] += 1
                CHANGED.notify_all()
            return self.whole({})
        posted = json.loads(body)
        if api := APIS.get(path):
            api(self, posted)
        elif path.startswith(("/v1/models/", "/v1beta/models/")):
            model_apis.gemini(self, posted, path.rpartition(":")[2], query)
        elif path.startswith("/api/"):
            model_apis.ollama(self, posted, path.removeprefix("/api/"))
        elif path == "/graphql":
            cost = posted.get("variables", {}).get("cost")
            extensions = {"cost": {"requestedQueryCost": 101, "actualQueryCost": cost}} if cost is not None else {}
            self.whole({"data": {"shop": {"name": "Tea"}}, "extensions": extensions})
        elif path == "/login":
            self.whole({}, 200 if posted["password"] == "right" else 401)
        else:
            self.whole({"error": "not found"}, 404)


def wait_until_seen(name, count):
    with CHANGED:
        return CHANGED.wait_for(lambda: SEEN[name] >= count, TIMEOUT)


class Server(ThreadingHTTPServer):
    daemon_threads = True


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
