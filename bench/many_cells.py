# SPDX-License-Identifier: Apache-2.0
"""A campaign of 100, 1,000 and 10,000 cells: run, killed at half and resumed, listed, reported, and served.

The cells are in the store, as copies of one that was run: a guest costs the same in a campaign of any size.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from bench.harness import Figure
from qbed.base.cache import cache_folder
from qbed.base.json_files import FILES
from qbed.runs.experiment import RunOptions, prepare
from qbed.storage.cell_store import cell_key, default_store
from qbed.storage.checksums import read_cell_record
from qbed.substrates import substrate

from qbed_testing.service import ServiceProcess

SIZES = (100, 1_000, 10_000)
LAB = """\
name: tiny
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
workload: [{flows: {pairs: [[h1, h2]], size: 1 KB, count: 1, spread: 100 us}}]
observe: {queues: summary}
duration: 1 ms
"""
CAMPAIGN = """\
question: What does a cell cost beside its guest?
axes: {seed: SEEDS}
claims:
  - {name: ends, paper: It ends., random: false, sql: "SELECT count(*) = 1 AS holds FROM flows"}
"""
REQUESTS = ("/jobs", "/jobs/1", "/jobs/1/cells?limit=1000", "/jobs/1/cells/LAST/totals")
GOAL_S = 1.0


class Peak:
    """The peak memory (MB) of a process without its children, which is read until the process ends."""

    def __init__(self, pid: int) -> None:
        self.mb, self._status, self._ended = 0.0, Path(f"/proc/{pid}/status"), Event()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.wait(0.1):
            try:
                lines = self._status.read_text().splitlines()
            except OSError:
                return
            self.mb = max((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), default=self.mb)

    def end(self) -> float:
        self._ended.set()
        self._thread.join()
        return self.mb


def command(folder: Path, *words: str, stop: Callable[[], bool] | None = None) -> dict[str, float]:
    """The cost of a `qbed` command, which is killed when `stop` returns True. CPU includes ended children."""
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "qbed", *words], cwd=folder, stdout=output, stderr=subprocess.STDOUT
        )
        peak = Peak(process.pid)
        while process.poll() is None:
            if stop is not None and stop():
                process.send_signal(signal.SIGKILL)
            time.sleep(0.02 if stop is None else 0.2)
    seconds, after, mb = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN), peak.end()
    assert process.returncode == (0 if stop is None else -signal.SIGKILL), (folder / "output").read_text()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall, s": seconds, "CPU, s": cpu, "main process, MB": mb}


def separate_cache(folder: Path) -> None:
    """Give this process and its children a store of cells in `folder`, and the toolchain of the usual cache."""
    usual, separate = cache_folder(), folder / "cache"
    separate.mkdir()
    for place in usual.iterdir():
        if place.name not in ("cells", "faults", "queue"):
            (separate / place.name).symlink_to(place.resolve())
    os.environ |= {"QBED_CACHE": str(separate), "QBED_STORE": "20 GB", "NO_COLOR": "1"}


def fill_store(lab: Path, cells: int) -> None:
    """Store the cell of seed 1 as that of each seed."""
    store, inputs = default_store(), substrate("virtual").inputs
    task = prepare(lab, RunOptions()).task
    assert store is not None and inputs is not None
    keys = list[str]()
    for number in range(cells):
        plan, content, _ = task.compile(number)
        keys.append(cell_key(content, inputs.of(plan)))
    row = read_cell_record(store.place(keys[0]), 0)
    del row[FILES], row["cell"]
    for key in keys[1:]:
        store.put(key, store.place(keys[0]), row)


def costs(cells: int, folder: Path) -> dict[str, float]:
    """Seconds and MB of each step with so many cells."""
    lab = folder / "lab"
    lab.mkdir()
    (lab / "lab.yml").write_text(LAB)
    seeds = json.dumps(list(range(1, cells + 1)))
    (lab / "campaign.yml").write_text(CAMPAIGN.replace("SEEDS", seeds))
    run = ("run", "lab", "--no-images", "--out", "run")
    steps = {"one cell that is run": command(folder, *run[:-1], "one", "--seeds", "1")}
    fill_store(lab, cells)

    def half() -> bool:
        place = folder / "run" / "cells"
        return place.is_dir() and sum(1 for _ in place.iterdir()) >= cells // 2

    steps["killed at half"] = command(folder, *run, stop=half)
    steps["resumed"] = command(folder, *run)
    steps["again, all finished"] = command(folder, *run)
    steps["qbed cells"] = command(folder, "cells", "run")
    steps["qbed report"] = command(folder, "report", "run")
    steps["run"] = command(folder, *run[:-1], "stored")
    found = {f"{step}: {what}": value for step, cost in steps.items() for what, value in cost.items()}
    with ServiceProcess(folder / "service", QBED_STORE="20 GB") as service:
        peak, begun = Peak(service.process.pid), time.monotonic()
        job = service.submit(lab)
        while service.get(f"/jobs/{job}")["state"] not in ("finished", "failed"):
            time.sleep(0.5)
        found["job, s"] = time.monotonic() - begun
        assert service.get(f"/jobs/{job}")["state"] == "finished"
        for path in REQUESTS:
            address, times = path.replace("LAST", str(cells - 1)), []
            for _ in range(5):
                begun = time.monotonic()
                service.get(address)
                times.append(time.monotonic() - begun)
            found[f"GET {path}, s"] = min(times)
            found[f"GET {path}, first, s"] = times[0]
        found["service, MB"] = peak.end()
    return found


def measure(rounds: int) -> list[Figure]:
    figures, cost_per_cell = list[Figure](), dict[int, float]()
    for cells in SIZES:
        folder = Path(tempfile.mkdtemp(prefix="qbed-bench-"))
        before = dict(os.environ)
        try:
            separate_cache(folder)
            found = costs(cells, folder)
        finally:
            os.environ.clear()
            os.environ.update(before)
            shutil.rmtree(folder)
        for name, value in found.items():
            what, _, unit = name.rpartition(", ")
            goal = GOAL_S if name == "qbed cells: wall, s" or what.startswith("GET") else None
            figures.append(Figure(f"{cells} cells: {what}", value, unit, goal))
        cost_per_cell[cells] = found["run: CPU, s"] / cells
    smallest = cost_per_cell[SIZES[1]]
    ratio = cost_per_cell[SIZES[-1]] / smallest
    figures.append(Figure(f"CPU a cell, {SIZES[-1]} cells and {SIZES[1]}", ratio, "", 1.5))
    return figures
