#!/usr/bin/env python3
"""Soaks tollgate: mixed traffic while its file is reloaded, its backends are killed and its clients break off.

    benches/soak.py [MINUTES]      10 by default; wants nginx, and uses h2load (nghttp2-client) if it is there

    TOLLGATE=/path/to/tollgate     this one instead of building it
    LOAD=/path/to/load             examples/load, likewise

It fails if the process dies, if memory or descriptors grow, if a 5xx has no reason in the access log, if any is answered
once the disturbances have ended, or if a client that did nothing wrong reads a broken answer.
"""

import calendar
import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What a backend's death explains.
EXPLAINED = {"connect", "connect_timeout", "reset", "timeout", "no_healthy_upstream", "response_cut", "upstream_full"}
WARM_UP = 60
CALM = 20
# What memory may grow by after the warm-up: buffers that are kept, and the allocator's own.
GROWTH_KIB = 8 << 10


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def build(kind, *what):
    subprocess.run(["cargo", "build", "--release", "--locked", *what], cwd=ROOT, check=True)
    return ROOT / "target/release" / kind


class Backend:
    """An nginx with small and large files, HTTP/1.1 or HTTP/2, killed and started again."""

    def __init__(self, work, name, http2):
        self.port = free_port()
        self.home = work / name
        self.home.mkdir()
        self.config = self.home / "nginx.conf"
        self.config.write_text(
            f"""daemon off; master_process off; pid {self.home}/pid; error_log {self.home}/error.log;
            events {{ worker_connections 4096; }}
            http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {self.home}/body; client_max_body_size 0;
                    proxy_temp_path {self.home}/p; fastcgi_temp_path {self.home}/f;
                    uwsgi_temp_path {self.home}/u; scgi_temp_path {self.home}/s;
                    server {{ listen 127.0.0.1:{self.port} {"http2" if http2 else ""}; root {work}/files;
                              location /up {{ return 200 "taken\\n"; }} }} }}"""
        )
        self.start()

    def start(self):
        self.process = subprocess.Popen(["nginx", "-c", self.config, "-e", self.home / "error.log"])

    def kill(self, how):
        self.process.send_signal(how)
        self.process.wait()


class Soak:
    def __init__(self, minutes):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="soak."))
        files = self.work / "files"
        files.mkdir(mode=0o755)
        self.work.chmod(0o755)
        (files / "small").write_bytes(b"x" * 100)
        (files / "large").write_bytes(os.urandom(2 << 20))
        self.large = (files / "large").read_bytes()
        self.tollgate = os.environ.get("TOLLGATE") or build("tollgate")
        self.load = os.environ.get("LOAD") or build("examples/load", "--example", "load")
        self.backends = [Backend(self.work, "a", False), Backend(self.work, "b", False), Backend(self.work, "c", True)]
        self.port = free_port()
        self.ends = time.monotonic() + minutes * 60
        self.disturbed_until = self.ends - CALM
        self.faults = []
        self.tally = collections.Counter()
        self.start_gateway()

    def start_gateway(self):
        self.file = self.work / "gateway.toml"
        self.write_file()
        self.log = open(self.work / "access.log", "wb")
        self.errors = open(self.work / "program.log", "wb")
        command = [self.tollgate, "run", "-c", self.file]
        self.gateway = subprocess.Popen(command, stdout=self.log, stderr=self.errors)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        sys.exit("the gateway does not listen: see " + str(self.work))

    def write_file(self, faulty=0.0):
        """Another plan each time: numbers, balance and checks change, names do not; faulty now and then."""
        a, b, c = (backend.port for backend in self.backends)
        balance = random.choice(["round-robin", "least-requests", "random"])
        text = f"""
[server]
listen = ["127.0.0.1:{self.port}"]
workers = 2
max_body_bytes = "64MiB"
[upstreams.one]
servers = ["http://127.0.0.1:{a}", "http://127.0.0.1:{b}"]
balance = "{balance}"
{random.choice(['health = { path = "/small", interval = "500ms" }', ""])}
[upstreams.two]
servers = ["http://127.0.0.1:{c}"]
protocol = "http2"
[limits.per-key]
algorithm = "{random.choice(["gcra", "token-bucket"])}"
key = "header:x-api-key"
rate = "{random.choice([100, 1000, 5000])}/s"
burst = 500
[limits.few]
algorithm = "sliding-window"
key = "ip"
rate = "{random.choice([5, 50])}/s"
[[routes]]
path = "/*"
upstream = "one"
limits = ["per-key"]
[[routes]]
path = "/two/*"
upstream = "two"
strip_prefix = "/two"
[[routes]]
path = "/few/*"
upstream = "one"
strip_prefix = "/few"
limits = ["few"]
"""
        partial = self.file.with_suffix(".new")
        partial.write_text(text + ("nonsense = [" if random.random() < faulty else ""))
        partial.replace(self.file)

    def disturb(self):
        while time.monotonic() < self.disturbed_until:
            time.sleep(random.uniform(0.2, 2))
            if random.random() < 0.7:
                self.write_file(faulty=0.1)
                self.gateway.send_signal(signal.SIGHUP)
                self.tally["reloads"] += 1
            else:
                backend = random.choice(self.backends)
                backend.kill(random.choice([signal.SIGKILL, signal.SIGTERM]))
                self.tally["deaths of backends"] += 1
                time.sleep(random.uniform(0, 1.5))
                backend.start()

    def good_client(self):
        """Reads whole answers, and knows what they must be."""
        while time.monotonic() < self.ends:
            try:
                client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                for _ in range(random.randint(1, 20)):
                    self.one_request(client)
                client.close()
            except (OSError, http.client.HTTPException):
                # A backend that dies in the middle of an answer cuts it.
                self.tally["cut answers"] += 1

    def one_request(self, client):
        prefix = random.choice(["", "/two"])
        if random.random() < 0.2:
            client.request("POST", prefix + "/up", body=os.urandom(random.randint(0, 1 << 20)))
        else:
            client.request("GET", prefix + "/large" if random.random() < 0.1 else prefix + "/small")
        answer = client.getresponse()
        body = answer.read()
        self.tally[f"status {answer.status}"] += 1
        if answer.status == 200 and body not in (b"x" * 100, b"taken\n", self.large):
            self.faults.append(f"a broken answer of {len(body)} bytes")

    def rude_client(self):
        """Breaks off wherever it is."""
        while time.monotonic() < self.ends:
            with socket.create_connection(("127.0.0.1", self.port)) as client:
                client.send(random.choice([
                    b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n",
                    b"GET /two/large HTTP/1.1\r\nhost: a\r\n\r\n",
                    b"POST /up HTTP/1.1\r\nhost: a\r\ncontent-length: 99999\r\n\r\nhalf",
                    b"POST /two/up HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhal",
                    b"GET / HT",
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(40),
                ]))
                time.sleep(random.uniform(0, 0.05))
                self.tally["rude clients"] += 1

    def loads(self):
        """Many requests at once, by the programs made for it, some of which are killed."""
        address = f"127.0.0.1:{self.port}"
        commands = [[self.load, address, "--connections", "50", "--seconds", "3", "--warmup", "0", "--path", path]
                    for path in ("/small", "/few/small", "/two/small")]
        if shutil.which("h2load"):
            commands += [["h2load", "-n", "20000", "-c", "10", "-m", "20", f"http://{address}{path}"]
                         for path in ("/small", "/two/small", "/two/large", "/few/small")]
        while time.monotonic() < self.ends - 5:
            load = subprocess.Popen(random.choice(commands), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                load.wait(random.choice([0.5, 2, 5]))
            except subprocess.TimeoutExpired:
                load.kill()
                load.wait()
            self.tally["loads"] += 1

    def sample(self):
        status = pathlib.Path(f"/proc/{self.gateway.pid}/status").read_text()
        resident = int(status.split("VmRSS:")[1].split()[0])
        return resident, len(os.listdir(f"/proc/{self.gateway.pid}/fd"))

    def descriptors(self):
        """The meaning of each, for an analysis of a failure."""
        home = pathlib.Path(f"/proc/{self.gateway.pid}")
        names = [f"{number.name} {os.readlink(number)}" for number in sorted((home / "fd").iterdir())]
        return "\n".join(names + [(home / "net/tcp").read_text(), f"port {self.port:04X}", ""])

    def run(self):
        begun = time.monotonic()
        # All that it keeps open at rest is open by then.
        time.sleep(2)
        idle = self.sample()
        jobs = [self.disturb, self.loads] + [self.good_client] * 4 + [self.rude_client] * 2
        threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        warm = None
        while any(thread.is_alive() for thread in threads):
            time.sleep(5)
            if self.gateway.poll() is not None:
                sys.exit(f"the gateway died with {self.gateway.returncode}: see {self.work}")
            resident, descriptors = self.sample()
            print(f"{time.monotonic() - begun:5.0f} s  {resident:7} KiB  {descriptors:5} descriptors", flush=True)
            if time.monotonic() - begun >= min(WARM_UP, (self.ends - begun) / 3):
                warm = max(warm or 0, resident) if time.monotonic() - begun < 2 * WARM_UP else warm or resident
        # Kept connections to backends, and those of clients that left, go within a minute or so.
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and self.sample()[1] > idle[1]:
            time.sleep(1)
        self.judge(idle, warm or 0)

    def judge(self, idle, warm):
        resident, descriptors = self.sample()
        if resident > warm + GROWTH_KIB:
            self.faults.append(f"memory grew from {warm} KiB to {resident} KiB")
        if descriptors > idle[1]:
            self.faults.append(f"{descriptors - idle[1]} descriptors were not closed: see descriptors.txt")
            (self.work / "descriptors.txt").write_text(self.descriptors())
        self.gateway.send_signal(signal.SIGTERM)
        if self.gateway.wait(60) != 0:
            self.faults.append(f"it ended with {self.gateway.returncode}")
        self.read_log()
        if b"panicked" in (self.work / "program.log").read_bytes():
            self.faults.append("it panicked")
        for backend in self.backends:
            backend.kill(signal.SIGTERM)
        print("\n".join(f"{count:9} {name}" for name, count in sorted(self.tally.items())))
        if self.faults:
            sys.exit("\n".join(["FAILED, see " + str(self.work)] + sorted(set(self.faults))[:20]))
        shutil.rmtree(self.work)
        print(f"good: {resident} KiB, {descriptors} descriptors")

    def read_log(self):
        calm_since = time.time() - (time.monotonic() - self.disturbed_until) + CALM / 4
        for line in open(self.work / "access.log", "rb"):
            record = json.loads(line)
            self.tally["requests"] += 1
            if record["status"] < 500:
                continue
            self.tally[f"{record['status']} {record['error']}"] += 1
            if record["error"] not in EXPLAINED:
                self.faults.append(f"{record['status']} with error {record['error']}")
            if calendar.timegm(time.strptime(record["time"][:19], "%Y-%m-%dT%H:%M:%S")) > calm_since:
                self.faults.append("a 5xx after the disturbances had ended")

if __name__ == "__main__":
    Soak(float(sys.argv[1]) if len(sys.argv) > 1 else 10).run()
