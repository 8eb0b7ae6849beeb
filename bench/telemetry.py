# SPDX-License-Identifier: Apache-2.0
"""Telemetry: what 100 queues sampled every 10 us cost a cell, and how many points a second reach an InfluxDB 1.6.7.

The server is a real one on the core that the cell does not have; `tools/influxd` brings it. A cell's wall time is that
of its worker, from plan to tables: with no samples, with samples, and with samples that leave while it runs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.harness import Figure, cores
from qbed.cells.arrow import series_of
from qbed.live.points import Origin, Points, Queue, queue_points
from qbed.live.sinks.influx import Influx
from qbed.telemetry.taps import SAMPLE, SAMPLE_DTYPE

sys.path.insert(0, str(Path(__file__).parents[1] / "orchestrator" / "tests"))
from influx import Server, served

QUEUES = 100
LAB = """\
name: hundred
topology: {star: {hosts: 100}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 128 KB, threshold: 20 packets}}
hosts: {default: {tcp: dctcp, rto_min: 10 ms}}
workload:
  - incast: {senders: h1..h50, receiver: h51, size: 1 MB, start: 1 ms}
  - incast: {senders: h52..h99, receiver: h100, size: 1 MB, start: 1 ms}
observe: {queues: OBSERVED}
duration: 50 ms
"""
BATCH, BATCHES = 10_000, 200


def measure(rounds: int) -> list[Figure]:
    """The figures."""
    with tempfile.TemporaryDirectory(prefix="qbed-bench-") as scratch:
        folder = Path(scratch)
        (folder / "influx").mkdir()
        with served(folder / "influx") as server:
            os.sched_setaffinity(server.pid, set(cores()[1:] or cores()))
            return [*cells(folder, server, rounds), *rate(server)]


def cells(folder: Path, server: Server, rounds: int) -> Iterator[Figure]:
    """A cell without samples, with them, and with them on their way: in turn, the smallest wall time of each."""
    server.sink("cells")
    to = f"{server.root}/cells"
    variants = {"none": ("summary", ()), "sampled": ("10 us", ()), "sent": ("10 us", ("--influx", to))}
    walls: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, (observed, options) in variants.items():
            walls[name].append(wall_time(folder, observed, options))
    minimum = {name: min(samples) for name, samples in walls.items()}
    yield Figure("cell_without_samples", minimum["none"], "s")
    yield Figure("cell_sampled", minimum["sampled"], "s")
    yield Figure("cell_sampled_and_sent", minimum["sent"], "s")
    yield Figure("sampling_costs", minimum["sampled"] / minimum["none"] - 1, "of a cell without")
    yield Figure("sending_costs", minimum["sent"] / minimum["sampled"] - 1, "of a cell that is sampled", 0.1)
    yield Figure("telemetry_costs", minimum["sent"] / minimum["none"] - 1, "of a cell without", 0.1)
    points = server.query('SELECT count("t_us") FROM "queue"', "cells")[0]["count"]
    yield Figure("points_of_a_cell", points / rounds, "points")


def wall_time(folder: Path, observed: str, options: tuple[str, ...]) -> float:
    """The wall time of a run's only cell."""
    lab, out = folder / "lab.yml", folder / "run"
    lab.write_text(LAB.replace("OBSERVED", observed))
    shutil.rmtree(out, ignore_errors=True)
    how = ("--no-images", "--no-store", "--jobs", "1", "--out", str(out), *options)
    command = [sys.executable, "-m", "qbed", "run", str(lab), *how]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "NOT DELIVERED" not in done.stderr, done.stderr
    time.sleep(1)
    return float(json.loads((out / "meta.json").read_text())["cell_wall_s"]["0"])


def batches() -> Iterator[Points]:
    """Samples as a lab produces them, all different."""
    dice = np.random.default_rng(1)
    queues = [Queue("s1", f"s1>h{number}", "ecn") for number in range(QUEUES)]
    origin = Origin("bench", "bench-1", 0)
    for batch in range(BATCHES):
        records = np.zeros(BATCH, SAMPLE_DTYPE)
        records["type"], records["length"] = SAMPLE, SAMPLE_DTYPE.itemsize
        records["id"] = np.arange(BATCH) % QUEUES
        records["time_ns"] = (batch * BATCH + np.arange(BATCH)) // QUEUES * 10_000
        records["interval_ns"] = 10_000
        level = dice.integers(0, 80, BATCH)
        records["packet_ns"], records["byte_ns"] = level * 10_000 + dice.integers(0, 999, BATCH), level * 15_140_000
        for name in ("max_packets", "enqueued", "dequeued"):
            records[name] = level
        records["max_bytes"], records["marked"] = level * 1514, level // 7
        (table,) = series_of(records, [queue.port for queue in queues])
        yield queue_points(table, origin, queues)


def rate(server: Server) -> Iterator[Figure]:
    """Points a second, made and sent by one process, and the limit: the same bodies again, made before."""
    sink: Influx = server.sink("rate")
    points, bodies = list(batches()), []
    begun, before = time.monotonic(), time.process_time()
    for one_batch in points:
        body = sink.encode(one_batch)
        sink.write(body)
        bodies.append(body)
    took, cpu = time.monotonic() - begun, time.process_time() - before
    found = server.query('SELECT count("t_us") FROM "queue"', "rate")[0]["count"]
    assert found == BATCH * BATCHES, found
    limit: Influx = server.sink("limit")
    begun = time.monotonic()
    for body in bodies:
        limit.write(body)
    alone = time.monotonic() - begun
    total = BATCH * BATCHES
    yield Figure("points_a_second", total / took, "points/s", 100_000, ">=")
    yield Figure("seconds_sustained", took, "s")
    yield Figure("cpu_of_a_point", cpu / total * 1e6, "us")
    yield Figure("bytes_of_a_point", sum(map(len, bodies)) / total, "B, in gzip")
    yield Figure("of_what_the_server_takes", alone / took, "of the rate at which the server takes bodies made before")
