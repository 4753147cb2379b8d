#!/usr/bin/python3
"""Compares what HTTP/3 costs in tollgate, nginx and Caddy: processor time for a request and a handshake, memory of a
connection without requests.

    benches/http3/compare.py [--binary PATH] [--client PATH] [--nginx PATH] [--caddy PATH] [--rounds N]

Each proxy has one worker and stands before an nginx that returns a short 200. Requests go over 8 connections with 8
streams each; a handshake is one of TLS 1.3 without resumption, with one request. The lowest round counts. --nginx is one
that was built with http_v3_module. Without --nginx or --caddy, that proxy is left out. The client is built by `cargo
build --release --example http3_load`.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from servers import free_port, running

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
REQUESTS, HANDSHAKES, IDLE = 40_000, 1_000, 1_000


def processes(pid):
    """The process and those below it."""
    found = [pid]
    for pid in found:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def processor_time(pid):
    """Seconds that the process and its children have computed."""
    nanoseconds = 0
    for one in processes(pid):
        for task in pathlib.Path(f"/proc/{one}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def memory(pid):
    """Bytes of memory that the process and its children have for themselves."""
    pages = 0
    for one in processes(pid):
        size, resident, shared = (pathlib.Path(f"/proc/{one}/statm").read_text().split())[:3]
        pages += int(resident) - int(shared)
    return pages * os.sysconf("SC_PAGESIZE")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "target/release/tollgate")
    parser.add_argument("--client", default=ROOT / "target/release/examples/http3_load")
    parser.add_argument("--nginx")
    parser.add_argument("--caddy")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(pathlib.Path(folder), options)


def write(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def certificate(folder):
    """A certificate for localhost that signs itself. Clients of rustls take none that is an authority."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"]
        + ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True,
        capture_output=True,
    )


def proxies(folder, options, backend):
    """Name, command and port of each proxy."""
    port = free_port()
    text = f"""[server]
listen = [{{ address = "127.0.0.1:{port}", http3 = true }}]
workers = 1
[[server.tls]]
cert = "{folder}/cert.pem"
key = "{folder}/key.pem"
[upstreams]
backend = "http://127.0.0.1:{backend}"
[[routes]]
path = "/*"
upstream = "backend"
"""
    yield "tollgate", [options.binary, "run", "-c", write(folder, "gateway.toml", text)], port
    if options.nginx:
        port = free_port()
        text = f"""daemon off; pid {folder}/front.pid; error_log stderr; worker_processes 1;
events {{ worker_connections 10000; }}
http {{
  access_log off; keepalive_requests 1000000000; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream backend {{ server 127.0.0.1:{backend}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} quic; listen 127.0.0.1:{port} ssl;
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
    location / {{ proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
        yield "nginx", [options.nginx, "-e", "stderr", "-c", write(folder, "front.conf", text)], port
    if options.caddy:
        port = free_port()
        text = f"""{{
 admin off
 auto_https off
}}
https://localhost:{port} {{
 tls {folder}/cert.pem {folder}/key.pem
 reverse_proxy 127.0.0.1:{backend}
}}
"""
        command = ["env", "GOMAXPROCS=1", options.caddy, "run", "--config", write(folder, "Caddyfile", text)]
        yield "Caddy", [*command, "--adapter", "caddyfile"], port


def measure(folder, options):
    """Starts all, measures, and prints the table."""
    # nginx as root works as another user.
    folder.chmod(0o755)
    certificate(folder)
    backend = free_port()
    text = f"""daemon off; pid {folder}/backend.pid; error_log stderr; worker_processes 1;
events {{ worker_connections 10000; }}
http {{
  access_log off; keepalive_requests 1000000000; default_type text/plain;
  server {{ listen 127.0.0.1:{backend}; location / {{ return 200 "ok\\n"; }} }}
}}
"""
    figures = {}
    with running(["nginx", "-c", write(folder, "backend.conf", text)], backend, folder / "backend.log"):
        for _ in range(options.rounds):
            for name, command, port in proxies(folder, options, backend):
                with running(command, port, folder / "proxy.log") as process:
                    for what, figure in round_of(process.pid, port, folder, options):
                        figures[name, what] = min(figures.get((name, what), figure), figure)
    print("| | µs of a request | µs of a handshake with a request | KB of a connection without requests |")
    print("|---|---|---|---|")
    for name in dict.fromkeys(name for name, _ in figures):
        cells = [f"{figures[name, what]:,.0f}" for what in ["requests", "handshakes", "idle"]]
        print("| " + " | ".join([name, *cells]) + " |")


def round_of(pid, port, folder, options):
    """The figures of one proxy."""
    client = [options.client, "--certificate", folder / "cert.pem"]

    def load(what, count):
        subprocess.run([*client, what, f"127.0.0.1:{port}", "--count", str(count)], check=True)

    for what, count in [("requests", REQUESTS), ("handshakes", HANDSHAKES)]:
        load(what, count // 20)
        before = processor_time(pid)
        load(what, count)
        yield what, (processor_time(pid) - before) / count * 1e6
    before = memory(pid)
    command = [*client, "idle", f"127.0.0.1:{port}", "--count", str(IDLE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as idle:
        idle.stdout.readline()
        yield "idle", (memory(pid) - before) / IDLE / 1000
        idle.stdin.close()


if __name__ == "__main__":
    main()
