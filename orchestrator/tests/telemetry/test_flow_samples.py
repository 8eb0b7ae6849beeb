# SPDX-License-Identifier: Apache-2.0
"""The samples of flows, from records in pieces of any size, and errors for files that no agent wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaigns import LAB, write_lab
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import flow_sample, write_out

from qbed.cells.arrow import flow_table
from qbed.cells.store_cell import store_cell
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.telemetry.flow_samples import ABSENT, DTYPES, FIELDS, STATES, FlowSampleTail, read_flow_samples
from qbed.telemetry.records import RecordError


@given(st.lists(st.tuples(st.sampled_from([*FIELDS]), st.integers(0, 2**31 - 1)), max_size=9), st.integers(1, 300))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_records_are_the_same_in_pieces_of_any_size(rows: list[tuple[str, int]], piece: int) -> None:
    data = b"".join(flow_sample(table, flow, at, retransmits=at) for at, (table, flow) in enumerate(rows))
    tail = FlowSampleTail()
    found = [batch for at in range(0, len(data), piece) for batch in tail.feed(data[at : at + piece])]
    tail.end()
    for table in FIELDS:
        values = [
            tuple(row) for name, records in found if name == table for row in records[["id", "time_ns", "retransmits"]]
        ]
        assert values == [(flow, at, at) for at, (name, flow) in enumerate(rows) if name == table]


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_any_other_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(RecordError, match=r"flow_samples\.bin"):
        for table, records in (tail := FlowSampleTail()).feed(data + b"\1\0"):
            flow_table(table, records)
        tail.end()


@pytest.mark.parametrize(
    ("at", "value", "problem"),
    [
        (0, 4, "the record at byte 96 has an unknown type 4"),
        (0, 0, "the record at byte 96 has an unknown type 0"),
        (2, 95, "the record at byte 96 is not 96 bytes long, but 95"),
        (7, 128, "the record at byte 96 has an impossible flow 2147483648"),
    ],
)
def test_a_malformed_record_is_an_error_with_its_position(at: int, value: int, problem: str, tmp_path: Path) -> None:
    data = bytearray(flow_sample("rates", 0, 1) * 2)
    data[96 + at] = value
    (tmp_path / "flow_samples.bin").write_bytes(data)
    with pytest.raises(RecordError, match=problem):
        list(read_flow_samples(tmp_path / "flow_samples.bin"))


def test_a_file_that_ends_within_a_record_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "flow_samples.bin"
    assert list(read_flow_samples(file)) == []
    file.write_bytes(flow_sample("tcp_info", 0, 1) + bytes(5))
    with pytest.raises(RecordError, match="ends inside the record at byte 96"):
        list(read_flow_samples(file))


def test_a_table_has_nulls_for_absent_values_and_names_of_states() -> None:
    records = np.zeros(8, DTYPES["tcp_info"])
    records["state"] = [*range(6), 2**40, -1]
    records["ssthresh"] = [ABSENT, *range(7)]
    table = flow_table("tcp_info", records)
    assert table["state"].to_pylist() == [*STATES, "unknown", "unknown"]
    assert table["ssthresh"].to_pylist() == [None, *range(7)]


def test_a_trace_covers_samples_as_lines_of_json(tmp_path: Path) -> None:
    """The locks of all labs that observe flows contain hashes of this text."""
    lab = LAB.replace("queues: 1 ms", "queues: 1 ms, flows: 1 ms")
    plan = compile_lab(load_lab(write_lab(tmp_path / "lab", lab=lab)))
    write_out(plan, tmp_path)
    names = ("cwnd", "ssthresh", "rtt_ns", "rttvar_ns", "delivery_bps", "pacing_bps", "acked_bytes")
    row: dict[str, Any] = {"flow": 1, "time_ns": 5} | dict.fromkeys((*names, "retransmits", "ce_marks"), 0)
    row |= {"ssthresh": None, "cwnd": 10, "state": "cwr"}
    text = json.dumps(row, separators=(",", ":")) + "\n"

    def trace() -> str:
        (into := tmp_path / "tables").mkdir(exist_ok=True)
        return str(store_cell(tmp_path, plan, into)["trace_sha256"])

    (tmp_path / "out/tcpinfo.ndjson").write_text(2 * text)  # as the agent once wrote it
    expected = trace()
    (tmp_path / "out/tcpinfo.ndjson").unlink()
    sample = flow_sample("tcp_info", 1, 5, cwnd=10, ssthresh=None, state=2)
    (tmp_path / "out/flow_samples.bin").write_bytes(2 * sample)
    assert trace() == expected
    (tmp_path / "out/flow_samples.bin").write_bytes(2 * sample + flow_sample("rates", 1, 5))
    with pytest.raises(RecordError, match="samples for `rates`, but the plan has no such flows"):
        trace()
