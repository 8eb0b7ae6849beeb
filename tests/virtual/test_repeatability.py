# SPDX-License-Identifier: Apache-2.0
"""Two runs of a cell, one on a busy machine, give equal files; another seed gives others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates.toolchain import find_toolchain
from qbed.substrates.virtual.guest import boot
from qbed.testing import CellOutput, write_plan

from qbed_testing.running import RunningLab

SMALL = """
name: small
topology: {star: {hosts: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: codel, buffer: 128 KB, target: 50 us, interval: 1 ms}}
hosts: {default: {tcp: cubic, ecn: on}}
workload:
  - arrivals: {from: h1, to: h2, interval: 500 us, size: {pareto: {mean: 50 KB, shape: 1.2}}}
  - udp: {from: h1, to: h2, rate: 1 Gbit/s, packet: 700 B}
observe: {queues: every packet, flows: 1 ms}
capture: [h1>s1, h2>s1]
duration: 50 ms
"""
LARGE = """
name: large
topology: {clos: {hosts: 11, racks: 4, spines: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 128 KB, threshold: 20 packets}}
hosts: {default: {tcp: dctcp}}
workload:
  - arrivals: {from: "h*", to: "h*", interval: 20 us, size: {uniform: [1 KB, 200 KB]}}
  - udp: {from: h1, to: h20, rate: 500 Mbit/s, packet: 1000 B}
observe: {queues: 100 us}
capture: [h1>rack1, h20>rack2]
duration: 20 ms
"""


@contextmanager
def busy_core() -> Iterator[None]:
    """A busy process on the core that the guest is pinned to."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("text", [SMALL, LARGE], ids=["3 nodes", "50 nodes"])
def test_equal_runs_are_equal_files(run_cell: Callable[..., Any], text: str) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        first = run_cell(text, 7)
        with busy_core():
            second = run_cell(text, 7)
        other = run_cell(text, 8)
    finally:
        os.sched_setaffinity(0, allowed)
    assert {"flows.ndjson", "taps.bin", "counters.json"} <= set(first.digest())
    assert sum(name.endswith(".pcap") for name in first.digest()) == 2
    assert (first.out / "flows.ndjson").stat().st_size > 1000
    assert first.digest() == second.digest()
    for name in first.digest():
        if name.endswith(".pcap") or name in ("flows.ndjson", "taps.bin"):
            assert first.digest()[name] != other.digest()[name], f"{name} does not depend on the seed"


def run_with_parameter(folder: Path, parameter: str, value: str, counter: str) -> tuple[int, dict[str, Any]]:
    """Run the small lab with a parameter of qlink; return the final counter and the results."""
    parameters = "/sys/module/qlink/parameters"
    plan = write_plan(folder, SMALL, 7)
    with boot(find_toolchain(), folder, plan, "lab") as guest:
        lab = RunningLab(guest)
        lab.wait_until_ready()
        assert lab.run("h1", "sh", "-c", f"echo {value} > {parameters}/{parameter}") == (0, "")
        guest.send({"command": "workloads", "id": 1000})
        assert lab.run("h1", "sleep", "1.06") == (0, "")
        counted = int(lab.run("h2", "cat", f"{parameters}/{counter}")[1])
        lab.stop()
    return counted, CellOutput(plan, folder).digest()


@pytest.mark.parametrize(
    ("parameter", "on", "off", "counter"),
    [
        pytest.param("leap", "Y", "N", "leaps", id="time leaps (kernel patch `leap`)"),
        pytest.param("warm_ends", "0", "100", "fetches", id="prefetching"),
        pytest.param("hints", "Y", "N", "hinted", id="route hints"),
    ],
)
def test_optimizations_of_links_change_no_result(
    tmp_path: Path, parameter: str, on: str, off: str, counter: str
) -> None:
    many, fast = run_with_parameter(tmp_path / "fast", parameter, on, counter)
    few, plain = run_with_parameter(tmp_path / "plain", parameter, off, counter)
    assert many > 1000 > few, (many, few)
    assert {"flows.ndjson", "taps.bin", "counters.json"} <= set(fast)
    assert fast == plain


def test_a_replay_of_a_runs_flows_equals_the_run(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    arrivals, replay = "{interval: 500 us, size: {pareto: {mean: 50 KB, shape: 1.2}}", "{file: flows.csv"
    text = SMALL.replace("arrivals: {from: h1, to: h2, ", "arrivals: {").replace(
        "shape: 1.2}}}", "shape: 1.2}}, label: x}"
    )
    original = run_cell(text)
    drawn = [flow for flow in original.flows() if flow["workload"] == 0]
    assert len(drawn) > 50
    names = [node.name for node in original.plan.nodes]
    lines = [f"{flow['start_ns']},{names[flow['src']]},{names[flow['dst']]},{flow['size_bytes']}\n" for flow in drawn]
    (tmp_path / "cell-1").mkdir()
    (tmp_path / "cell-1/flows.csv").write_text("start_ns,src,dst,size_bytes\n" + "".join(lines))
    replayed = run_cell(text.replace(f"arrivals: {arrivals}", f"replay: {replay}"))
    assert "arrivals" not in replayed.plan.dumps()
    assert replayed.flows() == original.flows()
    assert replayed.digest()["taps.bin"] == original.digest()["taps.bin"]
