"""Serves the dashboard's page and answers as docs/openapi.json says, with changing numbers: three clients, one of them abusive.

    python3 tests/dashboard/mock.py [--port 9901] [--token secret] [--redis]

What is pressed acts: a ban ends the abuser's curve, a reset fills the allowance. The gateway's own server must answer in this form.
"""

import argparse
import csv
import io
import json
import math
import random
import re
import threading
import time
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "src/admin/dashboard"
OPENAPI = json.loads((ROOT / "docs/openapi.json").read_text())
EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/uplot.js": ("uplot.js", "text/javascript; charset=utf-8"),
    "/uplot.css": ("uplot.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
KEPT = 300
SECONDS = {"s": 1, "min": 60, "h": 3600, "day": 86400}
ABUSER, SHOP, PHONE = "203.0.113.7", "198.51.100.20", "192.0.2.44"


class Fault(Exception):
    def __init__(self, status, detail):
        super().__init__(detail)
        self.status = status


class Key:
    """One key of one limit."""

    def __init__(self, number, key, wish):
        self.id, self.key, self.wish = f"id:{number:032x}", key, wish
        self.admitted = self.refused = 0
        self.used, self.banned_until, self.last, self.ban_in_shadow = 0.0, None, None, False

    def banned(self, now):
        return self.banned_until is not None and self.banned_until > now

    def second(self, now, limit):
        """The requests of this second: admitted, refused."""
        wish = max(0, round(random.gauss(self.wish, self.wish ** 0.5 / 2)))
        self.used = max(0.0, self.used - limit["per_second"])
        room = 0 if self.banned(now) else max(0, math.floor(limit["quota"] - self.used))
        admitted = min(wish, room)
        self.used += admitted
        self.admitted, self.refused, self.last = self.admitted + admitted, self.refused + wish - admitted, now
        return admitted, wish - admitted


class Gateway:
    def __init__(self, redis):
        self.started, self.seq, self.redis = time.time() - 3600, 3300, redis
        self.version, self.loaded, self.reload, self.life = "3f9c2a10", self.started, None, "serving"
        self.lock, self.outage, self.rejected = threading.Lock(), None, {}
        self.drained = set()
        self.columns, self.refusals, self.refusal_seq = [], [], 0
        self.limits = [
            {"name": "per-client", "mode": "enforce", "algorithm": "token-bucket", "key": ["ip"], "policies": ["10/s, burst 50"], "routes": ["search", "shop"], "per_second": 10, "quota": 50},
            {"name": "per-plan", "mode": "enforce", "algorithm": "sliding-window", "key": ["header:x-api-key"], "policies": ["6000/min"], "tiers": [{"name": "pro", "policies": ["60000/min"]}], "routes": ["shop"], "per_second": 100, "quota": 6000},
            {"name": "exports", "mode": "enforce", "algorithm": "leaky-bucket", "key": ["ip"], "policies": ["2/s, queue 20"], "routes": ["export"], "per_second": 2, "quota": 20},
            {"name": "stricter", "mode": "shadow", "algorithm": "gcra", "key": ["ip", "path"], "policies": ["5/s, burst 5"], "routes": ["search"], "per_second": 5, "quota": 5},
        ]
        self.keys = {
            "per-client": [Key(1, [ABUSER], 118), Key(2, [SHOP], 10.4), Key(3, [PHONE], 4)] + [Key(100 + i, [f"198.51.100.{i}"], 0.4) for i in range(30, 60)],
            "per-plan": [Key(11, ["…a1b2 #k7Qd"], 44), Key(12, ["…9f0c #0aZ9"], 13)],
            "exports": [Key(31, [SHOP], 1)],
            "stricter": [Key(21, [ABUSER, "/search/shoes"], 9), Key(22, [SHOP, "/search/hats"], 3)],
        }
        self.usage, self.usage_fault = {"per-plan": usage_of_months()}, None
        begin = int(time.time()) - KEPT
        for second in range(KEPT):
            self.second(begin + second, abuse=second > 215)
        self.newest = begin + KEPT - 1

    # ---- time ----

    def catch_up(self):
        while self.newest < int(time.time()) - 1:
            self.newest += 1
            self.second(self.newest, abuse=True)

    def second(self, now, abuse):
        self.seq += 1
        tally = {name: [0, 0, 0] for name in self.keys}
        for limit in self.limits:
            for key in self.keys[limit["name"]]:
                if key.key and key.key[0] == ABUSER and not abuse:
                    continue
                admitted, refused = key.second(now, limit)
                tally[limit["name"]][0] += admitted
                tally[limit["name"]][1] += refused
                tally[limit["name"]][2] += refused > 0
                if refused and limit["mode"] == "enforce":
                    self.refuse(now, limit, key, refused)
        wave = 1 + 0.15 * math.sin(now / 17)
        ill = now % 120 < 25
        admitted, refused = tally["per-client"][:2]
        shop = round(tally["per-plan"][0] * wave)
        failed = int(ill and random.random() < 0.3)
        if failed:
            self.note(now, {"status": 502, "client": PHONE, "route": "shop", "path": "/shop/basket", "limit": None, "id": None, "key": None, "cost": None, "retry_after": None, "server": None, "reason": "reset"})
        search = {"admitted": admitted, "delayed": int(random.random() < 0.2), "refused": refused, "failed": 0, "p50_ms": 2.4 * wave, "p99_ms": 19 * wave + random.random() * 6}
        shops = {"admitted": shop, "delayed": 0, "refused": tally["per-plan"][1], "failed": failed, "p50_ms": 4.1 * wave, "p99_ms": (90 if ill else 31) * wave + random.random() * 9}
        none = {"delay_p50_ms": None, "delay_p99_ms": None}
        others = {name: self.rejected.get(name, 0) for name in ["unauthenticated", "forbidden", "too_large"]}
        search["refused"] += sum(others.values())
        search, shops = search | none | others, shops | none | dict.fromkeys(others, 0)
        exports = dict.fromkeys(others, 0) | {"admitted": 1, "delayed": 2, "refused": 0, "failed": 1, "p50_ms": 3.1 * wave, "p99_ms": 12 * wave, "delay_p50_ms": 480.0 * wave, "delay_p99_ms": 960.0 * wave}
        everything = {name: search[name] + shops[name] + exports[name] for name in ["admitted", "delayed", "refused", "failed", *others]}
        everything |= {"p50_ms": search["p50_ms"] + 0.4, "p99_ms": shops["p99_ms"] * 0.9, "delay_p50_ms": exports["delay_p50_ms"], "delay_p99_ms": exports["delay_p99_ms"]}
        classes = lambda good, bad=0: {"1xx": 0, "2xx": good, "3xx": 0, "4xx": 0, "5xx": bad}
        self.columns.append({
            "all": everything, "routes": {"search": search, "shop": shops, "export": exports},
            "limits": {limit["name"]: {"refused": tally[limit["name"]][1], "in_shadow": self.in_shadow(limit, tally[limit["name"]][1])} | (settled(tally[limit["name"]][0]) if limit.get("settles") else {}) for limit in self.limits},
            "upstreams": {"search": {"answers": admitted, "failed": 0, "p50_ms": search["p50_ms"] - 0.3, "p99_ms": search["p99_ms"] - 1, "up": 2, "classes": classes(admitted), "retries": 0},
                          "shop": {"answers": shop, "failed": failed, "p50_ms": shops["p50_ms"] - 0.3, "p99_ms": shops["p99_ms"] - 1, "up": 1 if ill else 2, "classes": classes(shop), "retries": failed},
                          "export": {"answers": 4, "failed": 1, "p50_ms": exports["p50_ms"] - 0.3, "p99_ms": exports["p99_ms"] - 1, "up": 1, "classes": classes(3, 1), "retries": 1}},
            "store": {"keys": 5100 + 3 * (self.seq % 400), "evictions": 0, "errors": 0, "p50_ms": 0.4 if self.redis else None, "p99_ms": 1.9 * wave if self.redis else None},
            "tally": tally,
        })
        self.columns = self.columns[-KEPT:]
        self.ill = ill

    def refuse(self, now, limit, key, refused):
        reason = f"banned until {time.strftime('%H:%M:%S', time.gmtime(key.banned_until))}" if key.banned(now) else "over " + limit["policies"][0]
        for _ in range(min(refused, 3)):
            self.note(now, {"status": 429, "client": key.key[0] if key.key else PHONE, "route": "search", "path": random.choice(["/search/shoes", "/search/hats", "/search/<b>bold</b>"]), "limit": limit["name"],
                            "id": key.id, "key": key.key, "cost": 1, "retry_after": 1, "server": None, "reason": reason})

    def note(self, now, refusal):
        self.refusal_seq += 1
        self.refusals.append({"seq": self.refusal_seq, "time": now + random.random(), "method": "GET", "host": "api.example.com"} | refusal)
        self.refusals = self.refusals[-200:]

    # ---- answers ----

    def status(self):
        bans = sum(key.banned(time.time()) for keys in self.keys.values() for key in keys)
        shadow_bans = sum(key.banned(time.time()) and key.ban_in_shadow for keys in self.keys.values() for key in keys)
        return {"time": time.time(), "version": "0.6.0", "started": self.started, "workers": 2, "life": self.life,
                "config": {"file": "/etc/tollgate/gateway.toml", "version": self.version, "loaded": self.loaded}, "last_reload": self.reload,
                "store": {"backend": "redis" if self.redis else "memory", "up": True, "max_keys": None if self.redis else 1_000_000}, "bans": bans - shadow_bans, "shadow_bans": shadow_bans, "certificates": [], "problems": self.problems()}

    def problems(self):
        """The outage that a test sets, otherwise the state of the servers of `shop`."""
        if self.outage:
            return [{"severity": "bad", "kind": "errors", "upstream": "shop", "text": self.outage}]
        return [{"severity": "warn", "kind": "down", "upstream": "shop", "text": "Backend `shop`: 1 of 2 servers is down: 10.0.0.4:9000 (connection refused)"}] if self.ill else []

    def samples(self, since):
        first = self.seq - len(self.columns)
        columns = self.columns[since - first:] if since is not None and first <= since <= self.seq else self.columns
        lists = lambda pick: {name: [rounded(pick(column)[name]) for column in columns] for name in pick(self.columns[-1])}
        plain = lambda of: {field: value for field, value in of.items() if field != "classes"}
        place = lambda name: {of: lists(lambda column: plain(column[name][of])) for of in self.columns[-1][name]}
        upstreams = place("upstreams")
        for name, of in upstreams.items():
            down = name == "shop" and self.ill
            of["classes"] = lists(lambda column: column["upstreams"][name]["classes"])
            minute = {"minute": {"1xx": 0, "2xx": sum(of["classes"]["2xx"][-60:]) // 2, "3xx": 0, "4xx": 0, "5xx": 0}, "retries": 0, "in_flight": 3, "p50_ms": 2.1, "p99_ms": 19.8}
            if name == "export":
                of["servers"] = [{"server": "exports-of-the-whole-catalogue.internal.example.com:9000", "up": True, "why": None, "reason": None} | minute]
                continue
            of["servers"] = [{"server": f"10.0.0.{1 if name == 'search' else 3}:9000", "up": True, "why": None, "reason": None, "drained": f"10.0.0.{1 if name == 'search' else 3}:9000" in self.drained} | minute,
                             {"server": f"10.0.0.{2 if name == 'search' else 4}:9000", "up": not down, "why": "ejected" if down else None, "reason": "connection refused" if down else None, "drained": False} | minute]
        return {"started": self.started, "config": self.version, "seq": self.seq, "time": self.newest, "count": len(columns), "all": lists(lambda column: column["all"]),
                "routes": place("routes"), "limits": place("limits"), "upstreams": upstreams, "store": lists(lambda column: column["store"])}

    def in_shadow(self, limit, refused):
        """The refusals that are only counted."""
        return refused if limit["mode"] == "shadow" else round(refused * (1 - limit.get("trial", 1)))

    def limit_list(self):
        told = []
        for limit in self.limits:
            name = limit["name"]
            minute = [column["tally"][name] for column in self.columns[-60:]]
            hour = [column["tally"][name] for column in self.columns]
            told.append({field: limit[field] for field in ["name", "mode", "algorithm", "key", "policies", "routes"]} | {
                span: {"admitted": sum(one[0] for one in tally), "delayed": 0, "refused": sum(one[1] for one in tally), "in_shadow": self.in_shadow(limit, sum(one[1] for one in tally)), "refused_keys": max(one[2] for one in tally)}
                for span, tally in [("minute", minute), ("hour", hour)]} | {"trial": limit.get("trial"), "keys": None, "max_keys": None, "lease": None, "tiers": limit.get("tiers", []), "failures": limit.get("failures"), "bans": sum(key.banned(time.time()) and not key.ban_in_shadow for key in self.keys[name]), "shadow_bans": sum(key.banned(time.time()) and key.ban_in_shadow for key in self.keys[name]), "ban": None, "settles": limit.get("settles", False), "usage": name in self.usage, "in_flight": None})
        return {"time": time.time(), "keys_error": 0.065, "limits": told}

    def limit(self, name):
        for limit in self.limits:
            if limit["name"] == name:
                return limit
        raise Fault(404, f"there is no limit `{name}`")

    def key_list(self, name, query):
        limit, by = self.limit(name), query.get("by", ["refused"])[0]
        units = lambda key: key.admitted * 120 if limit.get("settles") else None
        asked = lambda key: {"admitted": key.admitted, "refused": key.refused, "units": units(key)}.get(by, key.admitted + key.refused)
        keys = self.keys[name]
        told = [{"id": key.id, "key": key.key, "requests": key.admitted + key.refused, "admitted": key.admitted, "refused": key.refused, "units": units(key), "last": key.last,
                 "banned_until": key.banned_until if key.banned(time.time()) else None, "ban_in_shadow": key.ban_in_shadow if key.banned(time.time()) else None, "tier": "pro" if limit.get("tiers") else None} for key in sorted(keys, key=asked, reverse=True)]
        return {"limit": name, "mode": limit["mode"], "span": 300, "requests": sum(one["requests"] for one in told), "admitted": sum(key.admitted for key in keys),
                "refused": sum(key.refused for key in keys), "error": 0, "followed": 1000, "keys": told[:int(query.get("top", ["20"])[0])]}

    def usage_list(self, name, query):
        """The report of a window, or its CSV as text."""
        if name not in self.usage:
            raise Fault(404, f"limit `{name}` keeps no usage: write `usage = true` in [limits.{name}]")
        if self.usage_fault:
            raise Fault(503, self.usage_fault)
        windows = self.usage[name]
        asked = query.get("window", ["current"])[0]
        listed = [one for number, one in enumerate(windows) if asked in [one["window"]["begin"], *["current", "previous"][number:number + 1]]]
        if not listed:
            raise Fault(400, "`window` is `current`, `previous`, or the begin of a window of `windows`: `2026-11-01T00:00:00Z`")
        report, top = listed[0], int(query.get("top", ["1000"])[0])
        if query.get("format") == ["csv"]:
            text = io.StringIO()
            table = csv.writer(text, lineterminator="\r\n")
            table.writerow(["consumer", "units", "requests", "window_begin", "window_end"])
            table.writerows([one["consumer"], one["units"], one["requests"], *report["window"].values()] for one in report["consumers"][:top])
            return text.getvalue()
        return report | {"limit": name, "policy": "100000/month", "windows": [one["window"]["begin"] for one in windows], "consumers": report["consumers"][:top],
                         "total": {field: sum(one[field] for one in report["consumers"]) for field in ["units", "requests"]}}

    def ban_list(self, query):
        now = time.time()
        bans = [{"limit": limit["name"], "mode": limit["mode"], "id": key.id, "key": key.key, "banned_until": key.banned_until, "cause": "20 refusals in 10 minutes" if key.ban_in_shadow else "by hand", "in_shadow": key.ban_in_shadow}
                for limit in self.limits for key in self.keys[limit["name"]] if key.banned(now)]
        bans.sort(key=lambda ban: ban["banned_until"])
        return {"time": now, "total": len(bans), "bans": bans[:int(query.get("top", ["100"])[0])]}

    def route_list(self):
        limits = lambda route, cost: [{"name": limit["name"], "mode": limit["mode"], "cost": cost} for limit in self.limits if route in limit["routes"]]
        return {"routes": [
            {"name": "search", "hosts": ["api.example.com"], "path": "/search/*", "methods": ["GET"], "headers": [], "query": [], "cookies": [], "body": [], "not": [], "clients": [],
             "upstream": "search", "answer": None, "cost": 1, "limits": limits("search", 1)},
            {"name": "shop", "hosts": [], "path": "/shop/*", "methods": [], "headers": [], "query": [], "cookies": [], "body": [], "not": [], "clients": [], "upstream": "shop", "answer": None, "cost": 1,
             "limits": limits("shop", 1)},
            {"name": "export", "hosts": ["api.example.com", "exports.example.com"], "path": "/export/{catalogue}/{year}/{month}/*", "methods": ["GET", "POST"], "headers": ["x-plan"],
             "query": ["format"], "cookies": ["session"], "body": ["/method"], "not": ["headers.x-internal"], "clients": [f"10.{number}.0.0/16" for number in range(5)], "upstream": "export", "answer": None, "cost": 10, "limits": limits("export", 10)},
            {"name": "old", "hosts": [], "path": "/old/*", "methods": [], "headers": [], "query": [], "cookies": [], "body": [], "not": [], "clients": [], "upstream": None, "answer": 308, "cost": 1, "limits": []},
            {"name": "closed", "hosts": [], "path": "~^/v[0-9]+/closed$", "methods": [], "headers": [], "query": [], "cookies": [], "body": [], "not": [], "clients": [], "upstream": None, "answer": 503, "cost": 1, "limits": []}]}

    def look(self, limit, key):
        now = time.time()
        left = max(0, math.floor(limit["quota"] - key.used))
        verdict = "banned" if key.banned(now) else "admitted" if left else "refused"
        return {"limit": limit["name"], "mode": limit["mode"], "algorithm": limit["algorithm"], "id": key.id, "key": key.key, "verdict": verdict,
                "policies": [{"policy": limit["policies"][0], "quota": limit["quota"], "used": math.ceil(key.used), "remaining": left, "next_ms": 0 if left else 84, "full_ms": round(key.used / limit["per_second"] * 1000)}],
                "banned_until": key.banned_until if key.banned(now) else None, "ban_cause": "by hand" if key.banned(now) else None, "ban_in_shadow": key.ban_in_shadow if key.banned(now) else None, "requests": key.admitted + key.refused, "admitted": key.admitted, "refused": key.refused}

    def key(self, limit, text):
        parts = [unquote(part) for part in text.split(",")]
        for key in self.keys[limit["name"]]:
            if parts in ([key.id], key.key):
                return key
        if len(parts) != len(limit["key"]):
            raise Fault(400, f"`{limit['name']}` has a key of {len(limit['key'])} parts")
        stranger = Key(random.getrandbits(120), parts, 0)
        self.keys[limit["name"]].append(stranger)
        return stranger

    def one_key(self, method, name, text, deed, body):
        limit = self.limit(name)
        key = self.key(limit, text)
        more = {}
        if method == "DELETE" and not deed:
            key.used = 0.0
        elif method == "DELETE":
            key.banned_until = None
        elif deed == "ban":
            key.banned_until = time.time() + duration(body.get("for"))
        elif deed == "grant":
            more = {"granted": min(body["units"], math.ceil(key.used))}
            key.used -= more["granted"] if more["granted"] < key.used else key.used
        elif deed == "charge":
            key.used += body["units"]
            more = {"charged": body["units"], "repeated": False, "changed": True}
        return self.look(limit, key) | more

    def explain(self, body):
        client = body.get("ip", "127.0.0.1")
        limit = self.limits[0]
        seen = self.look(limit, self.key(limit, quote(client)))
        no = seen["verdict"] in ("refused", "banned")
        if body["url"].startswith(("/old", "/closed")):
            return self.explain_answer(body, client)
        return {"request": f"{body.get('method', 'GET')} api.example.com{body['url']}", "client": client, "identified": "the peer itself", "verdict": seen["verdict"], "status": 429 if no else None,
                "limit": "per-client" if no else None, "wait_ms": 84 if no else None, "until": time.time() + 0.084 if no else None,
                "route": {"name": "search", "conditions": [["path", f"`{body['url']}` matches `/search/*`"], ["host", "any"], ["method", "any"]], "upstream": "`search` (10.0.0.1:9000)",
                          "rewritten_by": ["strip_prefix", "base path"], "forwarded": "/api" + body["url"].removeprefix("/search"), "mirror": None, "answer": None, "redirect": None},
                "limits": [{"name": "per-client", "mode": "enforce", "standing": "charged", "detail": None, "cost": 1, "measured": None, "settled_by": "json:/usage/total_tokens" if limit.get("settles") else None, "id": seen["id"], "key": seen["key"], "verdict": seen["verdict"],
                            "banned_until": seen["banned_until"], "policies": seen["policies"]}],
                "others": [["shop", "the path is not `/shop/*`"]], "untold": 0}

    def explain_answer(self, body, client):
        """Of a route without an upstream: a redirect, or a fixed answer."""
        redirects = body["url"].startswith("/old")
        status, location = (301, "https://new.example.com" + body["url"].removeprefix("/old")) if redirects else (503, None)
        answer = {"status": status, "location": location, "content_type": None if redirects else "text/plain; charset=utf-8"}
        return {"request": f"GET api.example.com{body['url']}", "client": client, "identified": "the peer itself", "verdict": "redirected" if redirects else "answered", "status": status,
                "limit": None, "wait_ms": None, "until": None, "limits": [], "others": [], "untold": 0,
                "route": {"name": "old" if redirects else "closed", "conditions": [["host", "any"]], "upstream": None, "rewritten_by": None, "forwarded": None, "mirror": None, "answer": answer, "redirect": None}}

    def reload_file(self):
        """Every second reload fails, so that a test sees both results."""
        if self.reload and self.reload["result"] == "success":
            fault = "gateway.toml:12:8: unknown key `rat`, did you mean `rate`?"
            self.reload = {"time": time.time(), "result": "failure", "detail": fault}
            return 422, {"result": "failure", "faults": [fault]}
        self.version, self.loaded = "77ab01c2", time.time()
        self.reload = {"time": time.time(), "result": "success", "detail": None}
        return 200, {"result": "success", "version": self.version, "changed": True, "warnings": [], "ended_bans": []}

    def answer(self, method, path, query, body):
        self.catch_up()
        since = int(query["since"][0]) if "since" in query else None
        key = re.fullmatch(r"limits/([^/]+)/keys/([^/]+)(?:/(ban|grant|charge))?", path)
        keys = re.fullmatch(r"limits/([^/]+)/keys", path)
        if key and (method, key[3] or "") in {("GET", ""), ("DELETE", ""), ("POST", "ban"), ("DELETE", "ban"), ("POST", "grant"), ("POST", "charge")}:
            return 200, self.one_key(method, unquote(key[1]), key[2], key[3] or "", body)
        if method == "GET" and keys:
            return 200, self.key_list(unquote(keys[1]), query)
        usage = re.fullmatch(r"limits/([^/]+)/usage", path)
        if method == "GET" and usage:
            return 200, self.usage_list(unquote(usage[1]), query)
        drain = re.fullmatch(r"upstreams/([^/]+)/servers/([^/]+)/drain", path)
        if drain and method in {"POST", "DELETE"}:
            server = unquote(drain[2])
            changed = (server in self.drained) != (method == "POST")
            (self.drained.add if method == "POST" else self.drained.discard)(server)
            return 200, {"upstream": unquote(drain[1]), "server": server, "drained": method == "POST", "changed": changed}
        match method, path:
            case "GET", "status":
                return 200, self.status()
            case "GET", "samples":
                return 200, self.samples(since)
            case "GET", "limits":
                return 200, self.limit_list()
            case "GET", "refusals":
                return 200, {"started": self.started, "seq": self.refusal_seq, "skipped": 96, "refusals": [one for one in self.refusals if since is None or one["seq"] > since]}
            case "GET", "routes":
                return 200, self.route_list()
            case "GET", "bans":
                return 200, self.ban_list(query)
            case "POST", "explain":
                return 200, self.explain(body)
            case "POST", "reload":
                return self.reload_file()
            case "POST", "drain":
                self.life = "draining"
                return 202, {"life": self.life}
        raise Fault(404, "unknown API path: `docs/api.md` lists all paths")


def schema_of(method, path, status):
    """The schema of a response."""
    for template, operations in OPENAPI["paths"].items():
        if method.lower() in operations and re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), "/" + path):
            return operations[method.lower()]["responses"][str(status)]["content"]["application/json"]["schema"]
    raise KeyError(path)


def completed(schema, value=None):
    """The value with the fields of the schema that it lacks: `null` where that is allowed, otherwise empty."""
    if "$ref" in schema:
        schema = OPENAPI["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "anyOf" in schema:
        return None if value is None else completed(schema["anyOf"][0], value)
    if value is None:
        if "null" in kinds:
            return None
        value = EMPTY[kinds[0]]
    if isinstance(value, list):
        return [completed(schema["items"], item) for item in value] if "items" in schema else value
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        missing = dict.fromkeys(name for name in schema.get("required", []) if name not in value)
        return {name: completed(known.get(name) or others or {"type": "null"}, of) for name, of in (value | missing).items()}
    return value


def usage_of_months():
    """The usage of this month and of the two before it."""
    months = [datetime.now(timezone.utc).replace(day=1, hour=0, minute=0, second=0, microsecond=0)]
    for _ in range(3):
        months.append((months[-1] - timedelta(days=1)).replace(day=1))
    text = lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    end = (months[0] + timedelta(days=31)).replace(day=1)
    consumer = lambda name, units, requests, quota=None, exhausted_at=None, **more: {"consumer": name, "other": False, "tier": None, "units": units, "requests": requests, "quota": quota,
                                                                                    "share": units / quota if quota else None, "exhausted_at": exhausted_at and text(exhausted_at)} | more
    present = [consumer("anna", 130000, 5021, 100000, months[0] + timedelta(hours=1)), consumer("Müller, \"K\"", 81250, 412, 100000, end - timedelta(hours=10), tier="pro"), consumer("carl", 9120, 37, 1000000),
               consumer(None, 420, 9, other=True), consumer(None, 120, 3)]
    report = lambda begin, end, consumers: {"window": {"begin": text(begin), "end": text(end)}, "since": text(months[2] + timedelta(days=2)), "incomplete_since": None, "consumers": consumers}
    return [report(months[0], end, present), report(months[1], months[0], [consumer("anna", 50000, 800, 100000)]), report(months[2], months[1], [consumer("bert", -5, 1, 100000)])]


def settled(requests):
    """A second of a limit whose costs are settled after the response: 120 units each."""
    return {"settled": requests, "units": 120 * requests}


def rounded(number):
    return round(number, 1) if isinstance(number, float) else number


def duration(text):
    parts = re.fullmatch(r"(\d+)(s|min|h|day)", text or "")
    if not parts:
        raise Fault(400, "`for` is a duration, such as `10min`")
    return int(parts[1]) * SECONDS[parts[2]]


class Handler(BaseHTTPRequestHandler):
    gateway, token, asked = None, None, []

    def do_GET(self):
        url = urlsplit(self.path)
        self.asked.append(f"{self.command} {self.path}")
        if url.path in FILES and self.command == "GET":
            name, content_type = FILES[url.path]
            return self.send(200, content_type, (PAGE / name).read_bytes())
        try:
            status, said = self.api(url)
        except Fault as fault:
            status, said = fault.status, {"type": "about:blank", "title": "Fault", "status": fault.status, "detail": str(fault)}
        if isinstance(said, str):
            return self.send(status, "text/csv; charset=utf-8", said.encode())
        self.send(status, "application/json", json.dumps(said, ensure_ascii=False).encode())

    do_POST = do_DELETE = do_GET

    def api(self, url):
        if self.token and self.headers.get("authorization") != "Bearer " + self.token:
            raise Fault(401, "send `authorization: Bearer TOKEN`")
        if not url.path.startswith("/api/v1/"):
            raise Fault(404, "there is no such page")
        if self.command == "POST" and self.headers.get("content-type") != "application/json":
            raise Fault(415, "send `content-type: application/json`")
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or "{}")
        path = url.path.removeprefix("/api/v1/")
        with self.gateway.lock:
            status, said = self.gateway.answer(self.command, path, parse_qs(url.query), body)
        return status, said if isinstance(said, str) else completed(schema_of(self.command, path, status), said)

    def send(self, status, content_type, body):
        self.send_response(status)
        for name, value in [("content-type", content_type), ("content-length", str(len(body))), ("cache-control", "no-store"), ("content-security-policy", POLICY), ("x-content-type-options", "nosniff")]:
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(body)
        except ConnectionError:
            pass  # the page was closed

    def log_message(self, *_):
        pass


def serve(port=0, token=None, redis=False):
    """Starts the server in the background and returns it. Without a `port`, it takes a free one: `server_port`."""
    asked = []
    handler = type("Bound", (Handler,), {"gateway": Gateway(redis), "token": token, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.gateway, server.asked = handler.gateway, asked
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--port", type=int, default=9901)
    arguments.add_argument("--token")
    arguments.add_argument("--redis", action="store_true")
    given = arguments.parse_args()
    running = serve(given.port, given.token, given.redis)
    print(f"http://127.0.0.1:{running.server_port}/", flush=True)
    threading.Event().wait()
