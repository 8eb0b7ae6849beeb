# SPDX-License-Identifier: Apache-2.0
"""Small labs in the real guest: a test writes YAML, runs one cell and looks at what the guest left."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbed.cells.arrow import read_cell
from qbed.cells.store_cell import store_cell
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.substrates import Limits
from qbed.substrates.virtual.guest import Guest
from qbed.substrates.virtual.substrate import VirtualSubstrate
from qbed.telemetry.records import read_counters
from qbed.telemetry.sojourn import Sojourn
from qbed.telemetry.taps import Histogram, Records, read_taps

LIMITS = Limits(cell_s=300, stall_s=120)


@dataclass(frozen=True)
class Observed:
    """One finished cell: its plan and its raw output folder."""

    plan: Plan
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def flows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / "flows.ndjson").open()]

    def counters(self) -> Any:
        return read_counters(self.out / "counters.json")

    def queue(self, port: str) -> int:
        return port_names(self.plan).index(port)

    def taps(self, port: str) -> dict[str, Any]:
        """The records of one queue: `samples`, `events` (lists of arrays), `summary`, `histogram`."""
        wanted = self.queue(port)
        found: dict[str, Any] = {"samples": [], "events": [], "summary": None, "histogram": None}
        with (self.out / "taps.bin").open("rb") as stream:
            for batch in read_taps(stream, len(self.plan.queues)):
                if isinstance(batch, Histogram):
                    if batch.queue == wanted and not batch.at_bound:
                        found["histogram"] = batch
                    continue
                if isinstance(batch, Sojourn):
                    continue
                mine: Records = batch.records[batch.records["id"] == wanted]
                if batch.kind == "summaries" and len(mine):
                    found["summary"] = mine[0]
                elif batch.kind in ("samples", "events"):
                    found[batch.kind].append(mine)
        return found

    def digest(self) -> dict[str, str]:
        """The content of every output file, by name."""
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(self.out.iterdir())}


def stored(cell: Observed, folder: Path) -> tuple[dict[str, Any], Callable[[str], list[dict[str, Any]]]]:
    """The cell's row, and its tables."""
    row = store_cell(cell.folder, cell.plan, folder)

    def table(name: str) -> list[dict[str, Any]]:
        path = folder / f"{name}.arrow"
        assert path.exists(), name
        return [row for found in read_cell(path, 0) for row in found.to_pylist()]

    return row, table


SAME = """
name: same
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: SCHEME, buffer: 100 packets}}
hosts: {default: {tcp: cubic}}
workload: [flows: {from: h1..h2, to: h3..h4, size: 3 MB, start: 1 ms}]
duration: 100 ms
"""


def expect_drop_tail_for_tcp(run_cell: Callable[[str], Observed], scheme: str) -> None:
    """The same flows, frame by frame, as through drop-tail of that buffer."""
    plain, ours = (run_cell(SAME.replace("SCHEME", name)) for name in ("droptail", scheme))
    assert ours.flows() == plain.flows()
    assert ours.digest()["taps.bin"] == plain.digest()["taps.bin"]
    assert sum(queue.drops for queue in ours.counters().queues) > 0


class Live:
    """A lab that is up: commands of the host run in its nodes."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._numbers = itertools.count(1)

    @property
    def pid(self) -> int:
        return self._guest.pid

    def _until(self, wanted: Callable[[dict[str, Any]], bool]) -> tuple[dict[str, Any], str]:
        output = ""
        while True:
            messages = self._guest.wait(120)
            assert messages, f"the guest is silent or gone; so far: {output}"
            for message in messages:
                if message["event"] in ("stdout", "stderr"):
                    output += base64.b64decode(message["data"]).decode()
                elif message["event"] == "error":
                    raise AssertionError(message["error"])
                elif wanted(message):
                    return message, output

    def ready(self) -> None:
        self._until(lambda message: message["event"] == "ready")

    def run(self, node: str, *argv: str) -> tuple[int, str]:
        """Run a command to its end: its exit status and what it printed."""
        number = next(self._numbers)
        self._guest.send({"command": "exec", "id": number, "node": node, "argv": list(argv), "env": {}, "cwd": "/"})
        message, output = self._until(lambda message: message["event"] == "exit" and message["id"] == number)
        return int(message["code"]), output

    def begin(self, node: str, *argv: str) -> None:
        """Run a command, and do not wait for it."""
        number = next(self._numbers)
        self._guest.send({"command": "exec", "id": number, "node": node, "argv": list(argv), "env": {}, "cwd": "/"})

    def stop(self) -> None:
        """Take it down: its folder has the results then."""
        self._guest.send({"command": "stop"})
        while self._guest.wait(120):
            pass

    def background(self, node: str, *argv: str) -> None:
        number = next(self._numbers)
        self._guest.send(
            {"command": "background", "id": number, "node": node, "argv": list(argv), "env": {}, "cwd": "/"}
        )


def ran(folder: Path, text: str, seed: int = 1) -> Observed:
    """One cell, run in this folder."""
    plan = plan_of(folder, text, seed)
    VirtualSubstrate().cell(folder, plan).run(LIMITS, lambda fraction: None)
    return Observed(plan, folder)


def plan_of(folder: Path, text: str, seed: int = 1) -> Plan:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.yml").write_text(text)
    plan = compile_lab(load_lab(folder / "lab.yml", {}), seed)
    (folder / "plan.json").write_text(plan.dumps())
    return plan
