"""Models' APIs of the server, as their public documentation shows them: each function answers one request.

What a request uses is its text: `INPUT OUTPUT`, the numbers of tokens.
"""

import json

CREATED = 1700000000
AT = "2026-11-05T10:00:00.123456Z"
WORDS = ["All ", "is ", "counted", "."]


def numbers(text):
    return [int(number) for number in text.split()]


def words_of(handler):
    """The text in pieces. With `x-short` it is one piece, for responses that are cut at each byte."""
    return ["All."] if handler.headers.get("x-short") else WORDS


def sse(event):
    return f"data: {json.dumps(event)}\n\n"


def completion(handler, posted):
    """POST /v1/chat/completions, as OpenAI answers it, and servers with the same API (Ollama, vLLM)."""
    before, after = numbers(posted["messages"][-1]["content"])
    usage = {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after}
    base, words = {"id": "chatcmpl-1", "created": CREATED, "model": posted["model"]}, words_of(handler)
    if fingerprint := handler.headers.get("x-fingerprint"):
        base["system_fingerprint"] = fingerprint
    if not posted.get("stream"):
        said = {"role": "assistant", "content": "".join(words), "refusal": None}
        choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": "stop"}
        return handler.whole({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
    options = posted.get("stream_options") or {}
    told, always = options.get("include_usage"), options.get("continuous_usage_stats")
    base["object"] = "chat.completion.chunk"

    def event(delta, count, reason=None):
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        part = after * count // len(words)
        so_far = {"prompt_tokens": before, "completion_tokens": part, "total_tokens": before + part}
        usage = {"usage": so_far if always else None} if told else {}
        return sse({**base, "choices": choices, **usage})

    events = [event({"role": "assistant", "content": ""}, 0)]
    events += [event({"content": word}, count) for count, word in enumerate(words, 1)]
    events.append(event({}, len(words), "stop"))
    if told:
        events.append(sse({**base, "choices": [], "usage": usage}))
    handler.stream([*events, "data: [DONE]\n\n"])


def response(handler, posted):
    """POST /v1/responses, as OpenAI answers it."""
    before, after = numbers(posted["input"])
    words = words_of(handler)
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    part = {"type": "output_text", "text": "".join(words), "annotations": []}
    base = {"id": "resp_1", "object": "response", "created_at": CREATED, "model": posted["model"], "error": None}
    base |= {"incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True}
    base |= {"temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0}
    usage = {"input_tokens": before, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": after}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": before + after}
    begun = {**base, "status": "in_progress", "output": [], "usage": None}
    done = {**item, "status": "completed", "content": [part]}
    whole = {**base, "status": "completed", "output": [done], "usage": usage}
    if not posted.get("stream"):
        return handler.whole(whole)
    count = 0

    def event(kind, **fields):
        nonlocal count
        count += 1
        data = {"type": f"response.{kind}", "sequence_number": count - 1, **fields}
        return f"event: response.{kind}\ndata: {json.dumps(data)}\n\n"

    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    handler.stream(
        [
            event("created", response=begun),
            event("output_item.added", output_index=0, item=item),
            event("content_part.added", **where, part={**part, "text": ""}),
            *(event("output_text.delta", **where, delta=word, logprobs=[]) for word in words),
            event("output_text.done", **where, text="".join(words), logprobs=[]),
            event("content_part.done", **where, part=part),
            event("output_item.done", output_index=0, item=done),
            event("completed", response=whole),
        ]
    )


def embeddings(handler, posted):
    """POST /v1/embeddings, as OpenAI answers it."""
    before = sum(numbers(posted["input"]))
    data = [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5, 0.125]}]
    usage = {"prompt_tokens": before, "total_tokens": before}
    handler.whole({"object": "list", "data": data, "model": posted["model"], "usage": usage})


def message(handler, posted):
    """POST /v1/messages, as Anthropic answers it."""
    before, after = numbers(posted["messages"][-1]["content"])
    base, words = {"id": "msg_1", "type": "message", "role": "assistant", "model": posted["model"]}, words_of(handler)
    if not posted.get("stream"):
        content = [{"type": "text", "text": "".join(words)}]
        usage = {"input_tokens": before, "output_tokens": after}
        return handler.whole(
            {**base, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        )

    def event(kind, **fields):
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

    begun = {**base, "content": [], "stop_reason": None, "stop_sequence": None}
    begun["usage"] = {"input_tokens": before, "output_tokens": 1}
    usage = {"output_tokens": after}
    if not handler.headers.get("x-older"):
        usage = {"input_tokens": before, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, **usage}
    events = [
        event("message_start", message=begun),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event("ping"),
        *(event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in words),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage),
        event("message_stop"),
    ]
    handler.stream(events)


def gemini(handler, posted, method, query):
    """POST /v1/models/MODEL:METHOD, or /v1beta/…, as Gemini answers it."""
    before, after = numbers(posted["contents"][-1]["parts"][0]["text"])
    words = words_of(handler)

    def part(text, count, reason=None):
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0}
        if reason:
            candidate["finishReason"] = reason
        so_far = after * count // len(words)
        usage = {"promptTokenCount": before, "candidatesTokenCount": so_far, "totalTokenCount": before + so_far}
        usage["promptTokensDetails"] = [{"modality": "TEXT", "tokenCount": before}]
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "tea-1", "responseId": "r1"}

    if method == "generateContent":
        return handler.whole(part("".join(words), len(words), "STOP"), kind="application/json; charset=UTF-8")
    last = len(words)
    parts = [part(word, count, "STOP" if count == last else None) for count, word in enumerate(words, 1)]
    if "alt=sse" in query:
        return handler.stream([f"data: {json.dumps(part)}\r\n\r\n" for part in parts], "text/event-stream")
    texts = [("[" if index == 0 else ",\r\n") + json.dumps(part, indent=2) for index, part in enumerate(parts)]
    texts[-1] += "\n]\n"
    handler.stream(texts, "application/json; charset=UTF-8")


def ollama(handler, posted, method):
    """POST /api/METHOD, as Ollama answers it."""
    if method == "embed":
        before = sum(numbers(posted["input"]))
        times = {"total_duration": 14143917, "load_duration": 1019500}
        return handler.whole(
            {"model": posted["model"], "embeddings": [[0.25, -0.5]], **times, "prompt_eval_count": before}
        )
    chat = method == "chat"
    before, after = numbers(posted["messages"][-1]["content"] if chat else posted["prompt"])
    words = words_of(handler)

    def line(text, **fields):
        said = {"message": {"role": "assistant", "content": text}} if chat else {"response": text}
        return {"model": posted["model"], "created_at": AT, **said, "done": bool(fields), **fields}

    end = {"done_reason": "stop", "total_duration": 4883583458, "load_duration": 1334875}
    end |= {"prompt_eval_count": before, "prompt_eval_duration": 342546000}
    end |= {"eval_count": after, "eval_duration": 4535599000}
    if posted.get("stream") is False:
        return handler.whole(line("".join(words), **end), kind="application/json; charset=utf-8")
    lines = [*(line(word) for word in words), line("", **end)]
    handler.stream([f"{json.dumps(line)}\n" for line in lines], "application/x-ndjson")
