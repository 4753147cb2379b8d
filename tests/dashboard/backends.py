"""Runs the failure of a backend as an operator sees it: the real gateway, three servers, a client, and a browser.

    python3 tests/dashboard/backends.py --binary target/debug/tollgate [--pictures FOLDER]
"""

import argparse
import sys
import threading
import time
import unittest
from http.server import ThreadingHTTPServer
from pathlib import Path

import story
from browser import Browser

PICTURES = None
FILE = """
[server]
listen = ["127.0.0.1:0"]
workers = 2

[admin]
listen = "127.0.0.1:0"

[upstreams.shop]
servers    = [SERVERS]
eject      = { failures = 3, for = "2s", statuses = ["5xx"] }
retry      = { attempts = 3, on = ["502", "503", "504", "timeout"] }
breaker    = { failures = 0.5, requests = 50, for = "3s" }
slow_start = "4s"

[[routes]]
name = "shop"
path = "/*"
upstream = "shop"
"""


class Server:
    """A server of the shop. Its status is set by the test."""

    def __init__(self):
        server = self

        class Handler(story.Shop):
            def do_GET(self):
                if server.status == 200:
                    return super().do_GET()
                self.send_response(server.status)
                self.send_header("content-length", "0")
                self.end_headers()

        self.status = 200
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.name = f"127.0.0.1:{self.http.server_port}"

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


class Story(unittest.TestCase):
    def seen(self, name):
        if PICTURES:
            time.sleep(1.5)
            self.browser.picture(PICTURES / f"{name}.png")

    def row(self, server):
        return f"[...document.querySelectorAll('#backends tr.server')].find(row => row.cells[0].innerText.includes('{server.name}'))"

    def state_has(self, server, words):
        self.browser.until(f"{self.row(server)}?.cells[1].innerText.includes('{words}')", f"{server.name}: {words}")

    def test_a_backend_fails_and_returns(self):
        servers = [Server() for _ in range(3)]
        for server in servers:
            self.addCleanup(server.stop)
        urls = ", ".join(f'"http://{server.name}"' for server in servers)
        gateway = story.Gateway(FILE.replace("SERVERS", urls))
        self.addCleanup(gateway.stop)
        client = story.Client(gateway.port, story.SHOP, 60)
        self.addCleanup(client.stop)
        self.browser = browser = Browser(width=1440, height=1500)
        self.addCleanup(browser.__exit__)
        browser.open(f"http://127.0.0.1:{gateway.admin}/")
        for server in servers:
            self.state_has(server, "up")

        # One server fails: it is ejected, and the client notices nothing.
        ill = servers[0]
        ill.status = 503
        self.state_has(ill, "ejected (it answered 503)")
        self.assertEqual(client.last.status, 200)
        browser.until(f"+{self.row(ill)}.cells[6].innerText > 0", "its retries")
        self.seen("backend-one-fails")

        # The operator takes it out, mends it, and takes it back.
        browser.run(f"{self.row(ill)}.querySelector('button').click()")
        browser.answer_sure("Drain this server?")
        self.state_has(ill, "drained")
        ill.status = 200
        browser.run(f"{self.row(ill)}.querySelector('button').click()")
        browser.until(f"{self.row(ill)}.cells[1].innerText === 'up'", "it is back")

        # All servers fail: the breaker opens, and the sentence says so first.
        for server in servers:
            server.status = 500
        browser.until("document.querySelector('#verdict').innerText.startsWith('Backend shop is down, its breaker is open: ')", "the sentence")
        deadline = time.monotonic() + 20
        while client.last.status != 503 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(client.last.status, 503)
        self.assertGreaterEqual(int(client.last.headers["retry-after"]), 1)
        self.seen("backend-breaker-open")

        # They return: one trial closes the breaker.
        for server in servers:
            server.status = 200
        for server in servers:
            browser.until(f"{self.row(server)}.cells[1].innerText === 'up'", "it is back")
        deadline = time.monotonic() + 20
        while client.last.status != 200 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(client.last.status, 200)
        log = gateway.log()
        for line in ["is down and is ejected: 3 failures in a row, it answered 503", "is drained by", "breaker"]:
            self.assertIn(line, log)
        self.assertEqual(browser.complaints, [], "nothing is wrong with the page")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--binary", type=Path, default=story.BINARY)
    arguments.add_argument("--pictures", type=Path)
    given, rest = arguments.parse_known_args()
    story.BINARY, PICTURES = given.binary.resolve(), given.pictures
    if PICTURES:
        PICTURES.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
