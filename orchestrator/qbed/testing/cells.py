# SPDX-License-Identifier: Apache-2.0
"""Run a lab from YAML as one cell in a guest, and read the guest's output."""

from __future__ import annotations

import hashlib
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
from qbed.schemes.declaration import default_scheme
from qbed.substrates import DEFAULT, Limits, substrate
from qbed.telemetry.records import read_counters
from qbed.telemetry.sojourn import Sojourn
from qbed.telemetry.taps import Histogram, Records, read_taps

LIMITS = Limits(cell_s=300, stall_s=120)


@dataclass(frozen=True)
class CellOutput:
    """The plan and the folder of a finished cell."""

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
        """The index of a port's queue, such as `s1>h1`, in the plan."""
        return port_names(self.plan).index(port)

    def taps(self, port: str) -> dict[str, Any]:
        """The tap records of one port's queue: `samples` and `events` (lists of arrays), `summary`, `histogram`."""
        index = self.queue(port)
        found: dict[str, Any] = {"samples": [], "events": [], "summary": None, "histogram": None}
        with (self.out / "taps.bin").open("rb") as stream:
            for batch in read_taps(stream, len(self.plan.queues)):
                if isinstance(batch, Histogram):
                    if batch.queue == index and not batch.at_bound:
                        found["histogram"] = batch
                    continue
                if isinstance(batch, Sojourn):
                    continue
                records: Records = batch.records[batch.records["id"] == index]
                if batch.kind == "summaries" and len(records):
                    found["summary"] = records[0]
                elif batch.kind in ("samples", "events"):
                    found[batch.kind].append(records)
        return found

    def digest(self) -> dict[str, str]:
        """SHA-256 of each output file by its name."""
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(self.out.iterdir())}


def store_tables(cell: CellOutput, folder: Path) -> tuple[dict[str, Any], Callable[[str], list[dict[str, Any]]]]:
    """Store a cell's tables in `folder`, and return the cell's row and a function that reads a table by its name."""
    row = store_cell(cell.folder, cell.plan, folder)

    def table(name: str) -> list[dict[str, Any]]:
        path = folder / f"{name}.arrow"
        assert path.exists(), name
        return [row for found in read_cell(path, 0) for row in found.to_pylist()]

    return row, table


DROPTAIL_LAB = """
name: droptail
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: SCHEME, buffer: 100 packets}}
hosts: {default: {tcp: cubic}}
workload: [flows: {from: h1..h2, to: h3..h4, size: 3 MB, start: 1 ms}]
duration: 100 ms
"""


def assert_tcp_as_with_droptail(run_cell: Callable[[str], CellOutput], scheme: str) -> None:
    """Assert that TCP flows through a scheme send the same frames as through drop-tail with an equal buffer."""
    droptail, cell = (run_cell(DROPTAIL_LAB.replace("SCHEME", name)) for name in (default_scheme(), scheme))
    assert cell.flows() == droptail.flows()
    assert cell.digest()["taps.bin"] == droptail.digest()["taps.bin"]
    assert sum(queue.drops for queue in cell.counters().queues) > 0


def run_lab(folder: Path, text: str, seed: int = 1) -> CellOutput:
    """Compile a lab and run it as one cell in `folder`."""
    plan = write_plan(folder, text, seed)
    substrate(DEFAULT).cell(folder, plan).run(LIMITS, lambda fraction: None)
    return CellOutput(plan, folder)


def write_plan(folder: Path, text: str, seed: int = 1) -> Plan:
    """Write a lab file and its plan to `folder`, and return the plan."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.yml").write_text(text)
    plan = compile_lab(load_lab(folder / "lab.yml", {}), seed)
    (folder / "plan.json").write_text(plan.dumps())
    return plan
