"""A backend with event streams: `events.py PORT NAME`. /events?count=N ends after N events, /events never."""

import http.server
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, text):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text.encode()))

    def do_GET(self):
        count = self.path.partition("=")[2]
        first = int(self.headers.get("last-event-id", 0)) + 1
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(first, first + int(count or 1)):
            self.send(f"id: {number}\ndata: event {number} from {sys.argv[2]}\n\n")
        while not count:
            time.sleep(0.1)
            self.send(": a comment, so that the stream is not silent\n\n")
        self.wfile.write(b"0\r\n\r\n")


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
