"""Servers that scripts of this folder start."""

import contextlib
import pathlib
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def running(command, port, log):
    """A server that listens at the port, until the end of the block."""
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{command[0]} does not start: {pathlib.Path(log).read_text()}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait()
