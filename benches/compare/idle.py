#!/usr/bin/env python3
"""Prints the memory of a gateway, in KiB, for each connection that has had a request and waits for the next.

idle.py PROCESS PORT COUNT plain|tls|h2c

The memory is the proportional set size of the process and its children.
"""
import pathlib
import socket
import ssl
import sys
import time

# The preface and an empty SETTINGS frame; then HEADERS of stream 1: GET, http, `/`, host `a`.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
FIELDS = bytes.fromhex("828684410161")
HEADERS = len(FIELDS).to_bytes(3, "big") + bytes.fromhex("010500000001") + FIELDS
SETTINGS_ACK = bytes.fromhex("000000040100000000")
REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
# How long a gateway may take to give memory back, or to finish what follows a response.
REST = 2


def connect(port, kind, context):
    """A connection that has received its response."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    if kind == "tls":
        connection = context.wrap_socket(connection)
    connection.sendall(PREFACE + HEADERS + SETTINGS_ACK if kind == "h2c" else REQUEST)
    received = b""
    while b"ok\n" not in received:
        part = connection.recv(4096)
        if not part:
            sys.exit(f"idle.py: the gateway closed a connection after {received!r}")
        received += part
    return connection


def memory(process):
    """KiB of the process and its children."""
    folder = pathlib.Path("/proc", str(process))
    lines = (folder / "smaps_rollup").read_text().splitlines()
    own = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    children = " ".join(path.read_text() for path in folder.glob("task/*/children")).split()
    return own + sum(map(memory, children))


def main():
    process, port, count, kind = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # The first connections of a process fill its pools, and do not count.
    for connection in [connect(port, kind, context) for _ in range(200)]:
        connection.close()
    time.sleep(REST)
    before = memory(process)
    held = [connect(port, kind, context) for _ in range(count)]
    time.sleep(REST)
    print(f"{(memory(process) - before) / len(held):.2f}")


main()
