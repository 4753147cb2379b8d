"""A gRPC server whose messages are plain bytes. `server.py [CERT KEY]` prints the port that it listens on."""

import json
import sys
import threading
import time
from concurrent import futures

import grpc

ended = {}


def noting(context, name):
    """Records how a call ends; Ended returns the records."""
    context.add_callback(lambda: ended.setdefault(name, time.monotonic()))


def unary(request, context):
    return request


def described(request, context):
    """Answers with what came, and says something before and behind it."""
    metadata = [[key, value.hex() if isinstance(value, bytes) else value] for key, value in context.invocation_metadata()]
    context.send_initial_metadata([("x-before", "1"), ("x-before-bin", b"\x00\xff")])
    context.set_trailing_metadata([("x-behind", "a b"), ("x-behind-bin", bytes(range(256)))])
    return json.dumps({"metadata": metadata, "left": context.time_remaining()}).encode()


def failing(request, context):
    code, message = request.decode().split(" ", 1)
    context.set_trailing_metadata([("x-why", "asked to")])
    context.abort(next(one for one in grpc.StatusCode if one.name == code), message)


def sum_up(requests, context):
    count = length = 0
    for request in requests:
        count, length = count + 1, length + len(request)
    return f"{count} {length}".encode()


def slow_sum(requests, context):
    """Begins to read late."""
    time.sleep(0.5)
    return sum_up(requests, context)


def repeated(request, context):
    count, length = map(int, request.split())
    for place in range(count):
        yield bytes([place % 256]) * length


def chat(requests, context):
    for request in requests:
        yield b"re: " + request


def failing_chat(requests, context):
    yield next(requests)
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no more")


def hushed(requests, context):
    """Answers the first message and then says nothing, until the call ends."""
    name = next(requests)
    noting(context, name.decode())
    yield name
    while context.is_active():
        time.sleep(0.01)


def hushed_stream(request, context):
    """As that, to one message."""
    yield from hushed(iter([request]), context)


def waiting(request, context):
    noting(context, request.decode())
    while context.is_active():
        time.sleep(0.01)
    return b""


def has_ended(request, context):
    return b"yes" if request.decode() in ended else b"no"


HANDLERS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Described": grpc.unary_unary_rpc_method_handler(described),
    "Failing": grpc.unary_unary_rpc_method_handler(failing),
    "Waiting": grpc.unary_unary_rpc_method_handler(waiting),
    "HasEnded": grpc.unary_unary_rpc_method_handler(has_ended),
    "SumUp": grpc.stream_unary_rpc_method_handler(sum_up),
    "SlowSum": grpc.stream_unary_rpc_method_handler(slow_sum),
    "Repeated": grpc.unary_stream_rpc_method_handler(repeated),
    "HushedStream": grpc.unary_stream_rpc_method_handler(hushed_stream),
    "Chat": grpc.stream_stream_rpc_method_handler(chat),
    "FailingChat": grpc.stream_stream_rpc_method_handler(failing_chat),
    "Hushed": grpc.stream_stream_rpc_method_handler(hushed),
}

pool = futures.ThreadPoolExecutor(max_workers=200)
options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)]
server = grpc.server(pool, options=options)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", HANDLERS)])
if sys.argv[1:]:
    cert, key = (open(path, "rb").read() for path in sys.argv[1:])
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
else:
    port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(port, flush=True)
threading.Event().wait()
