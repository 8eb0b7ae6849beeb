# SPDX-License-Identifier: Apache-2.0
"""FRR in virtual time: convergence, rerouting after a link failure, and equal results in each run."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from qbed.cells.arrow import read_cell
from qbed.cells.store_cell import store_cell
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.plan.workload import Expectation
from qbed.substrates import CellError
from qbed.substrates.virtual.substrate import VirtualSubstrate
from qbed.testing import LIMITS, CellOutput, write_plan

from qbed_testing.running import RunningLab

CLOS = """
name: clos
topology: {clos: {hosts: 2, racks: 2, spines: 2}}
links: {default: {rate: 10 Gbit/s, delay: 1 us}}
switches: {default: {scheme: droptail, buffer: 1 MB}}
hosts: {default: {tcp: cubic, rto_min: 10 ms}}
"""
FRR = {"bgp": "routing: frr\n", "ospf": "routing: frr\nfrr: {protocol: ospf}\n"}
FAILURE = """
workload:
  - flows: {from: h1..h2, to: h3..h4, size: 10 KB, count: 4, start: 1 ms, label: before}
  - flows: {from: h1..h2, to: h3..h4, size: 10 KB, count: 4, start: 900 ms, label: rerouted}
  - flows: {from: h1..h2, to: h3..h4, size: 10 KB, count: 4, start: 5900 ms, label: after}
events:
  - {at: 100 ms, link: rack1-spine1, state: down}
  - {at: 1 s, link: rack1-spine1, state: up}
duration: 6 s
"""


def changes(cell: CellOutput) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (cell.out / "routes.ndjson").open()]


def table(rows: list[dict[str, Any]], node: str, until_ns: int) -> dict[str, list[str]]:
    """A node's learnt routes at a time, from its changes: prefix -> interfaces."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if row["node"] == node and row["time_ns"] < until_ns and row.get("protocol") in ("bgp", "ospf"):
            if row["change"] == "removed":
                found.pop(row["to"], None)
            else:
                found[row["to"]] = [hop["interface"] for hop in row["via"]]
    return found


@pytest.mark.parametrize("protocol", FRR)
def test_routes_change_when_a_link_fails_and_recovers(
    run_cell: Callable[..., Any], tmp_path: Path, protocol: str
) -> None:
    cell = run_cell(CLOS + FRR[protocol] + FAILURE)
    flows = cell.flows()
    assert [flow["status"] for flow in flows] == ["complete"] * 24
    rows = changes(cell)
    ms = 1_000_000

    def remote(node: str, at_ns: int) -> set[tuple[str, ...]]:
        return {tuple(interfaces) for to, interfaces in table(rows, node, at_ns).items() if to.startswith("10.0.0.")}

    # At the epoch as many next hops as the compiler's ECMP, then the remaining path, then all again.
    for node, all_paths, remaining in (("rack1", ("eth2", "eth3"), ("eth3",)), ("rack2", ("eth2", "eth3"), ("eth3",))):
        assert all_paths in remote(node, 0)
        assert remaining in remote(node, 900 * ms) and all_paths not in remote(node, 900 * ms)
        assert all_paths in remote(node, 5900 * ms)
    (cell.folder / "results").mkdir()
    row = store_cell(cell.folder, cell.plan, cell.folder / "results")
    assert (row["status"], row["contradictions"]) == ("complete", [])
    routes = pa.concat_tables(read_cell(cell.folder / "results" / "routes.arrow", 0))  # noqa: F841 - the SQL's
    down = duckdb.sql(
        "SELECT max(time_ns) FROM routes WHERE protocol = $p AND time_ns BETWEEN 100000000 AND 999999999",
        params={"p": protocol},
    ).fetchall()[0][0]
    assert 100 * ms < down < 900 * ms


@pytest.mark.parametrize("protocol", FRR)
def test_two_runs_with_frr_are_equal(run_cell: Callable[..., Any], protocol: str) -> None:
    first, second = (run_cell(CLOS + FRR[protocol] + FAILURE).digest() for _ in range(2))
    assert first == second and "rack1-zebra.log" in first and "routes.ndjson" in first


def test_static_routes_do_not_change_when_a_link_fails(run_cell: Callable[..., Any]) -> None:
    """Static routes: a rack uses its other spine, but the spine does not learn of the failure."""
    cell = run_cell(CLOS + FAILURE.replace("rack1-spine1", "h1-rack1"))
    done = {(flow["label"], flow["src"]): flow["status"] for flow in cell.flows()}
    assert {status for (label, _), status in done.items() if label in ("before", "after")} == {"complete"}
    rows = [row for row in changes(cell) if "link" in row]
    assert [(row["time_ns"], row["node"], row["change"]) for row in rows] == [
        (at, node, state) for at, state in ((100_000_000, "down"), (10**9, "up")) for node in ("h1", "rack1")
    ]


def run_changed(folder: Path, change: Callable[[Plan], None]) -> None:
    plan = write_plan(folder, CLOS + FRR["bgp"] + "duration: 1 ms\n")
    change(plan)
    (folder / "plan.json").write_text(plan.dumps())
    VirtualSubstrate().cell(folder, plan).run(LIMITS, lambda _: None)


def test_a_missing_route_daemon_or_program_fails_the_cell(tmp_path: Path) -> None:
    def want_more(plan: Plan) -> None:
        node = plan.nodes[plan.node_index("rack1")]
        interfaces = ["eth2", "eth3", "eth0"]
        node.expects = [Expectation(to=to, hops=3, via=interfaces) for to in ("10.0.0.4/30", "10.9.0.0/16")]

    message = r"not converged at \d+ ms .*: rack1 reaches h3 \(10.0.0.4/30\) by 2 of 3 next hops; rack1 reaches h4"
    with pytest.raises(CellError, match=message):
        run_changed(tmp_path / "few", want_more)

    def forget_a_peer(plan: Plan) -> None:
        files = plan.nodes[plan.node_index("spine2")].files
        lines = files["/run/frr/bgpd.conf"].splitlines(keepends=True)
        files["/run/frr/bgpd.conf"] = "".join(line for line in lines if "neighbor eth0 " not in line)

    rows = (
        r"at \d+ ms .*",
        r"router +peer +interface +reaches hosts",
        r"rack1 +spine2 +eth3 +0 of 2",
        r"rack2 +spine2 +eth3 +0 of 2",
        r"spine2 +rack1 +eth0 +0 of 2",
        r"its console",
    )
    with pytest.raises(CellError, match=r"\n    ".join(rows)) as refused:
        run_changed(tmp_path / "forgotten", forget_a_peer)
    assert str(refused.value).count("not converged") == 1

    def break_bgp(plan: Plan) -> None:
        plan.nodes[plan.node_index("spine2")].programs[2].argv += ["--no-such-option"]

    with pytest.raises(CellError, match=r"spine2: bgpd ended with status 1; out/spine2-bgpd\.log ends with: "):
        run_changed(tmp_path / "broken", break_bgp)

    def never_ready(plan: Plan) -> None:
        plan.nodes[plan.node_index("rack2")].programs[1].ready = "/run/frr/never"

    with pytest.raises(CellError, match="node rack2: zebra is not ready: there is no /run/frr/never"):
        run_changed(tmp_path / "waits", never_ready)

    def use_missing_program(plan: Plan) -> None:
        plan.nodes[plan.node_index("rack2")].programs[1].argv[0] = "no-such-zebra"

    with pytest.raises(CellError, match="node rack2 runs no-such-zebra, which is not here; run `make setup`"):
        run_changed(tmp_path / "lost", use_missing_program)


def test_vtysh_connects_to_the_daemons_of_its_node(
    running_lab: Callable[[str], AbstractContextManager[RunningLab]],
) -> None:
    with running_lab(CLOS + FRR["bgp"] + "duration: 1 ms\n") as lab:
        for node, peers in (("spine1", ("rack1", "rack2")), ("rack2", ("spine1", "spine2"))):
            status, output = lab.run(node, "vtysh", "-c", "show bgp summary json")
            assert status == 0, output
            found = json.loads(output)["ipv4Unicast"]
            assert {peer["desc"] for peer in found["peers"].values()} == set(peers)
            assert {peer["state"] for peer in found["peers"].values()} == {"Established"}
        # A node's files are not visible on other nodes.
        assert lab.run("h1", "ls", "/run/frr")[0] != 0 or lab.run("h1", "ls", "/run/frr")[1] == ""
        assert "frrvty" in lab.run("rack1", "cat", "/etc/group")[1]
        assert "frrvty" not in lab.run("h1", "cat", "/etc/group")[1]
        status, output = lab.run("h1", "ping", "-c", "1", "10.0.0.5")
        assert status == 0, output


@pytest.mark.parametrize("protocol", FRR)
@pytest.mark.parametrize("program", ["rack2", "spine1"])
def test_frr_routers_and_p4_switches_work_together(
    run_cell: Callable[..., Any], tmp_path: Path, protocol: str, program: str
) -> None:
    """Routes through the P4 switch are static; FRR learns the others."""
    switches = f"buffer: 1 MB}}, {program}: {{program: droptail}}}}"
    lab = CLOS.replace("racks: 2", "racks: 3").replace("buffer: 1 MB}}", switches)
    workload = "workload:\n  - flows: {from: h1..h4, to: h3..h6, size: 10 KB, count: 9, start: 1 ms}\nduration: 50 ms\n"
    cell = run_cell(lab + FRR[protocol] + workload)
    assert {flow["status"] for flow in cell.flows()} == {"complete"}
    learnt = {to for name in ("rack1", "rack3", "spine2") for to in table(changes(cell), name, 0)}
    static = {route.to for node in cell.plan.nodes if node.programs for route in node.routes}
    assert static and len(learnt) >= 2
    # both spines carry traffic of static and learnt routes
    sent = {queue.split(">")[0]: 0 for queue in port_names(cell.plan)}
    for queue in port_names(cell.plan):
        sent[queue.split(">")[0]] += cell.taps(queue)["summary"]["sent_packets"]
    assert min(sent["spine1"], sent["spine2"]) > 100, sent
    assert cell.counters().switches[program].totals["sent"] > 100
