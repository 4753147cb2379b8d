"""POSTs bodies by httpx over HTTP/2 and prints one line for each request: the path, the size, and the status or the error.

Usage: httpx_client.py BASE CA JOB...   (CA: a file, or `-` for prior knowledge; JOB: PATH:SIZE:COUNT)
"""

import ssl
import sys

import httpx

PART = bytes(16384)
TIMEOUT = 40
# A client that waits in vain so often is not asked further.
MAX_TIMEOUTS = 4


def body(size):
    while size > 0:
        yield PART[:size]
        size -= len(PART)


def post(client, url, size):
    try:
        answer = client.post(url, content=body(size), headers={"content-length": str(size)})
        return str(answer.status_code) if answer.http_version == "HTTP/2" else f"spoke {answer.http_version}"
    except Exception as error:  # Whatever goes wrong is the result.
        return f"{type(error).__name__}: {error}"


def main(base, ca, *jobs):
    # A context of its own: the defaults of Debian's httpx read a list of authorities for each client.
    verify = ssl.create_default_context(cafile=ca) if ca != "-" else False
    timeouts = 0
    with httpx.Client(http2=True, http1=ca != "-", verify=verify, timeout=TIMEOUT, trust_env=False) as client:
        for job in jobs:
            path, size, count = job.split(":")
            for _ in range(int(count)):
                result = post(client, base + path, int(size))
                print(path, size, result.replace("\n", " "), flush=True)
                if "Timeout" in result:
                    timeouts += 1
                    break
            if timeouts >= MAX_TIMEOUTS:
                break


main(*sys.argv[1:])
