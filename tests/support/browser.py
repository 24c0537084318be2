"""A real Chromium, driven over a pipe: what a page shows, does with keys, tells screen readers, complains of.

The DevTools protocol as the browser speaks it with `--remote-debugging-pipe`: JSON, each message ended by
NUL, on file descriptors 3 and 4. No port is opened, and the browser ends when its owner does.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["CHROMIUM", "BrowserError", "Node", "Page", "browser_page"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""The browser's path, or None: then tests skip."""

_DEADLINE_S = 30.0
_READ_BYTES = 1 << 20
# Puts the two ends where the browser looks for them, and becomes the browser.
_BECOME = (
    "import fcntl, os, sys\n"
    "ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]]\n"
    "os.dup2(ends[0], 3); os.dup2(ends[1], 4)\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)
_KEYS = {
    "Enter": 13,
    "Tab": 9,
    "Escape": 27,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Home": 36,
    "End": 35,
    " ": 32,
}


class BrowserError(AssertionError):
    """The browser said no, or nothing in time."""


class Node(NamedTuple):
    """A node of the accessibility tree: what a screen reader is told."""

    role: str
    name: str


class _Pipe:
    """Sends commands and keeps the events that come between the answers."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = to_browser, from_browser
        self._rest = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = memoryview(json.dumps(message).encode() + b"\0")
        while data:
            data = data[os.write(self._out, data) :]
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            answer = self.read(deadline, method)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def read(self, deadline: float, waiting_for: str) -> dict[str, Any]:
        """The next message; an event is kept as well."""
        while b"\0" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise BrowserError(f"no answer from the browser to {waiting_for} in {_DEADLINE_S:.0f} s")
            data = os.read(self._in, _READ_BYTES)
            if not data:
                raise BrowserError(f"the browser ended during {waiting_for}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


class Page:
    """A tab.

    Attributes:
        problems: what the console complained of: errors, uncaught exceptions, violations of the policy.
        requests: the addresses that it asked for.
    """

    def __init__(self, pipe: _Pipe) -> None:
        self._pipe = pipe
        target = pipe.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self._call(f"{domain}.enable")
        self._call("Page.setLifecycleEventsEnabled", enabled=True)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._pipe.call(method, self._session, **params)

    def open(self, url: str) -> Self:
        """Go to an address, and wait until it is loaded. What was complained of before is forgotten."""
        self._call("Page.navigate", url="about:blank")
        self._pipe.events.clear()
        loaded = self._call("Page.navigate", url=url)
        if "errorText" in loaded:
            raise BrowserError(f"{url}: {loaded['errorText']}")
        deadline = time.monotonic() + _DEADLINE_S
        # Of this document: the load of the page before may be told late.
        wanted = {"loaderId": loaded["loaderId"], "name": "load"}
        while not any(
            event["method"] == "Page.lifecycleEvent" and wanted.items() <= event["params"].items()
            for event in self._pipe.events
        ):
            self._pipe.read(deadline, f"loading {url}")
        return self

    @property
    def problems(self) -> list[str]:
        found = []
        for event in self._pipe.events:
            params = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    details = params["exceptionDetails"]
                    found.append(details.get("exception", {}).get("description") or details["text"])
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    found.append(f"{params['entry']['source']}: {params['entry']['text']}")
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                    found.append(" ".join(str(argument.get("value")) for argument in params["args"]))
        return found

    @property
    def requests(self) -> list[str]:
        return [
            str(event["params"]["request"]["url"])
            for event in self._pipe.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, awaited; as JSON carries it.

        Raises:
            BrowserError: it threw.
        """
        answer = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, condition: str) -> Any:
        """Wait until an expression is true in the page, and give its value."""
        deadline = time.monotonic() + _DEADLINE_S
        # Asked again with every frame that the page draws.
        frame = "new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))"
        # True as JavaScript means it: an element is, though it comes as an empty object.
        asked = f"(async () => {{ const value = await ({condition}); return [Boolean(value), value]; }})()"
        while not (found := self.evaluate(asked))[0]:
            if time.monotonic() > deadline:
                raise BrowserError(f"not true in {_DEADLINE_S:.0f} s: {condition}")
            self.evaluate(frame)
        return found[1]

    def key(self, name: str) -> None:
        """Press and let go of a key, by its name in the DOM."""
        facts: dict[str, Any] = {
            "key": name,
            "code": "Space" if name == " " else name,
            "windowsVirtualKeyCode": _KEYS[name],
        }
        text = {"Enter": "\r", " ": " "}.get(name)
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self._call("Input.dispatchKeyEvent", **down, **facts)
        self._call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self._call("Input.insertText", text=text)

    def look(self, width: int, height: int = 900, *, dark: bool = False, print_: bool = False) -> None:
        """Set the window's size, the colour scheme and the medium. Nothing moves by itself."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = {
            "prefers-color-scheme": "dark" if dark else "light",
            "prefers-reduced-motion": "reduce",
        }
        self._call(
            "Emulation.setEmulatedMedia",
            media="print" if print_ else "",
            features=[{"name": name, "value": value} for name, value in features.items()],
        )

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """A browser that has no global of this name, for the pages that are opened in the block."""
        source = f"delete globalThis[{json.dumps(name)}]"
        script = self._call("Page.addScriptToEvaluateOnNewDocument", source=source)["identifier"]
        try:
            yield
        finally:
            self._call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)

    def scripts(self, *, allowed: bool) -> None:
        """Allow or forbid the scripts of pages that are opened from here on."""
        self._call("Emulation.setScriptExecutionDisabled", value=not allowed)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Draw what is seen, or the whole page, into a PNG."""
        more: dict[str, Any] = {}
        if whole:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            more = {"captureBeyondViewport": True, "clip": clip}
        data = self._call("Page.captureScreenshot", format="png", **more)
        path.write_bytes(base64.b64decode(data["data"]))

    def accessible(self) -> list[Node]:
        """What a screen reader is told, in its order; what it skips is left out."""
        tree = self._call("Accessibility.getFullAXTree")["nodes"]
        return [
            Node(
                role=str(node["role"]["value"]),
                name=str(node.get("name", {}).get("value", "")).strip(),
            )
            for node in tree
            if not node["ignored"]
        ]


@contextmanager
def browser_page(folder: Path) -> Iterator[Page]:
    """A browser with one tab, for the block; nothing of it stays.

    Args:
        folder: where its profile may be.
    """
    assert CHROMIUM is not None
    to_browser_end, to_browser = os.pipe()
    from_browser, from_browser_end = os.pipe()
    try:
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", "-c", _BECOME, str(to_browser_end), str(from_browser_end)),
                CHROMIUM,
                "--headless",
                "--remote-debugging-pipe",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--no-first-run",
                "--hide-scrollbars",
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                f"--user-data-dir={folder / 'profile'}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser_end, from_browser_end),
            start_new_session=True,
        )
    finally:
        os.close(to_browser_end)
        os.close(from_browser_end)
    try:
        pipe = _Pipe(to_browser, from_browser)
        try:
            yield Page(pipe)
        finally:
            _end(process, pipe)
    finally:
        os.close(to_browser)
        os.close(from_browser)


def _end(process: subprocess.Popen[bytes], pipe: _Pipe) -> None:
    try:
        pipe.call("Browser.close")
        process.wait(timeout=10)
    except (BrowserError, OSError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
