"""Runs the incident as a new operator would: the real gateway, three clients, one of them abusive, and a browser.

    python3 tests/dashboard/story.py --binary target/debug/tollgate [--pictures FOLDER]
"""

import argparse
import http.client
import json
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from browser import Browser

BINARY, PICTURES = Path("target/debug/tollgate"), None
ABUSER, SHOP, PHONE = "203.0.113.7", "198.51.100.20", "192.0.2.44"
FILE = """
[server]
listen = ["127.0.0.1:0"]
workers = 2
trusted_proxies = ["127.0.0.1"]     # the clients of this story send their addresses

[admin]
listen = "127.0.0.1:0"

[upstreams.shop]
servers = ["http://127.0.0.1:BACKEND", "http://localhost:BACKEND"]

[limits.per-client]
algorithm = "token-bucket"
key = "ip"
rate = "10/s"
burst = 50

[limits.stricter]
algorithm = "gcra"
key = "ip"
rate = "5/s"
burst = 5
mode = "shadow"

[[routes]]
name = "search"
path = "/search/*"
upstream = "shop"
limits = ["per-client", "stricter"]
"""


class Shop(BaseHTTPRequestHandler):
    """The backend."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "6")
        self.end_headers()
        self.wfile.write(b"shoes\n")

    def log_message(self, *_):
        pass


class Gateway:
    """The real gateway, on its own ports, in front of a backend."""

    def __init__(self, text=FILE, more={}):
        self.backend = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
        self.backend.daemon_threads = True
        threading.Thread(target=self.backend.serve_forever, daemon=True).start()
        self.folder = tempfile.TemporaryDirectory()
        file = Path(self.folder.name) / "gateway.toml"
        file.write_text(text.replace("BACKEND", str(self.backend.server_port)))
        for name, content in more.items():
            (file.parent / name).write_text(content)
        self.process = subprocess.Popen([BINARY, "-c", file], cwd=self.folder.name, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        lines = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in self.process.stderr], daemon=True).start()
        self.port = self.admin = None
        self.said = []
        while not (self.port and self.admin):
            line = lines.get(timeout=20)
            self.said.append(line)
            if found := re.search(r"(admin )?listening on (?:http://)?127\.0\.0\.1:(\d+)", line):
                if found[1]:
                    self.admin = int(found[2])
                else:
                    self.port = int(found[2])
        self.lines = lines

    def log(self):
        while not self.lines.empty():
            self.said.append(self.lines.get())
        return "".join(self.said)

    def ask(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=10)
        connection.request("GET", "/api/v1/" + path)
        answer = json.load(connection.getresponse())
        connection.close()
        return answer

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        self.backend.shutdown()
        self.backend.server_close()
        self.folder.cleanup()


class Client(threading.Thread):
    """Sends requests at a fixed rate, whatever the answers."""

    def __init__(self, port, address, rate):
        super().__init__(daemon=True)
        self.port, self.address, self.pause = port, address, 1 / rate
        self.passed = self.refused = 0
        self.last, self.going = None, True
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        due = time.monotonic()
        while self.going:
            connection.request("GET", "/search/shoes?q=red", headers={"x-forwarded-for": self.address})
            answer = connection.getresponse()
            answer.read()
            self.last = answer
            if answer.status == 429:
                self.refused += 1
            else:
                self.passed += 1
            due = max(due + self.pause, time.monotonic() - 1)
            time.sleep(max(0, due - time.monotonic()))
        connection.close()

    def stop(self):
        self.going = False
        self.join()


class Story(unittest.TestCase):
    def seen(self, name):
        if PICTURES:
            time.sleep(1.5)
            self.browser.picture(PICTURES / f"{name}.png")

    def row(self, address):
        """The selector of the row that shows this address."""
        name = self.browser.until(f"[...document.querySelectorAll('#keys tbody tr')].find(row => row.cells[0].innerText.includes('{address}')).dataset.name", f"the row of {address}")
        return f"#keys tr[data-name='{name}']"

    def verdict_has(self, *words):
        text = "document.querySelector('#verdict').innerText"
        return self.browser.until(" && ".join(f"{text}.includes('{word}')" for word in words) + f" && {text}", f"the verdict with {words}")

    def test_an_engineer_is_woken(self):
        gateway = Gateway()
        self.addCleanup(gateway.stop)
        clients = [Client(gateway.port, *client) for client in [(ABUSER, 60), (SHOP, 8), (PHONE, 3)]]
        for client in clients:
            self.addCleanup(client.stop)
        abuser, shop, phone = clients
        deadline = time.monotonic() + 20
        while not abuser.refused and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertTrue(abuser.refused, "the abuser is over its limit")

        # The page names the client within ten seconds.
        browser = self.browser = Browser()
        self.addCleanup(browser.__exit__)
        browser.open(f"http://127.0.0.1:{gateway.admin}/")
        began = time.monotonic()
        verdict = self.verdict_has(ABUSER, "refuses", "per-client")
        self.assertLess(time.monotonic() - began, 10)
        self.assertIn("10/s, burst 50", verdict)
        browser.until(f"[...document.querySelectorAll('#refusals tbody tr')].some(row => row.innerText.includes('{ABUSER}') && row.innerText.includes('over 10/s, burst 50'))", "why it is refused")
        browser.until("document.querySelector('#limits').innerText.includes('stricter') && document.querySelector('#concerns').innerText.includes('Shadow stricter would have refused')", "the shadow limit")
        browser.until("document.querySelectorAll('.uplot canvas').length >= 5", "the curves")
        self.assertNotIn("red", browser.text("#refusals"), "a query may hold secrets")
        self.seen("night-found")

        # The reason: the key, and the rest of its allowance.
        abuser_row = self.row(ABUSER)
        browser.click(abuser_row + " button:nth-of-type(1)")
        browser.until("document.querySelector('#look').open && document.querySelector('#look-policies').innerText.includes('10/s, burst 50')", "the key")
        self.assertIn(f"{ABUSER} under per-client", browser.text("#look-title"))
        self.seen("night-key")

        # A ban ends its curve: the client is refused for an hour, with a `retry-after` that is true.
        browser.run("document.querySelector('#ban-form select').value = '1h'")
        browser.click("#ban-form button[type=submit]")
        browser.answer_sure("Ban this key?")
        browser.until("document.querySelector('#look-verdict').innerText.includes('banned, until')", "the ban")
        browser.click("#look [data-close]:last-child")
        browser.until(f"document.querySelector({abuser_row!r}).innerText.includes('banned until')", "the ban in the listing")
        browser.until("document.querySelector('#concerns').innerText.includes('Banned: 1 key')", "the ban among what is of concern")
        browser.until(f"document.querySelector('#bans').innerText.includes('{ABUSER}') && document.querySelector('#bans').innerText.includes('in 59 min')", "the ban in the list of bans, with its end")
        browser.until("(row => row.includes('/search/*') && row.includes('stricter'))(document.querySelector('#routes tbody tr').innerText)", "the route with its limits")
        passed = abuser.passed
        deadline = time.monotonic() + 20
        while int(abuser.last.headers["retry-after"] or 0) < 3000 and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertGreater(int(abuser.last.headers["retry-after"]), 3000)
        after = abuser.passed
        browser.until(f"[...document.querySelectorAll('#refusals tbody tr')].some(row => row.innerText.includes('{ABUSER}') && row.innerText.includes('banned until'))", "the ban as a reason")
        time.sleep(2)
        self.assertEqual(abuser.passed, after, "nothing of the abuser's passes")
        self.assertLess(after - passed, 60)
        # Only the requests of the two others pass now.
        browser.until("(list => list.length && list[list.length - 1] <= 14)(past.all.admitted)", "the curve of what passes, without the abuser")
        browser.until("(list => list.length && list[list.length - 1] >= 30)(past.limits['per-client'].refused)", "the curve of what is refused")
        self.seen("night-banned")
        if PICTURES:
            browser.scheme("dark")
            self.seen("night-dark")
            browser.size(390, 844, 1, True)
            self.seen("night-phone")
            browser.scheme("light")
            browser.size(1440, 900)

        # A reset of another key restores its full allowance.
        browser.click(self.row(SHOP) + " button:nth-of-type(2)")
        browser.answer_sure("Reset this counter?")
        browser.until(f"document.querySelector('#said').innerText.includes('Reset: {SHOP}')", "the reset")
        self.assertGreaterEqual(gateway.ask(f"limits/per-client/keys/{SHOP}")["policies"][0]["remaining"], 35)
        self.assertEqual((shop.refused, phone.refused), (0, 0), "good traffic was never touched")

        # In the morning the ban is lifted.
        browser.until(f"document.querySelector({abuser_row!r} + ' .ban').innerText === 'Lift…'", "Lift in place of Ban")
        browser.click(abuser_row + " .ban")
        browser.answer_sure("Lift this ban?")
        browser.until(f"document.querySelector({abuser_row!r} + ' .ban').innerText === 'Ban…'", "the end of the ban")
        deadline = time.monotonic() + 20
        while abuser.passed == after and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertGreater(abuser.passed, after)

        # The log has the operator and the change, but not the value of the key.
        log = gateway.log()
        for deed in ["bans for 3600s", "ends the ban of", "resets"]:
            self.assertRegex(log, rf"127\.0\.0\.1:\d+ {deed} id:[0-9a-f]{{32}} of limit `per-client`")
        self.assertNotIn(ABUSER, log)
        self.assertEqual(browser.complaints, [], "nothing is wrong with the page")
        own = f"http://127.0.0.1:{gateway.admin}/"
        self.assertEqual([url for url in browser.requests if not url.startswith((own, "about:"))], [], "no foreign requests")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--binary", type=Path, default=BINARY)
    arguments.add_argument("--pictures", type=Path)
    given, rest = arguments.parse_known_args()
    BINARY, PICTURES = given.binary.resolve(), given.pictures
    if PICTURES:
        PICTURES.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
