"""The cases of docs/model-apis.md: each form of models' APIs, by the library of its vendor."""

import json
import time

import httpx2
from ways import CODINGS, TIMEOUT, Counter, Way, is_shown, raises, same

DAY = 86400


def text(messages):
    return {"model": "tea-1", "messages": [{"role": "user", "content": messages}]}


def completion(way, said, stream=False, usage=True, headers=None, every=False):
    """A completion: its text, and its usage. `every`: each chunk has the usage so far."""
    options = {"stream": True, "stream_options": {"include_usage": True}} if usage else {"stream": True}
    if every:
        options["stream_options"]["continuous_usage_stats"] = True
    create = way.openai.chat.completions.create
    if not stream:
        answer = create(**text(said), extra_headers=headers)
        return answer.choices[0].message.content, answer.usage.total_tokens
    words, total = "", None
    for event in create(**text(said), **options, extra_headers=headers):
        words += "".join(choice.delta.content or "" for choice in event.choices)
        total = event.usage.total_tokens if event.usage else total
    return words, total


def response(way, said, stream=False, headers=None):
    create = way.openai.responses.create
    if not stream:
        answer = create(model="tea-1", input=said, extra_headers=headers)
        return answer.output_text, answer.usage.total_tokens
    words, total = "", None
    for event in create(model="tea-1", input=said, stream=True, extra_headers=headers):
        words += event.delta if event.type == "response.output_text.delta" else ""
        total = event.response.usage.total_tokens if event.type == "response.completed" else total
    return words, total


def embedding(way, said, headers=None):
    answer = way.openai.embeddings.create(model="tea-1", input=said, extra_headers=headers)
    return answer.data[0].embedding, answer.usage.total_tokens


def message(way, said, stream=False, headers=None):
    """A message: its text, and its usage."""
    if stream:
        with way.anthropic.messages.stream(**text(said), max_tokens=9, extra_headers=headers) as events:
            words = "".join(events.text_stream)
            usage = events.get_final_message().usage
    else:
        answer = way.anthropic.messages.create(**text(said), max_tokens=9, extra_headers=headers)
        words, usage = answer.content[0].text, answer.usage
    return words, usage.input_tokens + usage.output_tokens


def content(way, said, stream=False, headers=None):
    """Gemini's generateContent, or streamGenerateContent as events."""
    asked = {"model": "tea-1", "contents": said, "config": {"http_options": {"headers": headers or {}}}}
    if not stream:
        answer = way.gemini.models.generate_content(**asked)
        return answer.text, answer.usage_metadata.total_token_count
    words, total = "", None
    for part in way.gemini.models.generate_content_stream(**asked):
        words += part.text or ""
        total = part.usage_metadata.total_token_count
    return words, total


def content_list(way, said, headers=None):
    """streamGenerateContent without `alt=sse`, which the library never asks for: a list of the same documents."""
    body = {"contents": [{"role": "user", "parts": [{"text": said}]}]}
    url = way.base + "/v1beta/models/tea-1:streamGenerateContent"
    answer = way.http.post(url, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    parts = answer.json()
    words = "".join(part["candidates"][0]["content"]["parts"][0]["text"] for part in parts)
    return words, parts[-1]["usageMetadata"]["totalTokenCount"]


def chat(way, said, stream=False, headers=None, generate=False):
    """Ollama's chat, or generate."""
    client = way.ollama(headers)

    def ask():
        if generate:
            return client.generate(model="tea-1", prompt=said, stream=stream)
        return client.chat(**text(said), stream=stream)

    words = ""
    for part in ask() if stream else [ask()]:
        words += part.response if generate else part.message.content
    assert part.done is True
    return words, part.prompt_eval_count + part.eval_count


def embed(way, said, headers=None):
    answer = way.ollama(headers).embed(model="tea-1", input=said)
    return [list(one) for one in answer.embeddings], answer.prompt_eval_count


# Each form of a response: its name, its limit, and how to ask.
FORMS = {
    "openai": [
        ("openai-tokens", lambda way, said, headers: completion(way, said, False, True, headers)),
        ("openai-tokens", lambda way, said, headers: completion(way, said, True, True, headers)),
        ("openai-tokens", lambda way, said, headers: completion(way, said, True, True, headers, True)),
    ],
    "responses": [
        ("openai-tokens", lambda way, said, headers: response(way, said, False, headers)),
        ("openai-tokens", lambda way, said, headers: response(way, said, True, headers)),
        ("openai-tokens", embedding),
    ],
    "anthropic": [
        ("anthropic-tokens", lambda way, said, headers: message(way, said, False, headers)),
        ("anthropic-tokens", lambda way, said, headers: message(way, said, True, headers)),
    ],
    "gemini": [
        ("gemini-tokens", lambda way, said, headers: content(way, said, False, headers)),
        ("gemini-tokens", lambda way, said, headers: content(way, said, True, headers)),
        ("gemini-tokens", content_list),
    ],
    "ollama": [
        ("ollama-tokens", lambda way, said, headers: chat(way, said, False, headers)),
        ("ollama-tokens", lambda way, said, headers: chat(way, said, True, headers)),
        ("ollama-tokens", lambda way, said, headers: chat(way, said, False, headers, True)),
        ("ollama-tokens", lambda way, said, headers: chat(way, said, True, headers, True)),
        ("ollama-tokens", embed),
    ],
}


def each_coding(ways, counter, ask, first):
    """Whole and streamed, in each coding that the client accepts: the counter tells what the library reads."""
    for number, coding in enumerate(CODINGS):
        said, total = f"{first + number} {500 * (1 + number)}", first + number + 500 * (1 + number)
        result, raw = same(ways, lambda way: ask(way, said, {"x-coding": coding}))
        assert result == ("All is counted.", total), result
        assert (raw[2] or "identity") == coding, raw
        counter.add(total)


def refused_twice(counter, kind, ask, response_of):
    """A refusal raises the library's own error, is charged nothing, and is not asked again."""
    errors = []
    for stream in [False, True]:
        error = raises(kind, lambda: ask(stream))
        counter.has_refused(response_of(error))
        errors.append(error)
    return errors


def openai_responses(server, gateway, admin):
    ways, counter = (Way(server), Way(gateway)), Counter(admin, "openai-tokens", DAY)
    for stream in [False, True]:
        each_coding(ways, counter, lambda way, said, headers: response(way, said, stream, headers), 10)
    for coding in CODINGS:
        result, raw = same(ways, lambda way: embedding(way, "40", {"x-coding": coding}))
        assert result == ([0.25, -0.5, 0.125], 40), result
        counter.add(40)
    # The library leaves its own retries out, since the refusal says so.
    counter.add(response(ways[1], "60000 40000", True)[1])
    asking = Way(gateway, retries=2)
    for error in refused_twice(
        counter, "openai.RateLimitError", lambda stream: response(asking, "1 1", stream), lambda error: error.response
    ):
        is_shown(error, error.response)
    raises("openai.RateLimitError", lambda: embedding(asking, "1"))
    assert len(asking.responses) == 3, asking.responses


def openai_compatible(server, gateway, admin):
    """Servers with OpenAI's API: Ollama, and vLLM, whose chunks may all have the usage so far."""
    ways, counter = (Way(server), Way(gateway)), Counter(admin, "openai-tokens", DAY)
    for fingerprint in ["fp_ollama", None]:
        for stream, every in [(False, False), (True, False), (True, True)]:
            headers = {"x-fingerprint": fingerprint} if fingerprint else {}

            def ask(way, said, coding):
                return completion(way, said, stream, True, {**headers, **coding}, every)

            each_coding(ways, counter, ask, 10)


def gemini_style(server, gateway, admin):
    ways, counter = (Way(server), Way(gateway)), Counter(admin, "gemini-tokens", DAY)
    for ask in (ask for _, ask in FORMS["gemini"]):
        each_coding(ways, counter, ask, 10)
    counter.add(content(ways[1], "60000 40000", True)[1])
    errors = refused_twice(
        counter,
        "google.genai.errors.ClientError",
        lambda stream: content(ways[1], "1 1", stream),
        lambda error: error.response,
    )
    for error in errors:
        wait = error.response.headers["retry-after"]
        words = f"Too few tokens are left; try again in {wait} s."
        assert (error.code, error.status, error.message) == (429, "RESOURCE_EXHAUSTED", words), vars(error)
        assert words in str(error), str(error)
    # It asks again only if it was told to, and then whatever the refusal says.
    asking = Way(gateway, retries=2)
    raises("google.genai.errors.ClientError", lambda: content(asking, "1 1"))
    assert [status for status, *_ in asking.responses] == [429] * 3, asking.responses


def ollama_style(server, gateway, admin):
    ways, counter = (Way(server), Way(gateway)), Counter(admin, "ollama-tokens", DAY)
    for ask in (ask for _, ask in FORMS["ollama"][:4]):
        each_coding(ways, counter, ask, 10)
    for coding in CODINGS:
        result, _ = same(ways, lambda way: embed(way, "40", {"x-coding": coding}))
        assert result == ([[0.25, -0.5]], 40), result
        counter.add(40)
    while counter.sum <= 98000:
        counter.add(chat(ways[1], "30000 20000", True)[1])
    kept = ways[1].responses
    for stream in [False, True]:
        begun = len(kept)
        error = raises("ollama._types.ResponseError", lambda: chat(ways[1], "1 1", stream))
        counter.add(0)
        told = json.loads(b"".join(kept[begun][3]))["error"]
        assert (error.status_code, error.error) == (429, told), vars(error)
        assert told.startswith("Too few tokens are left; try again in "), told
        assert len(kept) == begun + 1, "it does not ask again"


def cuts(api, server, gateway, admin):
    """The pieces of a response end anywhere: two pieces, cut at each byte, and byte for byte."""
    way = Way(gateway)
    for limit, ask in FORMS[api]:
        counter = Counter(admin, limit, DAY)
        counter.sum = counter.policy()["used"] if counter.is_known() else 0
        for coding in ["identity", "gzip"]:
            headers = {"x-coding": coding, "x-short": "yes"}
            expected = ask(way, "3 4", headers)
            length = len(way.last()[3])
            assert 50 < length < 3000, length
            counter.add(expected[1])
            for cut in [*range(1, length), "all"]:
                result = ask(way, "3 4", {**headers, "x-cut": str(cut)})
                assert result == expected, f"{result} instead of {expected}, cut at {cut} of {length}"
                counter.sum += expected[1]
                if cut == "all" or cut % 100 == 0:
                    counter.add(0)


def cuts_openai(*urls):
    cuts("openai", *urls)


def cuts_responses(*urls):
    cuts("responses", *urls)


def cuts_anthropic(*urls):
    cuts("anthropic", *urls)


def cuts_gemini(*urls):
    cuts("gemini", *urls)


def cuts_ollama(*urls):
    cuts("ollama", *urls)


def documents_of(way, path, body, headers):
    """Each document of a stream, as soon as it is complete."""
    with way.http.stream("POST", way.base + path, json=body, headers=headers) as answer:
        assert answer.headers.get("content-encoding", "identity") == headers["x-coding"]
        rest, decoder = "", json.JSONDecoder()
        for part in answer.iter_text():
            rest = (rest + part).lstrip("[],\r\n")
            while rest:
                try:
                    document, end = decoder.raw_decode(rest)
                except json.JSONDecodeError:
                    break
                yield document
                rest = rest[end:].lstrip("[],\r\n")


STREAMS = {
    "ollama": ("/api/chat", text("1 2")),
    "gemini": ("/v1beta/models/t:streamGenerateContent", {"contents": [{"parts": [{"text": "1 2"}]}]}),
}


def order_of_documents(server, gateway, admin):
    """The server sends a document only after the client has told that it got the one before."""
    told = httpx2.Client(timeout=TIMEOUT, trust_env=False)
    for base in ["", "/plain"]:
        way = Way(gateway + base)
        for coding in CODINGS:
            for api, count in [("ollama", 5), ("gemini", 4)]:
                name = f"{base[1:]}-{coding}-{api}"
                seen = 0
                for _ in documents_of(way, *STREAMS[api], {"x-coding": coding, "x-order": name}):
                    seen += 1
                    told.post(f"{server}/seen/{name}").raise_for_status()
                assert seen == count, f"{name}: {seen} of {count} documents"
    for limit in ["ollama-tokens", "gemini-tokens"]:
        used = Counter(admin, limit, DAY).policy()["used"]
        assert used == len(CODINGS) * 3, (limit, used)


def late_lines(server, gateway, admin):
    """The last chunk of a stream comes after its client has left, at the line that says that it is the last."""
    way, told = Way(gateway), httpx2.Client(timeout=TIMEOUT, trust_env=False)
    counter = Counter(admin, "ollama-tokens", DAY)
    for coding in CODINGS:
        name = f"late-{coding}"
        for document in documents_of(way, *STREAMS["ollama"], {"x-coding": coding, "x-late": name}):
            if document["done"]:
                break
        told.post(f"{server}/seen/{name}").raise_for_status()
        counter.sum += 3
        counter.waits()


def retries(server, gateway, admin):
    """Each path admits a request in two seconds: which library waits as long as it is told?"""
    way = Way(gateway, retries=2)
    asks = {
        "openai": lambda: completion(way, "1 1"),
        "anthropic": lambda: message(way, "1 1"),
        "gemini": lambda: content(way, "1 1"),
        "ollama": lambda: chat(way, "1 1"),
    }
    waits = {"openai": True, "anthropic": True, "gemini": False, "ollama": False}
    for name, ask in asks.items():
        ask()
        begun, started = len(way.responses), time.monotonic()
        if waits[name]:
            ask()
            assert time.monotonic() - started > 0.9, name
            assert [status for status, *_ in way.responses[begun:]] == [429, 200], name
        else:
            kinds = {"gemini": "google.genai.errors.ClientError", "ollama": "ollama._types.ResponseError"}
            raises(kinds[name], ask)
            assert time.monotonic() - started < 0.9, name
            count = {"gemini": 3, "ollama": 1}[name]
            assert [status for status, *_ in way.responses[begun:]] == [429] * count, name


class Slept(Exception):
    """A library would sleep for so many seconds."""


def long_waits(server, gateway, admin):
    """A refusal for an hour, which does not say whether to ask again."""
    way, sleep = Way(gateway, retries=2), time.sleep

    def tell(seconds):
        raise Slept(seconds)

    for name, ask in {"openai": lambda: completion(way, "1 1"), "anthropic": lambda: message(way, "1 1")}.items():
        ask()
        time.sleep = tell
        try:
            if name == "openai":
                raises("openai.RateLimitError", ask)
            else:
                slept = raises(f"{Slept.__module__}.Slept", ask)
                assert 3500 < slept.args[0] <= 3600, slept
        finally:
            time.sleep = sleep


CASES = [long_waits, openai_responses, openai_compatible, gemini_style, ollama_style, order_of_documents, late_lines, retries]
CASES += [cuts_openai, cuts_responses, cuts_anthropic, cuts_gemini, cuts_ollama]
