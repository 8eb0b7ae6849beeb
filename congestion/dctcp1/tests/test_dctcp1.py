# SPDX-License-Identifier: Apache-2.0
"""`tcp: dctcp1`: windows of one segment, and an immediate acknowledgement with the mark of each segment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from qbed.substrates.containers.placement import Machine, place
from qbed.testing import CellOutput, store_tables, write_plan

LAB = """
name: dctcp1
topology: {{star: {{hosts: 21}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 40 us}}}}
switches: {{default: {{scheme: {scheme}}}}}
hosts:
  default:
    tcp: {tcp}
    rto_min: 10 ms
    initial_window: 1 packets
  h1: {{tcp: {receiver}}}
workload: [{{incast: {{senders: 20, receiver: h1, size: 200 KB, start: 1 ms, spread: 100 us}}}}]
observe: {{ports: {{s1>h1: every packet}}, flows: 100 us}}
duration: 100 ms
"""
ECN = "ecn, buffer: 400 KB, threshold: 4 packets"


def test_windows_fall_to_one_segment(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    """Without loss, DCTCP's windows fall to two packets per sender; dctcp1's fall to one, so its queue is shorter."""
    waiting, windows = {}, {}
    for tcp in ("dctcp", "dctcp1"):
        cell = run_cell(LAB.format(scheme=ECN, tcp=tcp, receiver=tcp))
        (tmp_path / tcp).mkdir()
        row, table = store_tables(cell, tmp_path / tcp)
        assert (row["status"], row["contradictions"], row["dropped_packets"], row["timeouts"]) == ("complete", [], 0, 0)
        windows[tcp] = [
            sample["cwnd"] for sample in table("tcp_info") if sample["cwnd"] and sample["time_ns"] > 5_000_000
        ]
        (queue,) = (queue for queue in table("queues") if queue["port"] == "s1>h1")
        waiting[tcp] = queue["mean_packets"]
    assert min(windows["dctcp"]) == 2 and min(windows["dctcp1"]) == 1
    assert np.mean(windows["dctcp1"]) < 0.9 * np.mean(windows["dctcp"])
    assert waiting["dctcp1"] < waiting["dctcp"]


def test_each_segment_is_acknowledged_immediately(run_cell: Callable[..., CellOutput]) -> None:
    cell = run_cell(LAB.format(scheme=ECN, tcp="dctcp1", receiver="dctcp1"))
    data = np.concatenate(cell.taps("s1>h1")["events"])
    sent = int((data["op"] == 2).sum())
    acks = cell.counters().queues[cell.queue("h1>s1")].packets
    assert acks >= sent - 3 * 20, "an acknowledgement for each segment except SYN, ACK and FIN"


@pytest.mark.parametrize("scheme", ["droptail, buffer: 30 KB", ECN])
def test_without_ecn_dctcp1_equals_reno(run_cell: Callable[..., CellOutput], scheme: str) -> None:
    """If the receiver has no ECN, no packet is ECN-capable and losses halve windows, as with Reno."""
    dctcp1, reno = (run_cell(LAB.format(scheme=scheme, tcp=tcp, receiver="reno")) for tcp in ("dctcp1", "reno"))
    rows = [[flow | {"congestion_control": "reno"} for flow in cell.flows()] for cell in (dctcp1, reno)]
    assert rows[0] == rows[1]


def test_the_gain_is_a_parameter_of_the_lab(run_cell: Callable[..., CellOutput]) -> None:
    """The default gives the results of a lab without the parameter; another gain gives others."""
    lab = LAB.format(scheme=ECN, tcp="dctcp1", receiver="dctcp1")
    given = [lab, *(f"{lab}congestion: {{dctcp1: {{gain_shift: {shift}}}}}\n" for shift in (4, 1))]
    usual, same, other = (run_cell(text).flows() for text in given)
    assert usual == same != other


def test_hosts_run_on_the_labs_kernel_if_the_machine_has_no_dctcp1(tmp_path: Path) -> None:
    plan = write_plan(tmp_path, LAB.format(scheme=ECN, tcp="dctcp1", receiver="dctcp1"))
    assert "tcp_dctcp1" in plan.modules
    placed = place(plan, Machine(tmp_path))
    assert not placed.host_kernel and any("has no dctcp1" in note for note in placed.notes)


CHANGED = """
name: codepoints
topology: {star: {hosts: 2}}
links: {default: {rate: 100 Mbit/s, delay: 50 us}, h1-s1: {rate: 1 Gbit/s}}
switches: {default: {scheme: ecn, buffer: 400 KB, threshold: 4 packets}}
hosts: {default: {tcp: dctcp_ect1}}
addressing: both
workload:
  - flows: {from: h1, to: h2, size: unlimited, start: 1 ms}
  - flows: {from: h1, to: h2, size: unlimited, start: 1 ms, family: 6}
events:
  - {at: 50 ms, host: h1, tcp: dctcp}
  - {at: 100 ms, host: h1, tcp: dctcp_ect1}
observe:
  sojourn: true
  windows: {first: {from: 10 ms, until: 50 ms}, between: {from: 60 ms, until: 100 ms}, last: {from: 110 ms}}
duration: 150 ms
"""


def test_the_congestion_control_decides_the_codepoint(run_cell: Callable[..., CellOutput], tmp_path: Path) -> None:
    """An established connection gets the codepoint of its new congestion control, on IPv4 and IPv6."""
    row, table = store_tables(run_cell(CHANGED), tmp_path)
    assert (row["status"], row["contradictions"]) == ("complete", [])
    assert [flow["ce_marks"] > 0 for flow in table("flows")] == [True, True]
    codepoints: dict[str, set[str]] = {}
    for found in table("sojourn_windows"):
        if found["port"] == "s1>h2" and found["packets"]:
            codepoints.setdefault(found["span"], set()).add(found["ecn"])
    assert codepoints == {"first": {"ect1"}, "between": {"ect0"}, "last": {"ect1"}}
