# SPDX-License-Identifier: Apache-2.0
"""Compiled plans: addresses, routes, queues and workloads. The file and the seed determine a plan."""

import ipaddress
import re
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed.base.errors import LabError
from qbed.config.source import parse
from qbed.config.units import LARGEST
from qbed.lab.distributions import Sizes
from qbed.network.frames import CONGESTION_BYTES
from qbed.network.load import lab_from_source, load_lab
from qbed.network.resolve import ResolvedLab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.workload import Arrivals, Cdf, Controller, Exponential, Flows
from qbed.plan.workloads import SIGNAL_PORT
from qbed.report.show_plan import summary

LABS = sorted((Path(__file__).parents[3] / "labs").glob("*/lab.yml"))


def lab(
    topology: str,
    rest: str = "",
    links: str = "{default: {rate: 10 Gbit/s, delay: 5 us}}",
    overrides: dict[str, Any] | None = None,
) -> ResolvedLab:
    text = f"name: x\ntopology: {topology}\nlinks: {links}\nduration: 100 ms\n{rest}"
    return lab_from_source(parse(text, file="lab.yml"), overrides)


def compiled(topology: str, rest: str = "", **more: Any) -> Plan:
    return compile_lab(lab(topology, rest, **more))


# --- a model of Linux's data plane ---


class Walk:
    """Follows a packet through a plan's routes: longest prefix, then the hash's share of the next hops."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.by_gateway: dict[tuple[int, str], tuple[int, str]] = {}
        self.attached: dict[tuple[int, str], list[tuple[Any, str]]] = {}
        self.owner: dict[str, int] = {}
        self.peers: dict[tuple[int, str], tuple[int, str]] = {}
        for link in plan.links:
            for near, peer in ((link.a, link.b), (link.b, link.a)):
                self.peers[near.node, near.interface] = (peer.node, link.name)
                for address in near.addresses:
                    self.owner[address.partition("/")[0]] = near.node
        self.tables = [self._table(i) for i in range(len(plan.nodes))]

    def _table(self, node: int) -> list[tuple[Any, list[str]]]:
        table = [(ipaddress.ip_network(r.to), [via.interface for via in r.via]) for r in self.plan.nodes[node].routes]
        for link in self.plan.links:
            for end in (link.a, link.b):
                if end.node == node:
                    table += [(ipaddress.ip_interface(a).network, [end.interface]) for a in end.addresses]
        return sorted(table, key=lambda entry: -entry[0].prefixlen)

    def path(self, source: int, target: int, share: dict[str, float], family: int = 4) -> list[str]:
        """The names of the links, where `share` is the hash (0 to 1) for each hash seed."""
        position = 0 if family == 4 or len(self.plan.nodes[target].addresses) == 1 else 1
        address = ipaddress.ip_address(self.plan.nodes[target].addresses[position])
        node = source
        names: list[str] = []
        while node != target:
            assert len(names) < 20, "a loop"
            interfaces = next(found for prefix, found in self.tables[node] if address in prefix)
            seed = self.plan.nodes[node].sysctls.get("net/ipv4/fib_multipath_hash_seed", "")
            node, name = self.peers[node, interfaces[int(share.get(seed, 0.0) * len(interfaces))]]
            names.append(name)
        return names


TOPOLOGIES = [
    "{star: {hosts: 5}}",
    "{dumbbell: {left: 3, right: 2}}",
    "{parking-lot: {switches: 4, hosts: 2}}",
    "{clos: {racks: 4, hosts: 3, spines: 1}}",
    "{clos: {racks: 4, hosts: 2, spines: 3}}",
    "{clos: {racks: 6, hosts: 2, spines: 3, leaves: 2, pods: 3}}",
    "{explicit: {nodes: {h1..h4: host, s1..s2: switch}, links: [{ends: [h1..h2, s1]}, "
    "{ends: [s1, s2]}, {ends: [s1, s2]}, {ends: [s2, h3..h4]}]}}",
]  # fmt: skip


@pytest.mark.parametrize("addressing", ["ipv4", "ipv6", "both"])
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_both_directions_of_a_pair_use_the_same_links(topology: str, addressing: str) -> None:
    plan = compiled(topology, f"addressing: {addressing}")
    walk = Walk(plan)
    hosts = [i for i, node in enumerate(plan.nodes) if node.kind == "host"]
    seeds = sorted({node.sysctls.get("net/ipv4/fib_multipath_hash_seed", "") for node in plan.nodes} - {""})
    for share in (0.0, 0.3, 0.6, 0.99):
        shares = {seed: (share + 0.37 * i) % 1 for i, seed in enumerate(seeds)}
        for a in hosts:
            for b in hosts:
                if a != b:
                    path = walk.path(a, b, shares, family=6 if addressing == "both" else 4)
                    back = walk.path(b, a, shares, family=6 if addressing == "both" else 4)
                    assert path == back[::-1]
                    assert len(path) == len(plan.path(a, b).ends)


def test_ecmp_uses_every_spine_and_every_leaf() -> None:
    plan = compiled("{clos: {racks: 4, hosts: 1, spines: 4, leaves: 2, pods: 2}}")
    walk = Walk(plan)
    seeds = sorted({n.sysctls["net/ipv4/fib_multipath_hash_seed"] for n in plan.nodes if n.kind == "switch"})
    assert len(seeds) == 2
    used = Counter(
        name
        for i in range(8)
        for j in range(8)
        for name in walk.path(0, 3, {seeds[0]: i / 8, seeds[1]: j / 8})
        if "spine" in name
    )
    assert len(used) == 2 * 2 * 4  # up and down: every leaf of the pod with every spine
    assert len(set(used.values())) == 1


def test_racks_and_spines_share_their_hash_seed_and_leaves_have_another() -> None:
    plan = compiled("{clos: {racks: 4, hosts: 1, spines: 2, leaves: 2, pods: 2}}")
    seeds = {n.name: n.sysctls.get("net/ipv4/fib_multipath_hash_seed") for n in plan.nodes}
    assert seeds["rack1"] == seeds["rack4"] == seeds["spine1"] == seeds["spine2"]
    assert seeds["leaf1"] == seeds["leaf4"] != seeds["rack1"]
    assert int(seeds["rack1"] or 0) > 0  # 0 makes the kernel choose a random seed


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_addresses_are_unique_and_in_their_switchs_block(topology: str) -> None:
    plan = compiled(topology, "addressing: both")
    addresses = [a for link in plan.links for end in (link.a, link.b) for a in end.addresses]
    assert len(addresses) == len(set(addresses)) == 4 * len(plan.links)
    macs = [end.mac for link in plan.links for end in (link.a, link.b)]
    assert len(macs) == len(set(macs))
    for link in plan.links:
        networks = {str(ipaddress.ip_interface(a).network) for end in (link.a, link.b) for a in end.addresses}
        assert len(networks) == 2  # one /31 and one /127, the same at both ends
    for node in plan.nodes:
        for route in node.routes:
            ipaddress.ip_network(route.to)  # raises unless the prefix is aligned


@st.composite
def networks(draw: st.DrawFn) -> str:
    """A random explicit network: a tree of switches with more links, and hosts with one or two links."""
    switches = draw(st.integers(1, 6))
    links = [f"{{ends: [s{draw(st.integers(1, i))}, s{i + 1}]}}" for i in range(1, switches)]
    for _ in range(draw(st.integers(0, 4)) if switches > 1 else 0):
        a, b = draw(st.lists(st.integers(1, switches), min_size=2, max_size=2, unique=True))
        links.append(f"{{ends: [s{a}, s{b}]}}")
    hosts = draw(st.integers(2, 6))
    for host in range(1, hosts + 1):
        for switch in draw(st.lists(st.integers(1, switches), min_size=1, max_size=2)):
            links.append(f"{{ends: [h{host}, s{switch}]}}")
    if draw(st.booleans()):
        links.append("{ends: [h1, h2]}")
    order = draw(st.permutations(links))
    return f"{{explicit: {{nodes: {{h1..h{hosts}: host, s1..s{switches}: switch}}, links: [{', '.join(order)}]}}}}"


@settings(max_examples=60, deadline=None)
@given(networks())
def test_random_networks_reach_every_host(topology: str) -> None:
    plan = compiled(topology, "addressing: both")
    walk = Walk(plan)
    hosts = [i for i, node in enumerate(plan.nodes) if node.kind == "host"]
    for a in hosts:
        for b in hosts:
            if a != b:
                assert len(walk.path(a, b, {}, family=6)) == len(plan.path(a, b).ends)


def test_hosts_linked_directly() -> None:
    plan = compiled(
        "{explicit: {nodes: {h1..h2: host}, links: [{ends: [h1, h2]}]}}", "hosts: {default: {rto_min: 10 ms}}"
    )
    assert [node.addresses for node in plan.nodes] == [["10.128.0.0"], ["10.128.0.1"]]
    (route,) = plan.nodes[0].routes
    assert (route.to, route.via[0].gateway, route.metrics.plain()) == ("10.128.0.0/31", None, {"rto_min_ms": 10})
    assert len(plan.path(0, 1).ends) == 1


# --- other parts of the plan ---


@cache
def plan_of(path: Path) -> Plan:
    return compile_lab(load_lab(path))


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.parent.name)
def test_plans_are_reproducible_and_round_trip(path: Path) -> None:
    text = plan_of(path).dumps()
    assert compile_lab(load_lab(path)).dumps() == text
    assert Plan.loads(text).dumps() == text
    other = compile_lab(load_lab(path), seed=99)
    assert other.seed == 99
    assert other.dumps() != text


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.parent.name)
def test_indices_of_links_queues_and_nodes_are_consistent(path: Path) -> None:
    plan = plan_of(path)
    for link in plan.links:
        for end in (link.a, link.b):
            queue = plan.queues[end.queue]
            assert (queue.node, queue.interface) == (end.node, end.interface)
            assert queue.name == f"{plan.nodes[end.node].name}:{end.interface}"
            assert queue.role == plan.nodes[end.node].kind
    assert len(plan.queues) == 2 * len(plan.links)


def test_incast_plan() -> None:
    path = next(path for path in LABS if path.parent.name == "incast")
    plan = plan_of(path)
    (incast,) = plan.workloads
    assert isinstance(incast, Flows)
    assert incast.pairs == [(i, 0) for i in range(1, 81)]
    assert (incast.size_bytes, incast.start_ns) == (32_000, 10_000_000)
    assert plan.modules == ["sch_ecn"]
    queue = next(queue for queue in plan.queues if queue.observe.events)
    assert (queue.name, queue.qdisc.plain()["kind"]) == ("s1:eth0", "ecn")
    assert plan.nodes[1].routes[0].metrics.plain() == {"rto_min_ms": 10}
    assert plan.nodes[1].sysctls["net/ipv4/tcp_congestion_control"] == "dctcp"


def test_fairness_plan_has_buffers_for_the_bandwidth_delay_product() -> None:
    path = next(path for path in LABS if path.parent.name == "fairness")
    plan = plan_of(path)
    assert plan.base_rtt_ns(0, 10) // 10**6 == 40
    assert plan.base_rtt_ns(9, 19) // 10**6 == 120
    bdp = plan.path(9, 19).rate_bps * plan.base_rtt_ns(9, 19) // 8_000_000_000
    assert 150_000_000 <= bdp <= 151_000_000
    assert int(plan.nodes[9].sysctls["net/ipv4/tcp_wmem"].split()[2]) > 2 * bdp
    assert plan.memory_bytes > 3 * bdp
    assert plan.epoch_ns > 2_000_000_000 + 9 * plan.base_rtt_ns(9, 19)


@pytest.mark.parametrize(
    "workload, is_bulk",
    [
        ("flows: {pairs: [PAIRS], size: 4 MB}", True),
        ("flows: {pairs: [PAIRS]}", True),
        ("flows: {pairs: [PAIRS], size: 3 MB}", False),
        ("udp: {from: h1, to: h2, rate: 1 Gbit/s, packet: 1400 B}", False),
        ("flows: {pairs: [PAIRS], size: 4 MB, transport: rate}", False),
        ("arrivals: {from: h1, to: h2, interval: 1 ms, size: 4 MB}", True),
        ("arrivals: {from: h1, to: h2, interval: 1 ms, size: 4 MB, limit: 30}", False),
        ("arrivals: {from: h1, to: h2, interval: 1 ms, size: 100 KB}", False),
    ],
)
def test_only_labs_with_large_send_buffers_load_qbulk(tmp_path: Path, workload: str, is_bulk: bool) -> None:
    pairs = ", ".join(["[h1, h2]"] * 34)  # 34 times 4 MB is more than 128 MiB
    controller = "controller: {name: fixed, rate: 1 Mbit/s}" if "transport: rate" in workload else ""
    lab = f"""name: bulk
topology: {{star: {{hosts: 2}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 5 us}}}}
hosts: {{default: {{{controller}}}}}
workload: [{workload.replace("PAIRS", pairs)}]
duration: 1 s
"""
    (tmp_path / "lab.yml").write_text(lab)
    assert ("qbulk" in compile_lab(load_lab(tmp_path / "lab.yml", {})).modules) == is_bulk


def test_host_settings() -> None:
    rest = """
hosts:
  default: {tcp: dctcp, ecn: on, rto_min: 500 us, initial_window: 20 packets, delayed_ack: off, queue: 50 packets}
  h2: {tcp: reno, rto_min: 5 ms, sysctls: {net/ipv4/tcp_sack: 0}, queue: {scheme: codel, target: 1 ms}}
"""
    plan = compiled("{star: {hosts: 2}}", rest)
    first, second = plan.nodes[0], plan.nodes[1]
    assert first.sysctls["net/ipv4/tcp_rto_min_us"] == "500"
    assert first.routes[0].metrics.plain() == {"initcwnd": 20, "quickack": 1}
    assert first.sysctls["net/ipv4/tcp_ecn"] == "1"
    assert second.routes[0].metrics.plain() == {"rto_min_ms": 5, "initcwnd": 20, "quickack": 1}
    assert (second.sysctls["net/ipv4/tcp_sack"], second.sysctls["net/ipv4/tcp_congestion_control"]) == ("0", "reno")
    kinds = [(queue.name, queue.scheme, queue.qdisc.plain()["kind"]) for queue in plan.queues if queue.role == "host"]
    assert kinds == [("h1:eth0", "droptail", "pfifo"), ("h2:eth0", "codel", "qcodel")]
    assert plan.modules == ["sch_qcodel"]


def test_workloads() -> None:
    rest = """
workload:
  - flow: {from: h1, to: h2, count: 2, size: unlimited, stop: 50 ms, tcp: bbr, label: bulk}
  - flows: {from: h1..h2, to: [h3, h4], connect: before}
  - flows: {from: h2..h4, to: h1, size: 1 MB, spread: 1 ms}
  - udp: {from: h1, to: h2, rate: 1 Gbit/s, packet: 1000 B}
  - arrivals: {interval: 100 us, size: {pareto: {mean: 50 KB, shape: 1.2}}, limit: 10}
  - arrivals: {from: h2..h4, to: h1, load: 0.5, size: 100 KB, spacing: fixed}
  - arrivals: {to: [h1, h3], interval: 1 ms, size: {pareto: {mean: 50 KB, shape: 1.2, max: 100 KB}}, together: on}
"""
    plan = compiled("{star: {hosts: 4}}", rest)
    bulk, pairs, many, udp, all_to_all, loaded, together = plan.workloads
    assert isinstance(bulk, Flows) and isinstance(pairs, Flows) and isinstance(many, Flows) and isinstance(udp, Flows)
    assert isinstance(all_to_all, Arrivals) and isinstance(loaded, Arrivals)
    assert (bulk.pairs, bulk.size_bytes, bulk.stop_ns) == ([(0, 1), (0, 1)], None, 50_000_000)
    assert (bulk.congestion_control, bulk.label) == ("bbr", "bulk")
    assert (pairs.pairs, pairs.connect) == ([(0, 2), (1, 3)], "before")
    assert (many.pairs, many.spread_ns) == ([(1, 0), (2, 0), (3, 0)], 1_000_000)
    assert (udp.transport, udp.rate_bps, udp.packet_bytes) == ("udp", 10**9, 1000)
    assert all_to_all.interarrival_ns.plain() == {"exponential": 100_000.0}
    assert all_to_all.size.plain() == {"pareto": {"mean_bytes": 50_000, "shape": 1.2}}
    # Half of the one receiver's 10 Gbit/s, in flows of 100 KB: one each 160 us.
    assert loaded.interarrival_ns.plain() == {"fixed": 160_000}
    assert isinstance(together, Arrivals)
    assert (together.together, together.flows_at_once) == (True, 6)
    assert together.size.plain() == {"pareto": {"mean_bytes": 50_000, "shape": 1.2, "max_bytes": 100_000}}
    assert "together" not in loaded.plain() and loaded.flows_at_once == 1
    assert [workload.port for workload in plan.workloads] == [5001, 5002, 5003, 5004, 5005, 5006, 5007]


@given(shape=st.floats(1.05, 5), bound=st.floats(1.1, 1000))
def test_the_mean_of_a_bounded_pareto_is_the_mean_below_the_bound(shape: float, bound: float) -> None:
    mean, steps = 1_000_000, 2000
    minimum = mean * (shape - 1) / shape
    maximum = int(bound * minimum) + 1
    below = 1 - (minimum / maximum) ** shape
    drawn = [minimum * (1 - below * (step + 0.5) / steps) ** (-1 / shape) for step in range(steps)]
    found = Sizes.model_validate({"pareto": {"mean": f"{mean} B", "shape": shape, "max": f"{maximum} B"}}).mean_bytes()
    assert found == pytest.approx(sum(drawn) / steps, rel=0.02)


def test_a_congestion_control_that_is_a_module_is_loaded() -> None:
    hosts = "hosts: {h1: {tcp: dctcp1}}"
    flow = "workload: [{flow: {from: h1, to: h2, tcp: dctcp1}}]"
    for rest in (hosts, flow):
        assert compiled("{star: {hosts: 2}}", rest).modules == ["tcp_dctcp1"]
    assert compiled("{star: {hosts: 2}}").modules == []


RATE = """
hosts:
  default: {controller: {name: fixed, rate: 1 Gbit/s, signal: sum_squ, unit: time, bits: 4}, reflect: 2.5 %}
  h2: {controller: {forward: on}}
workload:
  - flow: {from: h1, to: h2, connect: before, tcp: bbr}
  - arrivals: {interval: 100 us, size: 1 KB, transport: rate, family: 6}
addressing: both
"""


def test_rates() -> None:
    plan = compiled(
        "{star: {hosts: 3}}",
        RATE,
        links="{default: {rate: 10 Gbit/s}, h3-s1: {mtu: 9000 B}}",
        overrides={"workload[0].flow.transport": "rate"},
    )
    assert plan.modules == ["qrate"]
    first, second, switch = plan.nodes[0], plan.nodes[1], plan.nodes[3]
    assert first.controller == Controller(
        name="fixed", parameters="0c00010000ca9a3b00000000", signal="sum_squ", unit="time", bits=4, forward=False
    )
    assert second.controller == first.controller.model_copy(update={"forward": True})
    assert (first.reflect, switch.controller, switch.reflect) == (0.025, None, 0.0)
    flow, arrivals = plan.workloads
    assert isinstance(flow, Flows) and isinstance(arrivals, Arrivals)
    # The room in the smallest MTU behind IPv4 or IPv6, UDP and the congestion header.
    assert (flow.transport, flow.port, flow.payload_bytes) == ("rate", 6190, 1500 - 20 - 8 - 88)
    assert (arrivals.transport, arrivals.port, arrivals.payload_bytes) == ("rate", 6190, 1500 - 40 - 8 - 88)
    assert (flow.connect, flow.congestion_control) == ("at start", None)
    assert summary(plan)["nodes"][1]["controller"] == "fixed by sum_squ of time in 4 bits, forward; rate 1 Gbit/s"


def test_controllers_that_no_workload_uses_are_in_no_plan() -> None:
    plan = compiled("{star: {hosts: 3}}", RATE, overrides={"workload[1].arrivals.transport": "tcp"})
    assert plan.modules == [] and "reflect" not in plan.dumps() and "controller" not in plan.dumps()
    assert "controller" not in summary(plan)["nodes"][0]


def test_header_size_and_port_equal_the_kernels() -> None:
    header = (Path(__file__).parents[3] / "kernel/include/uapi/qbed/signal.h").read_text()
    assert f"#define QSIGNAL_HEADER_BYTES {CONGESTION_BYTES}\n" in header
    assert f"#define QSIGNAL_PORT {SIGNAL_PORT}\t" in header


def test_a_distribution_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "web.txt").write_text("# bytes probability\n1000 0.5\n10000 1\n")
    text = (
        "name: x\ntopology: {star: {hosts: 2}}\nlinks: {default: {rate: 1 Gbit/s}}\nduration: 1 s\n"
        "workload: [{arrivals: {load: 0.1, size: {cdf: web.txt}}}]\n"
    )
    plan = compile_lab(lab_from_source(parse(text, folder=tmp_path)))
    (workload,) = plan.workloads
    assert isinstance(workload, Arrivals)
    assert workload.size.plain() == {"cdf": [[1000, 0.5], [10000, 1.0]]}


@pytest.mark.parametrize(
    ("name", "mean_bytes", "below_10_kb"), [("web-search", 1_711_250, 0.15), ("data-mining", 12_658_198, 0.8)]
)
def test_a_published_distribution(name: str, mean_bytes: int, below_10_kb: float) -> None:
    plan = compiled("{star: {hosts: 2}}", f"workload: [{{arrivals: {{load: 0.5, size: {{published: {name}}}}}}}]")
    (workload,) = plan.workloads
    assert isinstance(workload, Arrivals)
    assert isinstance(workload.size, Cdf) and isinstance(workload.interarrival_ns, Exponential)
    points = workload.size.cdf
    assert points[0][0] >= 1 and points[-1][1] == 1 and all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(points))
    assert dict(points)[10_000] == below_10_kb
    # Both hosts send half of what their links carry.
    assert workload.interarrival_ns.exponential == pytest.approx(mean_bytes * 8e9 / 10e9, rel=1e-4)


def replayed(folder: Path, text: str) -> Plan:
    (folder / "flows.csv").write_text(text)
    lab = (
        "name: x\ntopology: {dumbbell: {left: 1, right: 1}}\nlinks: {default: {rate: 1 Gbit/s}}\nduration: 1 s\n"
        "workload: [{replay: {file: flows.csv}}]\n"
    )
    return compile_lab(lab_from_source(parse(lab, "lab.yml", folder=folder)))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(0, LARGEST), st.booleans(), st.integers(1, LARGEST)), min_size=1, max_size=20))
def test_replayed_flows_equal_the_rows_of_the_file(rows: list[tuple[int, bool, int]]) -> None:
    with TemporaryDirectory() as folder:
        lines = [f"{size},h{1 + back},h{2 - back},{start}" for start, back, size in rows]
        plan = replayed(Path(folder), "\n".join(["size_bytes,src,dst,start_ns", *lines]) + "\n")
    (workload,) = plan.workloads
    assert isinstance(workload, Flows)
    hosts = [plan.nodes.index(next(node for node in plan.nodes if node.name == name)) for name in ("h1", "h2")]
    assert workload.pairs == [(hosts[back], hosts[1 - back]) for _, back, _ in rows]
    assert workload.each == [(start, size) for start, _, size in rows]
    assert Plan.loads(plan.dumps()) == plan
    assert '"each"' not in compiled("{star: {hosts: 2}}", "workload: [{flow: {from: h1, to: h2}}]").dumps()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "`flows.csv`, line 1: expected the columns `start_ns,src,dst,size_bytes`, got ``"),
        ("start,src,dst,size_bytes\n", "line 1: expected the columns"),
        ("start_ns,src,dst,size_bytes\n", "`flows.csv` has no flows"),
        ("start_ns,src,dst,size_bytes\n1,h1,h2\n", "`flows.csv`, line 2: expected 4 values, got `1,h1,h2`"),
        (
            "start_ns,src,dst,size_bytes\n1,h1,h2,5\n1.5,h1,h2,5\n",
            "line 3: `start_ns`: expected a whole number from 0 to",
        ),
        ("start_ns,src,dst,size_bytes\n1,h1,h2,0\n", "line 2: `size_bytes`: expected a whole number from 1 to"),
        ("start_ns,src,dst,size_bytes\n1,h1,h7,5\n", "file: line 2: no host is called `h7`; expected one of"),
        ("start_ns,src,dst,size_bytes\n1,h1,s1,5\n", "file: line 2: `s1` is a switch"),
        ("start_ns,src,dst,size_bytes\n1,h1,h1,5\n", "`h1` cannot send to itself"),
    ],
)
def test_errors_in_a_file_of_flows_have_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LabError, match=re.escape(message)):
        replayed(tmp_path, text)


def test_observation_and_captures() -> None:
    rest = """
observe: {queues: 100 us, ports: {s1>h2: every packet}, flows: 1 ms}
capture: [h1>s1, {end: s1>*, snaplen: 64 B}]
"""
    plan = compiled("{star: {hosts: 2}}", rest)
    modes = {queue.name: (queue.observe.interval_ns, queue.observe.events) for queue in plan.queues}
    assert modes == {"h1:eth0": (0, False), "s1:eth0": (100_000, False), "h2:eth0": (0, False), "s1:eth1": (0, True)}
    assert plan.flow_interval_ns == 1_000_000
    assert [(c.name, c.snaplen) for c in plan.captures] == [("h1:eth0", 128), ("s1:eth0", 64), ("s1:eth1", 64)]


def test_a_large_clos_network_has_few_routes() -> None:
    """1,000 hosts in 40 racks under one core switch: a host has one route, a switch one for each other rack."""
    plan = compiled("{clos: {racks: 40, hosts: 25, spines: 1}}", "workload: [{arrivals: {load: 0.3, size: 100 KB}}]")
    routes = Counter((node.name.rstrip("0123456789"), len(node.routes)) for node in plan.nodes)
    assert routes == {("h", 1): 1000, ("rack", 39): 40, ("spine", 40): 1}
    assert len(plan.queues) == 2 * 1040
    assert len({str(queue.qdisc) for queue in plan.queues}) == 1
