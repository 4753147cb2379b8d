"""A client of HTTP/3 by the library aioquic: `client.py PORT CA SCENE [ARGUMENT…]`. The scene is a function below, and what it
gives is printed as a line of JSON. `CA` is the file of the authority that has signed the gateway's certificate."""

import asyncio
import json
import random
import socket
import sys
from contextlib import asynccontextmanager
from contextvars import ContextVar

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.buffer import Buffer, encode_uint_var
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StreamReset
from aioquic.quic.packet import QuicProtocolVersion

TIMEOUT = 60  # seconds for any step: test machines are busy
CANCELLED = 0x10C
PORT, CA = int(sys.argv[1]), sys.argv[2]


class Answer:
    """What has come on a stream."""

    def __init__(self):
        self.fields, self.trailers, self.body, self.reset = None, None, bytearray(), None
        self.head, self.end = asyncio.Event(), asyncio.Event()

    @property
    def status(self):
        return self.fields and int(self.fields[":status"])

    def told(self):
        return {"status": self.status, "length": len(self.body), "trailers": self.trailers, "reset": self.reset}


class Http(H3Connection):
    """The library would miss the bytes of a response to HEAD that `content-length` tells of (RFC 9110 §8.6)."""

    heads = ()

    def _check_content_length(self, stream):
        if stream.stream_id not in self.heads:
            super()._check_content_length(stream)


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.http, self.answers, self.handshake, self.terminated = Http(self._quic), {}, None, None
        self.news = asyncio.Event()

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            self.handshake = event
        elif isinstance(event, StreamReset) and event.stream_id in self.answers:
            self.answers[event.stream_id].reset = event.error_code
            self.ended(self.answers[event.stream_id])
        elif isinstance(event, ConnectionTerminated):
            self.terminated = event.error_code
            for answer in self.answers.values():
                self.ended(answer)
        for part in self.http.handle_event(event):
            if not isinstance(part, (HeadersReceived, DataReceived)):
                continue
            answer = self.answers[part.stream_id]
            if isinstance(part, DataReceived):
                answer.body += part.data
            else:
                fields = {name.decode(): value.decode() for name, value in part.headers}
                if answer.fields is None or answer.status < 200:
                    answer.fields = fields
                else:
                    answer.trailers = fields
                answer.head.set()
            if part.stream_ended:
                self.ended(answer)
        self.news.set()

    def ended(self, answer):
        answer.head.set()
        answer.end.set()

    async def until(self, condition):
        async with asyncio.timeout(TIMEOUT):
            while not condition():
                self.news.clear()
                await self.news.wait()

    def begin(self, method, path, fields=(), ends=True, pseudo=()):
        stream = self._quic.get_next_available_stream_id()
        head = [(":method", method), *pseudo, (":scheme", "https"), (":authority", "a.test"), (":path", path), *fields]
        self.http.send_headers(stream, [(name.encode(), value.encode()) for name, value in head], end_stream=ends)
        self.answers[stream] = Answer()
        self.http.heads += (stream,) if method == "HEAD" else ()
        self.transmit()
        return stream

    def send(self, stream, data, ends=False):
        self.http.send_data(stream, data, end_stream=ends)
        self.transmit()

    async def finish(self, stream):
        answer = self.answers[stream]
        async with asyncio.timeout(TIMEOUT):
            await answer.end.wait()
        return answer

    async def ask(self, method, path, fields=(), body=None, trailers=None):
        stream = self.begin(method, path, fields, ends=body is None)
        if body is not None:
            self.send(stream, body, ends=trailers is None)
        if trailers is not None:
            self.http.send_headers(stream, [(name.encode(), value.encode()) for name, value in trailers], end_stream=True)
            self.transmit()
        return await self.finish(stream)

    async def change_port(self):
        """The client is behind another port from now on, as after a change of its network."""
        before, changed = self._transport, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        changed.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        changed.bind(("::", 0, 0, 0))
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=changed)
        before.abort()

    def connection_lost(self, _):
        pass


@asynccontextmanager
async def connection(create_protocol=Client, **settings):
    tickets, tokens = settings.pop("tickets", None), settings.pop("tokens", None)
    configuration = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="a.test", **settings)
    configuration.load_verify_locations(CA)
    async with asyncio.timeout(2 * TIMEOUT):
        async with connect(
            "127.0.0.1", PORT, configuration=configuration, create_protocol=create_protocol,
            session_ticket_handler=tickets and tickets.append, token_handler=tokens and tokens.append,
        ) as client:
            yield client


def pattern(length):
    return (bytes(range(251)) * (length // 251 + 1))[:length]


async def requests():
    """Of each kind one, on one connection."""
    told = {}
    async with connection() as client:
        told["get"] = (await client.ask("GET", "/a?b=c")).told()
        head = await client.ask("HEAD", "/head")
        told["head"] = head.told() | {"content-length": head.fields["content-length"]}
        for length in [0, 5, 70_000, 3 << 20]:
            body = pattern(length)
            for fields in [[], [("content-length", str(length))]]:
                answer = await client.ask("POST", "/echo", fields, body)
                told[f"post {length} {len(fields)}"] = answer.status == 200 and answer.body == body
        trailers = await client.ask("POST", "/trailers", [("te", "trailers"), ("trailer", "x-up")], b"abc", [("x-up", "1")])
        told["trailers"] = trailers.told()
        large = await client.ask("GET", "/large")
        told["large"] = large.body == pattern(10 << 20)
        told["missing"] = (await client.ask("GET", "/missing")).told()
        many = await asyncio.gather(*[client.ask("POST", "/echo", body=pattern(40_000 + n)) for n in range(60)])
        told["many"] = sum(answer.body == pattern(40_000 + n) for n, answer in enumerate(many))
        client.request_key_update()
        told["after new keys"] = (await client.ask("GET", "/")).told()
    return told


async def burst(connections, streams, path="/"):
    """Requests on as many streams of as many connections at once."""

    async def one():
        async with connection() as client:
            return await asyncio.gather(*[client.ask("GET", path) for _ in range(int(streams))])

    answers = sum(await asyncio.gather(*[one() for _ in range(int(connections))]), [])
    refused = [answer for answer in answers if answer.status == 429]
    return {
        "served": sum(answer.status == 200 for answer in answers),
        "refused": len(refused),
        "all": len(answers),
        "waits": sorted({int(answer.fields["retry-after"]) for answer in refused}),
    }


async def cancel():
    """A client that resets what it has asked for, of all forms, and goes on."""
    async with connection() as client:
        waiting = client.begin("GET", "/hang")
        upload = client.begin("POST", "/hang", ends=False)
        client.send(upload, pattern(1000))
        reading = client.begin("GET", "/large")
        await client.until(lambda: len(client.answers[reading].body) > 1000)
        for stream in (waiting, reading):
            client._quic.stop_stream(stream, CANCELLED)
        client._quic.reset_stream(upload, CANCELLED)
        client._quic.stop_stream(upload, CANCELLED)
        client.transmit()
        return {"after": (await client.ask("GET", "/")).told(), "terminated": client.terminated}


async def move():
    """The port changes between requests, within a response and within a body; then the id, too."""
    async with connection() as client:
        statuses = [(await client.ask("GET", "/")).status]
        for _ in range(5):
            await client.change_port()
            statuses.append((await client.ask("GET", "/")).status)
        reading = client.begin("GET", "/large")
        await client.until(lambda: len(client.answers[reading].body) > 100_000)
        await client.change_port()
        large = await client.finish(reading)
        body = pattern(2 << 20)
        upload = client.begin("POST", "/echo", ends=False)
        client.send(upload, body[: 1 << 20])
        await client.ping()
        await client.change_port()
        client.send(upload, body[1 << 20 :], ends=True)
        echoed = await client.finish(upload)
        for _ in range(3):
            client.change_connection_id()
            await client.change_port()
            statuses.append((await client.ask("GET", "/")).status)
        return {"statuses": statuses, "large": large.told(), "echoed": echoed.body == body, "terminated": client.terminated}


async def resume():
    """A session that is resumed; early data is offered wherever the ticket allows it."""
    tickets, told = [], []
    for _ in range(3):
        settings = {"session_ticket": tickets.pop()} if tickets else {}
        allows = bool(settings) and bool(settings["session_ticket"].max_early_data_size)
        async with connection(tickets=Kept(tickets), **settings) as client:
            status = (await client.ask("GET", "/")).status
            await client.until(lambda: tickets)
            shook = client.handshake
            told.append([status, shook.session_resumed, shook.early_data_accepted, allows])
    return told


class Kept:
    """A list that is true while it is empty."""

    def __init__(self, items):
        self.append = items.append


async def retry():
    """Whether a Retry came, on a first connection and on one that has the token of the first."""
    tokens, told = [], []
    for _ in range(2):
        settings = {"token": tokens[-1]} if tokens else {}
        async with connection(tokens=Kept(tokens), **settings) as client:
            status = (await client.ask("GET", "/")).status
            told.append([status, client._quic._retry_count, bool(settings)])
    return told


async def negotiate():
    """The first packet is of version 2, which the gateway does not speak."""
    one, two = QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2
    async with connection(original_version=two, supported_versions=[one, two]) as client:
        status = (await client.ask("GET", "/")).status
        return {"status": status, "version": int(client._quic._version)}


async def grpc():
    """A call that is served, and one that a limit refuses."""
    fields, message = [("content-type", "application/grpc"), ("te", "trailers")], b"\0\0\0\0\2hi"
    async with connection() as client:
        calls = [await client.ask("POST", "/a.B/Call", fields, message) for _ in range(2)]
        return [call.told() | {"grpc-status": call.fields.get("grpc-status")} for call in calls]


async def websocket():
    """Messages of a WebSocket on a stream (RFC 9220)."""
    from wsproto.connection import Connection, ConnectionType
    from wsproto.events import BytesMessage, CloseConnection, TextMessage

    async with connection() as client:
        await client.until(lambda: client.http.received_settings)
        announced = client.http.received_settings.get(0x8)
        fields = [("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat"), ("origin", "https://a.test")]
        stream = client.begin("CONNECT", "/chat", fields, ends=False, pseudo=[(":protocol", "websocket")])
        answer = client.answers[stream]
        await answer.head.wait()
        if answer.status != 200:
            return (await client.finish(stream)).told() | {"body": answer.body.decode()}
        frames, echoed, closed = Connection(ConnectionType.CLIENT), 0, None

        async def take():
            await client.until(lambda: answer.body or answer.end.is_set())
            if not answer.body:
                raise EOFError(f"the stream ended: {answer.told()}")
            data = bytes(answer.body)
            answer.body.clear()
            frames.receive_data(data)

        for message in [b"hello", b"\0" * 70_000, b"x" * 300_000, b""]:
            client.send(stream, frames.send(BytesMessage(data=message)))
            got, finished = b"", False
            while not finished:
                for event in frames.events():
                    if isinstance(event, (BytesMessage, TextMessage)):
                        got += event.data
                        finished = event.message_finished
                if not finished:
                    await take()
            echoed += got == f"{len(message)}:".encode() + message
        client.send(stream, frames.send(CloseConnection(code=1000)))
        while closed is None:
            closed = next((event.code for event in frames.events() if isinstance(event, CloseConnection)), None)
            if closed is None:
                await take()
        client.send(stream, b"", ends=True)
        await client.finish(stream)
        return {
            "status": answer.status, "protocol": answer.fields.get("sec-websocket-protocol"), "echoed": echoed,
            "closed": closed, "announced": announced, "reset": answer.reset,
        }


# What becomes of the transport parameters of this task's connections before they are sent.
CHANGE = ContextVar("change", default=lambda parameters: parameters)
SERIALIZE = QuicConnection._serialize_transport_parameters
QuicConnection._serialize_transport_parameters = lambda quic: CHANGE.get()(SERIALIZE(quic))


def read_parameters(data):
    """The transport parameters (RFC 9000 §18) by their numbers."""
    buffer, parameters = Buffer(data=data), {}
    while not buffer.eof():
        number = buffer.pull_uint_var()
        parameters[number] = buffer.pull_bytes(buffer.pull_uint_var())
    return parameters


def write_parameters(parameters):
    var = encode_uint_var
    return b"".join(var(number) + var(len(value)) + value for number, value in parameters)


def with_value(number, value):
    """One parameter has another value; without one, it is missing."""
    value = encode_uint_var(value) if isinstance(value, int) else value

    def change(data):
        parameters = read_parameters(data)
        parameters.pop(number, None)
        return write_parameters([*parameters.items()] + ([] if value is None else [(number, value)]))

    return change


def with_noise(data):
    data = bytearray(data)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(data))
        if random.random() < 0.7:
            data[place] = random.randrange(256)
        elif random.random() < 0.5:
            del data[place]
        else:
            data.insert(place, random.randrange(256))
    return bytes(data)


async def attempt(change, seconds=TIMEOUT):
    """The status of a request on a connection whose parameters are changed, or `code N` that ended the connection."""
    CHANGE.set(change)
    clients = []

    def created(*arguments, **more):
        clients.append(Client(*arguments, **more))
        return clients[0]

    try:
        async with asyncio.timeout(seconds), connection(create_protocol=created) as client:
            answer = await client.ask("GET", "/")
            return answer.status or f"code {client.terminated}"
    except ConnectionError:
        return f"code {clients[0].terminated}"
    except TimeoutError:
        return "silence"


async def parameters(seed):
    """Transport parameters at their bounds and beyond, cut at every byte, and with noise."""
    largest = (1 << 62) - 1
    kept = []
    assert await attempt(lambda data: kept.append(data) or data) == 200
    legal = {
        "idle timeout": with_value(0x01, largest), "packets of 1200": with_value(0x03, 1200),
        "largest packets": with_value(0x03, largest), "data": with_value(0x04, largest),
        "data of a stream": with_value(0x05, largest), "streams": with_value(0x08, 1 << 60),
        "exponent": with_value(0x0A, 20), "delay": with_value(0x0B, (1 << 14) - 1),
        "no migration": with_value(0x0C, b""), "ids": with_value(0x0E, largest), "unknown": with_value(31 * 7 + 27, b"grease"),
    }
    illegal = {
        "small packets": with_value(0x03, 1199), "streams": with_value(0x08, (1 << 60) + 1), "exponent": with_value(0x0A, 21),
        "delay": with_value(0x0B, 1 << 14), "no migration": with_value(0x0C, b"x"), "one id": with_value(0x0E, 1),
        "first id": with_value(0x00, b"12345678"), "reset token": with_value(0x02, bytes(16)),
        "preferred address": with_value(0x0D, bytes(4 + 2 + 16 + 2) + b"\4abcd" + bytes(16)),
        "source id of Retry": with_value(0x10, b"12345678"), "no source id": with_value(0x0F, None),
        "other source id": with_value(0x0F, b"12345678"), "long number": with_value(0x04, b"\1\1"),
        "twice": lambda data: data + write_parameters([(0x04, b"\1")]),
    }
    told = {name: {} for name in ["legal", "illegal"]}
    for kind, cases in [("legal", legal), ("illegal", illegal)]:
        for name, change in cases.items():
            told[kind][name] = await attempt(change)
    cuts = [attempt(lambda data, length=length: data[:length]) for length in range(len(kept[0]))]
    told["cut"] = sorted(set(map(str, await asyncio.gather(*cuts))))
    random.seed(seed)
    told["noise"] = 0
    for _ in range(10):
        outcomes = await asyncio.gather(*[attempt(with_noise, 3) for _ in range(30)])
        told["noise"] += sum(outcome != "silence" for outcome in outcomes)
    told["after"] = await attempt(lambda data: data)
    return told


async def through_an_upgrade(held):
    """Begins requests, tells so, and waits for a line: then the gateway has been upgraded."""
    loop = asyncio.get_running_loop()
    async with connection() as client:
        streams = [client.begin("GET", f"/held/{number}") for number in range(int(held))]
        upload = client.begin("POST", "/held/upload", ends=False)
        client.send(upload, pattern(30_000))
        print("begun", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        async with connection() as other:
            fresh = [(await other.ask("GET", "/who")).status for _ in range(5)]
        print("upgraded", flush=True)
        await client.change_port()
        client.send(upload, pattern(1 << 20), ends=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        answers = [(await client.finish(stream)).told() for stream in [*streams, upload]]
        return {"answers": answers, "fresh": fresh}


scene, arguments = sys.argv[3], sys.argv[4:]
print(json.dumps(asyncio.run(globals()[scene](*arguments))))
