# SPDX-License-Identifier: Apache-2.0
"""Division of labs into parts, their distances, and what `qbed inspect --parts` shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed.base.errors import LabError
from qbed.plan.model import Plan
from qbed.plan.parts import NEVER_NS, cut_links, distances_ns, loads, plans_of_parts
from qbed.report.show_parts import summary
from qbed.testing import write_plan

LAB = """
name: lab
topology: TOPOLOGY
links: {default: {rate: 10 Gbit/s, delay: DELAY}}
workload: [flows: {from: h1, to: h2, size: 1 MB}]
duration: 10 ms
parts: PARTS
"""


def divided(folder: Path, topology: str, parts: int | str, delay: str = "5 us", more: str = "") -> Plan:
    text = LAB.replace("TOPOLOGY", topology).replace("DELAY", delay).replace("PARTS", str(parts))
    return write_plan(folder, text + more)


@settings(max_examples=40, deadline=None)
@given(hosts=st.integers(1, 4), racks=st.integers(1, 9), spines=st.integers(1, 4), parts=st.integers(2, 6))
def test_a_clos_is_divided_by_racks(
    tmp_path_factory: pytest.TempPathFactory, hosts: int, racks: int, spines: int, parts: int
) -> None:
    topology = f"{{clos: {{hosts: {hosts}, racks: {racks}, spines: {spines}}}}}"
    folder = tmp_path_factory.mktemp("clos")
    nodes = racks * (hosts + 1) + spines
    if parts > nodes or hosts * racks < 2:
        return
    plan = divided(folder, topology, parts)
    assert set(plan.parts) == set(range(parts))
    assert plan.parts == divided(folder, topology, parts).parts
    if racks + spines >= parts and racks >= parts:
        for link in plan.links:
            if "host" in (plan.nodes[link.a.node].kind, plan.nodes[link.b.node].kind):
                assert plan.parts[link.a.node] == plan.parts[link.b.node]


def test_a_large_clos_is_balanced(tmp_path: Path) -> None:
    for parts in (2, 4, 8):
        plan = divided(tmp_path, "{clos: {hosts: 16, racks: 32, spines: 8}}", parts)
        assert max(loads(plan)) * parts < 1.1


def test_switches_without_hosts_are_in_the_part_of_their_pod(tmp_path: Path) -> None:
    pods = [f"{{ends: [h{2 * leaf - 1}..h{2 * leaf}, leaf{leaf}]}}" for leaf in range(1, 5)]
    pods += [f"{{ends: [leaf{first}..leaf{first + 1}, pod{pod}]}}" for first in (1, 3) for pod in (first, first + 1)]
    nodes = "h1..h8: host, leaf1..leaf4: switch, pod1..pod4: switch"
    plan = divided(tmp_path, f"{{explicit: {{nodes: {{{nodes}}}, links: [{', '.join(pods)}]}}}}", 2)
    assert cut_links(plan) == [] and loads(plan) == [0.5, 0.5]
    cores = ", ".join([*pods, "{ends: [pod1..pod4, core1]}", "{ends: [pod1..pod4, core2]}"])
    plan = divided(tmp_path, f"{{explicit: {{nodes: {{{nodes}, core1..core2: switch}}, links: [{cores}]}}}}", 2)
    cut = [plan.links[index] for index in cut_links(plan)]
    assert len(cut) == 4
    assert all(plan.nodes[link.b.node].name.startswith("core") for link in cut)
    assert loads(plan) == [0.5, 0.5]


def test_the_switch_of_a_star_has_two_sevenths_of_the_load_of_its_hosts(tmp_path: Path) -> None:
    plan = divided(tmp_path, "{star: {hosts: 98}}", 2)
    switch = next(i for i, node in enumerate(plan.nodes) if node.kind == "switch")
    assert plan.parts.count(plan.parts[switch]) == 1 + 35
    assert loads(plan) == [0.5, 0.5]
    plan = divided(tmp_path, "{star: {hosts: 98}}", 4)
    assert plan.parts.count(plan.parts[switch]) == 1 + 4
    assert loads(plan) == pytest.approx([0.25] * 4, rel=0.02)


def test_ends_of_a_link_without_delay_stay_together(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"lab.yml:7:8: parts: expected 1 at most: the ends of a link without delay"):
        divided(tmp_path, "{dumbbell: {left: 2, right: 2}}", 2, "0 s")
    at_once = "events: [{at: 1 ms, link: s1-s2, delay: 0 s}]\n"
    with pytest.raises(LabError, match="parts: expected 5 at most"):
        divided(tmp_path, "{dumbbell: {left: 2, right: 2}}", 6, more=at_once)


def test_the_distance_is_the_least_delay_during_the_run(tmp_path: Path) -> None:
    plan = divided(tmp_path, "{dumbbell: {left: 2, right: 2}}", 2)
    assert distances_ns(plan) == [[10_000, 5_000], [5_000, 10_000]]
    assert [plan.links[index].name for index in cut_links(plan)] == ["s1-s2"]
    shorter = divided(
        tmp_path, "{dumbbell: {left: 2, right: 2}}", 2, more="events: [{at: 1 ms, link: s1-s2, delay: 2 us}]\n"
    )
    assert distances_ns(shorter) == [[4_000, 2_000], [2_000, 4_000]]


def test_a_distance_may_lead_through_other_parts(tmp_path: Path) -> None:
    links = "[{ends: [h1, s1]}, {ends: [s1, s2]}, {ends: [s2, h2]}]"
    nodes = "{h1: host, h2: host, s1: switch, s2: switch}"
    plan = divided(tmp_path, f"{{explicit: {{nodes: {nodes}, links: {links}}}}}", 4)
    assert sorted(plan.parts) == [0, 1, 2, 3]
    h1, h2, s1 = (plan.parts[[node.name for node in plan.nodes].index(name)] for name in ("h1", "h2", "s1"))
    distances = distances_ns(plan)
    assert (distances[h1][s1], distances[h1][h2], distances[h1][h1]) == (5_000, 15_000, 10_000)
    assert max(map(max, distances)) < NEVER_NS


def test_each_part_has_its_share_of_the_memory(tmp_path: Path) -> None:
    topology = "{clos: {hosts: 16, racks: 32, spines: 8}}"
    undivided = divided(tmp_path, topology, 1)
    assert undivided.parts == []
    sizes = [divided(tmp_path, topology, parts).memory_bytes for parts in (1, 2, 4)]
    assert sizes[0] >= sizes[1] > sizes[2]


def test_the_summary_warns_of_what_gains_nothing(tmp_path: Path) -> None:
    found = summary(divided(tmp_path, "{dumbbell: {left: 2, right: 2}}", 2, "300 ns"))
    assert [part["lookahead_ns"] for part in found["parts"]] == [300, 300]
    assert found["links"] == ["s1-s2"]
    assert found["warnings"] == [
        "a cut link has a delay of 300 ns: parts that wait for each other so often gain nothing"
    ]
    uneven = summary(divided(tmp_path, "{star: {hosts: 100}}", 8))
    assert "part 0 has 1.8 times its share of the load, and the others wait for it" in uneven["warnings"]


def test_parts_are_a_setting_with_bounds(tmp_path: Path) -> None:
    for value in ("0", "65", "two", "1.5"):
        with pytest.raises(LabError, match=r"lab\.yml:7:8: parts"):
            divided(tmp_path, "{star: {hosts: 100}}", value)


@pytest.mark.parametrize("part", [-1, 64, 10**9])
def test_a_plan_with_an_impossible_part_is_refused(tmp_path: Path, part: int) -> None:
    plan = divided(tmp_path, "{dumbbell: {left: 2, right: 2}}", 2)
    assert plan.part_count == 2
    text = plan.dumps().replace('"parts": [\n  0', f'"parts": [\n  {part}')
    assert text != plan.dumps()
    with pytest.raises(ValueError, match="parts"):
        Plan.loads(text)


def test_an_agent_reads_nothing_that_only_other_nodes_need(tmp_path: Path) -> None:
    plan = divided(tmp_path, "{clos: {hosts: 2, racks: 3, spines: 2}}", 2)
    for part, text in enumerate(plans_of_parts(plan, plan.dumps())):
        found = Plan.loads(text)
        assert found.dumps() == text
        assert found.model_copy(update={"nodes": plan.nodes}) == plan
        for of_node, node, whole in zip(plan.parts, found.nodes, plan.nodes, strict=True):
            assert (node.name, node.kind, node.addresses) == (whole.name, whole.kind, whole.addresses)
            assert whole.routes
            assert whole.sysctls
            assert node == whole if of_node == part else not (node.routes or node.sysctls)
