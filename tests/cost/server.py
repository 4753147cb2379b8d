"""A server that tells the cost of a request in its response, as the APIs of docs/cost.md do. It prints its port.

Responses depend on requests only, so that two equal requests have equal responses, byte for byte.

Headers of requests that no API knows:
    x-coding   the content coding (gzip, deflate, br), if the client accepts it
    x-order    after each event the server waits for `POST /seen/NAME`, with this name
    x-older    message_delta has output tokens only, as in older versions of the API
    x-late     the last chunk comes once the server has got `POST /seen/NAME`, with this name
"""

import collections
import json
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import brotli

TIMEOUT = 20
WORDS = ["All ", "is ", "counted", "."]
CREATED = 1700000000
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


def tokens(messages):
    """The text of the last message is what the request uses: `INPUT OUTPUT`."""
    text = messages[-1]["content"]
    return [int(number) for number in text.split()]


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
        body = json.dumps(body, indent=1).encode() if kind == "application/json" else body
        coding = self.coding()
        if coding:
            coder = CODERS[coding]()
            body = coder.part(body) + coder.end()
        self.head(status, kind, len(body), coding)
        self.wfile.write(body)

    def chunk(self, data):
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    def events(self, events):
        coding, name = self.coding(), self.headers.get("x-order")
        coder = CODERS[coding]() if coding else Identity()
        self.head(200, "text/event-stream; charset=utf-8", None, coding)
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
        path = self.path.removeprefix("/plain")
        if path.startswith("/seen/"):
            with CHANGED:
                SEEN[path.removeprefix("/seen/")] += 1
                CHANGED.notify_all()
            return self.whole({})
        posted = json.loads(body)
        if path == "/v1/chat/completions":
            completion(self, posted)
        elif path == "/v1/messages":
            message(self, posted)
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


def completion(handler, posted):
    """POST /v1/chat/completions, as OpenAI answers it."""
    before, after = tokens(posted["messages"])
    usage = {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after}
    base = {"id": "chatcmpl-1", "created": CREATED, "model": posted["model"]}
    if not posted.get("stream"):
        said = {"role": "assistant", "content": "".join(WORDS), "refusal": None}
        choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": "stop"}
        return handler.whole({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
    told = (posted.get("stream_options") or {}).get("include_usage")
    base["object"] = "chat.completion.chunk"

    def event(delta, reason=None):
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        return f"data: {json.dumps({**base, 'choices': choices, **({'usage': None} if told else {})})}\n\n"

    events = [event({"role": "assistant", "content": ""}), *(event({"content": word}) for word in WORDS)]
    events.append(event({}, "stop"))
    if told:
        events.append(f"data: {json.dumps({**base, 'choices': [], 'usage': usage})}\n\n")
    handler.events([*events, "data: [DONE]\n\n"])


def message(handler, posted):
    """POST /v1/messages, as Anthropic answers it."""
    before, after = tokens(posted["messages"])
    base = {"id": "msg_1", "type": "message", "role": "assistant", "model": posted["model"]}
    if not posted.get("stream"):
        content = [{"type": "text", "text": "".join(WORDS)}]
        usage = {"input_tokens": before, "output_tokens": after}
        return handler.whole(
            {**base, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        )

    def event(kind, **fields):
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

    begun = {**base, "content": [], "stop_reason": None, "stop_sequence": None}
    begun["usage"] = {"input_tokens": before, "output_tokens": 1}
    usage = {"output_tokens": after}
    if not handler.headers.get("x-older"):
        usage = {"input_tokens": before, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, **usage}
    events = [
        event("message_start", message=begun),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("ping"),
        *(event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage),
        event("message_stop"),
    ]
    handler.events(events)


class Server(ThreadingHTTPServer):
    daemon_threads = True


server = Server(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
