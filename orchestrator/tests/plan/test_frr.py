# SPDX-License-Identifier: Apache-2.0
"""Plans of labs with FRR: configuration, autonomous systems, expected routes."""

import re
import time
from collections import defaultdict

import pytest

from qbed.base.errors import LabError
from qbed.config.source import parse
from qbed.network.load import lab_from_source
from qbed.network.routes import Routing
from qbed.plan.compile import compile_lab
from qbed.plan.frr.systems import FIRST, systems
from qbed.plan.model import Node, Plan
from qbed.substrates.containers.cell import origin_for

CLOS = "topology: {clos: {hosts: 2, racks: 2, spines: 2}}"
PODS = "topology: {clos: {hosts: 1, racks: 4, leaves: 2, pods: 2, spines: 2}}"


def compiled(topology: str, rest: str = "", routing: str = "frr") -> Plan:
    text = f"name: x\n{topology}\nlinks: {{default: {{rate: 10 Gbit/s, delay: 1 us}}}}\nduration: 100 ms\n"
    return compile_lab(lab_from_source(parse(f"{text}routing: {routing}\n{rest}", file="lab.yml")))


def refused(topology: str, rest: str, routing: str = "frr") -> str:
    with pytest.raises(LabError) as caught:
        compiled(topology, rest, routing)
    return "\n".join(caught.value.messages)


def node(plan: Plan, name: str) -> Node:
    return plan.nodes[plan.node_index(name)]


def statements(text: str) -> list[str]:
    """The lines that say something, without their indentation."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("!")]


def test_a_racks_bgp_speaks_with_every_spine_and_offers_its_hosts() -> None:
    rack = node(compiled(CLOS), "rack2")
    bgpd = statements(rack.files["/run/frr/bgpd.conf"])
    assert f"router bgp {FIRST + 1}" in bgpd and "timers bgp 1 3" in bgpd
    for interface, spine in (("eth2", "spine1"), ("eth3", "spine2")):
        assert f"neighbor {interface} interface v6only remote-as external" in bgpd
        assert f"neighbor {interface} description {spine}" in bgpd
        assert f"neighbor {interface} activate" in bgpd
    assert [line for line in bgpd if line.startswith("network ")] == ["network 10.0.0.4/30"]
    assert not [line for line in bgpd if "eth0" in line or "eth1" in line], "hosts speak no BGP"
    assert "no zebra nexthop kernel enable" in statements(rack.files["/run/frr/zebra.conf"])
    assert rack.routes == [] and [program.argv[0] for program in rack.programs] == ["mgmtd", "zebra", "bgpd"]
    assert (
        rack.sysctls["net/ipv6/conf/eth2/disable_ipv6"] == "0" and "net/ipv6/conf/eth0/disable_ipv6" not in rack.sysctls
    )


def test_hosts_are_as_without_frr() -> None:
    with_frr, without = compiled(CLOS), compiled(CLOS, routing="static")
    hosts = [[n for n in plan.nodes if n.kind == "host"] for plan in (with_frr, without)]
    assert hosts[0] == hosts[1]
    assert with_frr.epoch_ns - without.epoch_ns == 10_000_000_000
    assert "programs" not in without.dumps() and '"events": []' in without.dumps()
    assert Plan.loads(with_frr.dumps()) == with_frr


@pytest.mark.parametrize("topology", [CLOS, PODS])
def test_expected_are_the_routes_that_the_compiler_would_have_written(topology: str) -> None:
    plan, static = compiled(topology), compiled(topology, routing="static")
    for node, static_node in zip(plan.nodes, static.nodes, strict=True):
        if node.kind == "switch":
            assert {e.to: e.via for e in node.expects} == {
                r.to: [hop.interface for hop in r.via] for r in static_node.routes
            }
            assert all(e.hops == len(e.via) for e in node.expects)
    single_path = compiled(topology, "frr: {maximum_paths: 1}")
    assert {e.hops for n in single_path.nodes for e in n.expects} == {1}


def test_systems_of_a_clos_are_those_of_rfc_7938() -> None:
    plan = compiled(PODS)
    found = defaultdict(set)
    for n in plan.nodes:
        if n.kind == "switch":
            match = re.search(r"router bgp (\d+)", n.files["/run/frr/bgpd.conf"])
            assert match is not None
            found[match[1]].add(n.name)
    assert sorted(map(sorted, found.values())) == [
        ["leaf1", "leaf2"], ["leaf3", "leaf4"], ["rack1"], ["rack2"], ["rack3"], ["rack4"], ["spine1", "spine2"],
    ]  # fmt: skip


def test_neighbours_are_never_of_one_system() -> None:
    # Two racks, and two core switches between them that are also joined with each other; then a chain of three.
    is_host = [True, True, False, False, False, False]
    square = [(0, 2), (1, 3), (2, 4), (2, 5), (3, 4), (3, 5), (4, 5)]
    chain = [(0, 2), (2, 4), (4, 5), (5, 3), (3, 1)]
    for links in (square, chain):
        numbers = systems(Routing(is_host, links))
        assert all(numbers[a] != numbers[b] for a, b in links if a in numbers and b in numbers)


def test_ospf_has_point_to_point_links_and_passive_hosts() -> None:
    rack = node(compiled(CLOS, "frr: {protocol: ospf, hold: 4 s, spf_delay: 20 ms}"), "rack1")
    text = rack.files["/run/frr/ospfd.conf"]
    ports = {part.split()[0]: statements(part) for part in text.split("\ninterface ")[1:]}
    assert "ip ospf passive" in ports["eth0"] and "ip ospf network point-to-point" not in ports["eth0"]
    assert {"ip ospf network point-to-point", "ip ospf dead-interval 4"} <= set(ports["eth2"])
    assert "timers throttle spf 20 20 200" in statements(text)
    assert [program.argv[0] for program in rack.programs] == ["mgmtd", "zebra", "ospfd"]
    assert [program.argv[0] for program in rack.programs if program.optional] == ["mgmtd"]


def test_both_families_are_routed_by_bgp() -> None:
    rack = node(compiled(CLOS, "addressing: both"), "rack1")
    bgpd = statements(rack.files["/run/frr/bgpd.conf"])
    assert [line for line in bgpd if line.startswith("network ")] == ["network 10.0.0.0/30", "network fd00::/126"]
    assert bgpd.count("neighbor eth2 activate") == 2


def test_events_are_in_the_order_of_time_and_mean_links_by_name_or_glob() -> None:
    plan = compiled(
        CLOS, "events: [{at: 2 ms, link: rack1-*, state: up}, {at: 1 ms, link: rack1-spine2, state: down}]", "static"
    )
    names = [(event.at_ns, plan.links[event.link].name, event.state) for event in plan.events]
    assert names == [
        (1_000_000, "rack1-spine2", "down"), (2_000_000, "rack1-spine1", "up"), (2_000_000, "rack1-spine2", "up"),
    ]  # fmt: skip


def test_on_the_wall_clock_daemons_have_the_time_that_the_plan_gives_them() -> None:
    for routing, has_daemons in (("frr", True), ("static", False)):
        plan = compiled(CLOS, routing=routing)
        begun = time.monotonic_ns()
        origin_ns = origin_for(plan, 3, 1_500_000_000)
        assert (begun <= origin_ns <= time.monotonic_ns()) == has_daemons
        assert origin_ns + 3 * plan.epoch_ns > begun + 1_000_000_000


def test_what_does_not_fit_is_refused() -> None:
    assert "`ospf` is OSPFv2, which routes IPv4" in refused(CLOS, "addressing: ipv6\nfrr: {protocol: ospf}")
    assert "expected more than the keepalive of 5 s" in refused(CLOS, "frr: {keepalive: 5 s}")
    assert "expected a multiple of 1 s, got `1.5 s`" in refused(CLOS, "frr: {keepalive: 1.5 s}")
    message = refused(CLOS, "events: [{at: 1 ms, link: rack1-spine9, state: down}]")
    assert "no link is called `rack1-spine9`" in message and "rack1-spine" in message.partition("mean")[2]
    assert "is after the lab's end" in refused(CLOS, "events: [{at: 1 s, link: rack1-spine1, state: down}]")
