# SPDX-License-Identifier: Apache-2.0
"""A run folder of 10,000 cells: checking and merging them, and listing them, finished and while it goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.harness import Cell, Cost, Figure, cores, measured, pinned, smallest
from qbed.base.json_files import write_sealed
from qbed.cells.store_cell import store_cell
from qbed.storage.checksums import cell_record

CELLS = 10_000
LAB = """\
name: cell
topology: {dumbbell: {left: 4, right: 4}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 128 KB, threshold: 20 packets}}
hosts: {default: {tcp: dctcp}}
workload: [{flows: {pairs: [[h1, h5], [h2, h6], [h3, h7], [h4, h8]], size: 100 KB, count: 5, spread: 1 ms}}]
observe: {queues: 1 ms}
duration: 10 ms
"""
MERGE = f"""\
import sys
from pathlib import Path
from qbed.storage.run_folder import RunFolder
RunFolder(Path(sys.argv[1])).merge(range({CELLS}), {{"scheme": "str", "seed": "int"}})
"""
SURVEY = f"""\
import sys
from pathlib import Path
from qbed.storage.run_folder import RunFolder
assert RunFolder(Path(sys.argv[1])).survey(range({CELLS})) == ([], [])
"""


def fill(run: Path) -> None:
    """One cell, really run, and its copies with other numbers."""
    cell = Cell(LAB)
    cell.run()
    first_run = run / "one"
    first_run.mkdir(parents=True)
    known = {
        "cell": 0,
        "scheme": "ecn",
        "seed": 0,
        "substrate": "virtual",
        "dilation": 1,
        "settings": "{}",
    }
    row = known | store_cell(cell.folder, cell.plan, first_run)
    cell.close()
    for number in range(CELLS):
        folder = run / "cells" / f"{number:06d}"
        folder.mkdir(parents=True)
        for path in first_run.glob("*.arrow"):
            shutil.copyfile(path, folder / path.name)
        (folder / "cell.json").write_bytes(cell_record(folder, row | {"cell": number, "seed": number}))
    axes = [
        {"name": "scheme", "values": ["ecn"]},
        {"name": "seed", "values": list(range(CELLS))},
    ]
    write_sealed(run / "campaign.json", {"matrix": {"axes": axes}})


def child(*words: str) -> tuple[Cost, float]:
    """The cost of a process, and its peak memory (MB)."""
    peak_mb = 0.0

    def run() -> None:
        nonlocal peak_mb
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, words
        peak_mb = usage.ru_maxrss / 1024

    return measured(run), peak_mb


def measure(rounds: int) -> list[Figure]:
    run = Path(tempfile.mkdtemp(prefix="qbed-bench-")) / "run"
    listing = ("-m", "qbed", "cells", str(run))
    costs: dict[str, list[Cost]] = {"going on": [], "checked": [], "merge": [], "finished": []}
    memory = 0.0
    try:
        fill(run)
        with pinned(cores()[-1]):
            for _ in range(rounds):
                for table in run.glob("*.parquet"):
                    table.unlink()
                costs["going on"].append(child(*listing)[0])
                costs["checked"].append(child("-c", SURVEY, str(run))[0])
                cost, peak_mb = child("-c", MERGE, str(run))
                costs["merge"].append(cost)
                memory = max(memory, peak_mb)
                costs["finished"].append(child(*listing)[0])
    finally:
        shutil.rmtree(run.parent)
    best = {name: smallest(samples) for name, samples in costs.items()}
    listed = f"qbed cells, {CELLS} cells"
    return [
        Figure(f"checking {CELLS} finished cells before a run goes on", best["checked"].wall_s, "s", 5),
        Figure(f"merging {CELLS} cells", best["merge"].wall_s, "s", 20),
        Figure(f"merging {CELLS} cells, CPU", best["merge"].cpu_s, "s"),
        Figure(f"merging {CELLS} cells, memory", memory, "MB", 500),
        Figure(f"{listed}, finished", best["finished"].wall_s, "s", 1),
        Figure(f"{listed}, finished, CPU", best["finished"].cpu_s, "s"),
        Figure(f"{listed}, while the run goes on", best["going on"].wall_s, "s", 1),
        Figure(f"{listed}, while the run goes on, CPU", best["going on"].cpu_s, "s"),
    ]
