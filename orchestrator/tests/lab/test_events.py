# SPDX-License-Identifier: Apache-2.0
"""Events of a lab: what a file may say, what the plan has of it, traces of a link's rate."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbed.base.errors import LabError
from qbed.lab.events import read_rates
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Change, Plan
from qbed.plan.queue import KernelQdisc
from qbed.substrates.containers.placement import Machine, place

LAB = """\
name: small
topology: {dumbbell: {left: 1, right: 1}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 128 KB, threshold: 20 packets}}
workload: [flow: {from: h1, to: h2, size: 1 MB, start: 1 ms}]
events: [EVENTS]
duration: 500 ms
"""
TRACE = "0 ms 10 Mbit/s  # at first\n\n100 ms 2 Mbit/s\n250ms 5.5 Mbit/s\n700 ms 1 Gbit/s\n"


def plan(folder: Path, events: str) -> Plan:
    (folder / "lab.yml").write_text(LAB.replace("EVENTS", events))
    return compile_lab(load_lab(folder / "lab.yml"), 1)


def changes(folder: Path, events: str) -> list[Change]:
    found = plan(folder, events)
    assert Plan.loads(found.dumps()).dumps() == found.dumps()
    return found.changes


def test_a_link_changes_at_both_ends_or_at_one(tmp_path: Path) -> None:
    both = changes(tmp_path, "{at: 2 ms, link: s1-s2, rate: 1 Gbit/s, delay: 7 us, loss: 1 %}")
    assert [(c.at_ns, c.link.link, c.link.end) for c in both if c.link] == [(2_000_000, 1, "a"), (2_000_000, 1, "b")]
    assert [(c.link.rate_bps, c.link.delay_ns, c.link.loss) for c in both if c.link] == [(10**9, 7000, 0.01)] * 2
    (change,) = changes(tmp_path, "{at: 2 ms, link: s2>s1, delay: 7 us}")
    assert change.plain() == {"at_ns": 2_000_000, "link": {"link": 1, "end": "b", "delay_ns": 7000}}


def test_a_queues_other_parameters_stay_as_they_were(tmp_path: Path) -> None:
    events = "{at: 2 ms, queue: s1>s2, set: {threshold: 5 packets}}, {at: 1 ms, queue: s1>s2, set: {buffer: 64 KB}}"
    first, second = (c.queue for c in changes(tmp_path, events))
    assert first is not None and second is not None
    port = plan(tmp_path, "").queues[first.queue]
    qdiscs = [qdisc for qdisc in (port.qdisc, first.qdisc, second.qdisc) if isinstance(qdisc, KernelQdisc)]
    assert len({qdisc.kind for qdisc in qdiscs}) == 1
    assert len({qdisc.options for qdisc in qdiscs}) == 3
    text = LAB.replace("128 KB, threshold: 20 packets", "64 KB, threshold: 5 packets").replace("EVENTS", "")
    (tmp_path / "lab.yml").write_text(text)
    assert compile_lab(load_lab(tmp_path / "lab.yml"), 1).queues[second.queue].qdisc == second.qdisc


def test_a_host_changes_its_congestion_control(tmp_path: Path) -> None:
    found = changes(tmp_path, '{at: 2 ms, host: "h*", tcp: bbr}')
    assert [(c.node.node, c.node.congestion_control) for c in found if c.node] == [(0, "bbr"), (1, "bbr")]


def test_a_trace_is_changes_as_long_as_the_lab_lasts(tmp_path: Path) -> None:
    (tmp_path / "cell.trace").write_text(TRACE)
    found = changes(tmp_path, "{at: 20 ms, link: s1>s2, trace: cell.trace}")
    assert [(c.at_ns // 1_000_000, c.link.rate_bps) for c in found if c.link] == [
        (20, 10_000_000), (120, 2_000_000), (270, 5_500_000),
    ]  # fmt: skip


def test_the_fastest_and_nearest_path_is_what_flows_are_compared_with(tmp_path: Path) -> None:
    events = "{at: 2 ms, link: s1-s2, rate: 1 Gbit/s, delay: 1 us}, {at: 3 ms, link: s1-s2, rate: 20 Gbit/s}"
    events += ", {at: 4 ms, link: s1-s2, delay: 9 us}"
    found = plan(tmp_path, events)
    middle = found.path(0, 1).ends[1]
    assert (middle.rate_bps, middle.delay_ns) == (20 * 10**9, 1000)
    assert found.ends_ever[1, "a"][1].delay_ns == 9000
    assert found.links[1].a.rate_bps == 10**10


def test_a_plan_without_changes_does_not_speak_of_them(tmp_path: Path) -> None:
    found = plan(tmp_path, "{at: 2 ms, link: s1-s2, state: down}")
    dumped = json.loads(found.dumps())
    assert len(dumped["events"]) == 1 and "changes" not in dumped and "jitter_ns" not in dumped["links"][0]["a"]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("{at: 1 s, link: s1-s2, rate: 1 Gbit/s}", "events[0].at: 1 s is after the lab's end at 500 ms"),
        ("{at: 1 ms, link: s1-s3, rate: 1 Gbit/s}", "events[0].link: no link is called `s1-s3`; did you mean `s1-s2`?"),
        ("{at: 1 ms, link: s1>s3, rate: 1 Gbit/s}", "events[0].link: no link leads `s1>s3`; did you mean `s1>s2`?"),
        ("{at: 1 ms, link: s1>s2, state: down}", "events[0].link: no link is called `s1>s2`"),
        ("{at: 1 ms, link: s1-s2}", "`link` changes by `state`, `rate`, `delay`, `loss`, `trace`, and by nothing"),
        ("{at: 1 ms, link: s1-s2, state: up, rate: 1 Gbit/s}", "events[0]: `state` stands alone"),
        ("{at: 1 ms, rate: 1 Gbit/s}", "events[0]: expected exactly one of `link`, `queue` and `host`"),
        ("{at: 1 ms, link: s1-s2, rate: 0 bit/s}", "events[0].rate: expected at least 1 bit/s"),
        ("{at: 1 ms, link: s1-s2, loss: 1}", "events[0].loss: expected less than 1"),
        ("{at: 1 ms, link: s1>s2, loss: 1}", "events[0].loss: expected less than 1"),
        ("{at: 1 ms, link: s1-s2, tracee: x}", "events[0].tracee: unknown field; did you mean `trace`?"),
        ("{at: 1 ms, link: s1-s2, trace: none}", "events[0].trace: cannot read `none`"),
        ("{at: 1 ms, link: s1-s2, trace: ../lab.yml}", "leads out of the folder"),
        ("{at: 1 ms, queue: s1>s2, set: {thresold: 5 packets}}", "unknown field; did you mean `threshold`?"),
        ("{at: 1 ms, queue: s1>s2, set: {scheme: codel}}", "events[0].set.scheme: a queue keeps its scheme"),
        ("{at: 1 ms, queue: h1>s1, set: {buffer: 5 KB}}", "events[0].queue: `h1>s1` is a host's own queue"),
        ("{at: 1 ms, host: h3, tcp: bbr}", "events[0].host: no host is called `h3`"),
        ("{at: 1 ms, host: h1, tcp: bbrr}", "events[0].tcp"),
    ],
)
def test_errors_name_the_field(tmp_path: Path, event: str, message: str) -> None:
    with pytest.raises(LabError) as error:
        plan(tmp_path, event)
    assert len(error.value.messages) == 1 and message in error.value.messages[0], error.value.messages


def test_droptail_keeps_its_unit(tmp_path: Path) -> None:
    (tmp_path / "lab.yml").write_text(
        LAB.replace("ecn, buffer: 128 KB, threshold: 20 packets", "droptail, buffer: 128 KB").replace(
            "EVENTS", "{at: 1 ms, queue: s1>s2, set: {buffer: 5 packets}}"
        )
    )
    with pytest.raises(LabError, match="bytes or packets"):
        load_lab(tmp_path / "lab.yml")


def test_in_containers_a_host_is_on_a_kernel_that_has_what_it_changes_to(tmp_path: Path) -> None:
    found = tmp_path / "net/ipv4/tcp_available_congestion_control"
    found.parent.mkdir(parents=True)
    found.write_text("reno cubic dctcp")
    changing = plan(tmp_path, "{at: 1 ms, host: h1, tcp: bbr}")
    with_it, without = place(plan(tmp_path, "{at: 1 ms, host: h1, tcp: reno}"), Machine(tmp_path)), None
    without = place(changing, Machine(tmp_path))
    assert 0 in with_it.host_kernel and 0 not in without.host_kernel
    assert "h1 on the qbed kernel: the machine's kernel has no bbr" in without.notes


def test_mahimahi_is_read_as_the_mean_of_each_100_ms() -> None:
    lines = [*([5] * 10), 60, 99, 100, 100, 350]
    rates = read_rates("\n".join(map(str, lines)))
    last = (300_000_000, 12_000 * 1000 // 51)  # as long as the trace is
    assert rates == [(0, 12 * 120_000), (100_000_000, 2 * 120_000), (200_000_000, 1000), last]


def test_a_links_mean_rate_is_that_of_the_lab(tmp_path: Path) -> None:
    events = "{at: 100 ms, link: s1>s2, rate: 1 Gbit/s}, {at: 400 ms, link: s1>s2, rate: 6 Gbit/s}"
    found = plan(tmp_path, events)
    ends = [found.links[1].a, found.links[1].b]
    assert [found.mean_rates[end.queue] for end in ends] == [(10 * 100 + 300 + 6 * 100) * 10**9 // 500, 10**10]


def test_a_host_that_turns_to_a_module_has_it(tmp_path: Path) -> None:
    assert "tcp_dctcp1" in plan(tmp_path, "{at: 1 ms, host: h1, tcp: dctcp1}").modules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no rates"),
        ("# nothing\n", "has no rates"),
        ("0 ms 1 Mbit/s\n0 ms 2 Mbit/s", "line 2: expected a time after"),
        ("0 ms 1 Mbit/s\n5", "line 2: expected a time and a rate such as"),
        ("0 ms 0 bit/s", "line 1: expected at least 1 bit/s"),
        ("0 parsec 1 Mbit/s", "line 1: expected a duration"),
        ("5\n4", "line 2: expected a millisecond"),
    ],
)
def test_a_wrong_trace_is_refused_by_its_line(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_rates(text)


@given(st.text(max_size=200))
def test_any_text_is_a_trace_or_refused(text: str) -> None:
    try:
        rates = read_rates(text)
    except ValueError:
        return
    assert rates and all(rate >= 1 for _, rate in rates)
    assert all(first[0] < second[0] for first, second in pairwise(rates))


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=50))
def test_any_opportunities_are_read(milliseconds: list[int]) -> None:
    rates = read_rates("\n".join(map(str, sorted(milliseconds))))
    assert max(rate for _, rate in rates) >= 120_000
