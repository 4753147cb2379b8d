"""Chromium opens a page over HTTPS, and from it a WebSocket: `page.py URL PATH`. Prints a line of JSON."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../dashboard"))
from browser import Browser  # noqa: E402

URL, PATH = sys.argv[1:]
TALK = """new Promise((done, failed) => {
  const socket = new WebSocket(%s, "chat");
  const told = {protocol: null, echoed: 0, closed: null};
  const messages = ["hello", "x".repeat(300000), "ü".repeat(1000)];
  socket.onopen = () => { told.protocol = socket.protocol; messages.forEach(message => socket.send(message)); };
  socket.onmessage = event => {
    told.echoed += event.data === `${[...messages[told.echoed]].length}:` + messages[told.echoed];
    if (told.echoed === messages.length) socket.close(1000);
  };
  socket.onerror = () => { told.failed = true; };
  socket.onclose = event => { told.closed = event.code; done(told); };
})"""

with Browser(flags=["--ignore-certificate-errors"]) as page:
    page.open(URL + "/page")
    page.until("document.title === 'page'", "the page")
    protocol = page.run("performance.getEntriesByType('navigation')[0].nextHopProtocol")
    told = page.run(TALK % json.dumps(URL.replace("https", "wss") + PATH))
    print(json.dumps(told | {"page": protocol}))
