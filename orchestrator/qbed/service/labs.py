# SPDX-License-Identifier: Apache-2.0
"""Labs that clients bring up: `qbed up`, `exec` and `down` as processes of the service. Requests reach only
labs that the service has brought up; their number is limited.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import time
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path
from typing import Any

from qbed.base.errors import MissingError, QbedError
from qbed.base.json_files import read_json, write_json
from qbed.config.reach import FOREIGN, TRUST
from qbed.service.child_lifetime import clean_environment, kill_group, start
from qbed.service.jobs import FullError
from qbed.service.settings import Settings
from qbed.substrates import substrates

UP_S, DOWN_S = 120.0, 60.0
MAX_OUTPUT = 1 << 20
TIMED_OUT = 124
_UP = re.compile(r"^([A-Za-z0-9][A-Za-z0-9_.-]*) is up: ", re.MULTILINE)


class LabRefusedError(QbedError):
    """An error of `qbed up` or `qbed down`, with its message."""


class Labs:
    """The labs that this service has brought up, in a file of its folder."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder, self._settings = folder / "labs", settings
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "labs.json"
        self._lock = asyncio.Lock()

    def known(self) -> dict[str, dict[str, Any]]:
        """The labs by name: the time since which they are up, and the uploaded folder."""
        with suppress(OSError, ValueError):
            found: dict[str, dict[str, Any]] = read_json(self._file)
            return found
        return {}

    def is_up(self, lab: str) -> bool:
        """Whether a lab is still up."""
        return any(substrate.find(lab) is not None for substrate in substrates())

    async def up(self, lab: Path, foreign: bool, settings: dict[str, Any], seed: int | None) -> str:
        """Bring a lab up; returns its name. `FullError`, `LabRefusedError`."""
        async with self._lock:
            if len(self.known()) >= self._settings.labs:
                raise FullError(f"{self._settings.labs} labs are up already: take one down first")
            # While the lab is up, its guest may read the working folder of `qbed up` and the folder of the lab file.
            place = self._folder / f"{time.time_ns():x}"
            if foreign:
                lab = Path(shutil.copytree(lab, place))
            else:
                place.mkdir()
            options = [] if seed is None else ["--seed", str(seed)]
            for name, value in settings.items():
                options += ["--set", f"{name}={json.dumps(value)}"]
            command = ("up", *options, "--", str(lab))
            status, out, error = await self._qbed(*command, timeout=UP_S, foreign=foreign, folder=place)
            found = _UP.search(out)
            if status != 0 or found is None:
                shutil.rmtree(place, ignore_errors=True)
                raise LabRefusedError(error.strip() or f"`qbed up` ended with status {status}")
            write_json(self._file, self.known() | {found[1]: {"since": time.time(), "folder": place.name}})
            return found[1]

    async def exec(self, lab: str, node: str, argv: list[str], timeout: float) -> tuple[int, str, str]:
        """Run a command on a node: its status, what it printed."""
        self._expect(lab)
        return await self._qbed("exec", lab, node, "--", *argv, timeout=timeout)

    async def down(self, lab: str) -> None:
        """Take a lab down."""
        self._expect(lab)
        async with self._lock:
            status, _, error = await self._qbed("down", lab, timeout=DOWN_S)
            if status != 0 and "is not up" not in error:
                raise LabRefusedError(error.strip())
            known = self.known()
            shutil.rmtree(self._folder / str(known.pop(lab)["folder"]), ignore_errors=True)
            write_json(self._file, known)

    def _expect(self, lab: str) -> None:
        if lab not in self.known():
            raise MissingError(f"this service has brought no lab {lab} up")

    async def _qbed(
        self, *arguments: str, timeout: float, foreign: bool = False, folder: Path | None = None
    ) -> tuple[int, str, str]:
        allowed = {TRUST: "1"} if foreign and self._settings.allow_files else {}
        held = {FOREIGN: "1"} if foreign and not self._settings.allow_programs else {}
        argv = [sys.executable, "-m", "qbed", *arguments]
        process = await start(argv, environment=clean_environment(**allowed, **held), stdin=PIPE, folder=folder)
        assert process.stdin and process.stdout and process.stderr
        process.stdin.close()
        reading = asyncio.gather(_cut(process.stdout), _cut(process.stderr))
        try:
            out, error = await asyncio.wait_for(reading, timeout)
            return await process.wait(), out, error
        except TimeoutError:
            return TIMED_OUT, "", f"ended after {timeout:g} s"
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, 2)  # `qbed exec` interrupts what it has started
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), 5)
            if arguments[0] != "up":  # its keeper stays
                kill_group(process)


async def _cut(stream: asyncio.StreamReader) -> str:
    """Read a process's output; only its beginning is kept."""
    output = bytearray()
    while piece := await stream.read(1 << 16):
        output += piece[: MAX_OUTPUT - len(output)]
    return output.decode(errors="replace")
