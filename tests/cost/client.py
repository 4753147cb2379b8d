"""Asks the server of this directory, straight and through the gateway, by the client libraries of its APIs.

Usage: client.py CASE SERVER GATEWAY ADMIN   (base URLs; CASE: a function below)
It prints `done` if all is as it must be.
"""

import math
import sys
import time
from functools import cached_property
from importlib import metadata
from pathlib import Path

import httpx2

TIMEOUT = 25
CODINGS = ["identity", "gzip", "deflate", "br"]


class Recorded(httpx2.SyncByteStream):
    """A body that is kept as it came: after the framing, before the content coding."""

    def __init__(self, stream, kept):
        self.stream, self.kept = stream, kept

    def __iter__(self):
        for part in self.stream:
            self.kept.append(part)
            yield part

    def close(self):
        self.stream.close()


class Recorder(httpx2.HTTPTransport):
    """Keeps each response."""

    def __init__(self):
        super().__init__()
        self.responses = []

    def handle_request(self, request):
        response = super().handle_request(request)
        parts = []
        kept = [response.headers.get(name) for name in ("content-type", "content-encoding")]
        self.responses.append((response.status_code, *kept, parts))
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=Recorded(response.stream, parts),
            extensions=response.extensions,
        )

    def last(self):
        *head, parts = self.responses[-1]
        return (*head, b"".join(parts))


class Way:
    """One way to the server: straight, or through the gateway."""

    def __init__(self, base):
        self.base, self.recorder = base, Recorder()
        self.http = httpx2.Client(transport=self.recorder, timeout=TIMEOUT, trust_env=False)

    # The libraries take a second to load, which most cases have no need for.
    @cached_property
    def openai(self):
        from openai import OpenAI

        return OpenAI(api_key="a", base_url=self.base + "/v1", max_retries=0, http_client=self.http)

    @cached_property
    def anthropic(self):
        from anthropic import Anthropic

        return Anthropic(api_key="a", base_url=self.base, max_retries=0, http_client=self.http)


class Counter:
    """What a limit has counted for this client. `period`: from the first request on, in seconds."""

    def __init__(self, admin, limit, period):
        self.url, self.sum = f"{admin}/api/v1/limits/{limit}/keys/127.0.0.1", 0
        self.period, self.started = period, time.monotonic()

    def policy(self):
        return httpx2.get(self.url, trust_env=False, timeout=TIMEOUT).raise_for_status().json()["policies"][0]

    def add(self, units):
        """So many units more, and no other number, are counted as soon as the response has ended."""
        self.sum += units
        policy = self.policy()
        counted = (policy["used"], policy["remaining"])
        left = max(0, policy["quota"] - self.sum)
        assert counted == (self.sum, left), f"{counted} are counted, not {(self.sum, left)}, after {units} more"

    def has_refused(self, response):
        """The refusal is charged nothing and tells how long to wait."""
        self.add(0)
        assert response.status_code == 429, response.status_code
        told, passed = int(response.headers["retry-after"]), math.ceil(time.monotonic() - self.started)
        assert self.period - passed <= told <= self.period, f"retry-after is {told}, {passed} s have passed"


def same(ways, ask):
    """Asks the server and the gateway. The responses are equal, byte for byte, and so is what the library reads."""
    results = [ask(way) for way in ways]
    straight, passed = (way.recorder.last() for way in ways)
    assert straight == passed, f"{straight}\n--- through the gateway\n{passed}"
    assert results[0] == results[1], results
    return results[1], passed


def is_shown(error, response):
    """The library shows the text of the refusal, and would not ask again by itself."""
    wait = response.headers["retry-after"]
    words = f"Too few tokens are left; try again in {wait} s."
    assert str(error).startswith("Error code: 429 - ") and words in str(error), str(error)
    assert response.headers["x-should-retry"] == "false"


def text(messages):
    return {"model": "tea-1", "messages": [{"role": "user", "content": messages}]}


def complete(way, said, stream=False, usage=True, headers=None):
    """A completion: its text, and its usage."""
    options = {"stream": True, "stream_options": {"include_usage": True}} if usage else {"stream": True}
    create = way.openai.chat.completions.create
    if not stream:
        answer = create(**text(said), extra_headers=headers)
        return answer.choices[0].message.content, answer.usage.total_tokens
    words, total = "", None
    for event in create(**text(said), **options, extra_headers=headers):
        words += "".join(choice.delta.content or "" for choice in event.choices)
        total = event.usage.total_tokens if event.usage else total
    return words, total


def openai_style(server, gateway, admin):
    ways = Way(server), Way(gateway)
    counter = Counter(admin, "openai-tokens", 86400)
    for number, coding in enumerate(CODINGS):
        for stream in [False, True]:
            said = f"{10 + number} {500 * (1 + number)}"
            result, raw = same(ways, lambda way: complete(way, said, stream, True, {"x-coding": coding}))
            assert result == ("All is counted.", 10 + number + 500 * (1 + number)), result
            assert (raw[2] or "identity") == coding, raw
            counter.add(result[1])
    # Nothing tells the usage: the reservation is the cost.
    result, _ = same(ways, lambda way: complete(way, "1 1", True, False))
    assert result == ("All is counted.", None), result
    counter.add(2000)
    # More than is left, once; then nothing is admitted.
    counter.add(complete(ways[1], "60000 40000", True)[1])
    for stream in [False, True]:
        refused = raises("openai.RateLimitError", lambda: complete(ways[1], "1 1", stream))
        counter.has_refused(refused.response)
        is_shown(refused, refused.response)
        assert (refused.code, refused.type) == ("rate_limit_exceeded", "tokens"), vars(refused)


def converse(way, said, stream=False, headers=None):
    """A message: its text, and its usage."""
    if stream:
        with way.anthropic.messages.stream(**text(said), max_tokens=9, extra_headers=headers) as events:
            words = "".join(events.text_stream)
            usage = events.get_final_message().usage
    else:
        answer = way.anthropic.messages.create(**text(said), max_tokens=9, extra_headers=headers)
        words, usage = answer.content[0].text, answer.usage
    return words, usage.input_tokens + usage.output_tokens


def anthropic_style(server, gateway, admin):
    ways = Way(server), Way(gateway)
    counter = Counter(admin, "anthropic-tokens", 86400)
    for number, coding in enumerate(CODINGS):
        for stream, older in [(False, ""), (True, ""), (True, "yes")]:
            said, headers = f"{700 * (1 + number)} {20 + number}", {"x-coding": coding, "x-older": older}
            result, raw = same(ways, lambda way: converse(way, said, stream, headers))
            assert result == ("All is counted.", 720 + 701 * number), result
            assert (raw[2] or "identity") == coding, raw
            counter.add(result[1])
    counter.add(converse(ways[1], "60000 40000", True)[1])
    for stream in [False, True]:
        refused = raises("anthropic.RateLimitError", lambda: converse(ways[1], "1 1", stream))
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
        result = complete(way, said, True, True, headers)
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


def raises(kind, call):
    try:
        call()
    except Exception as error:
        found = f"{type(error).__module__}.{type(error).__name__}"
        assert found == kind, f"{found} instead of {kind}: {error}"
        return error
    raise AssertionError(f"no {kind}")


CASES = [openai_style, anthropic_style, graphql, downloads, failed_logins, reports, order, late]
case = {case.__name__: case for case in CASES}[sys.argv[1]]
check_versions()
case(*sys.argv[2:5])
print("done")
