"""Servers in trouble, under load, behind tollgate and HAProxy at the same time.

    python3 benches/chaos.py target/release/tollgate [--seconds 300] [--rate 200] [--dns]

Five servers for each gateway die, hang, answer 500, answer slowly, flap and return, by the same schedule for both. With
`--dns` the gateways know the servers by name, and some are replaced: the server dies, and one at another address takes
its name over. That needs the rights of root, for a name server on port 53 of 127.0.0.99 and a mount namespace. The
judge is outside: clients count what they get, and servers count the ids that they are sent. It prints a table:

- idempotent requests that failed (no answer, or not 200), in percent;
- POST requests that reached servers more than once;
- the longest time from a server's return to its first request;
- the largest share of all requests that a server got in the first second after its return, where 20 % is even.
"""

import argparse
import asyncio
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

SERVERS = 5
TIMEOUT = 0.5
TROUBLES = ["dead", "hanging", "failing", "slow", "flapping"]
NAME_SERVER = "127.0.0.99"

TOLLGATE = """
[server]
listen = ["127.0.0.1:{port}"]
[admin]
listen = "127.0.0.1:{admin}"
[upstreams.all]
servers = [{servers}]
connect_timeout = "500ms"
eject = {{ failures = 3, for = "1s", statuses = ["5xx"] }}
health = {{ path = "/health", interval = "500ms", timeout = "300ms", unhealthy = 2, healthy = 1 }}
retry = {{ attempts = 3, budget = 0.5, on = ["5xx", "timeout"] }}
slow_start = "2s"
[[routes]]
path = "/*"
upstream = "all"
timeout = "500ms"
"""

RESOLVERS = """
resolvers names
  nameserver one {server}:53
  hold valid 1s
  timeout resolve 1s
"""

HAPROXY = """
defaults
  mode http
  timeout connect 500ms
  timeout client 30s
  timeout server 500ms
  retries 2
  option redispatch 1
  retry-on all-retryable-errors
frontend front
  bind 127.0.0.1:{port}
  default_backend all
backend all
  balance roundrobin
  option httpchk GET /health
  http-request disable-l7-retry if METH_POST
  default-server check inter 500ms fall 2 rise 1 observe layer7 error-limit 3 on-error mark-down slowstart 2s
{servers}
"""


class Server:
    """One server, whose trouble the schedule changes."""

    def __init__(self, name):
        self.name = name
        self.trouble = None
        self.address = "127.0.0.1"
        self.asked = []
        self.ids = Counter()
        self.writers = set()

    async def start(self):
        self.listener = await asyncio.start_server(self.serve, self.address, 0)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def replace(self):
        """Another server, at the next address, takes the name over."""
        self.die()
        self.address = f"127.0.0.{int(self.address.split('.')[-1]) % 90 + 1}"
        self.listener = await asyncio.start_server(self.serve, self.address, self.port)

    def die(self):
        self.listener.close()
        for writer in list(self.writers):
            writer.transport.abort()

    async def set(self, trouble):
        """A dead server refuses connections and cuts those that it has."""
        if trouble == "dead" and self.trouble != "dead":
            self.die()
        if trouble != "dead" and self.trouble == "dead":
            self.listener = await asyncio.start_server(self.serve, self.address, self.port)
        self.trouble = trouble

    async def serve(self, reader, writer):
        self.writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                await reader.readexactly(int(fields.get("content-length", 0)))
                is_check = head.split()[1] == "/health"
                if not is_check:
                    self.asked.append(time.monotonic())
                    if "x-id" in fields:
                        self.ids[fields["x-id"]] += 1
                trouble = self.trouble
                if trouble == "flapping":
                    trouble = "failing" if int(time.monotonic() * 2) % 2 else None
                if trouble == "hanging":
                    await asyncio.sleep(3)
                    return
                if trouble == "slow" and not is_check:
                    await asyncio.sleep(0.2)
                status = "500 Oh" if trouble == "failing" else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok".encode())
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.writers.discard(writer)
            writer.close()


class NameServer(asyncio.DatagramProtocol):
    """Answers for the names of servers (RFC 1035), for one second."""

    def __init__(self, servers):
        self.servers = {server.name: server for server in servers}

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, query, client):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode().lower())
            at += 1 + query[at]
        question, kind = query[12:at + 5], int.from_bytes(query[at + 1:at + 3], "big")
        server = self.servers.get(".".join(labels))
        answer = b""
        if server and kind == 1:
            address = bytes(map(int, server.address.split(".")))
            answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\x01\0\x04" + address
        code = b"\x81\x80" if server else b"\x81\x83"
        self.transport.sendto(query[:2] + code + b"\0\x01\0" + bytes([bool(answer)]) + b"\0\0\0\0" + question + answer, client)


class World:
    """A gateway, its servers and its clients."""

    def __init__(self, name, by_name):
        self.name = name
        self.by_name = by_name
        self.servers = [Server(f"s{index}.{name}.test") for index in range(SERVERS)]
        self.gets = self.failed = self.posts = 0
        self.returns = []
        self.sent = []

    async def start(self, directory, binary):
        for server in self.servers:
            await server.start()
        self.port, admin = free_port(), free_port()
        file = Path(directory) / f"{self.name}.cfg"
        if self.name == "tollgate":
            servers = ", ".join(f'"http://{self.host(server)}:{server.port}"' for server in self.servers)
            file = file.with_suffix(".toml")
            file.write_text(TOLLGATE.format(port=self.port, admin=admin, servers=servers))
            command = [binary, "-c", str(file)]
        else:
            resolved = " resolvers names init-addr none" if self.by_name else ""
            servers = "\n".join(f"  server s{i} {self.host(s)}:{s.port}{resolved}" for i, s in enumerate(self.servers))
            names = RESOLVERS.format(server=NAME_SERVER) if self.by_name else ""
            file.write_text(names + HAPROXY.format(port=self.port, servers=servers))
            command = [binary, "-db", "-f", str(file)]
        if self.by_name:
            resolver = Path(directory) / "resolv.conf"
            resolver.write_text(f"nameserver {NAME_SERVER}\noptions timeout:1\n")
            command = ["unshare", "-m", "sh", "-c", f'mount --bind {resolver} /etc/resolv.conf && exec "$@"', "sh", *command]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await asyncio.sleep(2)

    def host(self, server):
        return server.name if self.by_name else server.address

    async def request(self, connection, number):
        """Sends a request on a kept connection, or on a new one. Returns the connection if it is kept."""
        is_post = number % 5 == 4
        method = "POST" if is_post else "GET"
        text = f"{method} / HTTP/1.1\r\nhost: test\r\n" + (f"x-id: {number}\r\n" if is_post else "")
        text += "content-length: 2\r\n\r\nhi" if is_post else "\r\n"
        self.sent.append(time.monotonic())
        status = 0
        try:
            connection = connection or await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = connection
            writer.write(text.encode())
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode().lower()
            status = int(head.split()[1])
            length = [line for line in head.split("\r\n") if line.startswith("content-length: ")]
            await reader.readexactly(int(length[0].split()[1]) if length else 0)
            if "connection: close" in head:
                writer.close()
                connection = None
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError):
            connection = None
        if is_post:
            self.posts += 1
        else:
            self.gets += 1
            self.failed += status != 200
        return connection

    async def load(self, rate, end):
        """Requests at a steady rate, from at most 200 connections."""
        idle, number, begun = [], 0, time.monotonic()
        running = set()

        async def one(number):
            connection = await self.request(idle.pop() if idle else None, number)
            if connection:
                idle.append(connection)

        while time.monotonic() < end:
            if len(running) < 200:
                task = asyncio.create_task(one(number))
                running.add(task)
                task.add_done_callback(running.discard)
            number += 1
            await asyncio.sleep(max(0, begun + number / rate - time.monotonic()))
        await asyncio.gather(*running)

    def report(self):
        """Percent failed, POSTs sent twice, the slowest return in seconds, the largest share after a return in percent."""
        twice = sum(count > 1 for count in sum((server.ids for server in self.servers), Counter()).values())
        slowest, largest = 0, 0
        for at, server in self.returns:
            after = [moment for moment in server.asked if moment >= at]
            if not after:
                continue
            slowest = max(slowest, after[0] - at)
            first = after[0]
            its = sum(first <= moment < first + 1 for moment in after)
            all_of_them = sum(first <= moment < first + 1 for moment in self.sent)
            if all_of_them >= 50:
                largest = max(largest, its / all_of_them)
        return [f"{100 * self.failed / max(self.gets, 1):.3f} %", twice, f"{slowest:.1f} s", f"{100 * largest:.0f} %"]


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def schedule(worlds, end, seed):
    """Every 4 s one or two servers get a trouble, and the others are well. A replaced one returns at once."""
    draw = random.Random(seed)
    troubles = TROUBLES + ["replaced"] * worlds[0].by_name
    while time.monotonic() < end - 6:
        ill = {index: draw.choice(troubles) for index in draw.sample(range(SERVERS), draw.choice([1, 2]))}
        for index in range(SERVERS):
            for world in worlds:
                server = world.servers[index]
                replaced = ill.get(index) == "replaced"
                if server.trouble and (index not in ill or replaced):
                    world.returns.append((time.monotonic(), server))
                await server.set(None if replaced else ill.get(index))
                if replaced:
                    await server.replace()
                    world.returns.append((time.monotonic(), server))
        await asyncio.sleep(4)
    for world in worlds:
        for server in world.servers:
            await server.set(None)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tollgate")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--rate", type=int, default=200, help="requests a second to each gateway")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dns", action="store_true", help="servers have names, and are replaced too")
    arguments = parser.parse_args()
    worlds, binaries = [World("tollgate", arguments.dns)], {"tollgate": arguments.tollgate}
    if haproxy := shutil.which("haproxy"):
        worlds.append(World("haproxy", arguments.dns))
        binaries["haproxy"] = haproxy
    else:
        print("haproxy is not installed: tollgate runs alone", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        if arguments.dns:
            names = NameServer([server for world in worlds for server in world.servers])
            await asyncio.get_running_loop().create_datagram_endpoint(lambda: names, (NAME_SERVER, 53))
        try:
            for world in worlds:
                await world.start(directory, binaries[world.name])
            end = time.monotonic() + arguments.seconds
            await asyncio.gather(schedule(worlds, end, arguments.seed), *(world.load(arguments.rate, end) for world in worlds))
        finally:
            for world in worlds:
                world.process.terminate()
    print("| | requests | GET failed | POST sent twice | slowest return | largest share after a return |")
    print("|---|---|---|---|---|---|")
    for world in worlds:
        print("|", " | ".join(map(str, [world.name, world.gets + world.posts, *world.report()])), "|")


asyncio.run(main())
