"""What the cases of client.py stand on: two ways to the server, and the counter of a limit."""

import math
import time
from functools import cached_property

import httpx
import httpx2

TIMEOUT = 25
CODINGS = ["identity", "gzip", "deflate", "br"]


def recorder(http):
    """A transport of `httpx` or `httpx2` that keeps each response."""

    class Recorded(http.SyncByteStream):
        """A body that is kept as it came: after the framing, before the content coding."""

        def __init__(self, stream, kept):
            self.stream, self.kept = stream, kept

        def __iter__(self):
            for part in self.stream:
                self.kept.append(part)
                yield part

        def close(self):
            self.stream.close()

    class Recorder(http.HTTPTransport):
        def __init__(self):
            super().__init__(verify=False)
            self.responses = []

        def handle_request(self, request):
            response = super().handle_request(request)
            parts = []
            kept = [response.headers.get(name) for name in ("content-type", "content-encoding")]
            self.responses.append((response.status_code, *kept, parts))
            return http.Response(
                response.status_code,
                headers=response.headers,
                stream=Recorded(response.stream, parts),
                extensions=response.extensions,
            )

    return Recorder()


class Way:
    """One way to the server: straight, or through the gateway."""

    def __init__(self, base, retries=0):
        self.base, self.retries = base, retries
        self.recorder, self.older = recorder(httpx2), recorder(httpx)
        # The transports share what they keep.
        self.responses = self.older.responses = self.recorder.responses
        self.http = httpx2.Client(transport=self.recorder, timeout=TIMEOUT, trust_env=False)

    def last(self):
        """The last response: status, content type, coding, body."""
        *head, parts = self.responses[-1]
        return (*head, b"".join(parts))

    # The libraries take a second to load, which most cases have no need for.
    @cached_property
    def openai(self):
        from openai import OpenAI

        return OpenAI(api_key="a", base_url=self.base + "/v1", max_retries=self.retries, http_client=self.http)

    @cached_property
    def anthropic(self):
        from anthropic import Anthropic

        return Anthropic(api_key="a", base_url=self.base, max_retries=self.retries, http_client=self.http)

    @cached_property
    def gemini(self):
        from google import genai

        retry = {"attempts": self.retries + 1, "initial_delay": 0.1, "jitter": 0.0} if self.retries else None
        options = {"base_url": self.base, "httpx_client": self.http, "retry_options": retry}
        return genai.Client(api_key="a", http_options=options)

    def ollama(self, headers=None):
        import ollama

        return ollama.Client(self.base, headers=headers, transport=self.older, timeout=TIMEOUT, trust_env=False)


class Counter:
    """What a limit has counted for this client. `period`: from the first request on, in seconds."""

    def __init__(self, admin, limit, period):
        self.url, self.sum = f"{admin}/api/v1/limits/{limit}/keys/127.0.0.1", 0
        self.http = httpx2.Client(trust_env=False, timeout=TIMEOUT, verify=False)
        self.period, self.started = period, time.monotonic()

    def policy(self):
        return self.http.get(self.url).raise_for_status().json()["policies"][0]

    def add(self, units):
        """So many units more, and no other number, are counted as soon as the response has ended."""
        self.sum += units
        policy = self.policy()
        counted = (policy["used"], policy["remaining"])
        left = max(0, policy["quota"] - self.sum)
        assert counted == (self.sum, left), f"{counted} are counted, not {(self.sum, left)}, after {units} more"

    def is_known(self):
        """Whether the client has asked before."""
        return self.http.get(self.url).status_code == 200

    def waits(self):
        """The units are settled when the gateway notices that the client has left."""
        until = time.monotonic() + TIMEOUT
        while self.policy()["used"] != self.sum and time.monotonic() < until:
            time.sleep(0.01)
        self.add(0)

    def has_refused(self, response):
        """The refusal is charged nothing and tells how long to wait."""
        self.add(0)
        assert response.status_code == 429, response.status_code
        told, passed = int(response.headers["retry-after"]), math.ceil(time.monotonic() - self.started)
        assert self.period - passed <= told <= self.period, f"retry-after is {told}, {passed} s have passed"


def same(ways, ask):
    """Asks the server and the gateway. The responses are equal, byte for byte, and so is what the library reads."""
    results = [ask(way) for way in ways]
    straight, passed = (way.last() for way in ways)
    assert straight == passed, f"{straight}\n--- through the gateway\n{passed}"
    assert results[0] == results[1], results
    return results[1], passed


def is_shown(error, response):
    """The library shows the text of the refusal, and would not ask again by itself."""
    wait = response.headers["retry-after"]
    words = f"Too few tokens are left; try again in {wait} s."
    assert str(error).startswith("Error code: 429 - ") and words in str(error), str(error)
    assert response.headers["x-should-retry"] == "false"


def raises(kind, call):
    try:
        call()
    except Exception as error:
        found = f"{type(error).__module__}.{type(error).__name__}"
        assert found == kind, f"{found} instead of {kind}: {error}"
        return error
    raise AssertionError(f"no {kind}")
