"""The backend of docs/recipes/grpc.md: `greeter.py PORT`. It is helloworld.Greeter, its messages as plain bytes."""

import sys
from concurrent import futures

import grpc


def say_hello(request, context):
    """Field 1 of HelloRequest is the name, field 1 of HelloReply the message."""
    message = b"Hello " + request[2:]
    return b"\n" + bytes([len(message)]) + message


server = grpc.server(futures.ThreadPoolExecutor(8))
handlers = {"SayHello": grpc.unary_unary_rpc_method_handler(say_hello)}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("helloworld.Greeter", handlers)])
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
server.wait_for_termination()
