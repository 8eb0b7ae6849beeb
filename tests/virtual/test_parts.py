# SPDX-License-Identifier: Apache-2.0
"""Labs in several parts: the same bytes on any cores and under any load, and the results of an undivided lab."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from qbed.substrates import PART_TIMES, CellError
from qbed.substrates.virtual import divided
from qbed.testing import CellOutput, run_lab, store_tables

MIXED = """
name: mixed
topology: {clos: {hosts: 3, racks: 4, spines: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 128 KB, threshold: 20 packets}}
hosts: {default: {tcp: dctcp}}
workload:
  - arrivals: {from: "h*", to: "h*", interval: 100 us, size: {uniform: [1 KB, 200 KB]}}
  - udp: {from: h1, to: h10, rate: 500 Mbit/s, packet: 1000 B}
  - udp: {from: h12, to: h2, rate: 500 Mbit/s, packet: 1000 B}
  - probes: {from: h1, to: h12, interval: 100 us}
observe: {queues: every packet, flows: 1 ms}
capture: [h1>rack1, h12>rack4]
duration: 10 ms
parts: PARTS
"""
CONSTANT = """
name: constant
topology: {dumbbell: {left: 3, right: 3}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
workload:
  - udp: {from: h1, to: h4, rate: 3 Gbit/s, packet: 1400 B, start: 1 ms}
  - udp: {from: h2, to: h5, rate: 2.7 Gbit/s, packet: 1111 B, start: 1.0003 ms}
  - udp: {from: h6, to: h3, rate: 1.9 Gbit/s, packet: 700 B, start: 1.0007 ms}
observe: {queues: every packet}
duration: 5 ms
parts: PARTS
"""
# Frames of two senders in different parts arrive at the receiver's switch at the same nanosecond.
TIES = """
name: ties
topology: {clos: {hosts: 1, racks: 3, spines: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
workload:
  - udp: {from: h1, to: h3, rate: 6 Gbit/s, packet: 1400 B, start: 1 ms}
  - udp: {from: h2, to: h3, rate: 6 Gbit/s, packet: 1400 B, start: 1 ms}
observe: {queues: every packet}
duration: 4 ms
parts: 3
"""
TCP = """
name: tcp
topology: {dumbbell: {left: 4, right: 4}}
links: {default: {rate: 10 Gbit/s, delay: 20 us}}
switches: {default: {scheme: droptail, buffer: 100 packets}}
hosts: {default: {tcp: cubic, rto_min: 10 ms}}
workload: [flows: {from: h1..h4, to: h5..h8, size: 5 MB, spread: 1 ms, connect: before}]
duration: 300 ms
parts: PARTS
"""
SEEDS = 20


@contextmanager
def cores(count: int) -> Iterator[None]:
    """Limit this process to some of its cores."""
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, sorted(allowed)[:count])
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep the first core busy."""
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.kill()


def guests() -> list[int]:
    """The kernels that this process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat, words = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid() and b"parts=" in words:
                found.append(int(entry.name))
    return sorted(found)


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` again and again in another thread."""
    ended = threading.Event()

    def loop() -> None:
        while not ended.is_set():
            act()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def stopped_guests() -> Iterator[None]:
    """Stop one guest for some milliseconds at random instants."""
    draw = random.Random(7)

    def stop_one() -> None:
        time.sleep(draw.uniform(0, 0.02))
        if found := guests():
            chosen = draw.choice(found)
            try:
                os.kill(chosen, signal.SIGSTOP)
                time.sleep(draw.uniform(0, 0.05))
                os.kill(chosen, signal.SIGCONT)
            except ProcessLookupError:
                pass

    with meanwhile(stop_one):
        yield


@pytest.mark.parametrize("parts", [2, 4])
def test_bytes_do_not_depend_on_cores_and_load(parts: int, tmp_path: Path) -> None:
    text = MIXED.replace("PARTS", str(parts))
    expected = run_lab(tmp_path / "two", text).digest()
    assert {"flows.ndjson", "taps.bin", "counters.json", "probes.bin"} <= set(expected)
    assert sum(name.endswith(".pcap") for name in expected) == 2
    with cores(1):
        assert run_lab(tmp_path / "one", text).digest() == expected
    with busy_core():
        assert run_lab(tmp_path / "busy", text).digest() == expected
    with stopped_guests():
        assert run_lab(tmp_path / "stopped", text).digest() == expected
    assert run_lab(tmp_path / "seed", text, seed=2).digest() != expected


def test_frames_of_the_same_instant_have_one_order(tmp_path: Path) -> None:
    first = run_lab(tmp_path / "two", TIES)
    arrivals = first.taps("rack3>h3")["events"]
    times = [int(time_ns) for batch in arrivals for time_ns in batch["time_ns"]]
    assert len(times) > len(set(times)) + 100  # there are ties
    with cores(1), stopped_guests():
        assert run_lab(tmp_path / "one", TIES).digest() == first.digest()


def test_a_lab_of_one_part_is_the_undivided_lab(tmp_path: Path) -> None:
    text = MIXED.replace("parts: PARTS\n", "")
    one = run_lab(tmp_path / "one", MIXED.replace("PARTS", "1"))
    assert one.digest() == run_lab(tmp_path / "undivided", text).digest()
    assert b"parts" not in (tmp_path / "one" / "plan.json").read_bytes()


def test_constant_rates_are_the_same_in_parts(tmp_path: Path) -> None:
    one, two = (run_lab(tmp_path / parts, CONSTANT.replace("PARTS", parts)) for parts in ("1", "2"))
    assert set(two.plan.parts) == {0, 1}

    assert without_ports(two) == without_ports(one)
    assert two.counters().links == one.counters().links
    for port in ("s1>s2", "s2>s1", "s2>h4", "s1>h3"):
        events = [np.concatenate(cell.taps(port)["events"]) for cell in (one, two)]
        assert len(events[0]) > 500, port
        for field in set(events[0].dtype.names or ()) - {"src_port", "sport"}:
            np.testing.assert_array_equal(events[0][field], events[1][field], f"{port}: {field}")


def test_packets_of_cut_links_are_accounted_for(tmp_path: Path) -> None:
    cell = run_lab(tmp_path / "cell", MIXED.replace("PARTS", "4"))
    row, table = store_tables(cell, tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    assert {flow["status"] for flow in table("flows")} <= {"complete", "running"}
    crossing = [
        link
        for link, counted in zip(cell.plan.links, cell.counters().links, strict=True)
        if cell.plan.parts[link.a.node] != cell.plan.parts[link.b.node] and counted.a.sent
    ]
    assert len(crossing) >= 4


def test_tcp_is_the_same_in_parts(tmp_path: Path) -> None:
    """Nothing in this lab happens at one instant at both ends of the cut link, so even TCP's losses are the same."""
    losses = 0
    for seed in range(1, SEEDS + 1):
        one, two = (run_lab(tmp_path / f"{parts}-{seed}", TCP.replace("PARTS", parts), seed) for parts in ("1", "2"))
        assert without_ports(two) == without_ports(one), seed
        assert two.counters().links == one.counters().links, seed
        losses += sum(queue.drops for queue in one.counters().queues)
    assert losses > SEEDS


def without_ports(cell: CellOutput) -> list[dict[str, object]]:
    """A cell's flows without their source ports, which the kernel chooses in an undivided lab."""
    return [{name: value for name, value in row.items() if name != "src_port"} for row in cell.flows()]


def test_a_full_batch_ends_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qbed.substrates.virtual.part_memory.BATCH_BYTES", 2048)
    cell = run_lab(tmp_path / "cell", CONSTANT.replace("PARTS", "2"))
    row, _ = store_tables(cell, tmp_path)
    assert row["contradictions"] == []
    monkeypatch.undo()
    usual = run_lab(tmp_path / "usual", CONSTANT.replace("PARTS", "2"))
    assert cell.digest() == usual.digest()
    windows = [json.loads((tmp_path / name / PART_TIMES).read_text())[0]["windows"] for name in ("cell", "usual")]
    assert windows[0] > windows[1] > 100


@pytest.mark.parametrize("part", [0, 1])
def test_a_killed_part_ends_the_cell_with_its_reason(part: int, tmp_path: Path) -> None:
    draw = random.Random(part)
    killed_at = list[float]()

    def kill_one() -> None:
        if len(found := guests()) == 2 and not killed_at:
            time.sleep(draw.uniform(0, 0.5))
            killed_at.append(time.monotonic())
            os.kill(found[part], signal.SIGKILL)

    text = MIXED.replace("PARTS", "2").replace("duration: 10 ms", "duration: 10 s")
    with meanwhile(kill_one), pytest.raises(CellError, match=rf"part {part}: the guest was killed by SIGKILL"):
        run_lab(tmp_path / "cell", text)
    assert time.monotonic() - killed_at[0] < 1
    assert guests() == []


def test_samples_of_a_running_cell_are_those_of_its_parts(tmp_path: Path) -> None:
    from qbed.substrates.virtual.session import samples

    cell = run_lab(tmp_path / "cell", MIXED.replace("PARTS", "2"))
    assert samples(cell.folder, cell.plan).parts == [cell.out]
    (cell.out / "done.json").unlink()
    expected = [divided.part_folder(cell.folder, part) / "out" for part in (0, 1)]
    assert samples(cell.folder, cell.plan).parts == expected
    assert all((folder / "taps.bin").stat().st_size for folder in expected)
