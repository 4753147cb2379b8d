"""Headless Chromium, controlled over the DevTools protocol through two pipes: standard library only.

The pages of a script have one browser, which starts with the first of them and ends with the script; each page has a browser context of
its own, without cookies, storage or permissions of another.
"""

import atexit
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

TIMEOUT = 40  # seconds for any step: test machines are busy


class Chromium:
    """The program and its two pipes. `pages` has the open pages by their sessions."""

    running = None

    @classmethod
    def started(cls, flags):
        if not cls.running:
            cls.running = cls(flags)
            atexit.register(cls.running.stop)
        return cls.running

    def __init__(self, flags):
        self.folder = tempfile.mkdtemp(prefix="dashboard-")
        ours_in, their_end = os.pipe()
        their_start, ours_out = os.pipe()
        # Chromium expects the pipes as descriptors 3 and 4. Until then they have numbers above 10, so that they do not collide.
        theirs_in, theirs_out = (fcntl.fcntl(pipe, fcntl.F_DUPFD, 10) for pipe in (their_start, their_end))
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"import os, sys; os.dup2({theirs_in}, 3); os.dup2({theirs_out}, 4); os.execv(sys.argv[1], sys.argv[1:])", chromium(), "--headless=new", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", *flags, "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for pipe in (their_start, their_end, theirs_in, theirs_out):
            os.close(pipe)
        self.reader, self.writer, self.rest, self.number, self.pages = ours_in, ours_out, b"", 0, {}

    def stop(self):
        # A closed browser ends its child processes; if it is killed, they still write into the folder.
        try:
            self.send("Browser.close", {})
            self.process.wait(TIMEOUT)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        for pipe in (self.reader, self.writer):
            os.close(pipe)
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, method, parameters, session=None):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        return self.number

    def call(self, method, parameters, session=None):
        """Sends a command and waits for its answer. Events that arrive meanwhile go to their pages."""
        number = self.send(method, parameters, session)
        end = time.monotonic() + TIMEOUT
        while True:
            answer = self.receive(end)
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def receive(self, end):
        while b"\0" not in self.rest:
            if not select.select([self.reader], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            news = os.read(self.reader, 1 << 20)
            if not news:
                raise EOFError("the browser is gone")
            self.rest += news
        message, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(message)
        if page := self.pages.get(message.get("sessionId")):
            page.hear(message.get("method"), message.get("params", {}))
        return message


class Browser:
    """One page. `complaints` has its log messages and exceptions, `requests` its requests, and `questions` its `alert` and
    `confirm` dialogs, which it should not open. `flags` are those of the program, so all pages of a script have the same."""

    def __init__(self, width=1440, height=900, flags=()):
        self.complaints, self.requests, self.questions = [], [], []
        self.program = Chromium.started(flags)
        self.context = self.program.call("Target.createBrowserContext", {})["browserContextId"]
        target = self.program.call("Target.createTarget", {"url": "about:blank", "browserContextId": self.context})["targetId"]
        self.session = self.program.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        self.program.pages[self.session] = self
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(domain + ".enable")
        self.size(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        del self.program.pages[self.session]
        self.program.call("Target.disposeBrowserContext", {"browserContextId": self.context})

    # ---- the protocol ----

    def send(self, method, **parameters):
        self.program.send(method, parameters, self.session)

    def call(self, method, **parameters):
        return self.program.call(method, parameters, self.session)

    def hear(self, method, said):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(said["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("warning", "error"):
            self.complaints.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning"):
            self.complaints.append(str([one.get("value", one.get("description")) for one in said["args"]]))
        elif method == "Page.javascriptDialogOpening":
            self.questions.append(said["message"])
            self.send("Page.handleJavaScriptDialog", accept=False)
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    # ---- clicks and keys ----

    def open(self, url):
        self.call("Page.navigate", url=url)

    def run(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression, what):
        """Waits until the expression is true."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            # Before the page is loaded, the expression counts as false.
            value = self.run(f"(() => {{ try {{ return {expression}; }} catch {{ return null; }} }})()")
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"never came: {what}\n{self.run('document.body.innerText')}")

    def click(self, selector):
        """Clicks with the mouse at the position of the element, until it is hit: new data may move it meanwhile. One that stays covered is never hit."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            self.until(f"!!document.querySelector({selector!r})", selector)
            x, y = self.run(f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); window.hit = false;"
                            f" addEventListener('click', event => window.hit = event.composedPath().some(node => node.matches?.({selector!r})), {{capture: true, once: true}}); return [r.x + r.width / 2, r.y + r.height / 2]; }})()")
            for kind in ["mouseMoved", "mousePressed", "mouseReleased"]:
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=0 if kind == "mouseMoved" else 1)
            if self.run("window.hit"):
                return
        raise AssertionError(f"never hit: {selector}")

    def answer_sure(self, what, yes=True):
        """Answers the page's dialog before a change; `what` is its title."""
        self.until(f"document.querySelector('#sure').open && document.querySelector('#sure-title').innerText === {what!r}", f"the question {what}")
        self.click("#sure-yes" if yes else "#sure-no")
        self.until("!document.querySelector('#sure').open", "the end of the question")

    def unfold(self):
        """Opens all sections of a phone, and waits until the page has drawn them."""
        # The page learns of its new width with the next frame.
        self.until("narrow.matches === !!document.querySelector('.folder')", "the headings of this width")
        self.run("document.querySelectorAll('.closed .folder').forEach(press => press.click()); new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")

    def stands_out(self):
        """Elements that reach beyond the right edge of the page, except those in a box that scrolls."""
        return self.run("[...document.querySelectorAll('body *')].filter(e => !e.parentElement.closest('.scroll') && e.getClientRects().length && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map(e => e.outerHTML.slice(0, 120))")

    def cut(self, root="body"):
        """Rows and cells that are partly hidden: their content is larger than they are, or a box around them cuts them off."""
        return self.run("(root => [...document.querySelectorAll(root + ' :is(th, td, li, p, h2, figcaption)')].filter(e => e.getClientRects().length && !e.closest('thead')).filter(e => {"
                        " const style = getComputedStyle(e), box = e.closest('.scroll')?.getBoundingClientRect(), own = e.getBoundingClientRect();"
                        " return style.overflow === 'hidden' || style.textOverflow === 'ellipsis' || e.scrollHeight > e.clientHeight + 2 || e.scrollWidth > e.clientWidth + 2 || box && own.bottom > box.bottom + 1; })"
                        ".map(e => e.outerHTML.slice(0, 160)))(" + json.dumps(root) + ")")

    def press(self, key, code=0, text=""):
        for kind in ["keyDown", "keyUp"]:
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **({"text": text} if text and kind == "keyDown" else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def text(self, selector):
        return self.run(f"document.querySelector({selector!r})?.innerText ?? ''")

    def size(self, width, height, scale=1, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))


def chromium():
    # The shell starts in a third of the time of the whole browser.
    for name in ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"]:
        if found := shutil.which(name):
            return found
    raise SystemExit("Chromium is not installed")
