"""The page of `tollgate replay --report` in headless Chromium, opened as a file, with real clicks and keys.

    python3 tests/dashboard/report.py [--page FILE] [--sections NAMES] [--screenshot FILE]

`--page` is a page that the program made from report.json. Without it, the page is joined here from the files of src/replay/report. With `--sections`
(names with commas) it may be any page of the program, for `test_the_page_as_it_is`.
"""

import argparse
import base64
import copy
import hashlib
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path

import report_data
from browser import Browser

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parent.parent / "src/replay/report"
FIXTURE = json.loads((FOLDER / "report.json").read_text())
HOSTILE = report_data.HOSTILE
DATA = re.compile(r'(<script id="data" type="application/json">)(.*?)(</script>)', re.DOTALL)
PAGE = None
SECTIONS = "against,timeline,calendar,limits,routes,peaks,keys,clients,decisions,problems,notes"


def escaped(data):
    text = json.dumps(data, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def joined():
    """The page of html.rs, made from the same files."""
    style, charts, script = ((SOURCES / name).read_text() for name in ["page.css", "charts.js", "page.js"])
    script = charts + "\n" + script
    digest = lambda text: "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    answer = FIXTURE["answer"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    values = {"title": f"tollgate {FIXTURE['kind']}", "style": style, "style-hash": digest(style), "script": script, "script-hash": digest(script), "answer": answer, "data": escaped(FIXTURE)}
    return re.sub(r"\{\{([a-z-]+)\}\}", lambda found: values[found[1]], (SOURCES / "page.html").read_text())


def page(data=None):
    """The page of the fixture, or of other data."""
    made = PAGE.read_text() if PAGE else joined()
    return made if data is None else DATA.sub(lambda found: found[1] + escaped(data) + found[3], made)


class Report(unittest.TestCase):
    def opened(self, data=None, prepare=None, wait="document.querySelector('header select')", **size):
        folder = tempfile.TemporaryDirectory(prefix="report-")
        self.addCleanup(folder.cleanup)
        file = Path(folder.name) / "out.html"
        file.write_text(page(data))
        browser = Browser(**size)
        self.addCleanup(browser.__exit__)
        self.addCleanup(lambda: self.assert_quiet(browser, file))
        if prepare:
            prepare(browser)
        browser.open(file.as_uri())
        browser.until(f"location.protocol === 'file:' && !!{wait}", "the page")
        # A chart is drawn once the browser has told its width, which may be after the page is loaded.
        browser.until("[...document.querySelectorAll('.plot > svg')].every(e => e.hasAttribute('aria-label') || !e.parentElement.clientWidth)", "the charts")
        return browser

    def assert_quiet(self, browser, file):
        self.assertEqual(browser.complaints, [], "nothing is wrong, and the policy holds")
        self.assertEqual(browser.questions, [], "no script of the data runs")
        foreign = [url for url in browser.requests if url not in (file.as_uri(), "about:blank") and not url.startswith("data:")]
        self.assertEqual(foreign, [], "no requests")

    def column(self, browser, table, index):
        return browser.run(f"[...document.querySelectorAll('{table} tbody tr')].map(row => row.cells[{index}].innerText)")

    def sections(self, browser):
        return browser.run("[...document.querySelectorAll('main > section')].map(e => e.id)")

    def test_the_answer_comes_first(self):
        browser = self.opened()
        self.assertEqual(browser.text("#answer"), FIXTURE["answer"])
        self.assertEqual(browser.run("document.querySelector('main').firstElementChild.id"), "answer")
        self.assertIn(f"{FIXTURE['report']['refused']:,}", browser.text("#numbers"))
        self.assertIn("2026-11-22 00:00:00 to 2026-11-22 23:59:59 UTC", browser.text("#facts"))
        self.assertEqual(self.sections(browser), ["against", "timeline", "calendar", "limits", "routes", "peaks", "keys", "clients", "decisions", "problems", "notes"])
        self.assertIn("newly refused", browser.text("#against"))
        self.assertIn("shadow", browser.text("#limits"))
        self.assertIn("412.5 ms", browser.text("#limits"))
        self.assertIn("The log has no host: every line", browser.text("#notes"))

    def test_the_page_as_it_is(self):
        browser = self.opened()
        self.assertEqual(",".join(self.sections(browser)), SECTIONS)
        self.assertNotEqual(browser.text("#answer"), "")
        self.assertNotRegex(browser.text("main"), r"\b(NaN|undefined|null|Infinity|object Object)\b")
        self.assertEqual(browser.run("document.querySelectorAll('main img, main iframe, main script').length"), 0)
        self.assertGreater(browser.run("document.querySelectorAll('svg path, svg rect').length"), 0)

    def test_text_of_clients_stays_text(self):
        browser = self.opened()
        browser.click("#keys .more")
        self.assertIn(HOSTILE, self.column(browser, "#keys", 0))
        self.assertIn(HOSTILE, browser.text("#clients"))
        self.assertIn(HOSTILE, browser.text("#problems"))
        self.assertIn(HOSTILE, browser.text("#decisions"))
        self.assertIn("<b>a & b</b>", browser.text("#routes"))
        self.assertIn("everyone", self.column(browser, "#keys", 0), "the only key of a limit for all")
        self.assertEqual(browser.run("document.querySelectorAll('img, iframe, main b, main script').length"), 0)

    def test_columns_sort_by_click_and_key(self):
        browser = self.opened()
        numbers = lambda index: [int(text.replace(",", "")) for text in self.column(browser, "#keys", index)]
        browser.click("#keys .more")
        self.assertEqual(numbers(3), sorted(numbers(3), reverse=True), "hit hardest first")
        self.assertEqual(browser.run("[...document.querySelectorAll('#keys thead th')].map(e => e.ariaSort).join()"), "none,none,none,descending,none")
        browser.click("#keys thead th:nth-child(3) button")
        self.assertEqual(numbers(2), sorted(numbers(2), reverse=True))
        browser.run("document.querySelector('#keys thead th:nth-child(3) button').focus()")
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('#keys thead th:nth-child(3)').ariaSort === 'ascending'", "the other order")
        self.assertEqual(numbers(2), sorted(numbers(2)))
        browser.click("#keys thead th:nth-child(2) button")
        names = self.column(browser, "#keys", 1)
        self.assertEqual(names, sorted(names))
        self.assertTrue(browser.run("[...document.querySelectorAll('thead th')].every(e => e.scope === 'col') && [...document.querySelectorAll('tbody th')].every(e => e.scope === 'row')"))

    def test_the_filter_keeps_rows_with_its_text(self):
        browser = self.opened()
        browser.click("#keys input")
        browser.type("LOGIN")
        browser.until("document.querySelector('#keys [role=status]').innerText.includes(' of ')", "the number of rows")
        self.assertEqual(set(self.column(browser, "#keys", 1)), {"login"})
        browser.type("-no-such-key")
        self.assertEqual(self.column(browser, "#keys", 0), [])
        self.assertIn("0 of ", browser.text("#keys [role=status]"))

    def test_charts_are_read_with_pointer_and_keys(self):
        browser = self.opened()
        self.assertTrue(browser.run("[...document.querySelectorAll('svg')].length >= 3 && [...document.querySelectorAll('svg')].every(e => e.getAttribute('role') === 'img' && e.getAttribute('aria-label').length > 40)"))
        cursor = "document.querySelector('#timeline .cursor')"
        browser.run(cursor + ".focus()")
        self.assertIn("2026-11-22 00:00:00 UTC", browser.run(cursor + ".ariaValueText"))
        browser.press("ArrowRight", 39)
        second = browser.run(cursor + ".ariaValueText")
        self.assertIn("2026-11-22 00:15:00 UTC", second)
        self.assertEqual(browser.text("#timeline .readout"), second)
        browser.press("End", 35)
        self.assertIn("2026-11-22 23:45:00 UTC", browser.run(cursor + ".ariaValueText"))
        browser.click("#timeline .cursor")
        self.assertIn("2026-11-22 1", browser.text("#timeline .readout"), "the middle of the day")
        # Another limit.
        browser.run("(select => { select.selectedIndex = 2; select.onchange(); })(document.querySelector('#timeline select'))")
        browser.until("document.querySelector('#timeline svg').getAttribute('aria-label')", "the chart of a limit")
        self.assertIn(f"{FIXTURE['report']['limits'][1]['refused']:,} refused", browser.run("document.querySelector('#timeline svg').getAttribute('aria-label')"))
        # The distribution, with the limit as a line, in another window.
        for index, limit, window in [(2, "300", "1 min"), (0, "60", "1 s")]:
            browser.run(f"(select => {{ select.selectedIndex = {index}; select.onchange(); }})([...document.querySelectorAll('#peaks select')].pop())")
            browser.until(f"document.querySelector('#peaks svg')?.textContent.includes('the limit admits {limit}')", f"the window of {window}")
            self.assertIn(f"window of {window}", browser.text("#peaks"))

    def test_the_heat_map_states_its_scale(self):
        browser = self.opened()
        self.assertEqual(browser.run("[...document.querySelectorAll('#calendar tbody tr')].map(row => row.cells.length).join()"), "25,25")
        most = max(max(day["requests"]) for day in FIXTURE["calendar"])
        self.assertIn(f"1 to {most:,} requests an hour", browser.text("#calendar .scale"))
        browser.run("(select => { select.selectedIndex = 1; select.onchange(); })(document.querySelector('#calendar select'))")
        self.assertIn("refused requests an hour", browser.text("#calendar .scale"))

    def test_light_and_dark(self):
        browser = self.opened()
        ground = "getComputedStyle(document.body).backgroundColor"
        browser.scheme("light")
        light = browser.run(ground)
        browser.scheme("dark")
        dark = browser.until(f"{ground} !== {light!r} && {ground}", "the dark colours")
        for index, wanted in [(1, light), (2, dark), (0, dark)]:
            browser.run(f"(select => {{ select.selectedIndex = {index}; select.onchange(); }})(document.querySelector('header select'))")
            browser.until(f"{ground} === {wanted!r}", "the chosen colours")

    def test_a_phone_of_360_pixels(self):
        for data in [None, report_data.suggest()]:
            browser = self.opened(data, width=360, height=740)
            self.assertEqual(browser.run("document.documentElement.scrollWidth"), 360)
            self.assertEqual(browser.stands_out(), [])
            browser.size(1200, 900)
            browser.until("[...document.querySelectorAll('svg')].every(e => e.viewBox.baseVal.width === e.parentElement.clientWidth)", "the charts of the new width")

    def test_empty_sections_are_absent(self):
        for data in [{"kind": "replay"}, {"kind": "suggest", "suggestions": []}, {"kind": "replay", "report": None, "timeline": None, "limits": None, "calendar": None}]:
            browser = self.opened(data)
            self.assertEqual(self.sections(browser), [])
        report = dict.fromkeys(FIXTURE["report"]) | {"requests": 3, "refused": 0, "clients": 1, "clients_refused": 0, "limits": [], "refused_keys": [], "notes": []}
        empty = {"requests": [], "refused": [], "begin": "2026-11-22T00:00:00Z", "step_seconds": 1}
        browser = self.opened({"kind": "replay", "report": report, "timeline": empty, "limits": [{"name": "x", "timeline": empty, "peaks": {"windows": []}}], "calendar": []})
        self.assertEqual(self.sections(browser), [])
        self.assertIn("0 % of 3 requests", browser.text("#numbers"))

    def test_a_single_request_has_charts(self):
        one = {"begin": "2026-11-22T00:00:00.000000Z", "step_seconds": 1, "requests": [1], "refused": [1]}
        window = {"seconds": 1, "keys": 1, "bins": [{"from": 1, "to": 2, "keys": 1}], "limit": None}
        browser = self.opened({"kind": "replay", "timeline": one, "limits": [{"name": "x", "timeline": one, "peaks": {"windows": [window]}}]})
        self.assertEqual(self.sections(browser), ["timeline", "peaks"])
        self.assertNotIn("NaN", browser.run("document.querySelector('main').innerHTML"))

    def test_a_thousand_rows(self):
        data = copy.deepcopy(FIXTURE)
        data["report"]["refused_keys"] = [{"limit": "per-client", "key": f"key-{number}", "refused": number, "requests": 5000} for number in range(1, 3001)]
        browser = self.opened(data)
        self.assertEqual(len(self.column(browser, "#keys", 0)), 12)
        browser.click("#keys .more")
        self.assertEqual(self.column(browser, "#keys", 0), [f"key-{number}" for number in range(3000, 2000, -1)])
        browser.click("#keys thead th:nth-child(4) button")
        self.assertEqual(self.column(browser, "#keys", 0), [f"key-{number}" for number in range(1, 1001)])
        browser.click("#keys input")
        browser.type("key-2999")
        browser.until("document.querySelectorAll('#keys tbody tr').length === 1", "the row that is looked for")

    def test_suggestions(self):
        data = report_data.suggest()
        data["suggestions"][1]["outliers"][0]["key"] = HOSTILE
        data["suggestions"][1]["notes"].append(f"`{HOSTILE}` is left out")
        browser = self.opened(data)
        self.assertEqual(self.sections(browser), ["overview", "suggestion-1", "suggestion-2", "notes"])
        self.assertIn('[limits.login-per-ip]\nalgorithm = "token-bucket"', browser.text("#suggestion-1 pre"))
        self.assertIn("may be an office behind NAT", browser.text("#suggestion-1"))
        self.assertIn("203.0.113.8", browser.text("#suggestion-2"))
        self.assertEqual(browser.text("#suggestion-2").count(HOSTILE), 2)
        self.assertIn("the limit admits", browser.run("document.querySelector('#suggestion-1 svg').textContent"))
        browser.click("#suggestion-1 .part button")
        browser.until("document.querySelector('#suggestion-1 .part button').innerText === 'Copied'", "that it is copied")
        self.assertIn("[limits.login-per-ip]", browser.run("getSelection().toString()"))

    def test_without_javascript(self):
        browser = self.opened(prepare=lambda browser: browser.call("Emulation.setScriptExecutionDisabled", value=True), wait="document.querySelector('noscript')")
        self.assertEqual(browser.text("#answer"), FIXTURE["answer"])
        self.assertIn("need JavaScript", browser.text("main"))

    def test_a_printed_page_has_no_controls(self):
        browser = self.opened()
        browser.call("Emulation.setEmulatedMedia", media="print")
        browser.until("getComputedStyle(document.querySelector('header label')).display === 'none'", "the printed page")
        self.assertEqual(browser.run("[...document.querySelectorAll('select, .more, input')].filter(e => e.getClientRects().length).length"), 0)


def screenshot(file, scheme, source):
    """A page, or that of the made-up day: 1200 pixels wide, down to the distribution of peaks."""
    with tempfile.TemporaryDirectory() as folder, Browser(width=1200, height=1280) as browser:
        if not source:
            data = report_data.replay(days=4)
            source = Path(folder) / "out.html"
            text = re.sub(r'(class="verdict">)[^<]*', lambda found: found[1] + data["answer"], page(data), count=1)
            source.write_text(text)
        browser.scheme(scheme)
        browser.open(source.resolve().as_uri())
        browser.until("document.querySelectorAll('svg path').length > 0", "the charts")
        browser.size(1200, round(browser.run("document.querySelector('#peaks').getBoundingClientRect().bottom + 14")))
        browser.picture(file)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--page", type=Path)
    arguments.add_argument("--sections", default=SECTIONS)
    arguments.add_argument("--screenshot", type=Path)
    arguments.add_argument("--scheme", default="light")
    given, rest = arguments.parse_known_args()
    PAGE, SECTIONS = given.page, given.sections
    if given.screenshot:
        screenshot(given.screenshot, given.scheme, given.page)
    else:
        unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
