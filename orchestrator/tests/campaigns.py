# SPDX-License-Identifier: Apache-2.0
"""Labs, campaigns and toolchains for tests of the runner."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from qbed.base.json_files import Row, write_sealed
from qbed.live.exporter import Delivery
from qbed.runs.worker import Outcome
from qbed.storage.checksums import record_checksums
from qbed.storage.identity import IDENTITY
from qbed.substrates import toolchain_files
from qbed.telemetry import tables

LAB = """\
name: tiny
topology: {dumbbell: {left: 2, right: 2}}
links:
  default: {rate: 1 Gbit/s, delay: 5 us}
switches:
  default: {scheme: droptail, buffer: 128 KB}
workload:
  - flows: {pairs: [[h1, h3], [h2, h4]], size: 100 KB, label: bulk}
observe: {queues: 1 ms}
duration: 20 ms
"""
CAMPAIGN = """\
question: Do the books agree?
axes:
  tcp:
    - {name: reno, set: {hosts.default.tcp: reno}}
    - {name: cubic, set: {hosts.default.tcp: cubic}}
  delay: {field: links.default.delay, values: [5 us, 10 us]}
  seed: [1, 2, 3]
profiles:
  quick:
    axes: {seed: [1], delay: [5 us]}
views:
  ended: SELECT * FROM flows WHERE status = 'complete'
  shares: SELECT tcp, seed, jain_index(received_bytes) AS jain FROM ended GROUP BY ALL
claims:
  - name: all-complete
    paper: Every flow completes.
    source: a test
    random: no
    sql: SELECT (SELECT count(*) FROM ended) = count(*) AS holds, count(*) AS flows FROM flows
figures:
  - {kind: queue}
  - {kind: fct}
  - {kind: goodput}
  - {kind: bar, name: own, title: Own, sql: "SELECT tcp AS x, avg(jain) AS y FROM shares GROUP BY 1 ORDER BY 1"}
"""


_outputs = tempfile.TemporaryDirectory(prefix="qbed-fake-linux-")
"""Outputs of cells, shared by the tests of this process (`fake_linux.py`)."""


def write_lab(folder: Path, campaign: str = CAMPAIGN, lab: str = LAB) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.yml").write_text(lab)
    (folder / "campaign.yml").write_text(campaign)
    return folder


def fake_toolchain(folder: Path, **behaviour: str) -> Path:
    """A toolchain with `fake_linux.py` as its kernel; `behaviour`: by seed (`seed_2="panic"`), or `all`."""
    (folder / "modules").mkdir(parents=True, exist_ok=True)
    for name in ("qbed-agent", "modules/qlink.ko", "modules/qtap.ko", "modules/qgate.ko"):
        (folder / name).touch()
    by_seed = {name.removeprefix("seed_"): value for name, value in behaviour.items()}
    (folder / "behaviour").write_text(json.dumps(by_seed))
    kernel = folder / "linux"
    script = Path(__file__).parent / "fake_linux.py"
    # Like the real kernel, it ends with its parent process.
    kernel.write_text(f'#!/bin/sh\nexec setpriv --pdeathsig KILL {sys.executable} {script} {_outputs.name} "$@"\n')
    kernel.chmod(0o755)
    return write_manifest(folder, kernel_version="fake")


def write_manifest(toolchain: Path, **fields: str) -> Path:
    """Write the manifest of a toolchain, and the checksums of its files."""
    (toolchain / "manifest.json").write_text(json.dumps(fields))
    toolchain_files.record(toolchain)
    return toolchain


def add_module(toolchain: Path, name: str) -> None:
    """Add an empty kernel module to a toolchain."""
    (toolchain / "modules" / f"{name}.ko").touch()
    toolchain_files.record(toolchain)


def write_merged_run(
    folder: Path, axes: Mapping[str, Sequence[Any]], rows: Sequence[Row], names: Sequence[str] = (), **identity: Any
) -> Path:
    """A merged run with these axes and rows of `cells`, sealed, with empty tables of these names."""
    folder.mkdir(exist_ok=True)
    matrix = {"axes": [{"name": name, "values": list(values)} for name, values in axes.items()]}
    write_sealed(folder / IDENTITY, {"matrix": matrix} | identity)
    schema = tables.cells_schema({name: "str" for name in axes if name != "seed"})
    tables.write_table(folder / "cells.parquet", schema, [pa.Table.from_pylist(list(rows), schema=schema)])
    for name in names:
        tables.write_table(folder / f"{name}.parquet", tables.SCHEMAS[name], [])
    record_checksums(folder, [f"{name}.parquet" for name in ("cells", *names)])
    return folder


class Screen:
    """Keeps the events that it is given."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery | str] = []
        self.flushes: list[str] = []

    def progress(self, finished: int, running: float) -> None: ...
    def outcome(self, outcome: Outcome) -> None: ...
    def waiting(self) -> None: ...
    def total(self, cells: int) -> None:
        pass

    def skipped(self, cells: int) -> None: ...
    def damaged(self, files: list[str]) -> None: ...
    def discarded(self, difference: str) -> None: ...
    def obsolete(self, text: str) -> None: ...
    def phase(self, name: str) -> None: ...
    def flushing(self, text: str) -> None:
        self.flushes.append(text)

    def delivered(self, result: Delivery | str) -> None:
        self.deliveries.append(result)


class Bench:
    """A lab, a toolchain, and `qbed` run on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab = write_lab(folder / "lab")
        self.environment = {"QBED_CACHE": str(folder / "cache")}
        self.behave()

    def behave(self, **behaviour: str) -> None:
        self.tools = fake_toolchain(self.folder / "tools", **behaviour)

    def release(self) -> None:
        """Lets guests end that are `held`: however long the test takes to come here, they were running."""
        (self.tools / "released").touch()

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "qbed", *arguments]
        environment = {**os.environ, "QBED_TOOLCHAIN": str(self.tools), "COLUMNS": "200", **self.environment}
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        return process.returncode, out + err

    def campaign(self, out: str, *arguments: str) -> tuple[int, str]:
        return self.run("run", "lab", "--out", out, "--no-images", *arguments)

    def query(self, out: str, sql: str) -> list[tuple[object, ...]]:
        return duckdb.sql(sql.replace("RUN", str(self.folder / out))).fetchall()


def sent(file: Path) -> Counter[tuple[str, str]]:
    """How many points a file of samples has, by measurement and cell, without those that depend on the wall clock.

    Those are the machine's, the progress, and cells that begin while the exporter follows them.
    """
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return Counter(
        (row["measurement"], row.get("cell", ""))
        for row in rows
        if row["measurement"] not in ("machine", "progress")
        and (row["measurement"] != "cell" or any(name.startswith("axis_") for name in row))
    )


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.parquet"))}


def guests_of(folder: Path) -> list[int]:
    """The processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "cwd").readlink()).startswith(f"{folder}/"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until(condition: object, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.05)
