# SPDX-License-Identifier: Apache-2.0
"""The stream of samples, from one folder and from many, while it grows."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from campaigns import write_lab
from fake_nodes import write_part
from synthetic import flow_sample, sample, write_out

from qbed.live.samples import Running, find, stream
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.substrates import SessionError, substrate
from qbed.substrates.containers.folder import write_folder
from qbed.substrates.containers.placement import Placement
from qbed.telemetry.flow_samples import FIELDS

IMAGES = {"host": "a", "linux-switch": "b"}


def plan_of(folder: Path) -> Plan:
    return compile_lab(load_lab(write_lab(folder / "lab")))


def running(folder: Path, alive: Callable[[], bool], on: str = "virtual") -> Running:
    return Running(folder, lambda plan: substrate(on).samples(folder, plan), alive)


def test_a_virtual_cells_samples_come_in_order_after_the_clock(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    (tmp_path / "plan.json").write_text(plan.dumps())
    write_out(plan, tmp_path)
    tcp = flow_sample("tcp_info", 0, 3, cwnd=10, ssthresh=None, state=2)
    (tmp_path / "out/flow_samples.bin").write_bytes(tcp + flow_sample("rates", 1, 4, rate_bps=10, signal=None))
    clock, *rows = stream(running(tmp_path, lambda: False), follow=True)
    assert (clock["event"], clock["error_ns"], clock["substrate"]) == ("clock", 0, "virtual")
    assert [row["time_ns"] for row in rows] == sorted(row["time_ns"] for row in rows)
    tcp_info, rates = (dict.fromkeys(names, 0) for names in FIELDS.values())
    given = {"cwnd": 10, "ssthresh": None, "state": "cwr"}
    assert rows[0] == {"sample": "flow", "flow": 0, "time_ns": 3, **tcp_info, **given}
    assert rows.pop(1) == {"sample": "flow", "flow": 1, "time_ns": 4, **rates, "rate_bps": 10, "signal": None}
    switches = [queue for queue in plan.queues if queue.role == "switch"]
    assert len(rows) - 1 == len(switches) * 20  # 20 ms in samples of 1 ms
    assert {row["port"] for row in rows[1:]} >= {"s1>s2", "s2>h3"}
    assert rows[-1]["interval_ns"] == 1_000_000 and 0 <= rows[-1]["mean_packets"] <= 50


def test_nodes_samples_are_one_stream_with_the_dilation(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    folder = tmp_path / "x"
    write_folder(folder, plan, Placement((), 20), IMAGES, name="x", file="l.clab.yml", start="on go")
    for index, node in enumerate(plan.nodes):
        write_part(plan, index, folder / "nodes" / node.name)
    clock, *rows = stream(running(folder, lambda: False, "containerlab"), follow=False)
    assert (clock["substrate"], clock["dilation"], clock["error_ns"]) == ("containerlab", 20, None)
    assert {row["port"].partition(">")[0] for row in rows} == {"s1", "s2"}


def test_a_stream_follows_a_file_that_grows_in_the_middle_of_a_record(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    (tmp_path / "plan.json").write_text(plan.dumps())
    taps = tmp_path / "out/taps.bin"
    taps.parent.mkdir()
    pieces = [sample(3, t * 10, 10, byte_ns=15140, packet_ns=10, max_packets=t) for t in (1, 2)]
    data = b"".join(pieces)
    steps = [data[:70], data[70:100], data[100:], b""]

    def alive() -> bool:
        with taps.open("ab") as stream:
            stream.write(steps.pop(0))
        return bool(steps)

    _, *rows = stream(running(tmp_path, alive), follow=True)
    assert [(row["time_ns"], row["max_packets"], row["mean_bytes"]) for row in rows] == [(10, 1, 1514), (20, 2, 1514)]


def test_a_long_stream_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """Each row once, whatever the files: 400,000 rows in 3 MB of records, and 100,000 that one record represents."""
    plan = plan_of(tmp_path)
    (tmp_path / "plan.json").write_text(plan.dumps())
    (tmp_path / "out").mkdir()
    steps, queues = 10_000, 3
    records = (
        sample(queue, step * 140, 10, steady=12, steady_bytes=7, max_bytes=9)
        for step in range(steps)
        for queue in range(queues)
    )
    idle = sample(3, 10, 14, steady=99_999, steady_bytes=5)
    (tmp_path / "out/taps.bin").write_bytes(b"".join(records) + idle)
    (tmp_path / "out/flow_samples.bin").write_bytes(b"".join(flow_sample("rates", 0, at) for at in range(10_000)))
    ports = Counter[str]()
    rows = stream(running(tmp_path, lambda: False), follow=False)
    next(rows)
    tracemalloc.start()
    for row in rows:
        ports[row.get("port", "flow")] += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    names = port_names(plan)
    assert ports == {**{names[queue]: steps * 13 for queue in range(queues)}, names[3]: 100_000, "flow": 10_000}
    assert peak < 40 << 20


def test_a_folder_without_samples_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(SessionError, match="nowhere has no samples: `qbed ps` lists"):
        find("nowhere")
    (tmp_path / "run/cells").mkdir(parents=True)
    with pytest.raises(SessionError, match="no cell runs there"):
        find(str(tmp_path / "run"))
    work = tmp_path / "run/cells/000001.tmp/work"
    work.mkdir(parents=True)
    assert find(str(tmp_path / "run")).folder == work
