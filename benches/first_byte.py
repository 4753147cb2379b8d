#!/usr/bin/env python3
"""Whether a cost that is settled after the response delays a stream: the time to its first byte and between its events.

    benches/first_byte.py [TOLLGATE]      (default: target/release/tollgate)

A backend sends streams of events in the style of OpenAI, each event after a pause. Streams through a route that settles
nothing and through routes that settle by the last event, plain and coded by gzip, are asked for in turn. Of each event
the client notes how long after its sending it has arrived. The ratios are those of the medians; 1.00 means no delay.
The noise is the ratio of two halves of the streams that settle nothing.
"""

import http.client
import json
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler
from pathlib import Path

ROUNDS = 300
EVENTS = 12
PAUSE = 0.002
TOKENS = '{"choices":[],"usage":{"total_tokens":43}}'
CHUNK = '{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"Hello world"}}],"usage":null,"sent":%.9f}'


class Backend(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        coder = zlib.compressobj(wbits=31) if self.path.endswith("/gzip") else None
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        if coder:
            self.send_header("content-encoding", "gzip")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(EVENTS):
            time.sleep(PAUSE)
            text = TOKENS if number == EVENTS - 1 else CHUNK % time.monotonic()
            data = f"data: {text}\n\n".encode()
            if coder:
                data = coder.compress(data) + coder.flush(zlib.Z_SYNC_FLUSH)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True


def stream(connection, path):
    """The delays of the first byte and of the other events."""
    connection.request("GET", path)
    answer = connection.getresponse()
    decoder = zlib.decompressobj(wbits=31) if path.endswith("/gzip") else None
    delays = []
    while part := answer.read1(65536):
        now = time.monotonic()
        text = (decoder.decompress(part) if decoder else part).decode()
        for event in text.split("\n\n")[:-1]:
            sent = json.loads(event.removeprefix("data: ")).get("sent")
            if sent is not None:
                delays.append(now - sent)
    assert len(delays) == EVENTS - 1, delays
    return delays[0], delays[1:]


def configuration(port):
    cost = 'cost = { reserve = 50, settle = ["json:/usage/total_tokens", "sse:/usage/total_tokens"] }'
    limit = 'algorithm = "token-bucket"\nkey = "ip"\nrate = "1000000/s"\nburst = 1000000'
    return f"""
[server]
listen = ["127.0.0.1:0"]
[log]
access = "off"
[upstreams]
api = "http://127.0.0.1:{port}"
[limits.tokens]
{limit}
[[routes]]
path = "/plain/*"
upstream = "api"
limits = ["tokens"]
[[routes]]
path = "/settle/*"
upstream = "api"
limits = ["tokens"]
{cost}
"""


def gateway(binary, text):
    folder = tempfile.TemporaryDirectory()
    file = Path(folder.name) / "gateway.toml"
    file.write_text(text)
    process = subprocess.Popen([binary, "-c", file], stderr=subprocess.PIPE, text=True, env={"NO_COLOR": "1"})
    for line in process.stderr:
        if "listening on " in line:
            port = int(line.rsplit(":", 1)[1])
            break
    else:
        raise SystemExit(f"{binary} does not start")
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process, port, folder


def main(binary="target/release/tollgate"):
    server = Server(("127.0.0.1", 0), Backend)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    process, port, folder = gateway(binary, configuration(server.server_address[1]))
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        print(f"{'':6} {'':12} {'plain':>9} {'settle':>9} {'ratio':>6} {'noise':>6}")
        for coding in ["none", "gzip"]:
            first, later = {}, {}
            names = ["plain", "settle", "again"]
            for round_number in range(ROUNDS):
                for name in names[round_number % 3 :] + names[: round_number % 3]:
                    path = f"/{'settle' if name == 'settle' else 'plain'}/{coding}"
                    begun, others = stream(connection, path)
                    first.setdefault(name, []).append(begun)
                    later.setdefault(name, []).extend(others)
            for what, delays in [("first byte", first), ("events", later)]:
                plain, settle, again = (statistics.median(delays[name]) * 1e6 for name in names)
                times = f"{plain:6.0f} µs {settle:6.0f} µs"
                print(f"{coding:6} {what:12} {times} {settle / plain:6.2f} {again / plain:6.2f}", flush=True)
    finally:
        process.terminate()
        process.wait()
        folder.cleanup()


main(*sys.argv[1:])
