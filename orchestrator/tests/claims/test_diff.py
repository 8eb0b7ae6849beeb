# SPDX-License-Identifier: Apache-2.0
"""Two runs compared: where one of them cannot say what its cells did, and where probes or exchanges differ."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from campaigns import Bench, write_manifest

from qbed.base.json_files import write_json
from qbed.claims.diff import Difference
from qbed.claims.first_difference import INTERVALS, SAMPLES, TOTALS
from qbed.storage.checksums import record_checksums
from qbed.telemetry.tables import SCHEMAS


def test_a_run_without_a_column_is_damaged(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for out in "ab":
        assert bench.campaign(out, "--profile", "quick")[0] == 0
    assert bench.run("diff", "a", "b") == (0, "2 cells in both, 0 with different traces\n")
    cells = tmp_path / "b" / "cells.parquet"
    pq.write_table(pq.read_table(cells).drop(["trace_sha256"]), cells)
    record_checksums(tmp_path / "b", ["cells.parquet"], more=True)
    for pair in (("a", "b"), ("b", "a")):
        status, text = bench.run("diff", *pair)
        assert status == 2 and text.count("\n") == 1
        assert "error: b/cells.parquet is damaged: it lacks columns of this version" in text and "trace_sha256" in text


def test_a_link_where_a_file_is_written_leads_nowhere(tmp_path: Path) -> None:
    """In an untrusted folder: `qbed run --lock` writes beside the campaign."""
    first, folder = tmp_path / "mine", tmp_path / "theirs"
    first.write_text("mine")
    folder.mkdir()
    (folder / ".campaign.lock.tmp").symlink_to(first)
    (folder / "campaign.lock").symlink_to(first)
    write_json(folder / "campaign.lock", {"version": 1})
    assert first.read_text() == "mine" and not (folder / "campaign.lock").is_symlink()
    assert [path.name for path in folder.iterdir()] == ["campaign.lock"]
    (folder / ".campaign.lock.tmp").mkdir()
    with pytest.raises(OSError):
        write_json(folder / "campaign.lock", {"version": 2})


PROBE = {"cell": 0, "flow": 3, "label": "p", "src": "h1", "dst": "h3", "probe": 7, "sent_ns": 5_000_000}
EXCHANGE = {"cell": 0, "workload": 1, "label": "q", "client": "h1", "server": "h3", "session": 2, "exchange": 4}
BEGUN, OVER = EXCHANGE | {"start_ns": 1_000_000, "status": "running"}, {"end_ns": 4_000_000, "status": "complete"}


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs that are the same."""
    bench = Bench(tmp_path_factory.mktemp("bench"))
    assert bench.campaign("a", "--profile", "quick")[0] == 0
    shutil.copytree(bench.folder / "a", bench.folder / "b")
    return bench.folder / "a", bench.folder / "b"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"probes": ([PROBE | {"rtt_ns": 100, "lost": False}], [PROBE | {"rtt_ns": 101, "lost": False}])},
            "probes at 5.000100 ms: flow 3 probe 7: rtt_ns 100 / flow 3 probe 7: rtt_ns 101",
        ),
        (
            {"exchanges": ([BEGUN | OVER], [BEGUN])},
            "exchanges at 4.000000 ms: workload 1 session 2 exchange 4: end_ns 4000000, status complete"
            " / workload 1 session 2 exchange 4: status running",
        ),
        ({"exchanges": ([BEGUN | OVER], [])}, "exchanges at 1.000000 ms: workload 1 session 2 exchange 4: "),
        (
            # One that is not over has no end; that is no reason to tell of it first.
            {
                "exchanges": ([BEGUN | {"start_ns": 6_000_000}], [BEGUN | {"start_ns": 7_000_000}]),
                "probes": ([PROBE], [PROBE | {"lost": True}]),
            },
            "probes at 5.000000 ms: ",
        ),
    ],
    ids=["probe", "exchange-over-in-one", "exchange-of-one", "the-first-of-both"],
)
def test_the_first_different_probe_or_exchange_is_reported(
    twins: tuple[Path, Path], rows: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]], message: str
) -> None:
    assert first_difference(twins, {"probes": ([], []), "exchanges": ([], [])} | rows).startswith(message)


def first_difference(
    twins: tuple[Path, Path], rows: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]]
) -> str:
    """The first difference of the cells 0, which have these rows; the cells 1 are the same."""
    for name, both in rows.items():
        for run, mine in zip(twins, both, strict=True):
            pq.write_table(pa.Table.from_pylist(mine, schema=SCHEMAS[name]), run / f"{name}.parquet")
            record_checksums(run, [f"{name}.parquet"], more=True)
    with Difference(*twins) as difference:
        assert difference.first_difference((1, 1)) is None
        return str(difference.first_difference((0, 0)))


@pytest.fixture
def pair(twins: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Copies of both, for a test that changes other tables than probes and exchanges."""
    for run in twins:
        shutil.copytree(run, tmp_path / run.name)
    return tmp_path / "a", tmp_path / "b"


FLOW = {"cell": 0, "flow": 0, "src": "h1", "dst": "h3", "start_ns": 0, "status": "running"}
INFO = {"cell": 0, "flow": 0, "time_ns": 3_000_000}
SAMPLE: dict[str, Any] = {"cell": 0, "interval_ns": 1_000_000}
STATISTIC = {"cell": 0, "port": "s1>h1", "time_ns": 2_000_000}
LAUNCH = {"cell": 0, "program": 0, "node": "h1", "start_ns": 0}
FLOWS = ([FLOW | {"received_bytes": 5}], [FLOW | {"received_bytes": 6}])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"flows": FLOWS, "tcp_info": ([INFO | {"cwnd": 10}], [INFO | {"cwnd": 11}])},
            "tcp_info at 3.000000 ms: flow 0: cwnd 10 / flow 0: cwnd 11",
        ),
        (
            {"flows": FLOWS, "tcp_info": ([INFO], [INFO])},
            "flows at 20.000000 ms: flow 0: received_bytes 5 / flow 0: received_bytes 6",
        ),
        (
            # One ends, the other goes on.
            {"flows": ([FLOW | {"end_ns": 9_000_000}], [FLOW])},
            "flows at 9.000000 ms: flow 0: end_ns 9000000 / ",
        ),
        (
            # All samples of one queue may be before those of the next, or in another order in the other run.
            {
                "queue_series": (
                    [
                        SAMPLE | {"port": port, "time_ns": time, "enqueued": time}
                        for port in ("s1>h1", "s1>h2")
                        for time in (1_000_000, 2_000_000)
                    ],
                    [
                        SAMPLE | {"port": "s1>h2", "time_ns": 1_000_000, "enqueued": 7},
                        SAMPLE | {"port": "s1>h1", "time_ns": 1_000_000, "enqueued": 1_000_000},
                        SAMPLE | {"port": "s1>h1", "time_ns": 2_000_000, "enqueued": 8},
                        SAMPLE | {"port": "s1>h2", "time_ns": 2_000_000, "enqueued": 2_000_000},
                    ],
                )
            },
            "queue_series at 1.000000 ms: port s1>h2: enqueued 1000000 / port s1>h2: enqueued 7",
        ),
        (
            {"statistics": ([STATISTIC | {"statistic": "marks", "value": 1.0}], [STATISTIC | {"statistic": "marks"}])},
            "statistics at 2.000000 ms: port s1>h1 statistic marks: value 1.0 / port s1>h1 statistic marks: ",
        ),
        (
            {"programs": ([LAUNCH | {"end_ns": 4_000_000, "exit_status": 0}], [LAUNCH | {"end_ns": 5_000_000}])},
            "programs at 4.000000 ms: node h1 program 0: end_ns 4000000, exit_status 0 / ",
        ),
        (
            # An observation of only one run is no difference.
            {"tcp_info": ([INFO], []), "flows": FLOWS},
            "flows at 20.000000 ms: ",
        ),
    ],
    ids=[
        "flow-without-end",
        "at-the-end",
        "ended-in-one",
        "order-of-queues",
        "statistic",
        "program",
        "observed-in-one",
    ],
)
def test_the_first_difference_is_that_of_lab_time(
    pair: tuple[Path, Path], rows: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]], message: str
) -> None:
    names = ("queue_series", "flows", "probes", "exchanges")
    none: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {name: ([], []) for name in names}
    assert first_difference(pair, none | rows).startswith(message)


def test_every_table_is_compared() -> None:
    assert {*SAMPLES, *INTERVALS, *TOTALS} == {*SCHEMAS}
    for name, key in (SAMPLES | INTERVALS | TOTALS).items():
        assert {*key} <= {*SCHEMAS[name].names}


def test_different_settings_are_reported_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.campaign("a", "--profile", "quick")[0] == 0
    assert bench.campaign("b", "--profile", "quick", "--set", "links.default.rate=2 Gbit/s")[0] == 0
    status, text = bench.run("diff", "a", "b")
    cell, setting, first, total = text.splitlines()
    assert status == 1 and cell == "cell delay=5 us, seed=1, tcp=reno"
    assert setting == "  links.default.rate: as in the lab file / 2 Gbit/s"
    assert " ms: " in first and total == "2 cells in both, 2 with different traces"
    with (tmp_path / "lab" / "lab.yml").open("a") as file:
        file.write("# A comment.\n")
    write_manifest(tmp_path / "tools", kernel_version="another")
    assert bench.campaign("c", "--profile", "quick")[0] == 0
    status, text = bench.run("diff", "a", "c")
    assert status == 0 and text.endswith("; 2 have equal traces in spite of other settings or another toolchain\n")
    with Difference(tmp_path / "a", tmp_path / "c") as difference:
        lab, kernel = difference.inputs((0, 0))
    assert lab.name == "lab file's sha256" and str(kernel) == "toolchain's kernel_version: fake / another"
