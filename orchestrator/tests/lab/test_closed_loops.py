# SPDX-License-Identifier: Apache-2.0
"""Closed loops: what a lab file says of them, what the plan does, and the table of what became of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbed.base.errors import LabError
from qbed.cells.exchanges import exchanges
from qbed.config.source import parse
from qbed.network.load import lab_from_source
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.workload import Cdf, Exchanges, Exponential, Fixed, ParetoNs, ParetoTime, Uniform
from qbed.report.show_plan import summary
from qbed.telemetry.exchanges import DTYPE, EXCHANGES, NEVER
from qbed.telemetry.records import RecordError

LAB = """\
name: closed
topology: {star: {hosts: 5}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 100 KB}}
hosts: {default: {tcp: cubic}}
workload:
  - WORKLOAD
duration: 10 ms
"""
SIZES = "request: 100 B, response: 2 KB"


def compiled(workload: str) -> Plan:
    return compile_lab(lab_from_source(parse(LAB.replace("WORKLOAD", workload), file="lab.yml")))


def only(workload: str) -> Exchanges:
    (found,) = compiled(workload).workloads
    assert isinstance(found, Exchanges)
    return found


def test_requests_in_the_plan() -> None:
    found = only(f"requests: {{clients: [h1, h2], servers: h2..h5, fanout: 2, {SIZES}, think: {{exponential: 1 ms}}}}")
    assert (found.sources, found.destinations, found.pairs, found.fanout) == ([0, 1], [1, 2, 3, 4], None, 2)
    assert (found.request, found.response) == (Fixed(fixed=100), Fixed(fixed=2000))
    assert (found.think_ns, found.on_ns, found.limit) == (Exponential(exponential=1e6), None, None)
    assert (found.persistent, found.outstanding, found.transport, found.label) == (True, 1, "exchanges", "requests")
    pairs = only(f"requests: {{pairs: [[h1, h2], [h3, h2]], {SIZES}, connections: new, exchanges: 7, outstanding: 3}}")
    assert (pairs.pairs, pairs.sources, pairs.persistent) == ([(0, 1), (2, 1)], None, False)
    assert (pairs.limit, pairs.outstanding, pairs.think_ns) == (7, 3, Fixed(fixed=0))
    assert only(f"requests: {{clients: h1, servers: h2..h5, fanout: all, {SIZES}}}").fanout is None


def test_bursts_in_the_plan() -> None:
    found = only(
        "onoff: {from: h1..h2, to: h3, on: {pareto: {mean: 1 ms, shape: 1.5}}, off: {uniform: [0 us, 2 ms]}, count: 2}"
    )
    assert (found.pairs, found.outstanding, found.response, found.request) == ([(0, 2), (1, 2)], 2, None, None)
    assert found.on_ns == ParetoTime(pareto=ParetoNs(mean_ns=1e6, shape=1.5))
    assert found.think_ns == Uniform(uniform=(0, 2_000_000))
    sized = only("onoff: {from: h1, to: h3, size: {published: web-search}, off: 1 ms, bursts: 5, connect: before}")
    assert isinstance(sized.request, Cdf)
    assert (sized.on_ns, sized.limit, sized.connect) == (None, 5, "before")


def test_a_plan_is_read_back_and_described() -> None:
    plan = compiled(f"requests: {{clients: h1, servers: h2..h5, fanout: all, {SIZES}, think: 1 ms}}")
    assert Plan.loads(plan.dumps()) == plan
    (row,) = summary(plan)["workloads"]
    assert row["hosts"] == "1 to 4 hosts"
    assert row["flows"] == "all at once, request 100 B, response 2 KB, think 1 ms"


@pytest.mark.parametrize(
    ("workload", "shown"),
    [
        (
            "onoff: {from: h1, to: h3, size: 1 MB, off: {exponential: 2 ms}}",
            "request 1 MB, off exponential of mean 2 ms",
        ),
        (
            "onoff: {from: h1, to: h3, on: {uniform: [1 ms, 2 ms]}, off: {pareto: {mean: 10 ms, shape: 1.5}}}",
            "on 1 ms to 2 ms, off pareto of mean 10 ms and shape 1.5",
        ),
        (
            "arrivals: {interval: 10 us, size: {pareto: {mean: 50 KB, shape: 1.2, max: 100 KB}}}",
            "exponential every 10 us, pareto of mean 50 KB and shape 1.2, 100 KB at most",
        ),
        ("arrivals: {interval: 10 us, size: {published: web-search}}", "exponential every 10 us, cdf of 12 points"),
    ],
)
def test_what_is_drawn_is_described_with_its_unit(workload: str, shown: str) -> None:
    (row,) = summary(compiled(workload))["workloads"]
    assert row["flows"].removeprefix("1 at once, ") == shown


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (f"requests: {{{SIZES}}}", "expected `pairs`, or `clients` and `servers`"),
        (f"requests: {{clients: h1, {SIZES}}}", "workload[0].requests: `servers` is missing"),
        (f"requests: {{clients: h1, servers: h1, {SIZES}}}", "a client has no server but itself"),
        (f"requests: {{clients: h1, servers: h9, {SIZES}}}", "no host is called `h9`"),
        (
            f"requests: {{clients: h1, servers: h1..h3, fanout: 3, {SIZES}}}",
            "a fanout of 3, but a client has 2 servers",
        ),
        (f"requests: {{pairs: [[h1, h2]], fanout: 2, {SIZES}}}", "`fanout` is 2, but a pair has one server"),
        (f"requests: {{pairs: [[h1, h1]], {SIZES}}}", "`h1` cannot send to itself"),
        (
            "requests: {clients: h1, servers: h2, request: 10 B, response: 1 KB}",
            "expected at least 16 B, which its header",
        ),
        (
            f"requests: {{clients: h1, servers: h2, {SIZES}, connections: new, connect: before}}",
            "needs persistent connections",
        ),
        (f"requests: {{clients: h1, servers: h2, {SIZES}, think: 5}}", "expected a duration such as `5 us`"),
        (
            f"requests: {{clients: h1, servers: h2, {SIZES}, think: {{exponential: 1 ms, fixed: 1 ms}}}}",
            "expected exactly one of",
        ),
        (f"requests: {{clients: h1, servers: h2, {SIZES}, thing: 5}}", "did you mean `think`?"),
        (
            f"requests: {{clients: h1..h3, servers: h4..h5, {SIZES}, outstanding: 10000, exchanges: 0}}",
            "exchanges: expected at least 1, got `0`",
        ),
        (
            f"requests: {{clients: h1..h4, servers: h2..h5, {SIZES}, outstanding: 9000, connect: before}}",
            "connections before the epoch",
        ),
        ("onoff: {from: h1, to: h2, off: 1 ms}", "expected exactly one of `size`, `on`"),
        ("onoff: {from: h1, to: h2, size: 1 KB, on: 1 ms, off: 1 ms}", "expected exactly one of `size`, `on`"),
        ("onoff: {from: h1, to: h2, size: 1 KB, off: {uniform: [2 ms, 1 ms]}}", "the shorter first"),
        ("onoff: {size: 1 KB, off: 1 ms}", "expected `pairs`, or `from` and `to`"),
    ],
)
def test_a_mistake_has_one_clear_message(workload: str, message: str) -> None:
    with pytest.raises(LabError) as error:
        compiled(workload)
    assert len(error.value.messages) == 1
    assert message in error.value.messages[0] and error.value.messages[0].startswith("lab.yml:7:")


def records(*rows: dict[str, Any]) -> bytes:
    made = np.zeros(len(rows), DTYPE)
    for name in ("connected_ns", "first_byte_ns", "end_ns"):
        made[name] = NEVER
    for place, row in enumerate(rows):
        for name, value in row.items():
            made[name][place] = value
    return made.tobytes()


PLAN = compiled(f"requests: {{clients: h1, servers: h2..h5, {SIZES}}}")


def table(folder: Path, content: bytes) -> list[dict[str, Any]]:
    path = folder / EXCHANGES
    path.write_bytes(content)
    return [row for found in exchanges(PLAN, path) for row in found.to_pylist()]


def test_the_table_has_the_result_of_each(tmp_path: Path) -> None:
    done = {"server": 1, "start_ns": 100, "first_byte_ns": 250, "end_ns": 300}
    rows = table(tmp_path, records(done, done | {"last": 1}, {"server": 2}, {"server": 3, "error": 104}))
    assert [row["status"] for row in rows] == ["complete", "complete", "running", "failed"]
    assert [row["latency_ns"] for row in rows] == [200, 200, None, None]
    assert [row["query_ns"] for row in rows] == [None, 200, None, None]
    assert [row["error"] for row in rows] == [None, None, None, "Connection reset by peer"]
    assert [(row["client"], row["server"], row["label"]) for row in rows[:2]] == [("h1", "h2", "requests")] * 2
    assert (rows[0]["first_byte_ns"], rows[0]["connected_ns"]) == (250, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (records({"server": 6}), "the plan has no server 6"),
        (records({"client": 99}), "the plan has no client 99"),
        (records({"workload": 1}), "the plan has no workload 1"),
        (records({})[:-1], "ends within a record"),
    ],
)
def test_records_of_another_plan_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        table(tmp_path, content)


@given(st.binary(max_size=400))
def test_any_bytes_are_records_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    try:
        rows = table(tmp_path_factory.getbasetemp(), content)
    except RecordError:
        return
    assert len(rows) == len(content) // DTYPE.itemsize
