# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium without a window, spoken to through a pipe (its DevTools protocol): no driver, no port."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

ASKED = 600


def chromium() -> str | None:
    """The browser, if there is one."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page of a browser with a profile of its own."""

    def __init__(self, profile: Path, *options: str) -> None:
        program = chromium()
        assert program is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        command = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--remote-debugging-pipe", f"--user-data-dir={profile}", "--window-size=1280,1400", *options, "about:blank",
        ]  # fmt: skip
        # The browser reads descriptor 3 and writes 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec 3<&{theirs_in} 4>&{theirs_out}; exec "$@"', "bash", *command],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest, self._number = b"", 0
        self.heard: list[dict[str, Any]] = []
        pages = self._ask("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in pages if one["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.tell(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def mouse(self, *events: str, x: float, y: float, **more: Any) -> None:
        """Events of the left button or the wheel at one place: `pressed`, `moved`, `released`, `wheel`."""
        for event in events:
            held = {"button": "left", "clickCount": 1} if event in ("pressed", "released") else {}
            self.tell("Input.dispatchMouseEvent", type=f"mouse{event.capitalize()}", x=x, y=y, **held, **more)

    def tell(self, method: str, **parameters: Any) -> Any:
        """Ask the page for something."""
        return self._ask(method, self._session, **parameters)

    def _ask(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                piece = os.read(self._in, 1 << 16)
                assert piece, "the browser has ended"
                self._rest += piece
            line, self._rest = self._rest.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.heard.append(answer)

    def open(self, url: str) -> None:
        self.tell("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:
        """What JavaScript makes of it."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = self.tell("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """The same, when it is true; a page that has been asked so often will never say so."""
        for _ in range(ASKED):
            if found := self.value(expression):
                return found
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}")

    def key(self, key: str, text: str = "") -> None:
        """Press a key where the focus is."""
        codes = {
            "Enter": 13,
            " ": 32,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
            "Tab": 9,
            "Home": 36,
        }
        more: dict[str, Any] = {"windowsVirtualKeyCode": codes.get(key, 0), "code": key if len(key) > 1 else ""} | (
            {"text": text} if text else {}
        )
        self.tell("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.tell("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def dark(self, wanted: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, place: Path) -> None:
        place.write_bytes(base64.b64decode(self.tell("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """What the page's console has of errors, and of what its policy forbade."""
        self.value("1")
        return [str(one["params"]) for one in self.heard if _is_complaint(one)]


def _is_complaint(message: dict[str, Any]) -> bool:
    """But for the answer that wants a token."""
    if message.get("method") == "Log.entryAdded":
        entry = message["params"]["entry"]
        return entry["level"] == "error" and " 401 " not in entry["text"]
    return message.get("method") == "Runtime.exceptionThrown"
