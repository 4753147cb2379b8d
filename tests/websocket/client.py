"""A client of WebSocket, which sends messages and checks what comes back: `client.py http2 PORT PATH` speaks RFC 8441 by
the libraries h2 and wsproto, `client.py http1 PORT PATH` is the library websockets. Prints a line of JSON."""

import contextlib
import json
import socket
import sys

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, TextMessage

MESSAGES = ["hello", "ü" * 1000, b"\0" * 70_000, "x" * 300_000, b""]


def answer(message):
    length = f"{len(message)}:"
    return length + message if isinstance(message, str) else length.encode() + message


class Stream:
    """One stream of an HTTP/2 connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.connection.initiate_connection()
        self.flush()
        self.events, self.received, self.ended = [], b"", False
        self.until(lambda: self.connection.remote_settings.enable_connect_protocol == 1)
        self.id = self.connection.get_next_available_stream_id()

    def flush(self):
        self.socket.sendall(self.connection.data_to_send())

    def until(self, condition):
        while not condition():
            news = self.socket.recv(1 << 16)
            if not news:
                raise EOFError("the connection ended")
            for event in self.connection.receive_data(news):
                if isinstance(event, h2.events.DataReceived):
                    self.received += event.data
                    self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.ResponseReceived):
                    self.events.append(dict(event.headers))
                elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                    self.ended = True
            self.flush()

    def send(self, data):
        while data:
            self.until(lambda: self.connection.local_flow_control_window(self.id) > 0)
            room = min(self.connection.local_flow_control_window(self.id), self.connection.max_outbound_frame_size)
            self.connection.send_data(self.id, data[:room])
            data = data[room:]
            self.flush()

    def take(self):
        self.until(lambda: self.received or self.ended)
        if not self.received:
            raise EOFError("the stream ended")
        data, self.received = self.received, b""
        return data


def by_http2(port, path):
    stream = Stream(port)
    stream.connection.send_headers(stream.id, [
        (":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", path),
        (":authority", f"localhost:{port}"), ("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat"),
        ("origin", "http://localhost"),
    ])
    stream.flush()
    stream.until(lambda: stream.events)
    head = stream.events[0]
    if head[":status"] != "200":
        stream.until(lambda: stream.ended)
        return {"status": int(head[":status"]), "body": stream.received.decode()}
    frames, echoed = Connection(ConnectionType.CLIENT), 0
    for message in MESSAGES:
        kind = TextMessage if isinstance(message, str) else BytesMessage
        stream.send(frames.send(kind(data=message)))
        got = [] if isinstance(message, str) else [b""]
        while True:
            events = list(frames.events())
            got += [event.data for event in events if isinstance(event, (TextMessage, BytesMessage))]
            if any(getattr(event, "message_finished", False) for event in events):
                break
            frames.receive_data(stream.take())
        whole = "".join(got) if isinstance(message, str) else b"".join(got)
        echoed += whole == answer(message)
    stream.send(frames.send(CloseConnection(code=1000)))
    closed = None
    while closed is None:
        closed = next((event.code for event in frames.events() if isinstance(event, CloseConnection)), None)
        if closed is None:
            frames.receive_data(stream.take())
    # Hypercorn does not end the stream, and takes no more after its close frame. Envoy resets it.
    with contextlib.suppress(h2.exceptions.StreamClosedError):
        stream.connection.end_stream(stream.id)
    stream.flush()
    return {"status": 200, "protocol": head.get("sec-websocket-protocol"), "echoed": echoed, "closed": closed,
            "version": head.get("x-http-version")}


def by_http1(port, path):
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    try:
        with connect(f"ws://127.0.0.1:{port}{path}", subprotocols=["chat"], max_size=None) as connection:
            echoed = 0
            for message in MESSAGES:
                connection.send(message)
                echoed += connection.recv(timeout=30) == answer(message)
            version = connection.response.headers.get("x-http-version")
            protocol = connection.subprotocol
        return {"status": 101, "protocol": protocol, "echoed": echoed, "closed": connection.close_code, "version": version}
    except InvalidStatus as refused:
        return {"status": refused.response.status_code, "body": refused.response.body.decode()}


print(json.dumps({"http1": by_http1, "http2": by_http2}[sys.argv[1]](int(sys.argv[2]), sys.argv[3])))
