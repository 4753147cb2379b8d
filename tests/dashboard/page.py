"""Runs the incident on the dashboard's page against the mock, in headless Chromium, with real clicks and keys.

    python3 tests/dashboard/page.py [--pictures FOLDER]
"""

import argparse
import sys
import time
import unittest
from pathlib import Path

import mock
from browser import TIMEOUT, Browser

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

    def comes(self, happens, what):
        end = time.monotonic() + TIMEOUT
        while not happens():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def seen(self, browser, name):
        if PICTURES:
            browser.picture(PICTURES / f"{name}.png")

    def test_the_night_story(self):
        browser = self.opened()
        began = time.monotonic()
        verdict = browser.until("document.querySelector('#verdict').innerText.includes('203.0.113.7') && document.querySelector('#verdict').innerText", "the refused client")
        self.assertLess(time.monotonic() - began, 10)
        self.assertIn("per-client refuses", verdict)
        self.assertIn("over 10/s, burst 50", verdict)
        self.assertTrue(browser.run("document.querySelectorAll('.uplot canvas').length") >= 5, "charts are drawn")
        time.sleep(1.5)
        self.seen(browser, "dashboard-light")
        browser.scheme("dark")
        time.sleep(1.5)
        self.seen(browser, "dashboard-dark")

        # The reason: the key, and the rest of its allowance.
        row = "#keys tr[data-name$='id:00000000000000000000000000000001']"
        browser.click(row + " button:nth-of-type(1)")
        browser.until("document.querySelector('#look').open", "the key")
        self.assertIn("203.0.113.7 under per-client", browser.text("#look-title"))
        self.assertIn("10/s, burst 50", browser.text("#look-policies"))
        self.seen(browser, "dashboard-key")
        # Ban the key for an hour.
        browser.run("document.querySelector('#ban-form select').value = '1h'")
        browser.click("#ban-form button[type=submit]")
        browser.answer_sure("Ban this key?")
        browser.until("document.querySelector('#look-verdict').innerText.includes('banned, until')", "the ban")
        self.assertTrue(self.server.gateway.keys["per-client"][0].banned(time.time() + 3500))
        browser.click("#look [data-close]:last-child")
        browser.until(f"document.querySelector({row!r}).innerText.includes('banned until')", "the ban in the listing")
        browser.until("document.querySelector('#limits').innerText.includes('1 banned')", "the ban at its limit")

        # Reset another key: one press, and a confirmation.
        browser.click("#keys tr[data-name$='id:00000000000000000000000000000002'] button:nth-of-type(2)")
        browser.answer_sure("Reset this counter?")
        browser.until("document.querySelector('#said').innerText.includes('Reset: 198.51.100.20')", "the reset")
        self.assertEqual(len(self.asked("DELETE /api/v1/limits/per-client/keys/id%3A00000000000000000000000000000002")), 1)
        # Lift the ban.
        browser.until(f"document.querySelector({row!r} + ' .ban').innerText === 'Lift…'", "Lift in place of Ban")
        self.assertEqual(self.color(browser, row + " .tag"), self.colors(browser)["quiet"], "the box of a ban is grey")
        browser.click(row + " .ban")
        browser.answer_sure("Lift this ban?")
        browser.until(f"document.querySelector({row!r} + ' .ban').innerText === 'Ban…'", "the end of the ban")
        browser.click(row + " button:nth-of-type(1)")
        browser.until("document.querySelector('#look').open", "the key")
        browser.click("#grant-form button")
        browser.until("document.querySelector('#said').innerText.includes('back to 203.0.113.7')", "the grant")
        self.assertEqual([url for url in browser.requests if not url.startswith(self.url) and not url.startswith("about:")], [], "no foreign requests")
        self.assertEqual(browser.complaints, [], "nothing is wrong, and the policy holds")

    def test_an_attack_with_wrong_keys_is_the_headline(self):
        gateway = self.server.gateway
        with gateway.lock:
            gateway.limits[0]["failures"] = "wrong API keys"
            gateway.keys["per-client"] = gateway.keys["per-client"][:1]
        browser = self.opened()
        verdict = browser.until("document.querySelector('#verdict').innerText.includes('refused: wrong API keys, all from 203.0.113.7') && document.querySelector('#verdict').innerText", "the attack")
        self.assertRegex(verdict, r"\d+/s refused: wrong API keys, all from 203.0.113.7\.")
        self.assertTrue(browser.run("document.querySelector('#verdict').classList.contains('bad')"))
        self.assertIn("of wrong API keys for each ip", browser.text("#limits"))

    def test_refusals_of_no_limit_are_no_failures(self):
        gateway = self.server.gateway
        with gateway.lock:
            gateway.rejected = {"unauthenticated": 900, "too_large": 1}
        browser = self.opened()
        browser.until("/[\\d,]+\\/s refused: no valid credential \\(401\\)/.test(document.querySelector('#verdict').innerText)", "the headline")
        browser.until("document.querySelector('#concerns').innerText.includes('/s refused: body too large (413)')", "the other")
        browser.until("/\\(401: [\\d,]+, 413: \\d+\\)/.test(document.querySelector('#routes').innerText)", "the route's row")

    def test_an_outage_is_the_headline(self):
        self.server.gateway.outage = "`shop` fails: 96 of 96 requests a second end in 5xx"
        browser = self.opened()
        verdict = browser.until("document.querySelector('#verdict').innerText.startsWith('shop fails: 96 of 96 requests a second end in 5xx. ') && document.querySelector('#verdict').innerText", "the outage")
        self.assertNotIn("No request is refused", verdict)
        self.assertIn("per-client refuses", verdict, "what limits refuse follows")
        self.assertEqual(browser.run("document.querySelector('#sentence code').textContent"), "shop", "no backticks")
        self.assertNotIn("96 of 96", browser.text("#concerns"), "it is said once")
        self.assertTrue(browser.run("document.querySelector('#verdict').classList.contains('bad')"))
        told = browser.until("(row => row?.cells[2].innerText !== '0' && row?.innerText)(document.querySelector('#backends tr.group[data-name=\"shop \"]'))", "the upstream's row")
        self.assertIn("2 up", told)
        self.assertEqual(browser.run("[...document.querySelectorAll('#backends thead th.n')].map(cell => cell.textContent)")[:4], ["2xx, 1\u00a0min", "3xx", "4xx", "5xx"])
        self.assertEqual(browser.run("[document.querySelectorAll('#sentence a')[0].hash, document.querySelectorAll('#sentence a')[0].innerText]"), ["#backends-section", "shop"], "the sentence leads to its section")

    def test_silence_and_failures_are_no_good_news(self):
        browser = self.opened()
        browser.until("past.time.length > 250", "history")
        verdict = "document.querySelector('#verdict')"
        # Rates of the last 10 seconds, as the page has them; the mock goes on with others.
        browser.until("!busy && (clearTimeout(timer), busy = true, now.limits = [], now.status.problems = [], true)", "no round to be under way")
        told = lambda lists: browser.run(f"(lists => {{ for (const [name, value] of Object.entries(lists)) past.all[name] = Array(past.time.length).fill(value); drawVerdict(); return [{verdict}.innerText.trim(), {verdict}.className]; }})({lists})")
        self.assertEqual(told("{ admitted: 0, delayed: 0, refused: 0, failed: 0, p99_ms: null }"), ["No requests come.", "verdict idle"])
        self.assertEqual(told("{ admitted: 20, p99_ms: 0.44 }"), ["No request is refused. 20/s requests, p99 0.4 ms.", "verdict "])
        self.assertEqual(told("{ admitted: 20, p99_ms: 1234.5 }"), ["No request is refused. 20/s requests, p99 1.2 s.", "verdict "])
        self.assertEqual(told("{ admitted: 10, failed: 10 }"), ["No request is refused. 20/s requests, 10/s fail, p99 1.2 s.", "verdict bad"])
        self.assertEqual(told("{ admitted: 1000, failed: 1 }")[1], "verdict warn")
        # The latency of now is one of the last 10 seconds.
        old = "past.all.p99_ms = past.all.p99_ms.map((ms, at, all) => all.length - at > 10 ? ms : null)"
        self.assertEqual(browser.run(f"{old}; drawVerdict(); {verdict}.innerText.trim()"), "No request is refused. 1,001/s requests, 1/s fail.")

    def test_a_server_is_drained_and_undrained(self):
        browser = self.opened()
        row = "[...document.querySelectorAll('#backends tr.server')].find(row => row.innerText.includes('10.0.0.1:9000'))"
        browser.until(f"{row}?.cells[1].innerText === 'up'", "the server's row")
        browser.run(f"{row}.querySelector('button').click()")
        browser.until("document.querySelector('#sure').open && document.querySelector('#sure-text').innerText.includes('10.0.0.1:9000 of search')", "the question")
        browser.answer_sure("Drain this server?", yes=True)
        browser.until(f"{row}.cells[1].innerText === 'drained' && {row}.querySelector('button').innerText === 'Undrain'", "it is drained")
        self.assertEqual(len(self.asked("POST /api/v1/upstreams/search/servers/10.0.0.1%3A9000/drain")), 1)
        browser.run(f"{row}.querySelector('button').click()")
        browser.until(f"{row}.cells[1].innerText === 'up'", "it is back")
        self.assertEqual(len(self.asked("DELETE /api/v1/upstreams/search/servers/10.0.0.1%3A9000/drain")), 1)

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

    def test_explain_reload_and_stop(self):
        browser = self.opened()
        browser.until("document.querySelector('#facts').innerText.includes('3f9c2a10')", "the configuration's version")
        browser.click("#explain-open")
        browser.run("document.querySelector('#explain-form [name=url]').value = '/search/shoes'; document.querySelector('#explain-form [name=ip]').value = '203.0.113.7'")
        browser.click("#explain-form button[type=submit]")
        browser.until("document.querySelector('#explanation').innerText.includes('Route search')", "the explanation")
        self.seen(browser, "dashboard-explain")
        browser.press("Escape", 27)
        browser.click("#reload")
        browser.answer_sure("Reload the file?")
        browser.until("document.querySelector('#said').innerText === 'Reloaded: 77ab01c2.'", "that it is reloaded")
        browser.until("document.querySelector('#facts').innerText.includes('77ab01c2')", "the new version")
        browser.click("#reload")
        browser.answer_sure("Reload the file?")
        browser.until("document.querySelector('#concerns').innerText.includes('did you mean')", "the fault of the second")
        # What ends the gateway is in a menu, has another name than the button of a server, and says what starts it again.
        self.assertFalse(browser.run("document.querySelector('#drain').checkVisibility({ contentVisibilityAuto: true })"), "it is not among the buttons")
        self.assertNotIn("Drain", browser.text("header"))
        browser.click("#more summary")
        self.assertEqual(browser.text("#drain"), "Stop…")
        browser.click("#drain")
        for words in ["exits", "cannot be undone", "systemctl start tollgate", "Kubernetes"]:
            browser.until(f"document.querySelector('#sure-text').innerText.includes({words!r})", "what it means")
        browser.answer_sure("Stop this gateway?", yes=False)
        self.assertEqual(self.asked("POST /api/v1/drain"), [], "it asks first")
        browser.press("Escape", 27)
        browser.until("!document.querySelector('#more').open && document.activeElement.tagName === 'SUMMARY'", "the menu is closed")
        browser.click("#more summary")
        browser.click("#drain")
        browser.answer_sure("Stop this gateway?")
        browser.until("document.querySelector('#concerns').innerText.includes('Draining')", "draining")
        self.assertEqual(browser.questions, [], "by dialogs of the page's own")

    def test_routes_without_a_backend_are_explained(self):
        browser = self.opened()
        browser.until("document.querySelector('#facts').innerText.includes('3f9c2a10')", "the configuration's version")
        browser.click("#explain-open")
        # A location has what the client sent: it is text, also with backticks and tags.
        for url, told in [
            ("/search/shoes", "Route search to search (10.0.0.1:9000) as /api/shoes by strip_prefix and base path, because"),
            ("/old/`a`<b>", "Route old redirects with 301 to https://new.example.com/`a`<b>, because"),
            ("/closed", "Route closed answers 503 with text/plain; charset=utf-8, because"),
        ]:
            browser.run(f"document.querySelector('#explain-form [name=url]').value = {url!r}")
            browser.click("#explain-form button[type=submit]")
            browser.until(f"[...document.querySelectorAll('#explanation p')].some(line => line.innerText === {told!r})", told)
        self.assertIn("answered, answer 503.", browser.text("#explanation"))
        self.assertNotIn("null", browser.text("#explanation"))

    def test_silence_and_return(self):
        browser = self.opened()
        browser.until("document.querySelector('#limits').innerText.includes('per-client')", "limits")
        port = self.server.server_port
        self.server.shutdown()
        self.server.server_close()
        browser.until("!document.querySelector('#contact').hidden && document.querySelector('#contact').innerText.includes('does not answer')", "the message that the gateway does not answer")
        self.seen(browser, "dashboard-silent")
        self.server = mock.serve(port)
        browser.until("document.querySelector('#contact').hidden", "the return, of another process")
        browser.until("past.time.length > 250", "its history")

    def test_the_question_for_the_token_stands_alone(self):
        self.server.RequestHandlerClass.token = "secret"
        browser = self.opened()
        browser.until("document.querySelector('#ask').open", "the question")
        alone = "[...document.body.children].filter(e => e.getClientRects().length).map(e => e.id).join() === 'ask' && !document.querySelector('#ask #said')?.innerText"
        browser.until(alone, "the question and nothing else")
        self.assertEqual(browser.text("#ask-fault"), "", "nothing is wrong yet")
        for size in [(1280, 900), (360, 640)]:
            browser.size(*size)
            self.assertEqual(browser.stands_out(), [])
        browser.type("wrong")
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('#ask-fault').innerText.includes('does not accept this token')", "what is wrong, in the dialog")
        self.assertTrue(browser.run(alone))
        self.seen(browser, "dashboard-token")
        for _ in range(3):
            browser.press("Escape", 27)
        browser.until("document.querySelector('#ask').open && " + alone, "the question still")
        # The dialog also reports a gateway that does not answer.
        browser.run("globalThis.real = fetch; fetch = () => Promise.reject(new Error())")
        browser.run("document.querySelector('#ask input').value = 'secret'; document.querySelector('#ask input').focus()")
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('#ask-fault').innerText.includes('does not answer')", "that nothing answers")
        browser.run("fetch = real")
        browser.run("document.querySelector('#ask input').value = 'secret'; document.querySelector('#ask input').focus()")
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('#limits').innerText.includes('per-client')", "limits")
        self.assertFalse(browser.run("document.querySelector('#ask').open"))
        browser.open(self.url + "?again")
        browser.until("document.querySelector('#limits').innerText.includes('per-client')", "limits without asking again")
        # The gateway's token changes: the page is hidden until the new token is entered.
        self.server.RequestHandlerClass.token = "other"
        browser.until("document.querySelector('#ask').open && " + alone, "the question anew")
        self.assertIn("does not accept", browser.text("#ask-fault"))
        browser.type("other")
        browser.click("#ask button")
        browser.until("document.querySelector('#limits').innerText.includes('per-client')", "limits again")

    def test_hidden_it_rests_and_a_click_stays_on_its_row(self):
        browser = self.opened()
        browser.until("past.time.length > 250", "history")
        self.assertEqual(browser.run("new Set([past.all, past.store, ...Object.values(past.routes), ...Object.values(past.limits)].flatMap(of => Object.values(of).map(list => list.length))).size"), 1)
        self.comes(lambda: len(self.asked("GET /api/v1/samples")) >= 3, "round after round")
        samples = self.asked("GET /api/v1/samples")
        self.assertTrue(all("since=" in line for line in samples[1:]), samples)
        browser.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true }); document.dispatchEvent(new Event('visibilitychange'))")
        time.sleep(1.2)
        before = len(self.server.asked)
        time.sleep(2.5)
        self.assertEqual(len(self.server.asked), before)
        browser.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        self.comes(lambda: len(self.server.asked) > before, "the next round")

    # ---- order, colours and layout ----

    def test_backends_stand_beside_the_limits_above_the_curves(self):
        browser = self.opened()
        browser.until("document.querySelectorAll('#backends tbody tr').length === 8", "three upstreams and five servers")
        self.assertEqual(browser.run("[...document.querySelectorAll('#backends tbody tr')].map(row => row.cells[0].innerText)"),
                         ["search", "10.0.0.1:9000", "10.0.0.2:9000", "shop", "10.0.0.3:9000", "10.0.0.4:9000", "export", "exports-of-the-whole-catalogue.internal.example.com:9000"])
        limits, backends, curves = browser.run("['limits', 'backends', 'curves'].map(name => (r => [r.left, r.top, r.bottom])(document.querySelector(`#${name}-section`).getBoundingClientRect()))")
        self.assertTrue(backends[0] > limits[0] and abs(backends[1] - limits[1]) < 2 and curves[1] > backends[2], (limits, backends, curves))
        # With many servers, those that are fine are behind a button.
        browser.until("!busy && (clearTimeout(timer), busy = true)", "no round to be under way")
        browser.run("past.upstreams.search.servers = Array.from({ length: 30 }, (_, at) => ({ ...past.upstreams.search.servers[0], server: `10.0.1.${at}:80`, up: at !== 7, why: at === 7 ? 'ejected' : null })); drawBackends()")
        shown = browser.run("[...document.querySelectorAll('#backends tbody tr')].map(row => row.cells[0].innerText)")
        self.assertTrue("10.0.1.7:80" in shown and "10.0.1.8:80" not in shown and {"search", "shop", "export"} <= set(shown), shown)
        self.assertEqual(browser.text("#backends-more"), "Show all 36")

    def test_a_chart_without_values_is_a_line(self):
        browser = self.opened()
        browser.until("past.time.length > 250 && !!charts.limits.plot", "history")
        browser.until("!busy && (clearTimeout(timer), busy = true)", "no round to be under way")
        browser.run("for (const of of Object.values(past.limits)) of.refused = past.time.map(() => 0); drawCharts()")
        self.assertEqual(browser.text("#chart-limits").replace("\n", " "), "Refused/s by limit No refusals.")
        self.assertLess(browser.run("document.querySelector('#chart-limits').clientHeight"), 24)
        browser.run("past.limits['per-client'].refused[past.time.length - 1] = 3; drawCharts()")
        self.assertGreater(browser.run("document.querySelector('#chart-limits').clientHeight"), 60, "it is drawn again")

    def test_times_of_a_short_history_are_whole(self):
        browser = self.opened()
        browser.until("past.time.length > 250", "history")
        browser.until("!busy && (clearTimeout(timer), busy = true)", "no round to be under way")
        told = """(seconds => {
            const cut = (of) => { for (const name in of) Array.isArray(of[name]) && name !== "servers" ? of[name] = of[name].slice(-seconds) : typeof of[name] === "object" && of[name] && cut(of[name]); };
            cut({ past }); drawCharts();
            const { plot } = charts.requests, pen = document.createElement("canvas").getContext("2d");
            pen.font = "11px system-ui";
            const left = plot.bbox.left / devicePixelRatio;
            return [plot.width, plot.axes[0]._splits.map((mark, at) => [left + plot.valToPos(mark, "x"), pen.measureText(plot.axes[0]._values[at]).width])]; })"""
        for width in [1440, 390]:
            browser.size(width, 900, 1, width < 700)
            browser.unfold()
            for seconds in [280, 75, 20, 3, 1]:
                browser.until("charts.requests.figure.clientWidth > 0", "the chart")
                whole, marks = browser.run(f"{told}({seconds})")
                ends = [(at - size / 2, at + size / 2) for at, size in marks]
                self.assertGreaterEqual(len(ends), 2, f"{seconds} s at {width}")
                self.assertTrue(all(start >= 0 and end <= whole for start, end in ends), f"cut, {seconds} s at {width}: {ends} in {whole}")
                self.assertTrue(all(one[1] + 4 < other[0] for one, other in zip(ends, ends[1:])), f"overlap, {seconds} s at {width}: {ends}")
            browser.open(self.url + f"?{width}")
            browser.until("past.time.length > 250", "history anew")
            browser.until("!busy && (clearTimeout(timer), busy = true)", "no round to be under way")

    def test_a_failure_shows_its_server(self):
        gateway = self.server.gateway
        failure = {"status": 502, "client": "192.0.2.9", "path": "/x", "limit": None, "id": None, "key": None, "cost": None, "retry_after": None, "reason": "connect"}
        with gateway.lock:
            gateway.note(time.time() + 5, failure | {"route": "shop"})
            gateway.note(time.time() + 5, failure | {"route": "export"})
        browser = self.opened()
        browser.until("document.querySelector('#refusals').innerText.includes('to exports-of-the-whole-catalogue.internal.example.com:9000')", "the only server")
        browser.until("document.querySelector('#refusals').innerText.includes('to 10.0.0.3:9000 or 10.0.0.4:9000')", "one of two")
        self.assertEqual(browser.text("#refusals-title"), "Refused and failed just now")
        # A 5xx of a backend is of the server that has answered with one.
        told = browser.run("past.upstreams.shop.servers[1].minute['5xx'] = 2; [500, 429].map(status => servedBy({ status, limit: null, route: 'shop', reason: 'answer of the backend', time: now.status.time }))")
        self.assertEqual(told, ["to 10.0.0.4:9000", ""])
        told = browser.run("servedBy({ status: 502, limit: null, route: 'shop', server: 'shop/10.0.0.3:9000', reason: 'reset', time: 0 })")
        self.assertEqual(told, "to 10.0.0.3:9000")

    def test_row_buttons_appear_with_the_pointer_and_the_focus(self):
        browser = self.opened()
        browser.until("document.querySelectorAll('#keys tbody tr').length > 3", "keys")
        opacity = lambda row, button=1: browser.run(f"getComputedStyle(document.querySelector('#keys tbody tr:nth-child({row}) button:nth-of-type({button})')).opacity")
        self.assertEqual((opacity(1), opacity(2)), ("0", "0"))
        browser.run("document.querySelector('#keys tbody tr:nth-child(2) button').focus()")
        self.assertEqual((opacity(1), opacity(2)), ("0", "1"), "the focus")
        x, y = browser.run("(r => [r.x + 5, r.y + 5])(document.querySelector('#keys tbody tr').getBoundingClientRect())")
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        browser.until("getComputedStyle(document.querySelector('#keys tbody tr button')).opacity === '1'", "the pointer")
        browser.press("Tab", 9)
        self.assertEqual(browser.run("document.activeElement.innerText"), "Reset…", "Tab reaches them")
        browser.size(390, 844, 1, True)
        self.assertEqual((opacity(1), opacity(3)), ("1", "1"), "a phone")

    def test_the_sentence_leads_to_its_section(self):
        browser = self.opened()
        browser.until("document.querySelectorAll('#sentence a').length === 2", "links")
        self.assertEqual(browser.run("[...document.querySelectorAll('#sentence a')].map(link => [link.innerText, link.hash])"), [["per-client", "#limits-section"], ["203.0.113.7", "#keys-section"]])
        browser.run("document.querySelector('#sentence a').focus(); window.link = document.activeElement")
        time.sleep(2.2)
        self.assertTrue(browser.run("document.activeElement === window.link && link.isConnected"), "new numbers leave the focus on the link")
        other = "refresh($('sentence'), ['Since noon ', to('limits-section', 'per-plan'), ' refused ', strong('7'), '.'])"
        told = browser.run(f"{other}; [document.activeElement === window.link, $('sentence').innerText]")
        self.assertEqual(told, [True, "Since noon per-plan refused 7."], "so does another sentence about the limit")
        browser.until("document.querySelectorAll('#sentence a').length === 2 && document.activeElement === window.link", "and the next one")
        browser.size(390, 844, 1, True)
        browser.until("document.querySelector('#limits-section').matches('.closed') && !document.querySelector('#limits').checkVisibility()", "closed")
        browser.press("Enter", 13, "\r")
        browser.until("document.activeElement.id === 'limits-section' && document.querySelector('#limits').checkVisibility()", "the link opens its section")

    def test_a_phone_shows_first_who_it_is(self):
        browser = self.opened()
        browser.size(390, 844, 1, True)
        browser.open(self.url)
        browser.until("past.time.length > 250 && document.querySelectorAll('#keys tbody tr').length === 4", "the page")
        self.assertLess(browser.run("document.documentElement.scrollHeight"), 2500)
        ban = browser.run("document.querySelector('#keys tbody tr .ban').getBoundingClientRect().bottom")
        self.assertLess(ban, 844, "the first screen has the key and what to press")
        shown = "[...document.querySelectorAll('.fold')].filter(e => e.checkVisibility() && e.querySelector('table, figure').checkVisibility()).map(e => e.id)"
        self.assertEqual(browser.run(shown), ["keys-section"])
        self.assertRegex(browser.text("#backends-section h2"), "up|down")
        browser.run("document.querySelector('#routes-section .folder').focus()")
        self.assertEqual(browser.run("document.activeElement.ariaExpanded"), "false")
        browser.press("Enter", 13, "\r")
        browser.until("document.activeElement.ariaExpanded === 'true' && document.querySelector('#routes').checkVisibility()", "Enter opens a section")
        browser.press("Enter", 13, "\r")
        browser.until("!document.querySelector('#routes').checkVisibility()", "Enter closes it")
        browser.size(640, 450)
        browser.unfold()
        self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 640, "200 % zoom")
        self.assertEqual(browser.stands_out(), [])

    def test_masked_keys_say_how_they_are_revealed(self):
        browser = self.opened()
        browser.until("document.querySelector('#keys-note').innerText.includes('counts are exact')", "keys of addresses")
        self.assertNotIn("reveal", browser.text("#keys-note"))
        browser.run("[...document.querySelectorAll('#limits tbody button')].find(e => e.innerText === 'per-plan').click()")
        browser.until("document.querySelector('#keys-note').innerText.includes('reveal = true in [limits.per-plan]')", "the hint")
        self.assertIn("reveal = true", browser.run("document.querySelector('#keys tbody strong').title"))

    def test_each_control_has_a_name_and_each_text_its_contrast(self):
        browser = self.opened()
        browser.until("past.time.length > 250 && document.querySelectorAll('#keys tbody tr').length > 3", "the page")
        self.assertEqual(browser.run("[...document.querySelectorAll('button, summary, a[href]')].filter(e => e.getClientRects().length && !(e.ariaLabel || e.textContent).trim()).map(e => e.outerHTML)"), [])
        self.assertEqual(browser.run("[...document.querySelectorAll('input, select, textarea')].filter(e => !e.labels.length).map(e => e.outerHTML)"), [])
        self.assertEqual(browser.run("[...document.querySelectorAll('h1, h2, h3, h4')].map(e => e.tagName).join()").replace(",H2", ""), "H1", "one title, and sections below it")
        browser.press("Tab", 9)
        self.assertEqual(browser.run("document.activeElement.id"), "skip")
        browser.press("Enter", 13, "\r")
        browser.until("document.activeElement.id === 'main'", "the link skips the head of the page")
        for scheme in ["light", "dark"]:
            browser.scheme(scheme)
            palette = browser.run("Object.fromEntries(['ground', 'sheet', 'ink', 'quiet', 'c1', 'c2', 'c3', 'c4', 'c5', 'good'].map(name => [name, css('--' + name)]))")
            parts = {name: [int(pair, 16) / 255 for pair in ([text[1:][i:i + 2] for i in (0, 2, 4)] if len(text) == 7 else [digit * 2 for digit in text[1:]])] for name, text in palette.items()}
            light = lambda color: sum(weight * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4) for weight, part in zip([0.2126, 0.7152, 0.0722], color))
            contrast = lambda one, other: (max(light(one), light(other)) + 0.05) / (min(light(one), light(other)) + 0.05)
            for name in ["ink", "quiet", "c3", "c4", "good"]:
                mixed = [0.11 * part + 0.89 * sheet for part, sheet in zip(parts[name], parts["sheet"])]
                for place, behind in [("ground", parts["ground"]), ("sheet", parts["sheet"]), ("mood", mixed)]:
                    self.assertGreaterEqual(contrast(parts[name], behind), 4.5, f"{scheme}: {name} on {place}")
            for name in ["c1", "c2", "c3", "c4", "c5"]:
                self.assertGreaterEqual(contrast(parts[name], parts["sheet"]), 3, f"{scheme}: the curve {name}")

    def colors(self, browser):
        """The colours of meanings, from `getComputedStyle`."""
        return browser.run("(probe => { const told = {}; document.body.append(probe); for (const name of ['c1', 'c2', 'c3', 'c4', 'c5', 'ink', 'quiet']) { probe.style.color = `var(--${name})`; told[name] = getComputedStyle(probe).color; } probe.remove(); return told; })(document.createElement('i'))")

    def color(self, browser, selector):
        browser.until(f"!!document.querySelector({selector!r})", selector)
        return browser.run(f"getComputedStyle(document.querySelector({selector!r})).color")

    def test_a_shadow_never_stands_above_the_limit_that_refuses(self):
        gateway = self.server.gateway
        with gateway.lock:
            for column in gateway.columns:
                column["tally"]["stricter"] = [0, 9000, 50]
                column["limits"]["stricter"]["refused"] = 9000
        browser = self.opened()
        order = "[...document.querySelectorAll('#limits tbody tr button')].map(e => e.innerText).join()"
        browser.until(f"{order} === 'per-client,stricter,per-plan,exports'", "the limits in order")
        browser.until("charts.limits.curves?.length === 4 && charts.limits.curves.at(-1).name === 'stricter (shadow)'", "the curves in order")
        browser.until("document.querySelector('#keys-title').innerText === 'Keys of per-client'", "the keys of the limit that refuses")
        self.assertIn("per-client refuses", browser.text("#verdict"))

    def test_a_trial_shows_what_it_refused_and_what_it_only_counted(self):
        gateway = self.server.gateway
        with gateway.lock:
            gateway.limits[0]["trial"] = 0.05
            for column in gateway.columns:
                column["tally"]["per-client"] = [10, 20, 3]
                column["limits"]["per-client"] = {"refused": 20, "in_shadow": 19}
        browser = self.opened()
        browser.until("document.querySelector('#limits .tag.shadow')?.innerText === 'trial 5 %'", "the trial's tag")
        browser.until("document.querySelector('#limits').innerText.includes('of these refusals only counted')", "what was only counted")
        browser.until("[...document.querySelectorAll('#concerns li')].some(e => /Trial of per-client \\(5 %\\) refused .* and would have refused .* more/.test(e.innerText))", "the concern")
        # The sentence has only what clients saw.
        sentence = browser.text("#verdict")
        # Columns that came since refuse more; those that were only counted would make it 20.
        self.assertRegex(sentence, r"per-client refuses \d(\.\d+)?/s")

    def test_a_colour_has_one_meaning(self):
        browser = self.opened()
        browser.until("past.time.length > 250 && charts.delay.plot", "history")
        for scheme in ["light", "dark"]:
            browser.scheme(scheme)
            colors = self.colors(browser)
            self.assertEqual(len(set(colors.values()) - {colors["quiet"]}), 5, f"meanings differ: {colors}")
            for place, meaning in enumerate(["c1", "c2", "c3", "c4", "c5"], 1):
                self.assertEqual(browser.run(f"getComputedStyle(document.querySelector('.legend i:nth-of-type({place})'), '::before').color"), colors[meaning], "the legend")
            self.assertEqual(self.color(browser, "#limits tr.enforce.hot td.hot"), colors["c3"], "refused is red")
            self.assertEqual(self.color(browser, "#limits tr.shadow.hot td.hot"), colors["c4"], "would be refused is amber")
            self.assertEqual(self.color(browser, "#limits .tag.shadow"), colors["c4"])
            self.assertEqual(self.color(browser, "#concerns li.shadow"), colors["c4"])
            for button in ["#drain", "#reload", "#keys .doing button:last-child"]:
                self.assertEqual(self.color(browser, button), colors["ink"], f"{button} is no refusal")
        # The same for curves, whose legends show their dashes.
        curves = browser.run("Object.fromEntries(Object.entries(charts).map(([name, chart]) => [name, chart.curves.map(curve => [curve.name, curve.colour])]))")
        self.assertEqual(curves["requests"], [["admitted", 1], ["delayed", 2], ["refused", 3], ["failed", 3]])
        self.assertEqual(curves["limits"], [["exports", 3], ["per-client", 3], ["per-plan", 3], ["stricter (shadow)", 4]])
        self.assertEqual(curves["delay"], [["p50", 2], ["p99", 2]])
        self.assertEqual({colour for name in ["latency", "upstreams", "store"] for _, colour in curves[name]}, {5}, "measured")
        self.assertEqual(browser.run("Object.values(charts).filter(chart => new Set(chart.curves.map(curve => curve.colour + ' ' + (curve.dash ?? 0))).size < chart.curves.length).length"), 0, "curves of one chart differ")
        # The keys of a shadow are not red.
        browser.click("#limits tr.shadow button")
        browser.until("document.querySelector('#keys-title').innerText === 'Keys of stricter (shadow)' && !!document.querySelector('#keys tr.shadow.hot')", "the keys of the shadow")
        self.assertEqual(self.color(browser, "#keys tr.shadow.hot td.hot"), self.colors(browser)["c4"])
        self.assertEqual(browser.text("#keys-refused"), "Would be refused")
        self.assertEqual(browser.run("document.querySelectorAll('#keys tr.enforce').length"), 0)

    def test_a_delay_by_a_limit_is_no_latency(self):
        browser = self.opened()
        browser.until("past.time.length > 250 && !charts.delay.figure.hidden", "the delays")
        browser.until("last(charts.delay.curves[1].values) > 700 && Math.max(...charts.latency.curves[1].values) < 300 && Math.max(...charts.upstreams.curves.flatMap(curve => curve.values)) < 300", "delays beside latency")
        for chart, title in [("latency", "Latency without delays by limits, ms"), ("delay", "Delay by limits, ms")]:
            self.assertIn(title, browser.text(f"#chart-{chart}"))
        browser.run("document.querySelector('#route').value = 'search'; document.querySelector('#route').dispatchEvent(new Event('change'))")
        browser.until("charts.delay.figure.hidden", "no delays where no limit delays")
        browser.run("document.querySelector('#route').value = 'export'; document.querySelector('#route').dispatchEvent(new Event('change'))")
        browser.until("!charts.delay.figure.hidden && charts.delay.figure.clientHeight > 40", "those of the route that has them")

    def test_one_of_one_up_is_not_red(self):
        browser = self.opened()
        row = "#backends tr[data-name='export ']"
        browser.until(f"document.querySelector({row!r}).innerText.includes('1 up') || document.querySelector({row!r}).innerText.includes('1 of 1 up')", "the backend of one server")
        colors = self.colors(browser)
        self.assertEqual(self.color(browser, row + " td:nth-child(2)"), colors["quiet"])
        self.assertEqual(self.color(browser, row + " td.lost"), colors["c3"], "its failures are")

    def long_ones(self):
        """A key, a path and names of the maximum length that the gateway reports."""
        gateway = self.server.gateway
        with gateway.lock:
            gateway.keys["per-client"][0].key = ["k" * 120]
            gateway.keys["per-client"][0].banned_until = time.time() + 3600
            gateway.limits[2]["name"] = "a-limit-with-a-name-that-is-longer-than-any-column-" * 2
            gateway.keys[gateway.limits[2]["name"]] = gateway.keys.pop("exports")
            for column in gateway.columns:
                for of in ["tally", "limits"]:
                    column[of][gateway.limits[2]["name"]] = column[of].pop("exports")
            for number in range(40):
                gateway.note(time.time() + 5, {"status": 429, "client": f"2001:db8:1111:2222:3333:4444:5555:{number:x}", "route": "export", "path": "/" + "p" * 199, "limit": "exports", "id": f"id:{number:032x}",
                                               "key": ["k" * 120, f"v{number}"], "cost": 1, "retry_after": 1, "reason": "over 2/s, queue 20"})
        return "k" * 120, "/" + "p" * 199, gateway.limits[2]["name"]

    def test_rows_are_whole(self):
        key, path, limit = self.long_ones()
        browser = self.opened()
        for text, place in [(key, "#keys"), (key, "#bans"), (path, "#refusals"), (limit, "#limits"), (limit, "#routes")]:
            browser.until(f"document.querySelector({place!r}).innerText.includes({text!r})", f"{text} in {place}")
        for width in [1280, 700, 360]:
            browser.size(width, 900, 1, width < 700)
            time.sleep(0.5)
            browser.unfold()
            self.assertEqual(browser.cut(), [], f"at {width}")
            self.assertEqual(browser.stands_out(), [], f"at {width}")
            narrow = "[...document.querySelectorAll('main tbody :is(th, td:not(.n))')].filter(e => e.innerText && e.clientWidth < 48).map(e => e.outerHTML.slice(0, 120))"
            self.assertEqual(browser.run(narrow), [], f"columns of single letters at {width}")
            if width != 700:
                self.assertEqual(browser.run("[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.firstElementChild.id)"), [], f"whole at {width}, without scrolling")
        # Long tables show 4 rows on a phone, and else 8, and all after a press of the button.
        browser.until("document.querySelectorAll('#refusals tbody tr').length === 4", "few rows")
        browser.size(1280, 900)
        browser.until("document.querySelectorAll('#refusals tbody tr').length === 8", "more rows")
        for table, most in [("keys", 20), ("refusals", 30)]:
            browser.click(f"#{table}-more")
            browser.until(f"document.querySelectorAll('#{table} tbody tr').length >= {most}", f"all {table}")
            browser.until(f"document.querySelector('#{table}-more').innerText === 'Show the first 8'", "the way back")
        self.assertEqual(browser.cut(), [])

    def test_a_phone_of_360_pixels(self):
        self.long_ones()
        browser = self.opened()
        browser.size(360, 740, 1, True)
        browser.open(self.url)
        browser.until("document.querySelector('#keys').innerText.includes('banned until') && past.time.length > 250", "the page")
        browser.unfold()
        for scheme in ["light", "dark"]:
            browser.scheme(scheme)
            browser.until("document.querySelectorAll('.uplot canvas').length >= 6", "the curves")
            self.assertLessEqual(browser.run("document.documentElement.scrollWidth"), 360, "nothing stands out to the right")
            self.assertEqual(browser.stands_out(), [])
            self.seen(browser, f"dashboard-phone-{scheme}")
        # Every number is shown, with its label.
        row = "(row => [...row.cells].map(cell => [cell.dataset.label, cell.getClientRects().length > 0 && getComputedStyle(cell, '::before').content.includes(cell.dataset.label)]))(document.querySelector('#limits tbody tr'))"
        told = browser.run(row)
        self.assertEqual(len(told), 6)
        self.assertTrue(all(shown for _, shown in told[1:]), told)
        for press, dialog in [("#keys tbody button", "#look"), ("#explain-open", "#explain"), ("#reload", "#sure")]:
            browser.click(press)
            browser.until(f"document.querySelector({dialog!r}).open", dialog)
            left, right = browser.run(f"(r => [r.left, r.right])(document.querySelector({dialog!r}).getBoundingClientRect())")
            self.assertTrue(left >= 0 and right <= 360, (dialog, left, right))
            self.assertEqual(browser.stands_out(), [])
            if dialog == "#look":
                self.seen(browser, "dashboard-phone-key")
                self.assertEqual(browser.run("[...document.querySelectorAll('#look-policies tbody td')].map(cell => cell.dataset.label)"), ["Left", "of", "Next in", "Full in"])
            browser.press("Escape", 27)
            browser.until(f"!document.querySelector({dialog!r}).open", f"{dialog} closed")
        self.assertEqual(browser.complaints, [])

    def test_bans_are_listed_and_lifted(self):
        browser = self.opened()
        browser.until("document.querySelector('#bans-note').innerText === 'No key is banned.'", "that there are none")
        self.assertEqual(self.asked("GET /api/v1/bans"), [], "then nothing is asked")
        now = time.time()
        with self.server.gateway.lock:
            self.server.gateway.keys["per-client"][1].banned_until = now + 7300
            self.server.gateway.keys["stricter"][0].banned_until = now + 200
            self.server.gateway.keys["per-plan"][0].banned_until = now + 90000
            self.server.gateway.keys["per-plan"][0].key = None
        rows = browser.until("(rows => rows.length === 3 && rows.map(row => [...row.cells].map(cell => cell.innerText)))([...document.querySelectorAll('#bans tbody tr')])", "the bans")
        self.assertEqual([row[:2] for row in rows], [["203.0.113.7 · /search/shoes", "stricter"], ["198.51.100.20", "per-client"], ["id:" + "0" * 31 + "b", "per-plan"]])
        self.assertTrue(all(end in row[3] for end, row in zip(["in 3 min", "in 2 h", "in 1 d"], rows)), rows)
        browser.click("#bans tr:nth-child(2) .doing button")
        browser.answer_sure("Lift this ban?", yes=False)
        self.assertEqual(self.asked("DELETE"), [])
        browser.click("#bans tr:nth-child(2) .doing button")
        browser.until("document.querySelector('#sure-text').innerText.includes('198.51.100.20')", "whose ban it is")
        browser.answer_sure("Lift this ban?")
        browser.until("document.querySelector('#said').innerText === '198.51.100.20 is no longer banned.'", "the end of the ban")
        self.assertEqual(self.asked("DELETE"), ["DELETE /api/v1/limits/per-client/keys/id%3A00000000000000000000000000000002/ban"])
        browser.run("scrollTo(0, 0)")
        browser.until("document.querySelectorAll('#bans tbody tr').length === 2", "the others")
        # The key's dialog opens.
        browser.click("#bans th button")
        browser.until("document.querySelector('#look').open && document.querySelector('#look-title').innerText.includes('under stricter')", "the key")

    def test_a_ban_in_shadow_is_marked_and_not_to_be_lifted(self):
        browser = self.opened()
        key = self.server.gateway.keys["stricter"][0]
        with self.server.gateway.lock:
            key.banned_until, key.ban_in_shadow = time.time() + 7300, True
        browser.until("document.querySelector('#bans .tag.shadow')?.innerText === 'shadow'", "its mark")
        self.assertEqual(browser.run("document.querySelectorAll('#bans .doing button').length"), 0, "there is nothing to lift")
        browser.until("document.querySelector('#concerns').innerText.includes('In shadow, 1 key would be banned')", "the concern")
        self.assertNotIn("Banned:", browser.text("#concerns"))
        browser.click("#bans th button")
        browser.until("document.querySelector('#look').open && document.querySelector('#look-verdict').innerText.includes('in shadow, it would be banned until')", "the key")
        self.assertTrue(browser.run("document.querySelector('#unban').hidden"))

    def test_tiers_stand_with_limits_and_keys(self):
        browser = self.opened()
        row = "[...document.querySelectorAll('#limits tbody tr')].find(row => row.innerText.includes('per-plan'))"
        browser.until(f"{row}?.innerText.includes('6000/min for each header:x-api-key · pro: 60000/min')", "the tier of the limit")
        browser.run(f"{row}.querySelector('button').click()")
        browser.until("document.querySelector('#keys tbody .sub')?.innerText === 'tier pro'", "the tier of a key")

    def test_routes_are_listed(self):
        browser = self.opened()
        rows = browser.until("(rows => rows.length === 5 && rows[0].cells[3].innerText !== '0' && rows.map(row => [...row.cells].map(cell => cell.innerText)))([...document.querySelectorAll('#routes tbody tr')])", "the routes")
        self.assertIn("GET · api.example.com · /search/*", rows[0][1])
        self.assertIn("per-client", rows[0][2])
        self.assertIn("shadow", rows[0][2])
        self.assertIn("GET, POST · api.example.com, exports.example.com · /export/{catalogue}/{year}/{month}/* · with x-plan · with ?format · with cookie session · with /method in the body · from 10.0.0.0/16, 10.1.0.0/16, 10.2.0.0/16, 2 more · unless headers.x-internal", rows[2][1])
        self.assertEqual([row[0].split("\n") for row in rows[2:]], [["export", "to export"], ["old", "redirects with 308"], ["closed", "answers with 503"]])
        self.assertEqual([row[1] for row in rows[3:]], ["/old/*", "~^/v[0-9]+/closed$"])
        self.assertIn("exports (cost 10)", rows[2][2])
        numbers = [int(text.replace(",", "")) for text in rows[2][3:6]]
        self.assertEqual(numbers, [240, 0, 60], "requests, refused, failed of the last minute")
        self.assertEqual(len(self.asked("GET /api/v1/routes")), 1, "asked for once")

    def test_what_cannot_be_taken_back_asks_first(self):
        browser = self.opened()
        browser.until("document.querySelectorAll('#keys tbody button').length > 3", "keys")
        changes = lambda: [line for line in self.server.asked if not line.startswith("GET")]
        questions = [("#keys tr:nth-child(2) .doing button:nth-of-type(2)", "Reset this counter?"), ("#reload", "Reload the file?"), ("#drain", "Stop this gateway?")]
        for button, question in questions:
            # The pointer, Escape, and Enter on the button with the initial focus: each cancels.
            if button == "#drain":
                browser.click("#more summary")
            browser.click(button)
            browser.answer_sure(question, yes=False)
            for key in [("Escape", 27), ("Enter", 13, "\r")]:
                browser.run(f"document.querySelector({button!r}).focus()")
                browser.press("Enter", 13, "\r")
                browser.until(f"document.querySelector('#sure').open && document.querySelector('#sure-title').innerText === {question!r} && document.activeElement.id === 'sure-no'", question)
                browser.press(*key)
                browser.until("!document.querySelector('#sure').open", "the end of the question")
                self.assertTrue(browser.run(f"document.activeElement === document.querySelector({button!r})"), "the focus is back")
        browser.click("#keys tr:nth-child(2) .doing button:nth-of-type(1)")
        browser.until("document.querySelector('#look').open", "the key")
        for button, question in [("#look-reset", "Reset this counter?"), ("#ban-form button[type=submit]", "Ban this key?")]:
            browser.click(button)
            browser.answer_sure(question, yes=False)
            self.assertTrue(browser.run("document.querySelector('#look').open"), "the key is still looked at")
        self.assertEqual(changes(), [], "nothing has changed")
        browser.press("Escape", 27)
        # The change can be made with the keyboard alone.
        browser.until("!document.querySelector('#look').open", "the key is closed")
        browser.run("document.querySelector('#reload').focus()")
        browser.press("Enter", 13, "\r")
        browser.until("document.activeElement.id === 'sure-no'", "the question")
        browser.press("Tab", 9)
        browser.until("document.activeElement.id === 'sure-yes'", "the focus on the answer")
        self.assertEqual(browser.run("getComputedStyle(document.activeElement).outlineStyle"), "solid")
        browser.press("Enter", 13, "\r")
        browser.until("document.querySelector('#said').innerText.includes('Reloaded')", "the reload")
        self.assertEqual(changes(), ["POST /api/v1/reload"])
        self.assertEqual(browser.questions, [], "by dialogs of the page's own")

    def test_backticks_are_code_and_never_markup(self):
        gateway = self.server.gateway
        fault = "gateway.toml:3:1: unknown key `<img src=x>`, did you mean `rate`? A single ` stays"
        with gateway.lock:
            gateway.reload = {"time": time.time(), "result": "failure", "detail": fault}
            gateway.note(time.time() + 2, {"status": 502, "client": "192.0.2.9", "route": "shop", "path": "/`path`", "limit": None, "id": None, "key": None, "cost": None, "retry_after": None, "reason": "no `upstream`"})
        browser = self.opened()
        codes = "[...document.querySelectorAll('#concerns code')].map(e => e.textContent).join()"
        browser.until(f"{codes} === '<img src=x>,rate'", "the names in the fault")
        self.assertIn("did you mean rate? A single ` stays", browser.text("#concerns"))
        browser.until("[...document.querySelectorAll('#refusals code')].map(e => e.textContent).join() === 'upstream'", "the name in the reason")
        self.assertIn("/`path`", browser.text("#refusals"), "what a client sends stays as it is")
        self.assertEqual(browser.run("document.querySelectorAll('img').length"), 0)
        # In messages and in explanations, too.
        browser.run("document.querySelector('#key-form input').value = 'a,b'")
        browser.click("#key-form button")
        browser.until("document.querySelector('#said code')?.textContent === 'per-client'", "the name in the message")
        browser.click("#explain-open")
        browser.run("document.querySelector('#explain-form [name=url]').value = '/search/`x`'")
        browser.click("#explain-form button[type=submit]")
        browser.until("document.querySelector('#explanation code')?.textContent === 'search' && !!document.querySelector('#explanation li code')", "the names in the explanation")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--pictures", type=Path)
    given, rest = arguments.parse_known_args()
    PICTURES = given.pictures
    if PICTURES:
        PICTURES.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
