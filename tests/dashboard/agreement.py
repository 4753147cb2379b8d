"""No view of the same second contradicts another: random traffic through the real gateway, then the dashboard's page, `top --once`,
the API, the metrics and the access log are compared.

    python3 tests/dashboard/agreement.py --binary target/debug/tollgate [--seed NUMBER]
"""

import argparse
import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time
import unittest
from collections import Counter
from http.server import ThreadingHTTPServer
from pathlib import Path

import story
from browser import TIMEOUT, Browser

SEED, REQUESTS, THREADS = 46, 900, 6
FILE = """
[server]
listen = ["127.0.0.1:0"]
workers = 2

[admin]
listen = "127.0.0.1:0"

[log]
file = "access.log"

[upstreams.shop]
servers = ["http://127.0.0.1:BACKEND", "http://127.0.0.1:FAILING"]
eject   = { failures = 0 }

[upstreams.away]
servers = ["http://127.0.0.1:1", "http://127.0.0.1:BACKEND"]
eject   = { failures = 0 }

[limits.per-client]
algorithm = "fixed-window"
key       = "header:x-client"
reveal    = true
rate      = "25/300day"
align     = "first-request"
ban       = { after = 12, within = "10min", for = "1h" }

[limits.shadow]
algorithm = "fixed-window"
key       = "header:x-client"
rate      = "10/300day"
align     = "first-request"
mode      = "shadow"

[limits.slow]
algorithm = "leaky-bucket"
key       = "global"
rate      = "40/s"
queue     = 3

[auth.partner]
type      = "api-key"
from      = "header:x-api-key"
file      = "consumers.csv"

[[routes]]
name = "search"
path = "/search/*"
upstream = "shop"
limits = ["per-client", "shadow"]

[[routes]]
name = "slow"
path = "/slow"
upstream = "shop"
limits = ["slow", "shadow"]

[[routes]]
name = "private"
path = "/private"
auth = "partner"
upstream = "shop"

[[routes]]
name = "away"
path = "/away"
upstream = "away"
"""
LATE = 10  # seconds of "now" in sentences


class Failing(story.Shop):
    """The second server of the shop."""

    def do_GET(self):
        status = 500 if len(self.path) % 2 else 200
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


def rate(number):
    """As the page and `top` write rates."""
    return f"{int(number + 0.5):,}" if number >= 9.95 else f"{int(number * 10 + 0.5) / 10:g}"


def plain(words):
    """A sentence of the API as the page writes it."""
    return words.replace("`", "")


def lately(numbers):
    last = [number or 0 for number in numbers[-LATE:]]
    return sum(last) / max(1, len(last))


def table(text, title):
    """The rows of a table of `top --once`, by their first cell: each is a dict by column."""
    block = text.split(f"\n{title}\n", 1)[1].split("\n\n", 1)[0].splitlines()
    if not block:
        return {}
    names = re.split(r"\s{2,}", block[0].strip())
    rows = [re.split(r"\s{2,}", line.strip()) for line in block[1:]]
    return {row[0]: dict(zip(names, row)) for row in rows} # cells at the end may be empty


class Agreement(unittest.TestCase):
    def drive(self, draw):
        """One thread's requests. Their statuses are kept."""
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=TIMEOUT)
        for _ in range(REQUESTS // THREADS):
            path = draw.choices(["/search/shoes", "/slow", "/private", "/away", "/nothing"], [60, 15, 10, 10, 5])[0]
            headers = {"x-client": draw.choice(["abuser"] * 6 + [f"client-{number}" for number in range(9)])}
            if draw.random() < 0.4:
                headers["x-api-key"] = draw.choice(["a-key-of-more-than-20-characters", "a-wrong-key-of-some-characters"])
            connection.request("GET", f"{path}?{draw.randrange(1000)}", headers=headers)
            answer = connection.getresponse()
            answer.read()
            with self.lock:
                self.statuses[answer.status] += 1
        connection.close()

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.admin, timeout=TIMEOUT)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        found = [re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line) for line in lines if not line.startswith("#")]
        return [(one[1], dict(re.findall(r'(\w+)="([^"]*)"', one[2] or "")), float(one[3])) for one in found]

    def metric(self, name, **labels):
        return sum(value for one, has, value in self.scrape if one == name and all(has.get(key) == text for key, text in labels.items()))

    def begin_top(self):
        url = f"http://127.0.0.1:{self.gateway.admin}"
        return subprocess.Popen([story.BINARY, "top", "--once", "--url", url], stdout=subprocess.PIPE, text=True)

    def same_second(self):
        """The API's answers, what `top` prints and what the page shows, of one second."""
        end = time.monotonic() + 2 * TIMEOUT
        while time.monotonic() < end:
            # All at once: on a busy machine one after the other takes longer than a second.
            samples, top = self.gateway.ask("samples"), self.begin_top()
            api = {name: self.gateway.ask(name) for name in ["status", "limits", "bans", "limits/per-client/keys?top=100"]} | {"samples": samples}
            page = self.browser.run("""(cells => ({ drawn: !busy, seq: past.seq, limit: shownLimit(), verdict: document.querySelector('#verdict').innerText, concerns: document.querySelector('#concerns').innerText,
                limits: cells('limits'), routes: cells('routes'), servers: [...document.querySelectorAll('#backends tr.server')].map(row => [row.dataset.name, ...[...row.cells].slice(1).map(cell => cell.innerText)]), keys: cells('keys'), bans: cells('bans') }))
                (id => [...document.querySelectorAll('#' + id + ' tbody tr')].map(row => [...row.cells].map(cell => (cell.querySelector('button.link') ?? cell).innerText)))""")
            text, _ = top.communicate(timeout=TIMEOUT)
            self.assertEqual(top.returncode, 0)
            # The page may have the second already, and draw it next. It asks for samples and status one beside the other, so
            # that its status may be of the second before.
            told = page["verdict"] + page["concerns"]
            has_status = all(plain(problem["text"]) in told for problem in api["status"]["problems"])
            is_same = page["drawn"] and self.gateway.ask("samples")["seq"] == api["samples"]["seq"] == page["seq"]
            if is_same and has_status:
                return api, text, page
        raise AssertionError("the views never showed the same second, with all problems")

    def test_views_agree(self):
        draw = random.Random(SEED)
        failing = ThreadingHTTPServer(("127.0.0.1", 0), Failing)
        failing.daemon_threads = True
        threading.Thread(target=failing.serve_forever, daemon=True).start()
        self.addCleanup(failing.server_close)
        self.addCleanup(failing.shutdown)
        self.gateway = gateway = story.Gateway(FILE.replace("FAILING", str(failing.server_port)), {"consumers.csv": "key,name\na-key-of-more-than-20-characters,anna\n"})
        self.addCleanup(gateway.stop)
        self.browser = browser = Browser()
        self.addCleanup(browser.__exit__)
        browser.open(f"http://127.0.0.1:{gateway.admin}/")
        browser.until("past.seq > 1", "the page")
        self.statuses, self.lock = Counter(), threading.Lock()
        threads = [threading.Thread(target=self.drive, args=[random.Random(draw.random())]) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sent = sum(self.statuses.values())
        fates = ["admitted", "delayed", "refused", "failed"]
        end = time.monotonic() + TIMEOUT
        while sum(sum(gateway.ask("samples")["all"][fate]) for fate in fates) < sent and time.monotonic() < end:
            time.sleep(0.05)
        log = Path(gateway.folder.name) / "access.log"
        while len(lines := log.read_text().splitlines()) < sent and time.monotonic() < end:
            time.sleep(0.05)
        lines = [json.loads(line) for line in lines]
        api, text, page = self.same_second()
        self.scrape = self.metrics()
        if "--print" in sys.argv:
            print(text, page)

        # Each request is in each view once.
        samples, status = api["samples"], api["status"]
        self.assertEqual(sent, len(lines))
        self.assertEqual(sent, self.metric("tollgate_requests_total"))
        self.assertEqual(sent, self.metric("tollgate_request_duration_seconds_count"))
        for code, count in self.statuses.items():
            self.assertEqual(count, self.metric("tollgate_requests_total", code=str(code)), code)
            self.assertEqual(count, sum(line["status"] == code for line in lines), code)
        unauthenticated = [line for line in lines if line["status"] == 401]
        self.assertEqual(len(unauthenticated), self.metric("tollgate_decisions_total", decision="unauthenticated"))
        refused = [line for line in lines if line["decision"] in ("limited", "banned")] + unauthenticated
        failed = [line for line in lines if line not in refused and (line["error"] or line["status"] >= 500)]
        delayed = [line for line in lines if line["decision"] == "delayed" and line not in failed]
        logged = {"refused": len(refused), "failed": len(failed), "delayed": len(delayed), "admitted": sent - len(refused) - len(failed) - len(delayed)}
        self.assertEqual({fate: sum(samples["all"][fate]) for fate in fates}, logged)
        self.assertTrue(all(logged.values()), f"the traffic meets everything: {logged}")

        # Routes.
        shown, printed = {row[0].split("\n")[0]: row for row in page["routes"]}, table(text, "Routes")
        number = lambda text: int(text.split(" ")[0].replace(",", ""))
        for route in ["search", "slow", "private", "away", "none"]:
            of = samples["routes"][route]
            counts = {fate: sum(of[fate]) for fate in fates}
            its = [line for line in lines if (line["route"] or "none") == route]
            self.assertEqual(sum(counts.values()), self.metric("tollgate_requests_total", route=route), route)
            self.assertEqual(sum(counts.values()), len(its), route)
            self.assertEqual(counts["refused"], sum(line in refused for line in its), route)
            cells = [number(text) for text in shown[route][3:6]]
            self.assertEqual(cells, [sum(counts.values()), counts["refused"], counts["failed"]], route)
            if route in printed:
                row = printed[route]
                told = [number(row[name]) for name in ["Requests 1m", "Refused 1m", "Failed 1m"]]
                self.assertEqual(told, cells, route)
        self.assertTrue({"search", "slow", "private", "away"} <= printed.keys(), printed)

        # Limits.
        shown, printed = {row[0]: row for row in page["limits"]}, table(text, "Limits")
        for limit in api["limits"]["limits"]:
            name, minute = limit["name"], limit["minute"]
            of = samples["limits"][name]
            decided = lambda decision: self.metric("tollgate_decisions_total", limit=name, decision=decision)
            self.assertEqual((minute["refused"], minute["in_shadow"]), (sum(of["refused"]), sum(of["in_shadow"])), name)
            self.assertEqual(minute["in_shadow"], decided("shadow_limited"), name)
            self.assertEqual(minute["refused"] - minute["in_shadow"], decided("limited") + decided("banned"), name)
            self.assertEqual((minute["admitted"], minute["delayed"]), (decided("allowed"), decided("delayed")), name)
            in_log = [line for line in refused if line["limit"] == name]
            self.assertEqual(minute["refused"] - minute["in_shadow"], len(in_log), name)
            self.assertEqual(decided("banned"), sum(line["decision"] == "banned" for line in in_log), name)
            self.assertEqual(minute["in_shadow"], sum(name in (line["shadow"] or "").split(",") for line in lines), name)
            passed = minute["admitted"] + minute["delayed"]
            self.assertEqual([number(shown[name][at]) for at in (1, 3)], [minute["refused"], passed], name)
            self.assertEqual([number(printed[name][column]) for column in ("Refused 1m", "Admitted 1m")], [minute["refused"], passed], name)
        self.assertGreater(self.metric("tollgate_decisions_total", decision="banned"), 0)

        # Keys and bans.
        keys = api["limits/per-client/keys?top=100"]
        self.assertEqual(keys["refused"], sum(samples["limits"]["per-client"]["refused"]))
        self.assertEqual(sum(key["refused"] for key in keys["keys"]), keys["refused"])
        self.assertEqual(page["limit"], "per-client")
        worst = keys["keys"][0]
        self.assertEqual(number(page["keys"][0][1]), worst["refused"])
        self.assertEqual(number(table(text, "Keys of per-client")["abuser"]["Refused"]), worst["refused"])
        banned = api["bans"]["total"]
        self.assertEqual([status["bans"], len(page["bans"]), self.metric("tollgate_bans")], [banned] * 3)
        self.assertGreater(banned, 0)
        plural = f"{banned} key" + ("" if banned == 1 else "s")
        for view in (text, page["concerns"]):
            self.assertIn(f"Banned: {plural}", view)

        # Backends.
        for name, of in samples["upstreams"].items():
            for server in of["servers"]:
                row = next(row for row in page["servers"] if row[0] == f"{name} {server['server']}")
                for at, kind in enumerate(["2xx", "3xx", "4xx", "5xx"], 2):
                    counted = self.metric("tollgate_upstream_responses_total", upstream=name, server=server["server"], **{"class": kind})
                    self.assertEqual([server["minute"][kind], number(row[at])], [counted] * 2, row)
                self.assertEqual([server["retries"], number(row[6])], [self.metric("tollgate_upstream_retries_total", upstream=name, server=server["server"])] * 2, row)
            for kind, list in of["classes"].items():
                self.assertEqual(sum(list), sum(server["minute"][kind] for server in of["servers"]), kind)
            self.assertEqual(sum(of["answers"]), self.metric("tollgate_upstream_duration_seconds_count", upstream=name))

        # The sentence.
        requests = sum(lately(samples["all"][fate]) for fate in fates)
        totals = ", ".join(f"{fate} {rate(lately(samples['all'][fate]))}/s" for fate in fates)
        self.assertIn(f"requests: {totals};", text)
        for problem in status["problems"]:
            self.assertIn(problem["text"], text, "top has each problem")
        refuses = lately(samples["limits"]["per-client"]["refused"])
        if refuses:
            sentence = f"per-client refuses {rate(refuses)}/s of {rate(requests)}/s requests"
            self.assertIn(sentence, text)
            self.assertIn(sentence, page["verdict"])
        # Latencies are those of admitted requests, whatever their backend answered, within 5 %.
        times = [line["duration_ms"] for line in lines if line["status"] not in (401, 403, 429)]
        for name in ["p50_ms", "p99_ms"]:
            told = [time for time in samples["all"][name] if time is not None]
            # A delay by the leaky bucket is no latency, and is in the log.
            self.assertTrue(told and max(told) <= max(times) * 1.05, f"{name}: {told}, {max(times)}")
            newest = [time for time in samples["all"][name][-LATE:] if time is not None]
            self.assertIn(f"{name[:3]} {rate(newest[-1]) if newest else '–'} ms", text)
        self.assertEqual(browser.complaints, [], "nothing is wrong with the page")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--binary", type=Path, default=story.BINARY)
    arguments.add_argument("--seed", type=int, default=SEED)
    given, rest = arguments.parse_known_args()
    story.BINARY, SEED = given.binary.resolve(), given.seed
    unittest.main(argv=[sys.argv[0], *[word for word in rest if word != "--print"]], verbosity=2)
