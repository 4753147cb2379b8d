#!/usr/bin/env python3
"""Two gateways that share a limit in Redis, with leases, exactly, and each in its own memory: CPU, calls and latency, in one run.

    benches/leases.py [SECONDS]       of each run, 5 by default; each mode runs three times, in turn

    TOLLGATE=/path/to/tollgate        this one instead of building it

It needs wrk, nginx (the backend) and redis-server. All requests are admitted. `hot`: one key. `zipf`: 100,000 keys, of which
key n comes in proportion to 1/n.
"""

import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODES = {"memory": "", "exact": "", "lease": 'sync = "lease"\nlease = "1s"\n'}
TRAFFIC = ["hot", "zipf"]
TICK = os.sysconf("SC_CLK_TCK")

ZIPF = """
math.randomseed(os.time() + 7 * tonumber(string.match(tostring({}), "0x(%x+)"), 16) % 100000)
local keys = 100000
request = function()
  local key = math.floor(keys ^ math.random())
  return wrk.format("GET", "/", { ["x-key"] = tostring(key) })
end
"""


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


def start(*command):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def backend(folder, port):
    (folder / "nginx.conf").write_text(
        f"worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        "events { worker_connections 1024; }\n"
        "http { access_log off; keepalive_requests 1000000000;\n"
        f"server {{ listen 127.0.0.1:{port} reuseport; location / {{ return 200 'ok'; }} }} }}\n"
    )
    return start("nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"))


class Gateway:
    def __init__(self, binary, folder, mode, traffic, upstream, redis):
        self.port, self.admin = free_port(), free_port()
        store = "" if mode == "memory" else f'[store]\nbackend = "redis"\nurl = "redis://127.0.0.1:{redis}"\n'
        key = "global" if traffic == "hot" else "header:x-key"
        file = folder / f"gateway-{self.port}.toml"
        file.write_text(
            f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nworkers = 1\n[admin]\nlisten = "127.0.0.1:{self.admin}"\n'
            f'[log]\naccess = "off"\n{store}[upstreams]\napi = "http://127.0.0.1:{upstream}"\n'
            f'[limits.all]\nalgorithm = "token-bucket"\nkey = "{key}"\nrate = "1000000/s"\n{MODES[mode]}'
            '[[routes]]\npath = "/*"\nupstream = "api"\nlimits = ["all"]\n'
        )
        self.process = start(binary, "run", "--config", str(file))
        wait_for(self.port)
        wait_for(self.admin)

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def calls(self):
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics").read().decode()
        found = re.search(r"^tollgate_store_calls_total (\d+)", page, re.M)
        return int(found.group(1)) if found else 0

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def load(port, seconds, script):
    command = ["wrk", "-t1", "-c16", f"-d{seconds}s", "--latency"] + (["-s", script] if script else [])
    return subprocess.Popen(command + [f"http://127.0.0.1:{port}/"], stdout=subprocess.PIPE, text=True)


def micros(text):
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def measure(gateways, seconds, script):
    for run in [load(one.port, 1, script) for one in gateways]:
        run.wait()
    before = [(one.cpu(), one.calls()) for one in gateways]
    texts = [run.communicate()[0] for run in [load(one.port, seconds, script) for one in gateways]]
    cpu = sum(one.cpu() - past for one, (past, _) in zip(gateways, before))
    calls = sum(one.calls() - past for one, (_, past) in zip(gateways, before))
    requests = sum(int(re.search(r"(\d+) requests in", text).group(1)) for text in texts)
    if any("Non-2xx" in text for text in texts):
        raise SystemExit("a request was not admitted")
    p99 = max(micros(re.search(r"^\s+99%\s+(\S+)", text, re.M).group(1)) for text in texts)
    return cpu * 1e6 / requests, calls / requests, p99, requests / seconds


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for program in ["wrk", "nginx", "redis-server"]:
        if not shutil.which(program):
            raise SystemExit(f"{program} is needed")
    binary = os.environ.get("TOLLGATE")
    if not binary:
        subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
        binary = str(ROOT / "target/release/tollgate")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        upstream, redis = free_port(), free_port()
        servers = [backend(folder, upstream), start("redis-server", "--port", str(redis), "--save", "", "--appendonly", "no")]
        (folder / "zipf.lua").write_text(ZIPF)
        wait_for(upstream)
        wait_for(redis)
        print("| keys | mode | CPU µs/request | to memory | calls/request | p99 µs | to memory | requests/s |")
        print("|---|---|---:|---:|---:|---:|---:|---:|")
        try:
            for traffic in TRAFFIC:
                script = str(folder / "zipf.lua") if traffic == "zipf" else None
                runs = {mode: [] for mode in MODES}
                for _ in range(3):
                    for mode in MODES:
                        gateways = [Gateway(binary, folder, mode, traffic, upstream, redis) for _ in range(2)]
                        runs[mode].append(measure(gateways, seconds, script))
                        [one.end() for one in gateways]
                medians = {mode: [statistics.median(numbers) for numbers in zip(*all)] for mode, all in runs.items()}
                for mode, (cpu, calls, p99, rate) in medians.items():
                    base = medians["memory"]
                    print(
                        f"| {traffic} | {mode} | {cpu:.2f} | {cpu / base[0]:.2f} | {calls:.4f} | {p99:.0f} |"
                        f" {p99 / base[2]:.2f} | {rate:.0f} |",
                        flush=True,
                    )
        finally:
            for server in servers:
                server.terminate()
                server.wait()


if __name__ == "__main__":
    main()
