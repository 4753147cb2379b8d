"""Servers that send each message back, with its length before it: `server.py websockets` speaks HTTP/1.1, `server.py
hypercorn` HTTP/1.1 and HTTP/2 without TLS. Prints the port."""

import asyncio
import socket
import sys


def listener():
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    return listening


async def by_websockets():
    from websockets.asyncio.server import serve

    async def echo(connection):
        async for message in connection:
            await connection.send(answer(message))

    async with serve(echo, sock=listener(), subprotocols=["chat"], max_size=None):
        await asyncio.get_running_loop().create_future()


async def by_hypercorn():
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    listening = listener()
    listening.set_inheritable(True)
    config = Config()
    config.bind = [f"fd://{listening.fileno()}"]
    config.websocket_max_message_size = 64 << 20
    await serve(application, config)


async def application(scope, receive, send):
    """An application of ASGI."""
    if scope["type"] == "websocket":
        await receive()
        headers = [(b"x-http-version", scope["http_version"].encode())]
        await send({"type": "websocket.accept", "subprotocol": "chat", "headers": headers})
        while (event := await receive())["type"] == "websocket.receive":
            message = event["text"] if event.get("text") is not None else event["bytes"]
            sent = answer(message)
            await send({"type": "websocket.send", "text" if isinstance(sent, str) else "bytes": sent})
    elif scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
        await send({"type": "http.response.body", "body": b"<!doctype html><title>page</title>"})
    elif scope["type"] == "lifespan":
        while (event := await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})


def answer(message):
    length = f"{len(message)}:"
    return length + message if isinstance(message, str) else length.encode() + message


asyncio.run({"websockets": by_websockets, "hypercorn": by_hypercorn}[sys.argv[1]]())
