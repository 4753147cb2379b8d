"""HTTP/2 servers in trouble, under load, behind tollgate and HAProxy at the same time.

    python3 benches/chaos_http2.py target/release/tollgate [--seconds 120] [--rate 80] [--seed 1]

Five servers for each gateway have troubles by the same schedule for both: one reads nothing of an upload, swallows the
bytes of the connections that it has, ends each connection after ten requests, opens windows of 100 bytes only, or sends
its SETTINGS late. 200 clients on 37 connections send GET, POST, calls with messages in both directions, and requests that
they cancel after 50 ms. The judge is outside: clients count what they get, servers count the ids that they are sent.
Failed: another status than 200, a body that is not whole, or nothing within 10 s. Wants Debian's python3-h2.
"""

import argparse
import asyncio
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

SERVERS = 5
CONNECTIONS = 37
CLIENTS = 200
TROUBLES = ["stalling", "swallowing", "going away", "narrow", "late"]
KINDS = ["get"] * 5 + ["post"] * 2 + ["upload", "bidi", "cancelled"]
UPLOAD = b"u" * 200_000

TOLLGATE = """
[server]
listen = ["127.0.0.1:{port}"]
[admin]
listen = "127.0.0.1:{admin}"
[upstreams.all]
servers = [{servers}]
protocol = "http2"
connect_timeout = "500ms"
eject = {{ failures = 3, for = "1s", statuses = ["5xx"] }}
retry = {{ attempts = 3, budget = 0.5, on = ["5xx", "timeout"] }}
[[routes]]
path = "/*"
upstream = "all"
timeout = "2s"
"""

HAPROXY = """
defaults
  mode http
  timeout connect 500ms
  timeout client 30s
  timeout server 2s
  retries 2
  option redispatch 1
  retry-on all-retryable-errors
frontend front
  bind 127.0.0.1:{port}
  default_backend all
backend all
  balance roundrobin
  http-request disable-l7-retry if METH_POST
  default-server proto h2 observe layer7 error-limit 3 on-error mark-down check inter 500ms fall 2 rise 1
{servers}
"""


class Peer(asyncio.Protocol):
    """One end of an HTTP/2 connection."""

    def __init__(self, is_client):
        config = h2.config.H2Configuration(client_side=is_client, header_encoding="utf-8")
        self.http2 = h2.connection.H2Connection(config)
        self.unsent = {}
        self.closed = False

    def connection_made(self, transport):
        self.transport = transport
        self.http2.initiate_connection()
        self.flush()

    def connection_lost(self, _):
        self.closed = True

    def flush(self):
        if data := self.http2.data_to_send():
            self.transport.write(data)

    def send(self, stream, data, ends=True):
        """Sends as much as the windows allow, and the rest later."""
        before, _ = self.unsent.get(stream, (b"", False))
        self.unsent[stream] = (before + data, ends)
        self.push(stream)

    def push(self, stream):
        data, ends = self.unsent.pop(stream)
        try:
            while data:
                room = min(self.http2.local_flow_control_window(stream), self.http2.max_outbound_frame_size)
                if room <= 0:
                    self.unsent[stream] = (data, ends)
                    return
                part, data = data[:room], data[room:]
                self.http2.send_data(stream, part, end_stream=ends and not data)
            if ends and not data and self.is_open(stream):
                self.http2.end_stream(stream)
        except (h2.exceptions.ProtocolError, KeyError):
            self.unsent.pop(stream, None)

    def is_open(self, stream):
        state = self.http2.streams.get(stream)
        return state and not state.closed and state.state_machine.state.name in ("OPEN", "HALF_CLOSED_REMOTE")

    def data_received(self, data):
        try:
            events = self.http2.receive_data(data)
            for event in events:
                self.handle(event)
                if isinstance(event, (h2.events.WindowUpdated, h2.events.RemoteSettingsChanged)):
                    for stream in list(self.unsent):
                        self.push(stream)
            self.flush()
        except h2.exceptions.ProtocolError:
            self.transport.abort()


class ServerConnection(Peer):
    """A connection of a server, whose trouble the schedule changes."""

    def __init__(self, server):
        super().__init__(is_client=False)
        self.server = server
        self.requests = 0
        self.paths = {}
        self.stalled = None
        self.swallows = False

    def connection_made(self, transport):
        self.server.connections.add(self)
        if self.server.trouble == "late":
            self.transport = transport
            self.early = []
            asyncio.get_running_loop().call_later(0.2, self.begin, transport)
        else:
            self.begin(transport)

    def begin(self, transport):
        super().connection_made(transport)
        early, self.early = getattr(self, "early", None) or [], None
        for data in early:
            self.data_received(data)

    def connection_lost(self, reason):
        super().connection_lost(reason)
        self.server.connections.discard(self)

    def data_received(self, data):
        if getattr(self, "early", None) is not None:
            self.early.append(data)
        elif not self.swallows:
            super().data_received(data)

    def handle(self, event):
        if isinstance(event, h2.events.RequestReceived):
            fields = dict(event.headers)
            path = fields[":path"]
            self.paths[event.stream_id] = path
            self.requests += 1
            if "x-id" in fields:
                self.server.ids[fields["x-id"]] += 1
            if path == "/upload" and self.server.trouble == "stalling" and self.stalled is None:
                self.stalled = event.stream_id
            if path == "/bidi":
                self.http2.send_headers(event.stream_id, [(":status", "200")])
        elif isinstance(event, h2.events.DataReceived):
            if event.stream_id == self.stalled:
                return
            self.http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if self.paths.get(event.stream_id) == "/bidi":
                self.send(event.stream_id, event.data, ends=False)
        elif isinstance(event, h2.events.StreamEnded):
            if event.stream_id != self.stalled:
                self.answer(event.stream_id)
        elif isinstance(event, h2.events.StreamReset) and event.stream_id == self.stalled:
            self.stalled = None

    def answer(self, stream):
        path = self.paths.pop(stream, None)
        if path == "/bidi":
            self.send(stream, b"")
        elif path == "/slow":
            asyncio.get_running_loop().call_later(0.15, self.ok, stream)
        else:
            self.ok(stream)
        if self.server.trouble == "going away" and self.requests >= 10 and not self.closed:
            self.http2.close_connection()
            self.flush()
            asyncio.get_running_loop().call_later(0.5, self.transport.close)

    def ok(self, stream):
        if not self.closed and self.is_open(stream):
            try:
                self.http2.send_headers(stream, [(":status", "200")])
                self.send(stream, b"ok" * 500)
                self.flush()
            except h2.exceptions.ProtocolError:
                pass


class Server:
    def __init__(self):
        self.trouble = None
        self.connections = set()
        self.ids = Counter()

    async def start(self):
        self.listener = await asyncio.get_running_loop().create_server(lambda: ServerConnection(self), "127.0.0.1", 0)
        self.port = self.listener.sockets[0].getsockname()[1]

    def set(self, trouble):
        before, self.trouble = self.trouble, trouble
        for connection in list(self.connections):
            if connection.swallows or connection.stalled is not None and trouble != "stalling":
                connection.transport.abort()
            connection.swallows = trouble == "swallowing"
            if "narrow" in (trouble, before) and not connection.closed and connection.transport:
                size = 100 if trouble == "narrow" else 65_535
                connection.http2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: size})
                connection.flush()


class ClientConnection(Peer):
    """A connection of some clients."""

    def __init__(self):
        super().__init__(is_client=True)
        self.answers = {}

    def connection_lost(self, reason):
        super().connection_lost(reason)
        for answer in self.answers.values():
            answer["done"].set()

    def handle(self, event):
        answer = self.answers.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.ResponseReceived) and answer:
            answer["status"] = int(dict(event.headers)[":status"])
        elif isinstance(event, h2.events.DataReceived):
            self.http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            if answer:
                answer["bytes"] += len(event.data)
                answer["part"].set()
        elif isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)) and answer:
            answer["whole"] = isinstance(event, h2.events.StreamEnded)
            answer["done"].set()
            answer["part"].set()
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.closed = True

    def ask(self, method, path, fields, ends):
        stream = self.http2.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test")]
        self.answers[stream] = {"status": 0, "bytes": 0, "whole": False, "done": asyncio.Event(), "part": asyncio.Event()}
        self.http2.send_headers(stream, head + fields, end_stream=ends)
        return stream, self.answers[stream]


class World:
    """A gateway, its servers and its clients."""

    def __init__(self, name):
        self.name = name
        self.servers = [Server() for _ in range(SERVERS)]
        self.asked, self.failed, self.times = Counter(), Counter(), defaultdict(list)
        self.connections = [None] * CONNECTIONS

    async def start(self, directory, binary):
        for server in self.servers:
            await server.start()
        self.port, admin = free_port(), free_port()
        file = Path(directory) / self.name
        if self.name == "tollgate":
            servers = ", ".join(f'"http://127.0.0.1:{server.port}"' for server in self.servers)
            file.write_text(TOLLGATE.format(port=self.port, admin=admin, servers=servers))
            command = [binary, "-c", str(file)]
        else:
            servers = "\n".join(f"  server s{i} 127.0.0.1:{server.port}" for i, server in enumerate(self.servers))
            file.write_text(HAPROXY.format(port=self.port, servers=servers))
            command = [binary, "-db", "-f", str(file)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await asyncio.sleep(1)

    async def connection(self, index):
        connection = self.connections[index]
        if connection is None or connection.closed:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(ClientConnection, "127.0.0.1", self.port)
            self.connections[index] = connection
        return connection

    async def request(self, number):
        # Servers are chosen in turn, so kinds must not be.
        kind = random.Random(number).choice(KINDS)
        begun = time.monotonic()
        try:
            is_good = await asyncio.wait_for(self.one(kind, number), 10)
        except (OSError, asyncio.TimeoutError, h2.exceptions.ProtocolError, KeyError):
            is_good = False
        self.asked[kind] += 1
        self.failed[kind] += not is_good
        if is_good:
            self.times[kind].append(time.monotonic() - begun)

    async def one(self, kind, number):
        connection = await self.connection(number % CONNECTIONS)
        has_body = kind in ("post", "upload", "bidi")
        path = {"upload": "/upload", "bidi": "/bidi", "cancelled": "/slow"}.get(kind, "/")
        fields = [("x-id", str(number))] if kind == "post" else []
        stream, answer = connection.ask("POST" if has_body else "GET", path, fields, ends=not has_body)
        try:
            if kind in ("post", "upload"):
                connection.send(stream, b"p" * 1_000 if kind == "post" else UPLOAD)
            connection.flush()
            if kind == "cancelled":
                await asyncio.sleep(0.05)
                return True
            if kind == "bidi":
                for turn in range(1, 4):
                    connection.send(stream, b"m" * 100, ends=False)
                    connection.flush()
                    while answer["bytes"] < 100 * turn and not answer["done"].is_set():
                        await answer["part"].wait()
                        answer["part"].clear()
                connection.send(stream, b"")
                connection.flush()
            await answer["done"].wait()
            size = 300 if kind == "bidi" else 1_000
            return answer["status"] == 200 and answer["whole"] and answer["bytes"] == size
        finally:
            connection.answers.pop(stream, None)
            connection.unsent.pop(stream, None)
            if not answer["done"].is_set() and not connection.closed:
                connection.http2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
                connection.flush()

    async def load(self, rate, end):
        number, begun, running = 0, time.monotonic(), set()
        while time.monotonic() < end:
            if len(running) < CLIENTS:
                task = asyncio.create_task(self.request(number))
                running.add(task)
                task.add_done_callback(running.discard)
            number += 1
            await asyncio.sleep(max(0, begun + number / rate - time.monotonic()))
        await asyncio.gather(*running)

    def report(self):
        failed = [f"{100 * self.failed[kind] / max(self.asked[kind], 1):.2f} %" for kind in ("get", "post", "upload", "bidi")]
        twice = sum(count > 1 for count in sum((server.ids for server in self.servers), Counter()).values())
        times = sorted(self.times["get"] + self.times["post"])
        slow = times[int(len(times) * 0.999)] if times else 0
        return [sum(self.asked.values()), *failed, twice, f"{slow:.2f} s"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def schedule(worlds, end, seed):
    """Every 4 s one or two servers get a trouble, and the others are well."""
    draw = random.Random(seed)
    while time.monotonic() < end - 6:
        ill = {index: draw.choice(TROUBLES) for index in draw.sample(range(SERVERS), draw.choice([1, 2]))}
        for world in worlds:
            for index, server in enumerate(world.servers):
                server.set(ill.get(index))
        await asyncio.sleep(4)
    for world in worlds:
        for server in world.servers:
            server.set(None)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tollgate")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--rate", type=int, default=80, help="requests a second to each gateway")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    worlds, binaries = [World("tollgate")], {"tollgate": arguments.tollgate}
    if haproxy := shutil.which("haproxy"):
        worlds.append(World("haproxy"))
        binaries["haproxy"] = haproxy
    else:
        print("haproxy is not installed: tollgate runs alone", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        try:
            for world in worlds:
                await world.start(directory, binaries[world.name])
            end = time.monotonic() + arguments.seconds
            loads = (world.load(arguments.rate, end) for world in worlds)
            await asyncio.gather(schedule(worlds, end, arguments.seed), *loads)
        finally:
            for world in worlds:
                world.process.terminate()
    print("| | requests | GET failed | POST failed | upload failed | call failed | POST sent twice | slowest 0.1 % |")
    print("|---|---|---|---|---|---|---|---|")
    for world in worlds:
        print("|", " | ".join(map(str, [world.name, *world.report()])), "|")


asyncio.run(main())
