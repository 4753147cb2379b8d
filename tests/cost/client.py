"""Asks the server of this directory, straight and through the gateway, by the client libraries of its APIs.

Usage: client.py CASE SERVER GATEWAY ADMIN VERSIONS   (base URLs; CASE: a function below, or of model_cases.py;
VERSIONS: `pinned`, those of requirements.txt, or `newest`)
It prints `done` if all is as it must be.
"""

import sys
from importlib import metadata
from pathlib import Path

import httpx2
import model_cases
from model_cases import completion, message, text
from ways import CODINGS, TIMEOUT, Counter, Way, is_shown, raises, same


def openai_style(server, gateway, admin):
    ways = Way(server), Way(gateway)
    counter = Counter(admin, "openai-tokens", 86400)
    for number, coding in enumerate(CODINGS):
        for stream in [False, True]:
            said = f"{10 + number} {500 * (1 + number)}"
            result, raw = same(ways, lambda way: completion(way, said, stream, True, {"x-coding": coding}))
            assert result == ("All is counted.", 10 + number + 500 * (1 + number)), result
            assert (raw[2] or "identity") == coding, raw
            counter.add(result[1])
    # Nothing tells the usage: the reservation is the cost.
    result, _ = same(ways, lambda way: completion(way, "1 1", True, False))
    assert result == ("All is counted.", None), result
    counter.add(2000)
    # More than is left, once; then nothing is admitted.
    counter.add(completion(ways[1], "60000 40000", True)[1])
    for stream in [False, True]:
        refused = raises("openai.RateLimitError", lambda: completion(ways[1], "1 1", stream))
        counter.has_refused(refused.response)
        is_shown(refused, refused.response)
        assert (refused.code, refused.type) == ("rate_limit_exceeded", "tokens"), vars(refused)


def anthropic_style(server, gateway, admin):
    ways = Way(server), Way(gateway)
    counter = Counter(admin, "anthropic-tokens", 86400)
    for number, coding in enumerate(CODINGS):
        for stream, older in [(False, ""), (True, ""), (True, "yes")]:
            said, headers = f"{700 * (1 + number)} {20 + number}", {"x-coding": coding, "x-older": older}
            result, raw = same(ways, lambda way: message(way, said, stream, headers))
            assert result == ("All is counted.", 720 + 701 * number), result
            assert (raw[2] or "identity") == coding, raw
            counter.add(result[1])
    counter.add(message(ways[1], "60000 40000", True)[1])
    for stream in [False, True]:
        refused = raises("anthropic.RateLimitError", lambda: message(ways[1], "1 1", stream))
        counter.has_refused(refused.response)
        is_shown(refused, refused.response)
        assert refused.body["error"]["type"] == "rate_limit_error", refused.body
        assert refused.body["request_id"] == refused.response.headers["x-request-id"], refused.body


def graphql(server, gateway, admin):
    ways = Way(server), Way(gateway)
    counter = Counter(admin, "graphql-points", 3600)

    def ask(way, cost):
        variables = {} if cost is None else {"cost": cost}
        answer = way.http.post(way.base + "/graphql", json={"query": "{shop{name}}", "variables": variables})
        return answer.status_code, answer.json()["extensions"].get("cost", {}).get("actualQueryCost")

    for cost, units in [(7, 7), (0, 0), (250, 250), (None, 10), (2.5, 3), (900, 900)]:
        assert same(ways, lambda way: ask(way, cost))[0] == (200, cost)
        counter.add(units)
    counter.has_refused(ways[1].http.post(gateway + "/graphql", json={"query": "{shop{name}}"}))


def downloads(server, gateway, admin):
    ways = Way(server), Way(gateway)
    counter = Counter(admin, "download-mib", 3600)
    mebibyte = 1 << 20
    for size, units in [(1, 1), (mebibyte, 1), (mebibyte + 1, 2), (0, 0), (10 * mebibyte, 10)]:
        answer, _ = same(ways, lambda way: way.http.get(f"{way.base}/downloads/{size}").content)
        assert len(answer) == size
        counter.add(units)
    # What is on the wire counts: these zeros are coded in a few kilobytes.
    headers = {"x-coding": "gzip"}
    answer, raw = same(ways, lambda way: way.http.get(f"{way.base}/downloads/{mebibyte}", headers=headers).content)
    assert len(answer) == mebibyte > 100 * len(raw[3])
    counter.add(1)
    while counter.sum <= 90:
        size = len(ways[1].http.get(f"{gateway}/downloads/{10 * mebibyte}").content)
        counter.add(size // mebibyte)
    counter.has_refused(ways[1].http.get(gateway + "/downloads/1"))


def failed_logins(server, gateway, admin):
    ways = Way(server), Way(gateway)
    counter = Counter(admin, "failed-logins", 3600)

    def ask(way, password):
        return way.http.post(way.base + "/login", json={"user": "a", "password": password}).status_code

    for _ in range(2):
        for password, units in [("right", 0), ("wrong", 5), ("right", 0), ("wrong", 5)]:
            same(ways, lambda way: ask(way, password))
            counter.add(units)
    counter.has_refused(ways[1].http.post(gateway + "/login", json={"user": "a", "password": "right"}))


def reports(server, gateway, admin):
    """The duration is not known here: what is counted is what the log tells, which the caller compares."""
    ways = Way(server), Way(gateway)
    counter = Counter(admin, "report-seconds", 3600)
    for _ in range(3):
        same(ways, lambda way: way.http.get(way.base + "/reports/year").json())
    used = counter.policy()["used"]
    assert 3 <= used < 90, used
    print("used", used)


def order(server, gateway, admin):
    """The server sends an event only after the client has told that it got the one before."""
    told = httpx2.Client(timeout=TIMEOUT, trust_env=False)
    for base in ["", "/plain"]:
        way = Way(gateway + base)
        for coding in CODINGS:
            for api, count in [("openai", 8), ("anthropic", 10)]:
                name = f"{base[1:]}-{coding}-{api}"
                headers = {"x-coding": coding, "x-order": name}
                seen = 0
                for _ in events_of(way, api, headers):
                    seen += 1
                    told.post(f"{server}/seen/{name}").raise_for_status()
                assert seen == count, f"{name}: {seen} of {count} events"
    used = Counter(admin, "openai-tokens", 86400).policy()["used"]
    assert used == len(CODINGS) * 3, used


def late(server, gateway, admin):
    """The last chunk of a stream comes after its client has left: at `[DONE]`, or at `message_stop`."""
    way, told = Way(gateway), httpx2.Client(timeout=TIMEOUT, trust_env=False)
    chat, messages = Counter(admin, "openai-tokens", 86400), Counter(admin, "anthropic-tokens", 86400)
    for number, coding in enumerate(CODINGS):
        name = f"late-openai-{coding}"
        said, headers = f"{10 + number} {500 * (1 + number)}", {"x-coding": coding, "x-late": name}
        result = completion(way, said, True, True, headers)
        assert result == ("All is counted.", 10 + number + 500 * (1 + number)), result
        # The stream goes on; its cost is known.
        chat.add(result[1])
        told.post(f"{server}/seen/{name}").raise_for_status()
        name = f"late-anthropic-{coding}"
        headers = {"x-coding": coding, "x-late": name}
        create = way.anthropic.messages.create
        with create(**text(f"{700 + number} 20"), max_tokens=9, stream=True, extra_headers=headers) as events:
            for event in events:
                if event.type == "message_stop":
                    break
        messages.add(720 + number)
        told.post(f"{server}/seen/{name}").raise_for_status()
        # A client of its own that leaves at the text.
        name = f"late-raw-{coding}"
        body = {**text("1 2"), "stream": True, "stream_options": {"include_usage": True}}
        headers = {"x-coding": coding, "x-late": name}
        with way.http.stream("POST", way.base + "/v1/chat/completions", json=body, headers=headers) as answer:
            read = ""
            for part in answer.iter_text():
                read += part
                if "data: [DONE]" in read:
                    break
        chat.add(3)
        told.post(f"{server}/seen/{name}").raise_for_status()


def events_of(way, api, headers):
    """Each event of a stream, as soon as it is complete."""
    path = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}[api]
    body = {**text("1 2"), "stream": True, "stream_options": {"include_usage": True}}
    with way.http.stream("POST", way.base + path, json=body, headers=headers) as answer:
        assert answer.headers.get("content-encoding", "identity") == headers["x-coding"]
        rest = ""
        for part in answer.iter_text():
            *complete, rest = (rest + part).split("\n\n")
            yield from complete


def check_versions():
    """The libraries are those of requirements.txt."""
    lines = (Path(__file__).parent / "requirements.txt").read_text().splitlines()
    for name, version in (line.split("==") for line in lines if "==" in line):
        found = metadata.version(name)
        assert found == version, f"{name} is {found}, not {version}: .ci/tools installs it"


CASES = [openai_style, anthropic_style, graphql, downloads, failed_logins, reports, order, late, *model_cases.CASES]
case = {case.__name__: case for case in CASES}[sys.argv[1]]
if sys.argv[5] == "pinned":
    check_versions()
case(*sys.argv[2:5])
print("done")
