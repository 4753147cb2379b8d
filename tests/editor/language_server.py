"""An editor that opens a file, as its language server sees it: `language_server.py SERVER ARGUMENTS…`.

Standard input is {"file": PATH, "text": TEXT, "questions": [[METHOD, LINE, CHARACTER], …]}, where lines count from 0.
Standard output is {"faults": [MESSAGE, …], "answers": [ANSWER, …]}: what the server says of the text, and the result of
each `textDocument/METHOD`. The text has a fault: the server has read the schema once it tells the fault.
"""

import json
import os
import pathlib
import subprocess
import sys

asked = json.load(sys.stdin)
path = pathlib.Path(asked["file"])
environment = dict(os.environ, HTTPS_PROXY="http://127.0.0.1:9")  # The catalogue of schemas in the internet is not read.
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=path.parent, env=environment)


def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    server.stdin.flush()


def receive():
    length = None
    while line := server.stdout.readline().strip():
        name, value = line.split(b":", 1)
        if name.lower() == b"content-length":
            length = int(value)
    if length is None:
        sys.exit("the language server has ended")
    message = json.loads(server.stdout.read(length))
    if "id" in message and message.get("method") == "workspace/configuration":
        send({"id": message["id"], "result": [None] * len(message["params"]["items"])})
    return message


def ask(number, method, params):
    send({"id": number, "method": method, "params": params})
    while (message := receive()).get("id") != number or "method" in message:
        pass
    return message["result"]


folder = {"uri": path.parent.as_uri(), "name": "folder"}
completion = {"completionItem": {"snippetSupport": False, "documentationFormat": ["markdown"]}}
capabilities = {"textDocument": {"hover": {"contentFormat": ["markdown"]}, "completion": completion}}
ask(
    1000,
    "initialize",
    {"processId": None, "rootUri": folder["uri"], "workspaceFolders": [folder], "capabilities": capabilities},
)
send({"method": "initialized", "params": {}})
document = {"uri": path.as_uri(), "languageId": "toml", "version": 1, "text": asked["text"]}
send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
faults = []
while not faults:
    message = receive()
    if message.get("method") == "textDocument/publishDiagnostics":
        faults = [fault["message"] for fault in message["params"]["diagnostics"]]
answers = []
for number, (method, line, character) in enumerate(asked["questions"]):
    at = {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": character}}
    answers.append(ask(number, f"textDocument/{method}", at))
server.kill()
json.dump({"faults": faults, "answers": answers}, sys.stdout)
