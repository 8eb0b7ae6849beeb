# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, controlled by its DevTools protocol through a pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

ATTEMPTS = 600
KEY_CODES = {
    "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9, "Home": 36,
}  # fmt: skip


def chromium() -> str | None:
    """The path of Chromium, or None if it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page of a browser with a new profile."""

    def __init__(self, profile: Path, *options: str) -> None:
        program = chromium()
        assert program is not None
        browser_in, self._out = os.pipe()
        self._in, browser_out = os.pipe()

        command = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--remote-debugging-pipe", f"--user-data-dir={profile}", "--window-size=1280,1400", *options, "about:blank",
        ]  # fmt: skip
        # The browser reads descriptor 3 and writes 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec 3<&{browser_in} 4>&{browser_out}; exec "$@"', "bash", *command],
            pass_fds=(browser_in, browser_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(browser_in)
        os.close(browser_out)
        self._buffer, self._number = b"", 0
        self.events: list[dict[str, Any]] = []
        pages = self._call("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def mouse(self, *events: str, x: float, y: float, **more: Any) -> None:
        """Send events of the left button or the wheel at one point: `pressed`, `moved`, `released`, `wheel`."""
        for event in events:
            button = {"button": "left", "clickCount": 1} if event in ("pressed", "released") else {}
            self.send("Input.dispatchMouseEvent", type=f"mouse{event.capitalize()}", x=x, y=y, **button, **more)

    def send(self, method: str, **parameters: Any) -> Any:
        """Call a DevTools method of the page and return its result."""
        return self._call(method, self._session, **parameters)

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                piece = os.read(self._in, 1 << 16)
                assert piece, "the browser has ended"
                self._buffer += piece
            line, self._buffer = self._buffer.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript in the page and return its value."""
        parameters = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = self.send("Runtime.evaluate", **parameters)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Evaluate JavaScript until its value is true, at most ATTEMPTS times, and return the value."""
        for _ in range(ATTEMPTS):
            if found := self.evaluate(expression):
                return found
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}")

    def key(self, key: str, text: str = "") -> None:
        """Press a key; the focused element receives it."""
        more: dict[str, Any] = {"windowsVirtualKeyCode": KEY_CODES.get(key, 0), "code": key if len(key) > 1 else ""}
        if text:
            more["text"] = text
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def set_dark_mode(self, wanted: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}
        self.send("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))

    def console_errors(self) -> list[str]:
        """The errors on the page's console, including violations of its content security policy."""
        self.evaluate("1")
        return [str(event["params"]) for event in self.events if _is_error(event)]


def _is_error(message: dict[str, Any]) -> bool:
    """Whether a DevTools event is an error other than the HTTP status 401 of a request without a token."""
    if message.get("method") == "Log.entryAdded":
        entry = message["params"]["entry"]
        return entry["level"] == "error" and " 401 " not in entry["text"]
    return message.get("method") == "Runtime.exceptionThrown"
