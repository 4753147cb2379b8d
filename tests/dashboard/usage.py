"""The section of the dashboard with the usage of consumers, in headless Chromium, before the mock and the real gateway.

    python3 tests/dashboard/usage.py [--binary target/debug/tollgate] [Usage | RealUsage]
"""

import argparse
import csv
import http.client
import io
import shutil
import sys
import tempfile
import time
import unittest
from datetime import datetime
from pathlib import Path

import page
import story
from browser import Browser
from mock import usage_of_months

FILE = """
[server]
listen = ["127.0.0.1:0"]

[admin]
listen = "127.0.0.1:0"

[upstreams.shop]
servers = ["http://127.0.0.1:BACKEND"]

[auth.keys]
type = "api-key"
from = "header:x-key"
file = "consumers.csv"

[limits.monthly]
algorithm = "fixed-window"
key = "consumer"
rate = "10/month"
usage = true

[limits.hourly]
algorithm = "fixed-window"
key = "consumer"
rate = "1000/h"

[[routes]]
path = "/*"
upstream = "shop"
auth = "keys"
auth_optional = true
limits = ["monthly", "hourly"]
"""
ROWS = "[...document.querySelectorAll('#usage tbody tr')]"
TABLE = ROWS + ".map(row => [...row.cells].map(cell => cell.innerText.trim()))"


class Usage(unittest.TestCase):
    setUp, tearDown, opened, asked, comes = page.Page.setUp, page.Page.tearDown, page.Page.opened, page.Page.asked, page.Page.comes

    def shown(self):
        """The page in the time zone UTC, with the usage of this month."""
        browser = self.opened()
        browser.call("Emulation.setTimezoneOverride", timezoneId="UTC")
        browser.open(self.url)
        browser.until("document.querySelector('#usage').innerText.includes('anna')", "the consumers")
        return browser

    def windows(self):
        return self.server.gateway.usage["per-plan"]

    def change(self, **fields):
        """The report of this month has these."""
        with self.server.gateway.lock:
            self.windows()[0].update(fields)

    def choose(self, browser, name, value):
        browser.run(f"(select => {{ select.value = {value!r}; select.dispatchEvent(new Event('change', {{ bubbles: true }})); }})(document.querySelector('#usage-form [name={name}]'))")

    def test_consumers_stand_with_units_share_and_forecast(self):
        browser = self.shown()
        self.assertEqual(browser.run("[...document.querySelectorAll('#usage thead th')].map(cell => cell.innerText)"), ["Consumer", "Units", "Requests", "Share of budget", "Forecast"])
        begin, end = (moment(self.windows()[0]["window"][name]) for name in ["begin", "end"])
        exhausted = moment(self.windows()[0]["consumers"][1]["exhausted_at"])
        told = [[cell.replace("\n", " ") for cell in row] for row in browser.run(TABLE)]
        self.assertEqual(told, [
            ["anna", "130,000", "5,021", "130% of 100,000", "used up"],
            ["Müller, \"K\" tier pro", "81,250", "412", "81% of 100,000", f"used up on {date(exhausted)[:-5]}, 14:00"],
            ["carl", "9,120", "37", "0.9% of 1,000,000", "lasts"],
            ["other consumers without rows of their own", "420", "9", "–", "–"],
            ["no consumer requests without a consumer", "120", "3", "–", "–"],
        ])
        self.assertEqual(browser.text("#usage-total"), f"220,910 units, 5,482 requests from {date(begin)}, 00:00 to {date(end)}, 00:00, under 100000/month.")
        self.assertEqual(browser.text("#usage-gap"), "")
        # What is used, and what of it is over the budget.
        bars = browser.run(ROWS + ".map(row => row.querySelector('.bar')).map(bar => bar.getClientRects().length ? [...bar.children].map(part => Math.round(100 * part.getBoundingClientRect().width / bar.getBoundingClientRect().width)) : null)")
        self.assertEqual(bars, [[100, 23], [81, 0], [1, 0], None, None])
        percents = browser.run("[-0.2, 0, 0.0004, 0.09999, 0.996, 1, 1.001, 1.1, 25].map(budgetPercent).join(' ')")
        self.assertEqual(percents, "0% 0% 0% 10% 99% 100% 101% 110% 2,500%")
        self.assertEqual(browser.complaints, [])

    def test_a_window_is_chosen(self):
        browser = self.shown()
        texts = "[...document.querySelectorAll('#usage-form [name=window] option')].map(option => option.text)"
        begins = [date(moment(one["window"]["begin"])) + ", 00:00" for one in self.windows()]
        self.assertEqual(browser.run(texts), [f"current, from {begins[0]}", f"previous, from {begins[1]}", f"from {begins[2]}"])
        self.choose(browser, "window", self.windows()[1]["window"]["begin"])
        browser.until("document.querySelector('#usage').innerText.includes('50,000')", "the window before")
        self.assertEqual(browser.run(TABLE), [["anna", "50,000", "800", "50% of 100,000", "–"]])
        self.assertIn(f"from {begins[1]} to {begins[0]}", browser.text("#usage-total"))
        self.assertIn("Budgets are those of now.", browser.text("#usage-note"))
        self.assertNotIn("Recorded", browser.text("#usage-total"))
        # The oldest one, in which recording began.
        self.choose(browser, "window", self.windows()[2]["window"]["begin"])
        browser.until("document.querySelector('#usage').innerText.includes('bert')", "the oldest window")
        self.assertEqual(browser.run(TABLE), [["bert", "-5", "1", "0% of 100,000", "–"]])
        self.assertIn(f"Recorded since {date(moment(self.windows()[2]['since']))}, 00:00.", browser.text("#usage-total"))
        # New rounds keep what is chosen, until the gateway no longer keeps it.
        time.sleep(1.5)
        self.assertEqual(browser.run("document.querySelector('#usage-form [name=window]').selectedIndex"), 2)
        with self.server.gateway.lock:
            self.windows().pop()
        browser.run("usage.asked = -USAGE_PERIOD; document.querySelector('#usage-section').scrollIntoView()")
        browser.until("document.querySelector('#usage-form [name=window]').selectedIndex === 0 && document.querySelector('#usage').innerText.includes('carl')", "the current window")
        self.assertEqual(browser.run(texts), [f"current, from {begins[0]}", f"previous, from {begins[1]}"])

    def test_a_limit_is_chosen(self):
        with self.server.gateway.lock:
            report = self.windows()[0]
            self.server.gateway.usage["exports"] = [report | {"consumers": [report["consumers"][2] | {"consumer": "dora"}]}]
        browser = self.shown()
        self.assertEqual(browser.run("[...document.querySelectorAll('#usage-form [name=limit] option')].map(option => option.text)"), ["per-plan", "exports"])
        self.choose(browser, "window", self.windows()[1]["window"]["begin"])
        browser.until("document.querySelector('#usage').innerText.includes('50,000')", "the window before")
        self.choose(browser, "limit", "exports")
        browser.until(TABLE + ".map(row => row[0]).join() === 'dora'", "the consumers of the other limit")
        self.assertEqual(browser.run("document.querySelector('#usage-form [name=window]').value"), "current")

    def test_the_csv_is_downloaded_with_the_token(self):
        self.server.RequestHandlerClass.token = "secret"
        browser = self.opened()
        browser.until("document.querySelector('#ask').open", "the question for the token")
        browser.type("secret")
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('#usage').innerText.includes('anna')", "the consumers")
        folder = downloads(self, browser)
        for number in [0, 1]:
            begin, end = self.windows()[number]["window"].values()
            if number:
                self.choose(browser, "window", begin)
                browser.until("document.querySelector('#usage').innerText.includes('50,000')", "the window before")
            browser.click("#usage-form button")
            file = folder / f"usage-per-plan-{begin.replace(':', '_')}.csv"
            # A file is there before its bytes are.
            self.comes(lambda: file.exists() and file.stat().st_size, f"{file} of {list(folder.iterdir())}")
            rows = table(file)
            self.assertEqual(rows[:2], [["consumer", "units", "requests", "window_begin", "window_end"], ["anna", *[["130000", "5021"], ["50000", "800"]][number], begin, end]])
            self.assertEqual(len(rows), 1 + len(self.windows()[number]["consumers"]))
        self.assertTrue(self.asked("GET /api/v1/limits/per-plan/usage?") and all("secret" not in line for line in self.server.asked))
        # A fault is told.
        with self.server.gateway.lock:
            self.server.gateway.usage["per-plan"] = self.windows()[:1]
        browser.click("#usage-form button")
        browser.until("document.querySelector('#said').innerText.includes('window is current, previous')", "the fault")
        self.assertEqual([line for line in browser.complaints if "401" not in line and "400" not in line], [])

    def test_without_usage_nothing_is_shown(self):
        self.server.gateway.usage.clear()
        browser = self.opened()
        browser.until("document.querySelectorAll('#keys tbody tr').length > 3", "the keys")
        self.assertTrue(browser.run("['usage-section', 'usage-open'].every(id => !document.getElementById(id).getClientRects().length)"))
        self.assertEqual([line for line in self.server.asked if "/usage" in line], [], "nothing is asked")
        # A reload brings it, and takes it away.
        with self.server.gateway.lock:
            self.server.gateway.usage["exports"] = usage_of_months()
        browser.until("document.querySelector('#usage').innerText.includes('anna') && !document.querySelector('#usage-open').hidden", "the usage")
        with self.server.gateway.lock:
            self.server.gateway.usage.clear()
        browser.until("document.querySelector('#usage-section').hidden && document.querySelector('#usage-open').hidden", "its end")
        self.assertEqual(browser.complaints, [])

    def test_what_is_missing_is_told(self):
        begin = self.windows()[0]["window"]["begin"]
        self.change(incomplete_since=begin.replace("00:00:00", "09:30:00"), since=begin.replace("00:00:00", "08:00:00"))
        browser = self.shown()
        day = date(moment(begin))
        self.assertEqual(browser.text("#usage-gap"), f"Incomplete since {day}, 09:30: units may be missing.")
        self.assertTrue(browser.text("#usage-total").endswith(f" Recorded since {day}, 08:00."))
        self.change(consumers=[])
        browser.run("chooseUsage()")
        browser.until("document.querySelector('#usage-note').innerText.startsWith('No usage in this window.') && document.querySelector('#usage').clientHeight === 0", "that there is none")
        # The store is away: the rest of the page goes on.
        with self.server.gateway.lock:
            self.server.gateway.usage_fault = "the store is unreachable"
        browser.run("chooseUsage()")
        browser.until("document.querySelector('#usage-note').innerText=== 'The report is not current: the store is unreachable'", "the fault")
        self.assertTrue(browser.run("document.querySelector('#contact').hidden"))

    def test_a_name_is_text_in_its_cell(self):
        names = ["<img src=x onerror=alert(1)>", "n" * 256, "\u202eanimda", "\u05d0\u05d1\u05d2 1,000", "no consumer", "`code` &amp; \u2066a\nb"]
        self.change(consumers=[{"consumer": name, "other": False, "tier": None, "units": 10 - at, "requests": 1, "quota": 100, "share": (10 - at) / 100, "exhausted_at": None} for at, name in enumerate(names)] +
                              [{"consumer": None, "other": False, "tier": None, "units": 1, "requests": 1, "quota": None, "share": None, "exhausted_at": None}])
        browser = self.opened()
        browser.until(ROWS + ".length === 7", "the consumers")
        told = browser.run(ROWS + ".map(row => row.cells[0].firstElementChild).map(name => [name.tagName, name.textContent])")
        self.assertEqual(told, [["BDI", name] for name in [names[0], names[1], "\\u202eanimda", names[3], "no consumer", "`code` &amp; \\u2066a\\u000ab"]] + [["EM", "no consumer"]])
        self.assertEqual(browser.run("document.querySelectorAll('img, #usage code, #usage bdi *').length"), 0)
        for width in [1280, 700, 360]:
            browser.size(width, 900, 1, width < 700)
            time.sleep(0.5)
            self.assertEqual(browser.cut("#usage-section"), [], f"at {width}")
            self.assertEqual(browser.stands_out(), [], f"at {width}")
            inside = "(inner => inner.every(([text, cell]) => text.left >= cell.left - 1 && text.right <= cell.right + 1 && text.bottom <= cell.bottom + 1))"
            self.assertTrue(browser.run(inside + "([...document.querySelectorAll('#usage bdi')].map(name => [name.getBoundingClientRect(), name.closest('th').getBoundingClientRect()]))"), f"at {width}")
        self.assertEqual((browser.questions, browser.complaints), ([], []))

    def test_a_phone_shows_all_of_it(self):
        self.change(incomplete_since=self.windows()[0]["window"]["begin"])
        browser = self.shown()
        browser.size(360, 740, 1, True)
        browser.click("#usage-open")
        browser.until("document.activeElement.id === 'usage-section' && document.activeElement.getBoundingClientRect().top < 200", "the section")
        for scheme in ["light", "dark"]:
            browser.scheme(scheme)
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 360, "nothing stands out to the right")
            self.assertEqual(browser.stands_out(), [])
            self.assertEqual(browser.cut(), [])
            # The parts of the bar differ from their track.
            colors = browser.run("(bar => [bar, ...bar.children].map(part => getComputedStyle(part).backgroundColor))(document.querySelector('#usage .bar'))")
            self.assertEqual(len(set(colors)), 3, colors)
        row = "(row => [...row.cells].slice(1).map(cell => [cell.dataset.label, cell.getClientRects().length > 0 && getComputedStyle(cell, '::before').content.includes(cell.dataset.label)]))(document.querySelector('#usage tbody tr'))"
        self.assertEqual(browser.run(row), [["Units", True], ["Requests", True], ["Share of budget", True], ["Forecast", True]])

    def test_with_the_keyboard_alone(self):
        browser = self.shown()
        browser.run("document.querySelector('#usage-open').focus()")
        browser.press("Enter", 13, "\r")
        browser.until("document.activeElement.id === 'usage-section'", "the section")
        reached = []
        for _ in range(3):
            browser.press("Tab", 9)
            reached.append(browser.run("(e => [e.name || e.innerText, e.labels?.[0]?.innerText.split('\\n')[0].trim() ?? '', getComputedStyle(e).outlineStyle])(document.activeElement)"))
        self.assertEqual([name for name, _, _ in reached], ["limit", "window", "Download CSV"])
        self.assertTrue(all(outline == "solid" for _, _, outline in reached), reached)
        names = {one["name"]["value"] for one in browser.call("Accessibility.getFullAXTree")["nodes"] if one.get("role", {}).get("value") in ["combobox", "region"] and one.get("name")}
        self.assertLessEqual({"Limit", "Window", "Usage"}, names)
        # The choice by keys; a new report leaves the focus where it is.
        browser.run("document.querySelector('#usage-form [name=window]').focus()")
        browser.press("ArrowDown", 40)
        browser.until("document.querySelector('#usage').innerText.includes('50,000')", "the window before")
        self.assertEqual(browser.run("document.activeElement.name"), "window")

    def test_reports_are_asked_for_rarely(self):
        browser = self.shown()
        reports = lambda: len(self.asked("GET /api/v1/limits/per-plan/usage"))
        before, samples = reports(), len(self.asked("GET /api/v1/samples"))
        self.comes(lambda: len(self.asked("GET /api/v1/samples")) >= samples + 3, "rounds")
        self.assertEqual(reports(), before, "not each round")
        # In view, after the period, and not while it is out of view.
        browser.run("scrollTo(0, 0); usage.asked = -USAGE_PERIOD")
        samples = len(self.asked("GET /api/v1/samples"))
        self.comes(lambda: len(self.asked("GET /api/v1/samples")) >= samples + 2, "rounds")
        self.assertEqual(reports(), before, "it is out of view")
        browser.run("document.querySelector('#usage-section').scrollIntoView()")
        self.comes(lambda: reports() == before + 1, "a new report")


class RealUsage(unittest.TestCase):
    comes = page.Page.comes

    def test_the_gateway_tells_what_the_page_shows(self):
        gateway = story.Gateway(FILE, {"consumers.csv": "key,name,tier\nsecret-key-anna,anna,\n"})
        self.addCleanup(gateway.stop)
        for key, requests in [({"x-key": "secret-key-anna"}, 8), ({}, 2)]:
            for _ in range(requests):
                connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
                connection.request("GET", "/shoes", headers=key)
                self.assertEqual(connection.getresponse().status, 200)
                connection.close()
        browser = Browser()
        self.addCleanup(browser.__exit__)
        browser.open(f"http://127.0.0.1:{gateway.admin}/")
        browser.until("document.querySelector('#usage').innerText.includes('anna')", "the consumer")
        self.assertEqual(browser.run("[...document.querySelectorAll('#usage-form [name=limit] option')].map(option => option.text)"), ["monthly"])
        anna, anonymous = browser.run(TABLE)
        self.assertEqual(anna[:4], ["anna", "8", "8", "80% of 10"])
        self.assertRegex(anna[4], r"^used up on \d+ [A-Z][a-z]+, \d\d:\d\d$|^lasts$")
        self.assertEqual(anonymous, ["no consumer\nrequests without a consumer", "2", "2", "–", "–"])
        self.assertRegex(browser.text("#usage-total"), r"^10 units, 10 requests from .* under 10/month\. Recorded since ")
        folder = downloads(self, browser)
        browser.click("#usage-form button")
        # A file is there before its bytes are.
        self.comes(lambda: any(file.stat().st_size for file in folder.glob("usage-monthly-*.csv")), "the file")
        [file] = folder.glob("usage-monthly-*.csv")
        self.assertEqual([row[:3] for row in table(file)], [["consumer", "units", "requests"], ["anna", "8", "8"], ["", "2", "2"]])
        self.assertEqual(browser.complaints, [])


def downloads(test, browser):
    """The folder into which the browser downloads."""
    folder = Path(tempfile.mkdtemp(prefix="download-"))
    test.addCleanup(shutil.rmtree, folder, True)
    browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), browserContextId=browser.context)
    return folder


def table(file):
    return list(csv.reader(io.StringIO(file.read_bytes().decode())))


def moment(text):
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")


def date(moment):
    """As the page writes it: English of the United Kingdom."""
    return f"{moment.day} {moment:%b %Y}".replace("Sep ", "Sept ")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--binary", type=Path, default=story.BINARY)
    given, rest = arguments.parse_known_args()
    story.BINARY = given.binary.resolve()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
