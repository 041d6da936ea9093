"""A real Chromium, driven over a pipe by its DevTools protocol: neither a driver nor a library beside the browser."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.waiting import wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_READS_FROM, _WRITES_TO = 3, 4
"""The descriptors of `--remote-debugging-pipe`."""
_ANSWER_S = 30.0
_KEYS = {"Enter": ("\r", 13), "Escape": ("", 27)}
"""The text that a key types, and its code."""
_SERVER_ENDED = "ERR_CONNECTION_REFUSED"
"""In the console of a page that is still open when a test ends its server."""


class Browser:
    """One browser with one page. `console` has what the page has logged as an error, and its exceptions."""

    def __init__(self) -> None:
        assert CHROMIUM is not None, "no Chromium on the PATH: install one, on Debian by apt-get install chromium"
        self._home = tempfile.TemporaryDirectory(prefix="sg-browser-")
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()
        command = [
            *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            *("--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage"),
            *(f"--user-data-dir={self._home.name}", "about:blank"),
        ]
        shell = f'exec {_READS_FROM}<&{their_in} {_WRITES_TO}>&{their_out}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *command],
            pass_fds=(their_in, their_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        self._received = b""
        self._number = 0
        self._session: str | None = None
        self.console: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._session = None
        with suppress(OSError, TimeoutError):
            self._call("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._home.cleanup()

    def show(self, width: int, height: int, *, scale: float = 1, dark: bool = False) -> None:
        """Set the size of the page in CSS pixels, the pixels of the device in each, and the theme of the system."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Open a page and wait until it has loaded. The console begins anew."""
        self.console.clear()
        self._call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str, timeout: float = 20.0) -> None:
        """Wait until an expression is true; a node is."""
        wait_until(lambda: self.evaluate(f"Boolean({expression})"), expression, timeout)

    def press(self, key: str) -> None:
        """Press and release a key."""
        text, code = _KEYS.get(key) or (key, ord(key.upper()))
        for kind, typed in (("keyDown", {"text": text}), ("keyUp", {})):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed)

    def hover(self, x: float, y: float) -> None:
        """Move the pointer."""
        self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write a PNG of what is shown, or of the whole page."""
        answer = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _ANSWER_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                found: dict[str, Any] = answer["result"]
                return found
            self._note(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            if not select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser has not answered")
            received = os.read(self._in, 1 << 20)
            if not received:
                raise OSError("the browser has ended")
            self._received += received
        message, _, self._received = self._received.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        match event:
            case {"method": "Runtime.exceptionThrown", "params": {"exceptionDetails": details}}:
                self.console.append(str(details.get("exception", {}).get("description", details)))
            case {"method": "Log.entryAdded", "params": {"entry": {"level": "error", "text": text, **rest}}}:
                if _SERVER_ENDED not in text:
                    self.console.append(f"{text} {rest.get('url', '')}")
