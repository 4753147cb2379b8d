"""Plays the night story on the dashboard's page before the mock, in headless Chromium, with real clicks and keys.

    python3 tests/dashboard/page.py [--pictures FOLDER]
"""

import argparse
import sys
import time
import unittest
from pathlib import Path

import mock
from browser import Browser

PICTURES = None


class Page(unittest.TestCase):
    def setUp(self):
        self.server = mock.serve()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()

    def opened(self, **size):
        browser = Browser(**size)
        self.addCleanup(browser.__exit__)
        browser.open(self.url)
        return browser

    def asked(self, start):
        return [line for line in self.server.asked if line.startswith(start)]

    def seen(self, browser, name):
        if PICTURES:
            browser.picture(PICTURES / f"{name}.png")

    def test_the_night_story(self):
        browser = self.opened()
        began = time.monotonic()
        verdict = browser.until("document.querySelector('#verdict').innerText.includes('203.0.113.7') && document.querySelector('#verdict').innerText", "who is refused")
        self.assertLess(time.monotonic() - began, 10)
        self.assertIn("per-client refuses", verdict)
        self.assertIn("over 10/s, burst 50", verdict)
        self.assertTrue(browser.run("document.querySelectorAll('.uplot canvas').length") >= 5, "charts are drawn")
        time.sleep(1.5)
        self.seen(browser, "dashboard-light")
        browser.scheme("dark")
        time.sleep(1.5)
        self.seen(browser, "dashboard-dark")

        # See why: the key, and what is left of its allowance.
        row = "#keys tr[data-name$='id:00000000000000000000000000000001']"
        browser.click(row + " button:nth-of-type(1)")
        browser.until("document.querySelector('#look').open", "the key")
        self.assertIn("203.0.113.7 under per-client", browser.text("#look-title"))
        self.assertIn("10/s, burst 50", browser.text("#look-policies"))
        self.seen(browser, "dashboard-key")
        # Ban it, for an hour.
        browser.run("document.querySelector('#ban-form select').value = '1h'")
        browser.click("#ban-form button[type=submit]")
        browser.until("document.querySelector('#look-verdict').innerText.includes('banned, until')", "the ban")
        self.assertTrue(self.server.gateway.keys["per-client"][0].banned(time.time() + 3500))
        browser.click("#look [data-close]:last-child")
        browser.until(f"document.querySelector({row!r}).innerText.includes('banned until')", "the ban in the listing")
        browser.until("document.querySelector('#limits').innerText.includes('1 banned')", "the ban at its limit")

        # Reset an innocent one: one press.
        browser.click("#keys tr[data-name$='id:00000000000000000000000000000002'] button:nth-of-type(2)")
        browser.until("document.querySelector('#said').innerText.includes('Reset: 198.51.100.20')", "the reset")
        self.assertEqual(len(self.asked("DELETE /api/v1/limits/per-client/keys/id%3A00000000000000000000000000000002")), 1)
        # And end the ban.
        browser.click(row + " button:nth-of-type(3)")
        browser.until("document.activeElement.name === 'for'", "the ban's field has the focus")
        browser.click("#unban")
        browser.until("document.querySelector('#look-verdict').innerText && !document.querySelector('#look-verdict').innerText.includes('banned')", "the end of the ban")
        browser.click("#grant-form button")
        browser.until("document.querySelector('#said').innerText.includes('back to 203.0.113.7')", "the grant")
        self.assertEqual([url for url in browser.requests if not url.startswith(self.url) and not url.startswith("about:")], [], "no foreign requests")
        self.assertEqual(browser.complaints, [], "nothing is wrong, and the policy holds")

    def test_an_outage_is_the_headline(self):
        self.server.gateway.outage = "Backend `shop`: 97 % of answers are 5xx"
        browser = self.opened()
        verdict = browser.until("document.querySelector('#verdict').innerText.startsWith('Backend `shop`: 97 % of answers are 5xx. ') && document.querySelector('#verdict').innerText", "the outage")
        self.assertNotIn("No request is refused", verdict)
        self.assertIn("per-client refuses", verdict, "what limits refuse follows")
        self.assertNotIn("97 %", browser.text("#concerns"), "it is said once")
        self.assertTrue(browser.run("document.querySelector('#verdict').classList.contains('bad')"))
        told = browser.until("(row => row && row.title.includes('in the last minute') && row.innerText)([...document.querySelectorAll('#servers tbody tr')].find(row => row.cells[0].innerText === 'shop'))", "the upstream's row")
        self.assertIn("2 up", told)
        self.assertEqual(browser.run("[...document.querySelectorAll('#servers th.n')].map(cell => cell.innerText).join(' ')").split(" ")[:4], ["2xx/s", "3xx/s", "4xx/s", "5xx/s"])

    def test_what_clients_send_is_text(self):
        browser = self.opened()
        browser.until("document.querySelector('#refusals').innerText.includes('/search/')", "refusals")
        self.assertEqual(browser.run("document.querySelectorAll('#refusals b').length"), 0)

    def test_numbers_beside_the_curves_are_the_newest(self):
        browser = self.opened()
        browser.until("past.time.length > 250", "history")
        first = browser.run("past.time.length && past.time[past.time.length - 1]")
        browser.until(f"past.time[past.time.length - 1] >= {first} + 2", "two seconds more")
        told = "charts.requests.values[2].innerText === rate(last(past.all.refused)) && charts.latency.values[1].innerText === rate(last(past.all.p99_ms))"
        browser.until(told, "the newest numbers")
        browser.until(told + f" && past.time[past.time.length - 1] >= {first} + 4", "the newest numbers still")

    def test_with_the_keyboard_alone(self):
        browser = self.opened()
        browser.until("document.querySelectorAll('#keys tbody button').length > 3", "keys")
        reached = []
        for _ in range(60):
            browser.press("Tab", 9)
            reached.append(browser.run("(e => [e.id || e.ariaLabel || e.name, getComputedStyle(e).outlineStyle])(document.activeElement)"))
            if reached[-1][0] == "Look at 203.0.113.7":
                break
        self.assertEqual(reached[-1][0], "Look at 203.0.113.7")
        self.assertTrue(all(outline == "solid" for _, outline in reached), reached)
        time.sleep(2.2)
        self.assertEqual(browser.run("document.activeElement.ariaLabel"), "Look at 203.0.113.7", "new numbers leave the focus where it is")
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('#look').open", "the key")
        browser.press("Escape", 27)
        browser.until("!document.querySelector('#look').open", "the key is closed")

    def test_explain_reload_and_drain(self):
        browser = self.opened()
        browser.until("document.querySelector('#facts').innerText.includes('3f9c2a10')", "the configuration's version")
        browser.click("#explain-open")
        browser.run("document.querySelector('#explain-form [name=url]').value = '/search/shoes'; document.querySelector('#explain-form [name=ip]').value = '203.0.113.7'")
        browser.click("#explain-form button[type=submit]")
        browser.until("document.querySelector('#explanation').innerText.includes('Route search')", "the explanation")
        self.seen(browser, "dashboard-explain")
        browser.press("Escape", 27)
        browser.click("#reload")
        browser.until("document.querySelector('#said').innerText === 'Reloaded: 77ab01c2.'", "that it is reloaded")
        browser.until("document.querySelector('#facts').innerText.includes('77ab01c2')", "the new version")
        browser.click("#reload")
        browser.until("document.querySelector('#concerns').innerText.includes('did you mean')", "the fault of the second")
        browser.answer = False
        browser.click("#drain")
        self.assertIn("can not be called back", browser.questions[0])
        self.assertEqual(self.asked("POST /api/v1/drain"), [], "it asks first")
        browser.answer = True
        browser.click("#drain")
        browser.until("document.querySelector('#concerns').innerText.includes('Draining')", "draining")

    def test_silence_and_return(self):
        browser = self.opened()
        browser.until("document.querySelector('#limits').innerText.includes('per-client')", "limits")
        port = self.server.server_port
        self.server.shutdown()
        self.server.server_close()
        browser.until("!document.querySelector('#contact').hidden && document.querySelector('#contact').innerText.includes('does not answer')", "that nobody answers")
        self.seen(browser, "dashboard-silent")
        self.server = mock.serve(port)
        browser.until("document.querySelector('#contact').hidden", "the return, of another process")
        browser.until("past.time.length > 250", "its history")

    def test_token(self):
        self.server.RequestHandlerClass.token = "secret"
        browser = self.opened()
        browser.until("document.querySelector('#ask').open", "the question")
        browser.type("wrong")
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('#ask').open && document.querySelector('#ask-why').innerText.includes('did not take')", "the question again")
        browser.type("secret")
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('#limits').innerText.includes('per-client')", "limits")
        browser.open(self.url + "?again")
        browser.until("document.querySelector('#limits').innerText.includes('per-client')", "limits without asking again")

    def test_hidden_it_rests_and_a_click_stays_on_its_row(self):
        browser = self.opened()
        browser.until("past.time.length > 250", "history")
        self.assertEqual(browser.run("new Set([past.all, past.store, ...Object.values(past.routes), ...Object.values(past.limits)].flatMap(of => Object.values(of).map(list => list.length))).size"), 1)
        time.sleep(2.2)
        samples = self.asked("GET /api/v1/samples")
        self.assertTrue(len(samples) >= 2 and all("since=" in line for line in samples[1:]), samples)
        browser.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))")
        time.sleep(1.2)
        before = len(self.server.asked)
        time.sleep(2.5)
        self.assertEqual(len(self.server.asked), before)
        browser.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        browser.until("true", "")
        time.sleep(0.5)
        self.assertGreater(len(self.server.asked), before)

    def test_phone(self):
        browser = self.opened()
        browser.size(390, 844, 1, True)
        browser.open(self.url)
        browser.until("document.querySelector('#verdict').innerText.includes('203.0.113.7')", "who is refused")
        time.sleep(1.5)
        self.seen(browser, "dashboard-phone")
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 390, "nothing stands out to the right")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--pictures", type=Path)
    given, rest = arguments.parse_known_args()
    PICTURES = given.pictures
    if PICTURES:
        PICTURES.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
