"""The backend of docs/recipes: `server.py PORT [NAME]`.

/login answers 200 to `password=correct` and else 401, /own-keys to one of two API keys and else 401, /v1/chat/completions tells the tokens that it used, an upgrade to
WebSocket gets an echo, /catalogue is long, and /slow takes a fifth of a second. All other paths tell what came.
"""

import base64
import hashlib
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = sys.argv[2] if len(sys.argv) > 2 else "backend"
TOLD = ["x-forwarded-for", "x-real-ip", "x-consumer", "x-consumer-tier"]
KEYS = ["acme-5d1c9b7e0a42", "globex-71f0e3d8c6b5"]
CATALOGUE = [{"id": number, "name": f"article {number}", "price": number * 7 % 100} for number in range(1000)]
WORDS = ["All ", "is ", "counted", "."]
USAGE = {"prompt_tokens": 300, "completion_tokens": 1200, "total_tokens": 1500}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="text/plain"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length", 0))).decode()

    def do_GET(self):
        if self.headers.get("upgrade", "").lower() == "websocket":
            return self.echo_messages()
        if self.path == "/own-keys":
            good = self.headers.get("x-api-key") in KEYS
            return self.answer(200 if good else 401, "welcome\n" if good else "wrong key\n")
        if self.path.startswith("/slow"):
            time.sleep(0.2)
        if self.path.endswith("/catalogue"):
            return self.answer(200, json.dumps(CATALOGUE), "application/json")
        told = [f"{name}: {self.headers[name]}\n" for name in TOLD if self.headers[name]]
        self.answer(200, f"{NAME}: {self.command} {self.path}\n" + "".join(told))

    def do_POST(self):
        body, path = self.body(), self.path.partition("?")[0]
        if path == "/login":
            good = "password=correct" in body
            self.answer(200 if good else 401, "welcome\n" if good else "wrong password\n")
        elif path == "/v1/chat/completions":
            self.complete(json.loads(body))
        else:
            self.do_GET()

    def complete(self, question):
        if not question.get("stream"):
            message = {"role": "assistant", "content": "".join(WORDS)}
            answer = {"choices": [{"message": message}], "usage": USAGE}
            return self.answer(200, json.dumps(answer), "application/json")
        events = [{"choices": [{"delta": {"content": word}}]} for word in WORDS]
        if question.get("stream_options", {}).get("include_usage"):
            events.append({"choices": [], "usage": USAGE})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in [*map(json.dumps, events), "[DONE]"]:
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def echo_messages(self):
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        for name, value in [("upgrade", "websocket"), ("connection", "upgrade"), ("sec-websocket-accept", accept)]:
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        # Short messages only: two bytes of head, four of mask.
        while len(head := self.rfile.read(2)) == 2 and head[0] & 15 != 8:
            mask, data = self.rfile.read(4), self.rfile.read(head[1] & 127)
            echo = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
            self.wfile.write(bytes([head[0], len(echo)]) + echo)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
