# SPDX-License-Identifier: Apache-2.0
"""Compact headers: what a lab may ask of them, and their length, the same in C and Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qbed.base.errors import LabError
from qbed.config.source import parse
from qbed.network.frames import COMPACT_BYTES, CONGESTION_BYTES, compact_bytes
from qbed.network.load import lab_from_source
from qbed.network.resolve import ResolvedLab
from qbed.plan.compile import compile_lab
from qbed.plan.workload import Flows
from qbed.report.show_plan import summary
from qbed.schemes.declaration import registry

ROOT = Path(__file__).parents[3]
LAB = """
name: compact
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 10 Gbit/s}}
switches: {default: {scheme: stamp, buffer: 200 packets}}
hosts: {default: {controller: {name: timely, signal: max, bits: 4, header: compact}}}
workload: [flow: {from: h1, to: h3, transport: rate}]
duration: 1 ms
"""


def load(text: str = LAB) -> ResolvedLab:
    return lab_from_source(parse(text, "lab.yml"))


def changed(old: str, new: str) -> str:
    assert LAB.count(old) == 1
    return LAB.replace(old, new)


def messages(text: str) -> list[str]:
    with pytest.raises(LabError) as error:
        load(text)
    return str(error.value).splitlines()


@pytest.mark.parametrize(
    ("request_", "length", "buffer"),
    [
        ("signal: max, bits: 4", 21, 200),
        ("signal: max, bits: 16", 22, 200),
        ("signal: sum, bits: 16", 24, 200),
        ("signal: max, unit: bytes, bits: 32", 24, 200 * 1514),
        ("signal: ind", 21, 0),
        ("signal: rtt", 20, 0),
    ],
)
def test_a_flow_has_the_room_that_its_header_leaves(request_: str, length: int, buffer: int) -> None:
    plan = compile_lab(load(changed("signal: max, bits: 4", request_)))
    controller, (flow,) = plan.nodes[0].controller, plan.workloads
    assert controller is not None and isinstance(flow, Flows)
    assert (controller.compact, controller.header_bytes) == (buffer, length)
    assert flow.payload_bytes == 1500 - 20 - 8 - length
    assert f", header of {length} bytes" in str(summary(plan)["nodes"][0]["controller"])


def test_hosts_with_both_headers_leave_room_for_the_full_one() -> None:
    plan = compile_lab(load(changed("compact}}}", "compact}}, h2: {controller: {header: full}}}")))
    assert [node.controller and node.controller.compact for node in plan.nodes[:3]] == [200, None, 200]
    (flow,) = plan.workloads
    assert isinstance(flow, Flows) and flow.payload_bytes == 1500 - 20 - 8 - CONGESTION_BYTES


REFUSED = [
    ("signal: max", "signal: vector", "a compact header cannot carry the signal `vector`; expected `header: full`, or `sum`, `max` or `ind`"),
    ("signal: max", "signal: sum_squ", "a compact header cannot carry the signal `sum_squ`; expected `header: full`, or `sum`, `max` or `ind`"),
    ("bits: 4", "unit: time, bits: 4", "a compact header carries a share of a buffer, whose time depends on the port; expected `header: full`, or packets"),
    ("name: timely, signal: max, bits: 4", "name: reaction_point", "a compact header has no feedback, which the controller `reaction_point` needs; expected `header: full`"),
    ("200 packets}", "200 packets}, s2: {buffer: 100 packets}", "a compact header carries a share of a buffer, so all buffers have to be equal, but they have 100 and 200 packets; expected `header: full`"),
    ("scheme: stamp", "scheme: stamp, exponent: 2", "with compact headers, `exponent` of `stamp` has to keep its default; expected `header: full`"),
    ("scheme: stamp", "scheme: stamp, middle: on", "with compact headers, `middle` of `stamp` has to keep its default; expected `header: full`"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "text"), REFUSED, ids=[new for _, new, _ in REFUSED])
def test_what_a_compact_header_cannot_carry_is_refused(old: str, new: str, text: str) -> None:
    (message,) = messages(changed(old, new))
    assert re.fullmatch(rf"lab.yml:\d+:\d+: hosts.default.controller.header: {re.escape(text)}", message)


def test_switches_in_p4_read_compact_headers() -> None:
    resolved = load(changed("scheme: stamp", "kind: bmv2, scheme: stamp"))
    assert resolved.warnings == [] and resolved.controllers["h1"].compact == 200


def test_a_scheme_that_does_not_read_compact_headers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = registry()["stamp"].model_copy(update={"compact": None})
    monkeypatch.setitem(registry(), "stamp", stamp)
    (message,) = messages(LAB)
    assert "the scheme `stamp` does not read compact headers" in message


def test_lengths_are_those_of_the_kernel() -> None:
    header = (ROOT / "kernel/include/uapi/qbed/signal.h").read_text()
    assert f"#define QSIGNAL_COMPACT_BYTES {COMPACT_BYTES}\t" in header
    # The table of the C test.
    rows = re.findall(
        r"\{ QSIGNAL_(NONE|IND|MAX|SUM), (\d+), (\d+) \}", (ROOT / "kernel/tests/test_signal_header.c").read_text()
    )
    assert len(rows) == 13
    for kind, bits, length in rows:
        signal = "rtt" if kind == "NONE" else kind.lower()
        assert compact_bytes(signal, int(bits)) == int(length)
