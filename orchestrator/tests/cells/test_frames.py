# SPDX-License-Identifier: Apache-2.0
"""Frames that containers lose outside the plan's queues: in the evidence, in `qbed ps` and in samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from campaigns import write_lab
from fake_nodes import FORWARDING_BPS, FakeContainerlab, clab
from typer.testing import CliRunner, Result

from qbed.cells.frames import examine_frames, interface_rows, lost_between
from qbed.cells.wall_clock import examine_wall
from qbed.cli import load_commands
from qbed.network.load import load_lab
from qbed.plan.communicating_pairs import shortest_rtt_ns
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.runs.forwarding import forwarding_bps, overloaded_links
from qbed.runs.rule_of_thumb import short_time_scales
from qbed.substrates import CellError, find_lab, substrate
from qbed.telemetry.wall import Device, Interface, NodeWall, Wall

__all__ = ["clab"]

SENT = 1000


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return compile_lab(load_lab(write_lab(tmp_path / "lab") / "lab.yml", {}))


def wall(plan: Plan, host_kernel: tuple[str, ...] = (), **changed: Interface) -> Wall:
    """Both ends of each link have sent and received 1000 frames; `changed`: interfaces of s1, by name."""
    nodes: dict[str, NodeWall | None] = {}
    for index, node in enumerate(plan.nodes):
        names = [end.interface for link in plan.links for end in (link.a, link.b) if end.node == index]
        interfaces = dict.fromkeys(names, counted(None if node.name in host_kernel else 0))
        nodes[node.name] = NodeWall(interfaces=interfaces | (changed if node.name == "s1" else {}))
    return Wall(substrate="containerlab", dilation=3, host_kernel=list(host_kernel), nodes=nodes)


def counted(socket_dropped: int | None = 0, received: int = SENT, dropped: int = 0, rx_dropped: int = 0) -> Interface:
    kernel = Device(rx_packets=received, tx_packets=SENT, dropped=dropped)
    return Interface(socket_dropped=socket_dropped, rx_dropped=rx_dropped, kernel=kernel)


def no_slack(sent: int) -> int:
    return 0


def test_a_lost_frame_makes_the_cell_invalid_and_the_place_is_named(plan: Plan) -> None:
    assert examine_frames(plan, wall(plan), no_slack) == ([], [], {"frames_lost": 0, "frames_lost_at": []})
    for eth0, where in (
        (counted(30, received=SENT - 30), "30 in the packet socket"),
        (counted(dropped=30), "30 in the guest's device"),
        (counted(rx_dropped=30), "30 at the interface"),
    ):
        (wrong,), warnings, details = examine_frames(plan, wall(plan, eth0=eth0), no_slack)
        assert wrong.startswith(f"s1:eth0 dropped 30 frames outside the plan's queues ({where})")
        assert "at dilation 3" in wrong and not warnings
        assert details["frames_lost"] == 30 and [row["node"] for row in details["frames_lost_at"]] == ["s1"]
        assert wrong in examine_wall(plan, wall(plan, eth0=eth0))[0]


def test_sent_is_received_and_lost_or_the_cell_is_invalid(plan: Plan) -> None:
    missing = wall(plan, eth0=counted(20, received=SENT - 30))
    lost, unknown = examine_frames(plan, missing, no_slack)[0]
    assert "s1:eth0 dropped 20 frames" in lost
    assert "1000 frames sent" in unknown and "970 received" in unknown and "10 are unaccounted for" in unknown
    assert len(examine_frames(plan, missing, lambda sent: 10)[0]) == 1, "two nodes are not read at one instant"
    many = wall(plan, eth0=counted(0, received=SENT + 5))
    assert "-5 are unaccounted for" in examine_frames(plan, many, no_slack)[0][0]


def test_an_interface_that_was_offered_a_frame_again_has_lost_an_unknown_number(plan: Plan) -> None:
    assert len(examine_frames(plan, wall(plan, eth0=counted(0, SENT - 10, rx_dropped=30)), no_slack)[0]) == 1


def test_a_guest_whose_socket_cannot_be_read_is_a_warning(plan: Plan) -> None:
    wrong, (warning,), _ = examine_frames(plan, wall(plan, eth0=counted(None)), no_slack)
    assert not wrong and warning.startswith("s1:eth0: frames that the packet socket dropped could not be counted")
    assert examine_frames(plan, wall(plan, ("s1",), eth0=counted(None)), no_slack)[1] == []


def test_links_expect_only_what_was_not_lost_between_guests(plan: Plan) -> None:
    eth0 = counted(30, received=SENT - 30, dropped=4)
    lost = lost_between(plan, wall(plan, eth0=eth0))
    link = next(
        index
        for index, link in enumerate(plan.links)
        if "s1" in (plan.nodes[link.a.node].name, plan.nodes[link.b.node].name)
        and "eth0" in (link.a.interface, link.b.interface)
    )
    assert sorted(number for place, number in lost.items() if place[0] == link)[-1] == 34
    assert lost_between(plan, wall(plan, tuple(node.name for node in plan.nodes), eth0=eth0)) == {}


def test_each_end_of_a_link_has_a_row(plan: Plan) -> None:
    rows = list(interface_rows(plan, wall(plan, eth0=counted(30, received=970))))
    assert len(rows) == 2 * len(plan.links)
    (row,) = [row for row in rows if row["socket_dropped"]]
    assert (row["node"], row["interface"], row["rx_packets"], row["tx_packets"]) == ("s1", "eth0", 970, 1000)


# --- a lab that is up ---


def qbed(*arguments: str) -> Result:
    return CliRunner().invoke(load_commands(), list(arguments))


def report(folder: Path, node: str, socket_dropped: int, late_ns: int | None) -> None:
    """The file that the container of a node writes once a second."""
    out = folder / "nodes" / node / "out"
    late = None if late_ns is None else {"max": late_ns, "p99": late_ns, "p50": 0, "events": 9}
    host = {"wall_ns": 1, "late_ns": late, "interfaces": {"eth0": {"socket_dropped": socket_dropped}}}
    (out / "host.json").write_text(json.dumps(host))
    index = json.loads((out.parent / "place.json").read_text())["node"]
    row = {"time_ns": 5, "node": index, "interface": "eth0"}
    row |= {"interface_dropped": 0, "socket_dropped": socket_dropped, "device_dropped": 0}
    with (out / "frames.ndjson").open("a") as rows:
        rows.write(json.dumps(row) + "\n")


def test_ps_and_samples_say_what_was_lost_and_how_late_it_runs(clab: FakeContainerlab, tmp_path: Path) -> None:
    done = qbed("up", str(write_lab(tmp_path / "lab")), "--on", "containerlab", "--dilate", "7")
    assert done.exit_code == 0, done.output
    columns = qbed("ps").output.splitlines()[0].split()
    assert columns[4:6] == ["LOST", "LATE"]
    assert "6 of 6 nodes  -     -" in qbed("ps").output, "nothing is known yet"
    folder = next(tmp_path.glob("state/qbed/tiny/cell"))
    report(folder, "s1", 41, 2_500_000)
    report(folder, "h1", 1, None)
    assert "6 of 6 nodes  42    2.500 ms" in qbed("ps").output
    rows: list[dict[str, Any]] = [json.loads(line) for line in qbed("samples", "tiny").output.splitlines()]
    lost = {row["port"]: row for row in rows if row.get("sample") == "interface"}
    assert {port: row["socket_dropped"] for port, row in lost.items()} == {"s1>h1": 41, "h1>s1": 1}
    assert qbed("down", "tiny").exit_code == 0


# --- links that this machine does not carry ---


def test_up_names_the_links_that_the_machine_does_not_carry(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    on = substrate("containerlab")
    lab = write_lab(tmp_path / "lab") / "lab.yml"
    fast = compile_lab(load_lab(lab, {"links.default.rate": "10 Gbit/s"}))
    (text,) = overloaded_links(on, fast, 1)
    assert "forwards about 400 Mbit/s" in text and "(up to 10 Gbit/s)" in text
    assert "`--dilate 25` carries them, or rates of at most 400 Mbit/s" in text
    assert not list(overloaded_links(on, fast, 25)) and list(overloaded_links(on, fast, 24))
    assert not list(overloaded_links(substrate("virtual"), fast, 1))
    done = qbed("up", str(lab), "--on", "containerlab", "--dilate", "2", "--set", "links.default.rate=10 Gbit/s")
    assert "at dilation 2 it does not carry" in done.stderr and "at most 800 Mbit/s" in done.stderr


def test_without_a_dilation_links_get_the_rate_that_the_machine_carries(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    lab = write_lab(tmp_path / "lab") / "lab.yml"
    with lab.open("a") as file:
        file.write("events: [{at: 1 ms, link: h1-s1, rate: 5 Gbit/s}, {at: 2 ms, link: h1-s1, rate: 7 Mbit/s}]\n")
    rates = ("--set", "links.default.rate=10 Gbit/s", "--set", 'links."h2-s1".rate=100 Mbit/s')
    done = qbed("up", str(lab), "--on", "containerlab", *rates)
    assert done.exit_code == 0, done.stderr
    assert "h1-s1" in done.stderr and "got 400 Mbit/s" in done.stderr and "h2-s1" not in done.stderr
    assert "a second of the lab takes 1 s" in done.stderr
    plan = Plan.loads((find_lab("tiny").folder / "plan.json").read_bytes())
    rates_bps = {link.name: {link.a.rate_bps, link.b.rate_bps} for link in plan.links}
    assert rates_bps.pop("h2-s1") == {100_000_000}
    assert set(map(frozenset, rates_bps.values())) == {frozenset({400_000_000})}
    assert {change.link.rate_bps for change in plan.changes if change.link} == {400_000_000, 7_000_000}
    assert qbed("down", "tiny").exit_code == 0


def test_the_rates_of_a_trace_are_not_called_capped(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    lab = write_lab(tmp_path / "lab") / "lab.yml"
    (tmp_path / "lab/rates.txt").write_text("0 ms 5 Gbit/s\n")
    with lab.open("a") as file:
        file.write("events: [{at: 1 ms, link: h1-s1, trace: rates.txt}]\n")
    done = qbed("up", str(lab), "--on", "containerlab", "--set", "links.default.rate=100 Mbit/s")
    assert done.exit_code == 0, done.stderr
    assert "it does not carry h1-s1 (up to 5 Gbit/s)" in done.stderr and "got 400 Mbit/s" not in done.stderr
    assert qbed("down", "tiny").exit_code == 0


def test_the_rate_is_measured_once_and_only_where_it_matters(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    on, lab = substrate("containerlab"), write_lab(tmp_path / "lab") / "lab.yml"
    measured = []

    def measure(_: Any) -> int:
        measured.append(1)
        return FORWARDING_BPS

    slow = compile_lab(load_lab(lab, {"links.default.rate": "10 Mbit/s"}))
    assert not list(overloaded_links(on, slow, 1, measure)) and not measured
    assert forwarding_bps(on, measure) == forwarding_bps(on, measure) == FORWARDING_BPS
    assert len(measured) == 1


def test_a_machine_that_cannot_be_measured_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))

    def measure(_: Any) -> int:
        raise CellError("no engine")

    lab = write_lab(tmp_path / "lab") / "lab.yml"
    fast = compile_lab(load_lab(lab, {"links.default.rate": "10 Gbit/s"}))
    (text,) = overloaded_links(substrate("containerlab"), fast, 1, measure)
    assert "could not be measured" in text and "no engine" in text


# --- time scales that are too short on the wall clock ---


def test_short_round_trips_and_fast_links_in_real_time_are_named(
    clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    on, lab = substrate("containerlab"), write_lab(tmp_path / "lab") / "lab.yml"
    plan = compile_lab(load_lab(lab, {"links.default.rate": "10 Gbit/s"}))
    rtt_ns, nodes = shortest_rtt_ns(plan), len(plan.nodes)
    (text,) = short_time_scales(on, plan, 1, lambda _: FORWARDING_BPS)
    assert f"of real time, and should take {nodes // 2} ms with {nodes} nodes on 2 cores" in text
    assert "the fastest link has 10 Gbit/s of real time, and should have 80 Mbit/s on this machine" in text
    by_time, by_rate = -(-nodes * 500_000 // rtt_ns), 5 * 10**10 // FORWARDING_BPS
    assert f"`--dilate {max(by_time, by_rate)}` is enough" in text
    assert not list(short_time_scales(on, plan, max(by_time, by_rate), lambda _: FORWARDING_BPS))
    (text,) = short_time_scales(on, plan, max(by_time, by_rate) - 1, lambda _: FORWARDING_BPS)
    assert ("round trip" in text) == (by_time > by_rate) and ("fastest link" in text) == (by_rate >= by_time)
    assert not list(short_time_scales(substrate("virtual"), plan, 1))


def test_a_run_warns_of_them(clab: FakeContainerlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    lab = write_lab(tmp_path / "lab")
    run = (
        "run",
        str(lab),
        "--on",
        "containerlab",
        "--out",
        str(tmp_path / "run"),
        "--set",
        "hosts.default.kernel=qbed",
    )
    done = qbed(*run, "--dilate", "1")
    assert "at dilation 1, queues and rates differ from those of virtual time" in done.stderr + done.stdout
