"""Calls by gRPC: `client.py GATEWAY SERVER AUTHORITY CASE...`, each CASE a function below.

GATEWAY is what is called, SERVER (`host:port`, without TLS; or `-`) is asked what came of a call. AUTHORITY: the file by
which the gateway's certificate is known, or `-` without TLS.
"""

import json
import queue
import sys
import threading
import time

import grpc

OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
PATIENCE = 60
gateway, direct, authority = sys.argv[1:4]


def channel_to(address, authority="-", options=()):
    options = [*OPTIONS, *options]
    if authority == "-":
        return grpc.insecure_channel(address, options)
    roots = open(authority, "rb").read()
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(roots), options)


channel = channel_to(gateway, authority)
KINDS = {
    "SumUp": "stream_unary",
    "SlowSum": "stream_unary",
    "Repeated": "unary_stream",
    "HushedStream": "unary_stream",
    "Chat": "stream_stream",
    "FailingChat": "stream_stream",
    "Hushed": "stream_stream",
}


def method(name, over=None):
    return getattr(over or channel, KINDS.get(name, "unary_unary"))(f"/test.Echo/{name}")


def same(found, expected):
    assert found == expected, f"{found!r} instead of {expected!r}"


def failure(call):
    """How a call fails."""
    try:
        found = call()
    except grpc.RpcError as error:
        return error
    raise AssertionError(f"it did not fail: {found!r}")


def failing_code(call):
    return failure(call).code().name


class Turns:
    """Messages to send, one when it is asked for."""

    def __init__(self):
        self.messages = queue.Queue()

    def __iter__(self):
        return self

    def __next__(self):
        message = self.messages.get()
        if message is None:
            raise StopIteration
        return message

    def send(self, message):
        self.messages.put(message)


def wait_until_ended(name):
    """Until the server says that the call has ended there."""
    ended = method("HasEnded", channel_to(direct))
    # Much less than what the call's own deadline leaves.
    until = time.monotonic() + PATIENCE / 2
    while ended(name.encode(), timeout=PATIENCE) != b"yes":
        assert time.monotonic() < until, "the server never learnt of the end"
        time.sleep(0.02)


def unary():
    for message in [b"", b"hello", bytes(range(256))]:
        same(method("Unary")(message, timeout=PATIENCE), message)


def client_streaming():
    messages = [bytes(1000)] * 100
    same(method("SumUp")(iter(messages), timeout=PATIENCE), b"100 100000")
    same(method("SumUp")(iter([]), timeout=PATIENCE), b"0 0")


def server_streaming():
    same(sum(map(len, method("Repeated")(b"100 1000", timeout=PATIENCE))), 100_000)
    same(list(method("Repeated")(b"0 0", timeout=PATIENCE)), [])


def both_streaming():
    turns = Turns()
    call = method("Chat")(turns, timeout=PATIENCE)
    for place in range(50):
        turns.send(b"%d" % place)
        same(next(call), b"re: %d" % place)
    turns.send(None)
    same(list(call), [])
    same(call.code().name, "OK")


def metadata():
    sent = [("x-text", "a, b"), ("x-some-bin", bytes(range(256))), ("x-twice", "1"), ("x-twice", "2")]
    answer, call = method("Described").with_call(b"", metadata=sent, timeout=PATIENCE)
    answer = json.loads(answer)
    for key, value in sent:
        assert [key, value.hex() if isinstance(value, bytes) else value] in answer["metadata"], (key, answer)
    assert PATIENCE - 5 < answer["left"] < PATIENCE + 1, ("grpc-timeout passes", answer)
    initial, trailing = dict(call.initial_metadata()), dict(call.trailing_metadata())
    same((initial["x-before"], initial["x-before-bin"]), ("1", b"\x00\xff"))
    same((trailing["x-behind"], trailing["x-behind-bin"]), ("a b", bytes(range(256))))
    assert "x-behind" not in initial and "x-before" not in trailing


def large_messages():
    message = bytes(range(256)) * (4 << 12)
    same(len(message), 4 << 20)
    same(method("Unary")(message, timeout=PATIENCE) == message, True)
    same(list(method("Chat")(iter([message]), timeout=PATIENCE))[0][4:] == message, True)


def many_small_messages():
    count = 14_000 # more than a window of 65,535 bytes holds
    same(method("SlowSum")(iter([b"x"] * count), timeout=PATIENCE), b"%d %d" % (count, count))
    received = 0
    for message in method("Repeated")(b"%d 1" % count, timeout=PATIENCE):
        if received == 0:
            time.sleep(0.5)
        received += len(message)
    same(received, count)


def statuses():
    for code in grpc.StatusCode:
        if code is grpc.StatusCode.OK:
            continue
        error = failure(lambda: method("Failing")(f"{code.name} 100% gründlich, \"{code.name}\"".encode(), timeout=PATIENCE))
        same((error.code(), error.details()), (code, f"100% gründlich, \"{code.name}\""))
        same(dict(error.trailing_metadata())["x-why"], "asked to")
    call = method("FailingChat")(iter([b"a", b"b"]), timeout=PATIENCE)
    same(next(call), b"a")
    same(failing_code(lambda: next(call)), "FAILED_PRECONDITION")
    same(failing_code(lambda: method("Missing")(b"", timeout=PATIENCE)), "UNIMPLEMENTED")


def deadlines():
    same(failing_code(lambda: method("Waiting")(b"late", timeout=0.3)), "DEADLINE_EXCEEDED")
    wait_until_ended("late")
    call = method("Hushed")(turns_of(b"late too"), timeout=0.5)
    same(next(call), b"late too")
    same(failing_code(lambda: next(call)), "DEADLINE_EXCEEDED")
    wait_until_ended("late too")


def turns_of(*messages):
    turns = Turns()
    for message in messages:
        turns.send(message)
    return turns


def cancellation():
    call = method("Waiting").future(b"cancelled", timeout=PATIENCE)
    time.sleep(0.3)
    call.cancel()
    wait_until_ended("cancelled")
    call = method("Hushed")(turns_of(b"cancelled, too"), timeout=PATIENCE)
    same(next(call), b"cancelled, too")
    call.cancel()
    wait_until_ended("cancelled, too")
    call = method("HushedStream")(b"cancelled behind its end", timeout=PATIENCE)
    same(next(call), b"cancelled behind its end")
    call.cancel()
    wait_until_ended("cancelled behind its end")


def leaving():
    """The whole connection goes."""
    own = channel_to(gateway, authority, [("grpc.use_local_subchannel_pool", 1)])
    call = method("Hushed", own)(turns_of(b"left"), timeout=PATIENCE)
    same(next(call), b"left")
    own.close()
    wait_until_ended("left")


def at_once():
    count = 90
    all_turns = [Turns() for _ in range(count)]
    calls = [method("Chat")(turns, timeout=PATIENCE) for turns in all_turns]
    for place in range(3):
        for turns in all_turns:
            turns.send(b"%d" % place)
        same([next(call) for call in calls], [b"re: %d" % place] * count)
    for turns in all_turns:
        turns.send(None)
    same([list(call) for call in calls], [[]] * count)


def silence():
    """Longer than `body_timeout`, before and behind the first answer."""
    turns = Turns()
    call = method("Chat")(turns, timeout=PATIENCE)
    time.sleep(1.6)
    turns.send(b"a")
    same(next(call), b"re: a")
    time.sleep(1.6)
    turns.send(b"b")
    same(next(call), b"re: b")
    turns.send(None)
    same(list(call), [])


def server_is_silent():
    """For longer than `read_timeout`."""
    begun = time.monotonic()
    call = method("Hushed")(turns_of(b"hushed"), timeout=PATIENCE)
    same(next(call), b"hushed")
    same(failing_code(lambda: next(call)), "UNAVAILABLE")
    assert time.monotonic() - begun < PATIENCE / 2, "it was not the deadline"
    wait_until_ended("hushed")


def refused():
    """One call passes, the next is refused."""
    method("Unary")(b"", timeout=PATIENCE)
    error = failure(lambda: method("Unary")(b"", timeout=PATIENCE))
    same((error.code().name, list(error.initial_metadata())), ("RESOURCE_EXHAUSTED", []))
    assert "limit `calls` is used up; retry after" in error.details(), error.details()
    fields = dict(error.trailing_metadata())
    wait = int(fields["retry-after"])
    assert 3590 < wait <= 3600, wait
    same(fields["ratelimit"], f'"calls";r=0;t={wait}')
    same((fields["x-ratelimit-remaining"], fields["x-ratelimit-limit"]), ("0", "1"))
    same(fields["grpc-retry-pushback-ms"], str(wait * 1000))


def refused_streams():
    """Nothing is left: streams are refused before they send, and while they do."""
    for name in ["Chat", "Repeated"]:
        argument = Turns() if name == "Chat" else b"1 1"
        same(failing_code(lambda: next(method(name)(argument, timeout=PATIENCE))), "RESOURCE_EXHAUSTED")
    same(failing_code(lambda: method("SumUp")(iter([bytes(1 << 20)] * 4), timeout=PATIENCE)), "RESOURCE_EXHAUSTED")


def charged_once():
    """Three calls are all there are, whatever they carry."""
    large_messages_of = lambda: sum(map(len, method("Repeated")(b"100 1000", timeout=PATIENCE)))
    same(large_messages_of(), 100_000)
    both_streaming()
    same(method("SumUp")(iter([b"x"] * 100), timeout=PATIENCE), b"100 100")
    same(failing_code(lambda: method("Unary")(b"", timeout=PATIENCE)), "RESOURCE_EXHAUSTED")


def retried():
    """The client's own retries keep to the wait that it is told."""
    policy = {
        "maxAttempts": 2,
        "initialBackoff": "0.01s",
        "maxBackoff": "0.01s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }
    config = {"methodConfig": [{"name": [{}], "retryPolicy": policy}]}
    own = channel_to(gateway, authority, [("grpc.service_config", json.dumps(config))])
    begun = time.monotonic()
    for _ in range(2):
        same(method("Unary", own)(b"a", timeout=PATIENCE), b"a")
    assert time.monotonic() - begun > 0.9, "it did not wait"


def refused_by_cost():
    """A call costs 2 of 3."""
    fields = dict(method("Unary").with_call(b"", timeout=PATIENCE)[1].initial_metadata())
    same((fields["ratelimit"].split(";")[:2], fields["x-ratelimit-remaining"]), (['"calls"', "r=1"], "1"))
    same(failing_code(lambda: method("Unary")(b"", timeout=PATIENCE)), "RESOURCE_EXHAUSTED")


def unavailable():
    error = failure(lambda: method("Unary")(b"", timeout=PATIENCE))
    same((error.code().name, error.details()), ("UNAVAILABLE", "the upstream cannot be reached"))


def broken_off():
    """The server is killed when this says that it has begun."""
    call = method("Hushed")(turns_of(b"a"), timeout=PATIENCE)
    waiting = method("Waiting").future(b"b", timeout=PATIENCE)
    same(next(call), b"a")
    time.sleep(0.3)
    print("begun", flush=True)
    same(failing_code(lambda: next(call)), "UNAVAILABLE")
    same(failing_code(waiting.result), "UNAVAILABLE")


def no_route():
    error = failure(lambda: method("Unary")(b"", timeout=PATIENCE))
    same((error.code().name, error.details()), ("UNIMPLEMENTED", "no route matches"))


def too_large():
    """A message, or all messages of a stream, beyond `max_body_bytes`."""
    same(failing_code(lambda: method("Unary")(bytes(200_000), timeout=PATIENCE)), "RESOURCE_EXHAUSTED")
    turns = turns_of(b"a")
    call = method("Chat")(turns, timeout=PATIENCE)
    same(next(call), b"re: a")
    turns.send(bytes(200_000))
    error = failure(lambda: next(call))
    same((error.code().name, error.details()), ("RESOURCE_EXHAUSTED", "the request body is too large"))


for case in sys.argv[4:]:
    try:
        globals()[case]()
    except BaseException:
        print(f"case {case}:", file=sys.stderr)
        raise
print("done", flush=True)
