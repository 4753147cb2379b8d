"""Chromium opens a page over HTTP/3, and asks from it: `page.py PORT CERTIFICATE`. Prints a line of JSON."""

import base64
import hashlib
import json
import os
import sys

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../dashboard"))
from browser import Browser  # noqa: E402

ORIGIN = f"a.test:{sys.argv[1]}"
ASK = """(async () => {
  const told = {};
  const length = async (path, more) => (await (await fetch(path, more)).arrayBuffer()).byteLength;
  told.large = await length("/large");
  told.echoed = await length("/echo", {method: "POST", body: new Uint8Array(2000000)});
  told.statuses = [];
  for (let number = 0; number < 4; number++) told.statuses.push((await fetch("/limited")).status);
  const many = await Promise.all([...Array(50).keys()].map(number => fetch("/many/" + number)));
  told.many = many.filter(answer => answer.ok).length;
  const entries = performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"));
  told.protocols = [...new Set(entries.map(entry => entry.nextHopProtocol))];
  return told;
})()"""
TALK = """new Promise((done, failed) => {
  const socket = new WebSocket(%s, "chat"), told = {protocol: null, echoed: null};
  socket.onopen = () => { told.protocol = socket.protocol; socket.send("hello"); };
  socket.onmessage = event => { told.echoed = event.data; socket.close(1000); };
  socket.onclose = event => { told.closed = event.code; done(told); };
})"""


def key_hash(path):
    """QUIC of Chromium accepts an unknown authority only for keys whose hash it is given."""
    with open(path, "rb") as file:
        key = x509.load_pem_x509_certificate(file.read()).public_key()
    return base64.b64encode(hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()).decode()


FLAGS = [f"--ignore-certificate-errors-spki-list={key_hash(sys.argv[2])}", f"--origin-to-force-quic-on={ORIGIN}"]
FLAGS.append("--host-resolver-rules=MAP a.test 127.0.0.1")
with Browser(flags=FLAGS) as page:
    page.open(f"https://{ORIGIN}/page")
    page.until("document.title === 'page'", "the page")
    told = page.run(ASK)
    told["websocket"] = page.run(TALK % json.dumps(f"wss://{ORIGIN}/chat"))
    print(json.dumps(told))
