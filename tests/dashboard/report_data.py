"""A made-up day for the page of `tollgate replay --report` and `tollgate suggest --report`: people, an office behind one address, a crawler, a
scraper and a login attack. The same seed gives the same day."""

import math
import random

HOSTILE = "</script><img src=x onerror=alert(1)>"
PERSON_RULE = ("a client looks like a person if it had at most 1,000 requests a day, made a pause of 2 s or more for each 50 gaps (fewer need none), was never active for more than 6 hours "
               "without a pause of 30 minutes, and its user agent does not name a program")
DAY = 86400


def around(chance, mean):
    return max(0, round(chance.gauss(mean, math.sqrt(mean) * 1.5)))


def timelines(chance, step):
    """Requests and refusals of the whole, of the limit for each client, and of the limit for logins."""
    all_requests, client_refused, logins, login_refused = [], [], [], []
    for at in range(0, DAY, step):
        hour = at / 3600
        people = 22 + 20 * math.sin((hour - 9) / 24 * 2 * math.pi) + 8 * math.exp(-(hour - 20) ** 2 / 4)
        scraper = 14 if 9.4 < hour < 16.7 else 0
        attack = 9 if 2.6 < hour < 3.9 else 0
        all_requests.append(around(chance, (people + scraper + attack) * step))
        client_refused.append(around(chance, 9 * step) if scraper else around(chance, 0.01 * step))
        logins.append(around(chance, (0.4 + attack) * step))
        login_refused.append(around(chance, 8.6 * step) if attack else 0)
    return all_requests, client_refused, logins, login_refused


def bins(keys, middle, width, outliers=()):
    """Bins that double, with a bell of ordinary keys on the logarithmic scale, and outliers at the given peaks."""
    shares = [math.exp(-((power - middle) / width) ** 2) for power in range(20)]
    made = {power: round(keys * share / sum(shares)) for power, share in enumerate(shares)}
    for peak in outliers:
        made[int(math.log2(peak))] = made.get(int(math.log2(peak)), 0) + 1
    return [{"from": 2 ** power, "to": 2 ** (power + 1), "keys": number} for power, number in sorted(made.items()) if number]


def windows(keys, limits, middle, outliers):
    """A window for each length: an outlier's peak is a share of its peak in a minute."""
    lengths = [1, 10, 60, 600, 3600, DAY]
    return [{"seconds": length, "keys": keys + len(outliers), "limit": limit, "ordinary_peak": round(limit / 1.5), "outlier_peak": max(1, round(outliers[-1] * share)), "bins": bins(keys, middle + 0.6 * at, 1.0 + 0.16 * at, [max(1, round(peak * share)) for peak in outliers])}
            for at, (length, limit, share) in enumerate(zip(lengths, limits, [0.08, 0.3, 1, 8, 40, 900]))]


def by_hour(counts, step):
    each = 3600 // step
    return [sum(counts[at:at + each]) for at in range(0, len(counts), each)]


def replay(step=60, days=1, keys=40, seed=7):
    chance = random.Random(seed)
    requests, by_client, logins, by_login = timelines(chance, step)
    refused = [a + b for a, b in zip(by_client, by_login)]
    search = [round(number * 0.3) for number in requests]
    stricter = [round(number * 0.02) for number in search]
    address = lambda: f"{chance.choice(['198.51.100', '203.0.113', '192.0.2'])}.{chance.randrange(1, 255)}"
    hit = [("203.0.113.7", "per-client", round(sum(by_client) * 0.93), round(sum(by_client) * 1.42)), ("198.51.100.0/24", "login", round(sum(by_login) * 0.97), round(sum(by_login) * 1.02)),
           ("2001:db8:7::/56", "per-client", round(sum(by_client) * 0.06), round(sum(by_client) * 0.13))]
    hit += [(address(), chance.choice(["per-client", "per-client", "login"]), max(1, round(310 / (rank + 1) ** 0.8)), chance.randrange(330, 1700)) for rank in range(keys - len(hit))]
    clients = [{"client": key.replace("0/24", "23").replace("::/56", ":1::9"), "refused": lost, "requests": all_, "looks_like_a_person": lost < 90 and all_ < 900} for key, _, lost, all_ in hit]
    shown = lambda name, all_, lost: {"name": name, "begin": "2026-11-22T00:00:00.000000Z", "step_seconds": step, "requests": all_, "refused": lost}
    line = lambda all_, lost: {one: value for one, value in shown("", all_, lost).items() if one != "name"}
    total, lost = sum(requests), sum(refused)
    calendar = [{"day": f"2026-11-{22 - day:02}", "requests": [round(one * chance.uniform(0.85, 1.1) if day else one) for one in by_hour(requests, step)],
                 "refused": [round(one * chance.uniform(0, 0.5)) if day else one for one in by_hour(refused, step)]} for day in reversed(range(days))]
    limit = lambda name, mode, all_, lost, count, count_lost, **more: {"name": name, "mode": mode, "requests": sum(all_), "refused": sum(lost), "delayed": 0, "delay_mean_ms": 0.0, "delay_max_ms": 0.0, "exempt": 0, "keys": count, "keys_refused": count_lost} | more
    return {
        "kind": "replay",
        "answer": f"{lost:,} of {total:,} requests ({100 * lost / total:.1f} %) would have been refused, and {sum(stricter):,} more by limits in shadow; {keys} of 18,230 clients; 3 of them lose more than half of their requests",
        "report": {
            "requests": total, "refused": lost, "shadow_refused": sum(stricter), "delayed": 5120, "answered": 2044, "skipped": 17, "lines": total + 17, "from": "2026-11-22T00:00:00.102003Z", "to": "2026-11-22T23:59:59.871004Z",
            "interrupted": False, "clients": 18230, "clients_refused": len(clients), "clients_losing_most": 3,
            "limits": [limit("per-client", "enforce", requests, by_client, 18230, len([one for one in hit if one[1] == "per-client"]), exempt=1210), limit("login", "enforce", logins, by_login, 3120, len([one for one in hit if one[1] == "login"]), delayed=5120, delay_mean_ms=412.5, delay_max_ms=1870.0),
                       limit("search-stricter", "shadow", search, stricter, 9041, 212)],
            "routes": [{"name": name, "requests": round(total * part), "refused": refusals, "shadow_refused": shadow, "delayed": delayed}
                       for name, part, refusals, shadow, delayed in [("shop", 0.61, round(sum(by_client) * 0.7), 0, 0), ("search", 0.3, round(sum(by_client) * 0.3), sum(stricter), 0), ("login", sum(logins) / total, sum(by_login), 0, 5120), ("assets", 0.07, 0, 0, 0)]],
            "refused_keys": sorted(({"limit": name, "key": key, "refused": lost, "requests": all_} for key, name, lost, all_ in hit), key=lambda one: -one["refused"]),
            "refused_clients": clients, "person_rule": PERSON_RULE,
            "against": {"refused": round(lost * 0.91), "newly_refused": round(lost * 0.11), "newly_admitted": round(lost * 0.02), "newly_refused_by": [{"limit": "per-client", "requests": round(lost * 0.09)}, {"limit": "login", "requests": round(lost * 0.02)}], "newly_admitted_from": [{"limit": "per-client", "requests": round(lost * 0.02)}]},
            "log_decisions": None,
            "problems": [{"reason": "the line is cut off", "lines": 16, "first": "access.log.2.gz:918273", "text": "{\"time\":\"2026-11-22T04:11"}, {"reason": "not UTF-8", "lines": 1, "first": "access.log:17", "text": "\u001f\ufffd\ufffd"}],
            "notes": ["The log has no `host`: every line counts as a request to `shop.example`.", "In-flight limits use the logged `duration_ms`."],
        },
        "timeline": line(requests, refused),
        "limits": [{"name": "per-client", "timeline": line(requests, by_client), "peaks": {"windows": windows(18227, [60, 90, 300, 3000, 18000, 432000], 0.3, [3100, 900, 640])}},
                   {"name": "login", "timeline": line(logins, by_login), "peaks": {"windows": windows(3119, [5, 6, 15, 105, 605, 14405], -1.2, [520])}},
                   {"name": "search-stricter", "timeline": line(search, stricter), "peaks": None}],
        "calendar": calendar,
    }


def suggest():
    made = []
    for name, route, rate, burst, keys, middle, outliers, limits in [("login-per-ip", "login", "10/min", 5, 3119, -1.2, [520], [5, 6, 15, 105, 605, 14405]), ("shop-per-ip", "shop", "300/min", 60, 18227, 0.3, [3100, 900, 640], [60, 110, 360, 3060, 18060, 432060])]:
        toml = f'# outliers are left out; 99.9 % of the other keys are never refused\n[limits.{name}]\nalgorithm = "token-bucket"\nkey = "ip"\nrate = "{rate}"\nburst = {burst}\nmode = "shadow"\n'
        listed = [{"key": f"203.0.113.{7 + at}", "requests": peak * 90, "peaks": {"1": round(peak * 0.05), "60": peak, "3600": peak * 30}} for at, peak in enumerate(outliers)]
        made.append({"name": name, "route": route, "key": "ip", "algorithm": "token-bucket", "rates": [rate], "burst": [burst], "requests": keys * 61, "keys": keys + len(outliers), "ordinary": keys, "toml": toml,
                     "notes": [f"The outliers' peaks in 1 min are at least 2.6 times those of every other key.", "The highest peak of an ordinary key in 1 min is 120; head room is 1.5 times.", "One address with 41 user agents may be an office behind NAT: `198.51.100.9`."],
                     "outliers": listed, "windows": windows(keys, limits, middle, outliers)})
    return {"kind": "suggest", "answer": "2 limits are suggested: they refuse 4 outliers and none of 21,346 ordinary keys.", "suggestions": made,
            "span": {"from": "2026-11-22T00:00:00.102003Z", "to": "2026-11-22T23:59:59.871004Z"}, "log": {"lines": 3112004, "files": ["access.log"], "problems": [], "notes": ["The log spans less than 7 days: weekly peaks are unknown."]}}
