# SPDX-License-Identifier: Apache-2.0
"""Sojourn times: fields of the lab file, quantiles of bins, and tables of the records of taps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import bound, histogram, sojourn, sojourn_sample, write_out

from qbed.base.errors import LabError
from qbed.cells.store_cell import store_cell
from qbed.config.source import parse
from qbed.network.load import lab_from_source
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.telemetry.records import RecordError
from qbed.telemetry.sojourn import Sojourn, bin_from_ns

LAB = """\
name: small
topology: {star: {hosts: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
workload: [flow: {from: h1, to: h2, size: 1 MB, start: 1 ms}]
observe: OBSERVE
duration: 10 ms
"""
EDGES = bin_from_ns(np.arange(2241))


def plan(observe: str) -> Plan:
    return compile_lab(lab_from_source(parse(LAB.replace("OBSERVE", observe), file="lab.yml")), 1)


def test_a_plan_has_sojourn_only_if_requested() -> None:
    assert "sojourn" not in plan("{}").dumps() and "sojourn" not in plan("{sojourn: false}").dumps()
    sojourn_plan = plan("{sojourn: true}")
    assert sojourn_plan.sojourn and Plan.loads(sojourn_plan.dumps()) == sojourn_plan


@pytest.mark.parametrize(
    ("observe", "message"),
    [
        ("{sojourn: 1 ms}", "lab.yml:6:20: observe.sojourn: expected `true` or `false`, got `1 ms`"),
        ("{sojourn: 1}", "observe.sojourn: expected `true` or `false`, got `1`"),
        ("{sojurn: true}", "observe.sojurn: unknown field; did you mean `sojourn`?"),
    ],
)
def test_errors_name_the_field(observe: str, message: str) -> None:
    with pytest.raises(LabError) as error:
        plan(observe)
    assert len(error.value.messages) == 1 and message in error.value.messages[0]


@given(st.lists(st.integers(0, (1 << 40) - 1), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_quantiles_are_at_most_a_64th_too_long(waits: list[int], share: float) -> None:
    bins = np.searchsorted(EDGES, np.array(waits), "right") - 1
    counts = np.bincount(bins - bins.min()).astype(np.uint64)
    observed = Sojourn(0, 0, 0, len(waits), sum(waits), max(waits), int(bins.min()), counts)
    exact = sorted(waits)[max(int(np.ceil(round(share * len(waits), 6))), 1) - 1]
    found = observed.quantile_ns(share)
    assert found is not None and exact <= found <= exact + exact // 64


def tables_of(tmp_path: Path, observe: str, records: bytes) -> Any:
    lab = plan(observe)
    write_out(lab, tmp_path)
    with (tmp_path / "out" / "taps.bin").open("ab") as stream:
        stream.write(records)
    into = tmp_path / "tables"
    into.mkdir()
    store_cell(tmp_path, lab, into)

    def table(name: str) -> list[dict[str, Any]]:
        with pa.memory_map(str(into / f"{name}.arrow")) as file:
            rows: list[dict[str, Any]] = pa.ipc.open_stream(file).read_all().to_pylist()
        return rows

    return table


def test_tables_have_the_records_of_taps(tmp_path: Path) -> None:
    at = 10_000_000
    stream = sojourn(1, at, 46 << 2 | 1, {100: 3, 128: 1, 192: 6}, sum_ns=2_000, max_ns=257)
    stream += sojourn(0, at, 256, {0: 2}) + sojourn_sample(1, 1_000_000, 3, 4, sum_ns=10, max_ns=7, p50_ns=2, p99_ns=7)
    table = tables_of(tmp_path, "{sojourn: true, queues: 1 ms}", stream)
    others, voice = table("sojourns")
    assert (others["ecn"], others["dscp"], others["packets"], others["max_ns"]) == (None, None, 2, 0)
    assert (voice["ecn"], voice["dscp"], voice["packets"], voice["mean_ns"]) == ("ect1", 46, 10, 200.0)
    assert voice["bin_from_ns"] == [100, 128, 256] and voice["bin_to_ns"] == [100, 129, 259]
    assert voice["bin_packets"] == [3, 1, 6] and (voice["p50_ns"], voice["p99_ns"]) == (257, 257)
    (sample,) = table("sojourn_series")
    assert (sample["ecn"], sample["dscp"], sample["packets"], sample["mean_ns"]) == ("ce", 0, 4, 2.5)
    assert sample["port"] == voice["port"]


def test_a_class_that_is_new_in_a_window(tmp_path: Path) -> None:
    stream = b""
    for at, longest, bins in ((0, 0, {}), (3_000_000, 9, {9: 1}), (10_000_000, 5, {4: 2, 9: 1})):
        for queue in range(4):
            stream += bound(queue, at, duration_ns=at) + histogram(queue, at, 1514, [at], at_bound=True)
        if bins:
            total = sum(ns * packets for ns, packets in bins.items())
            stream += sojourn(0, at, 2, bins, at_bound=True, sum_ns=total, max_ns=longest)
    stream += sojourn(0, 10_000_000, 0, {7: 1}, at_bound=True, sum_ns=7, max_ns=7)
    observe = "{sojourn: true, windows: {a: {until: 3 ms}, b: {from: 3 ms}, all: {}}}"
    rows = tables_of(tmp_path, observe, stream)("sojourn_windows")
    found = {(row["span"], row["ecn"]): (row["packets"], row["mean_ns"], row["max_ns"]) for row in rows}
    assert found == {
        ("b", "not-ect"): (1, 7.0, 7),
        ("all", "not-ect"): (1, 7.0, 7),
        ("a", "ect0"): (1, 9.0, 9),
        ("b", "ect0"): (2, 4.0, 5),
        ("all", "ect0"): (3, 17 / 3, 9),
    }


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (sojourn(0, 5, 2, {1: 1}, at_bound=True), "has a record at 5 ns, where no window begins or ends"),
        (
            sojourn(0, 3_000_000, 2, {1: 2}, at_bound=True) + sojourn(0, 10_000_000, 2, {1: 1}, at_bound=True),
            "queue 0 has fewer packets",
        ),
        (
            sojourn(0, 3_000_000, 2, {1: 1}, at_bound=True) + sojourn(0, 10_000_000, 2, {2: 1}, at_bound=True),
            "queue 0 has fewer packets",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(tmp_path: Path, stream: bytes, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        tables_of(tmp_path, "{sojourn: true, windows: {b: {from: 3 ms}}}", stream)
