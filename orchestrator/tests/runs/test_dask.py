# SPDX-License-Identifier: Apache-2.0
"""A campaign on the workers of a real Dask scheduler, which are killed at random."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns import Bench, guests_of, hashes, sent, wait_until

pytest.importorskip("distributed")


class Cluster:
    """A scheduler and its workers, each with a store of its own."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.started = 0
        self.workers: list[subprocess.Popen[bytes]] = []
        self.file = bench.folder / "scheduler.json"
        where = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show"]
        self.scheduler = self._start("scheduler", *where, "--scheduler-file", str(self.file), cache="scheduler")

    def _start(self, what: str, *arguments: str, cache: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "QBED_STORE": "1 GB", "QBED_TOOLCHAIN": str(self.bench.tools)}
        environment |= {
            "QBED_CACHE": str(self.bench.folder / cache),
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "9",
        }
        log = (self.bench.folder / "dask.log").open("a")
        command = [sys.executable, "-m", "dask", what, *arguments]
        return subprocess.Popen(command, cwd=self.bench.folder, env=environment, stdout=log, stderr=log)

    def work(self, *, cache: str | None = None, resources: str = "cell=1") -> None:
        """One worker more."""
        self.started += 1
        where = ["--scheduler-file", str(self.file), "--no-dashboard", "--no-nanny", "--nthreads", "1"]
        cache = cache or f"worker-{self.started}"
        self.workers.append(self._start("worker", *where, "--resources", resources, cache=cache))

    def kill(self, number: int) -> None:
        victim = self.workers.pop(number)
        victim.kill()
        victim.wait()

    def address(self) -> str:
        wait_until(self.file.exists)
        return str(json.loads(self.file.read_text())["address"])

    def run(self, out: str, *arguments: str) -> tuple[int, str]:
        return self.bench.campaign(out, "--scheduler", self.address(), *arguments)

    def stop(self) -> None:
        for process in [*self.workers, self.scheduler]:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    bench = Bench(tmp_path)
    bench.environment["QBED_STORE"] = "1 GB"
    cluster = Cluster(bench)
    yield cluster
    cluster.stop()


def test_workers_that_are_killed_cost_only_their_cells(cluster: Cluster) -> None:
    bench, dice = cluster.bench, random.Random(5)
    cluster.work(cache="cache")  # the store of the client
    cluster.work()
    cluster.work()
    address = cluster.address()
    where = ["--out", "a", "--no-images", "--ndjson", "a.ndjson"]
    process = bench.start("run", "lab", *where, "--scheduler", address)
    cells = bench.folder / "a" / "cells"
    for _ in range(4):
        before = len(list(cells.glob("??????")))
        wait_until(lambda: len(list(cells.glob("??????"))) > before or process.poll() is not None, 60)  # noqa: B023
        time.sleep(dice.random())
        cluster.kill(dice.randrange(3))
        cluster.work()
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0 and "12 of 12 cells complete, in" in out + err, out + err
    assert bench.campaign("b", "--no-store", "--ndjson", "b.ndjson")[0] == 0
    assert sent(bench.folder / "a.ndjson") == sent(bench.folder / "b.ndjson"), "each cell's points, once"
    assert hashes(bench.folder / "a") == hashes(bench.folder / "b")
    assert bench.run("store", "verify")[0] == 0 and not list((bench.folder / "cache" / "queue").glob("??/*/cells/*"))
    times = (cells / "wall.ndjson").read_text().splitlines()
    assert len(times) == 12


def test_what_fails_there_is_kept_here(cluster: Cluster) -> None:
    cluster.bench.behave(all="contradict", seed_1="panic")
    cluster.work()
    status, text = cluster.run("a", "--set", "links.default.delay=5 us", "--seeds", "1,2")
    assert (status, "0 of 4 cells complete, 2 failed, 2 invalid" in text) == (1, True), text
    assert "the guest's kernel panicked" in text and "would be in flight" in text
    kept = cluster.bench.folder / "a" / "cells"
    assert "booting" in (kept / "000000.failed" / "work" / "console.log").read_text()
    assert (kept / "000001" / "work" / "plan.json").exists()


def test_who_does_not_answer_is_named(cluster: Cluster) -> None:
    cluster.work(resources="gpu=1")
    status, text = cluster.run("a", "--profile", "quick")
    assert (status, "has the resource `cell`: start some by `dask worker" in text) == (2, True), text
    status, text = cluster.run("a", "--profile", "quick", "--no-store")
    assert (status, "come back through the store" in text) == (2, True), text
    status, text = cluster.bench.campaign("a", "--scheduler", "127.0.0.1:1", "--profile", "quick")
    assert (status, "no Dask scheduler answers at 127.0.0.1:1" in text) == (2, True), text


def test_who_stops_leaves_nothing_running(cluster: Cluster) -> None:
    cluster.bench.behave(all="held")
    cluster.work()
    process = cluster.bench.start("run", "lab", "--out", "a", "--no-images", "--scheduler", cluster.address())
    wait_until(lambda: guests_of(cluster.bench.folder / "worker-1"), 60)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "the same command goes on from there" in out + err, out + err
    cluster.kill(0)
    wait_until(lambda: not guests_of(cluster.bench.folder / "worker-1"))
