"""axe-core finds nothing on the page: on a desk, a phone and at 200 % zoom, light and dark, with sections and dialogs open.

    python3 tests/dashboard/axe.py --axe FOLDER/axe-core/axe.min.js
"""

import argparse
import json
import sys
import time
import unittest
from pathlib import Path

import mock
from browser import Browser

AXE = Path("axe.min.js")
SIZES = {"desk": (1440, 900, 1, False), "zoom": (640, 450, 2, False), "phone": (390, 844, 2, True)}


class Axe(unittest.TestCase):
    def setUp(self):
        self.server = mock.serve()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        with self.server.gateway.lock:
            self.server.gateway.keys["per-client"][1].banned_until = time.time() + 3000
        self.browser = Browser()
        self.addCleanup(self.browser.__exit__)

    def opened(self, size, scheme, query=""):
        browser = self.browser
        browser.scheme(scheme)
        browser.size(*SIZES[size])
        browser.open(f"http://127.0.0.1:{self.server.server_port}/?{size}-{scheme}{query}")
        browser.until("past.time.length > 250 && document.querySelectorAll('#keys tbody tr').length > 3 && !!document.querySelector('#usage tbody tr')", "the page")
        browser.run(AXE.read_text() + "; true")

    def finds_nothing(self, where):
        found = self.browser.run("axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations.map(({ id, nodes }) => [id, nodes.map(({ html, any, failureSummary }) => [html.slice(0, 160), failureSummary.slice(0, 300)])]))")
        self.assertEqual(found, [], f"{where}\n{json.dumps(found, indent=1)}")

    def test_the_page_has_no_violations(self):
        for size in SIZES:
            for scheme in ["light", "dark"]:
                with self.subTest(size=size, scheme=scheme):
                    self.opened(size, scheme)
                    self.finds_nothing("closed")
                    if size != "desk":
                        self.browser.run("document.querySelectorAll('.closed .folder').forEach(press => press.click())")
                        self.browser.until("document.querySelectorAll('.uplot canvas').length > 3", "the curves")
                        self.finds_nothing("all sections open")

    def test_the_dialogs_have_no_violations(self):
        for scheme in ["light", "dark"]:
            with self.subTest(scheme=scheme):
                self.opened("desk", scheme)
                for press, dialog in [("#more summary", None), ("#remedies button", "look"), ("#explain-open", "explain"), ("#reload", "sure")]:
                    self.browser.click(press)
                    if dialog:
                        self.browser.until(f"document.querySelector('#{dialog}').open", dialog)
                    self.finds_nothing(dialog or "the menu")
                    self.browser.press("Escape", 27)

    def test_the_question_for_the_token_has_no_violations(self):
        self.server.RequestHandlerClass.token = "secret"
        for scheme in ["light", "dark"]:
            self.browser.scheme(scheme)
            self.browser.open(f"http://127.0.0.1:{self.server.server_port}/?{scheme}")
            self.browser.until("document.querySelector('#ask').open", "the question")
            self.browser.run(AXE.read_text() + "; true")
            self.finds_nothing("the question")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--axe", type=Path, required=True)
    given, rest = arguments.parse_known_args()
    AXE = given.axe
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
