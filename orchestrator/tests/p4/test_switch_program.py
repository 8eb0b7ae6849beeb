# SPDX-License-Identifier: Apache-2.0
"""P4 switches: programs, table entries and error messages."""

import ipaddress
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed.base.errors import LabError
from qbed.base.locations import schemes_folder
from qbed.config.source import parse
from qbed.config.units import Amount
from qbed.network.load import lab_from_source, load_lab
from qbed.network.resolve import ResolvedLab
from qbed.p4.entry import Masked, Port, Prefix, Range
from qbed.p4.scheme_entries import port_entries, recirculation_port, switch_entries
from qbed.p4.sources import scheme_program, with_programs
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.pipeline import Pipeline
from qbed.plan.queue import KernelQdisc
from qbed.report.show_plan import summary
from qbed.schemes.declaration import registry
from qbed.substrates.containers.folder import topology
from qbed.substrates.containers.placement import Machine, place
from qbed.substrates.merge import merged_counters
from qbed.substrates.toolchain import find_toolchain, toolchain_in
from qbed.substrates.virtual.provision import missing_parts

LAB = """\
name: small
topology: {dumbbell: {left: 2, right: 2}}
links:
  default: {rate: 10 Gbit/s, delay: 5 us}
switches:
  default: {scheme: ecn, buffer: 100 packets, threshold: 20 packets}
hosts:
  default: {tcp: dctcp}
workload:
  - flow: {from: h1, to: h3, size: 1 MB}
duration: 100 ms
"""
SWITCHES = "  default: {scheme: ecn, buffer: 100 packets, threshold: 20 packets}\n"


def load(text: str = LAB, overrides: dict[str, Any] | None = None) -> ResolvedLab:
    return lab_from_source(parse(text, file="lab.yml"), overrides)


def compiled(overrides: dict[str, Any], text: str = LAB) -> Plan:
    return compile_lab(load(text, overrides))


def pipeline(plan: Plan, name: str) -> Pipeline:
    found = plan.nodes[plan.node_index(name)].pipeline
    assert found is not None
    return found


def messages(text: str, overrides: dict[str, Any] | None = None) -> list[str]:
    with pytest.raises(LabError) as error:
        load(text, overrides)
    return error.value.messages


# --- which program runs where ---------------------------------------------------------------------------------------


def test_one_setting_turns_a_scheme_into_its_program() -> None:
    linux, bmv2 = (compiled({"switches.default.kind": kind}) for kind in ("linux", "bmv2"))
    assert linux.dumps() == compile_lab(load()).dumps()
    assert linux.modules == ["sch_ecn"] and bmv2.modules == ["qp4"]
    assert [program.name for program in bmv2.p4] == ["ecn"] and '"p4"' not in linux.dumps()
    for before, now in zip(linux.queues, bmv2.queues, strict=True):
        assert (now.name, now.scheme, now.observe) == (before.name, before.scheme, before.observe)
        if now.role == "switch":
            assert now.qdisc.plain() == {"kind": "pfifo", "options": "64000000"}
    assert [node.routes for node in bmv2.nodes if node.kind == "switch"] == [[], []]
    assert Plan.loads(bmv2.dumps()) == bmv2


def test_linux_and_p4_stand_side_by_side() -> None:
    plan = compiled({"switches.s2": {"program": "codel", "target": "1 ms"}})
    assert plan.modules == ["qp4", "sch_ecn"]
    assert plan.nodes[plan.node_index("s1")].pipeline is None
    assert pipeline(plan, "s2").program == "codel"
    assert {q.scheme for q in plan.queues if q.name.startswith("s2:")} == {"codel"}


def test_each_port_has_its_parameters() -> None:
    plan = compiled({"switches.default.kind": "bmv2", "switches.s1>h2.threshold": "7 packets"})
    entries = [entry for entry in pipeline(plan, "s1").entries if entry.table == "marking"]
    assert pipeline(plan, "s1").ports == ["eth0", "eth1", "eth2"]
    assert [(entry.key, entry.arguments["packets"]) for entry in entries] == [
        ({"port": 0}, 20),
        ({"port": 1}, 7),
        ({"port": 2}, 20),
    ]
    assert next(row for row in summary(plan)["nodes"] if row["name"] == "s1")["program"] == "ecn"
    assert summary(plan)["programs"] == [
        {"switches": "s1", "program": "ecn", "entries": "mark_above(packets 20); mark_above(packets 7)"},
        {"switches": "s2", "program": "ecn", "entries": "mark_above(packets 20)"},
    ]


def test_qcn_and_abq_have_a_port_without_a_link() -> None:
    plan = compiled({"switches.default.kind": "bmv2", "switches.default.scheme": "qcn"})
    (port,) = pipeline(plan, "s1").recirculation
    assert (port.port, port.interface, port.rate_bps) == (510, "recirc510", None)
    assert port.qdisc.plain() == {"kind": "pfifo", "options": "e8030000"}
    assert [(s.session, s.ports) for s in pipeline(plan, "s1").sessions] == [(1, [510])]
    assert Plan.loads(plan.dumps()) == plan

    overrides = {"switches.s2.recirculation": {"port": 7, "rate": "40 Gbit/s", "buffer": "100 packets"}}
    plan = compiled({"switches.default.kind": "bmv2", "switches.default.scheme": "abq"} | overrides)
    assert [pipeline(plan, name).recirculation[0].rate_bps for name in ("s1", "s2")] == [10 * 10**9, 40 * 10**9]
    assert [pipeline(plan, name).recirculation[0].port for name in ("s1", "s2")] == [510, 7]
    assert pipeline(plan, "s1").sessions == []
    # a struct tc_tbf_qopt: Ethernet with 24 bytes more and 84 at least, bytes a second, and all three ports' 1000 held
    spec = struct.pack("=BBHhHI", 0, 1, 24, 0, 84, 1_250_000_000) + bytes(12) + struct.pack("=III", 3000 * 1514, 0, 0)
    burst = struct.pack("=HHI", 8, 6, 2 * (1514 + 24))
    assert pipeline(plan, "s1").recirculation[0].qdisc.plain() == {
        "kind": "tbf",
        "options": (struct.pack("=HH", 40, 1) + spec + burst).hex(),
    }
    shaper = pipeline(plan, "s2").recirculation[0].qdisc
    assert isinstance(shaper, KernelQdisc) and "0400" in shaper.options  # 5 GB/s is beyond 32 bits: TCA_TBF_RATE64
    entries = [entry for entry in pipeline(plan, "s2").entries if entry.table == "abq_recirculation"]
    assert [(entry.key, entry.arguments) for entry in entries] == [(None, {"port": 7, "limit": 1000})]
    shown = next(row for row in summary(plan)["programs"] if row["switches"] == "s2")
    assert shown["entries"].endswith("port 7 without a link, at 40 Gbit/s")


# Each row: what a lab says of its switches, and the message.
REFUSED = [
    ("default: {program: stamq}", "no scheme `stamq` has a program in P4; expected one of `abq`, `codel`, `droptail`, `ecn`, `qcn`, `rpm`, `stamp`, or a path: `./mine.p4`"),
    ("default: {kind: bmv2, scheme: qcn, recirculation: {port: 2}}", "switches.default.recirculation.port: the switch's 3 links have the ports 0 to 2: expected another than 2"),
    ("default: {kind: bmv2, scheme: qcn, recirculation: {port: 511}}", "switches.default.recirculation.port: expected at most 510"),
    ("s1>h1: {scheme: qcn, recirculation: {port: 9}}", "switches.s1>h1.recirculation: applies to the switch, not to a port: expected it under `s1`"),
    ("default: {kind: bmv2, scheme: abq, above: codel}", "switches.default.above: `above`: in P4 it is `ecn` or `droptail`, got `codel`"),
    ("default: {kind: bmv2, scheme: abq, release: window}", "switches.default.release: `release`: in P4 it is `all` or `count`, got `window`"),
    ("default: {kind: bmv2, scheme: abq, preset: published, threshold: 9 packets}", "in P4 it is as in the article, which is the default: got `peak`"),
    ("default: {kind: bmv2, scheme: abq, threshold: 30 KB}", "`threshold`: in P4 a queue's length is a number of packets"),
    ("default: {kind: bmv2, scheme: abq}\n  s1>h1: {hold_limit: 3 packets}", "in P4 a switch has the same limit of what is held for all its ports"),
    ("default: {kind: bmv2, scheme: qcn, min_sampling: 50 %}", "switches.default.min_sampling: `min_sampling`: it is more than `max_sampling`"),
    ("default: {kind: bmw2}", "expected `linux` or `bmv2`, got `bmw2`"),
    ("default: {kind: bmv2, qdisc: fq_codel}", "a switch that runs a program has plain queues: expected `buffer`"),
    ("s1>h1: {engine: p4switch}", "switches.s1>h1.engine: applies to the switch, not to a port: expected it under `s1`"),
    ("default: {kind: bmv2, engine: bmv2}", "expected `p4switch` or `simple_switch_grpc`, got `bmv2`"),
    ("s1>h1: {program: stamp}", "lab.yml:6:20: switches.s1>h1.program: applies to the switch, not to a port: expected it under `s1`"),
    ("default: {kind: bmv2, scheme: ecn}\n  s1>h1: {scheme: codel}", "switches.s1>h1.scheme: the switch runs one program, that of `ecn`; its ports cannot have `codel`"),
    ("default: {program: ecn, threshold: 30 KB}", "switches.default.threshold: `threshold`: in P4 a queue's length is a number of packets: expected such as `20 packets`, got `30 KB`"),
    ("default: {program: rpm, registers: 131072}", "switches.default.registers: `registers`: in P4 there are at most 65536 (a flow's is found by CRC-16), got `131072`"),
    ("default: {program: rpm}\n  s1>h1: {registers: 1024}", "in P4 a switch has the same registers for all its ports"),
    ("default: {program: ./mine.p4}", "switches.default.program: there is no mine.json, the program's JSON: `p4c-bm2-ss -o mine.json"),
    ("default: {program: ../mine.p4}", "`../mine.p4` leads out of the folder"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_refusals(given: str, message: str) -> None:
    found = messages(LAB.replace(SWITCHES, f"  {given}\n"))
    assert any(message in found_message for found_message in found), found


FRR = """\
name: mixed
topology: {clos: {racks: 3, hosts: 1, spines: 2}}
links: {default: {rate: 10 Gbit/s}}
switches: {default: {buffer: 50 packets}, rack1: {program: droptail}}
routing: frr
duration: 1 ms
"""


@pytest.mark.parametrize("kind", ["rack1", "spine1"])
def test_frr_finds_what_does_not_lead_through_a_switch_in_p4(kind: str) -> None:
    plan = compile_lab(load(FRR.replace("rack1", kind)))
    static = compile_lab(load(FRR.replace("rack1", kind).replace("routing: frr\n", "")))
    nodes = {node.name: (node, before) for node, before in zip(plan.nodes, static.nodes, strict=True)}
    for name, (node, before) in nodes.items():
        if node.kind == "host":
            continue
        if name == kind:
            assert node == before and not node.programs
            continue
        assert [program.argv[0] for program in node.programs] == ["mgmtd", "zebra", "bgpd"]
        given = {route.to: len(route.via) for route in node.routes}
        learnt = {expected.to: expected.hops for expected in node.expects}
        assert given | learnt == {r.to: len(r.via) for r in before.routes} and not given.keys() & learnt.keys()
        # a rack's way to racks is by both spines; that of a spine to a rack is one link
        through = {"rack1": 1, "spine1": 2 if name.startswith("rack") else 0}[kind]
        assert len(given) == through
        sessions = node.files["/run/frr/bgpd.conf"].count("interface v6only")
        assert sessions == {"rack1": {"r": 2, "s": 2}, "spine1": {"r": 1, "s": 3}}[kind][name[0]]
    everywhere = FRR.replace("rack1: {program", "rack*: {program")
    with pytest.raises(LabError, match=r"routing: all switches are in P4.*: not used; expected `static`"):
        load(everywhere.replace("}}\nrouting", "}, spine*: {program: ecn}}\nrouting"))


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        ({"switches.default.program": "codel"}, "scheme: the switch runs the program `codel`: not used"),
        ({"switches.default.kind": "bmv2", "links.s1-s2.mtu": "9000 B"}, "have different MTUs, but a switch in P4 tells no sender"),
        (
            {"switches.default.kind": "bmv2", "events": [{"at": "1 ms", "link": "s1-s2", "state": "down"}]},
            "a switch in P4 goes on sending there",
        ),
    ],
)  # fmt: skip
def test_warnings(overrides: dict[str, Any], warning: str) -> None:
    found = load(LAB, overrides).warnings
    assert any(warning in text for text in found), found


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"switches.default.program": "stamp", "switches.default.kind": "linux"}, "switches.default.program: the switch runs no program in P4 (`kind: bmv2`): not used; expected it beside `kind: bmv2`"),
        ({"switches.default.recirculation": {"rate": "1 Gbit/s"}}, "switches.default.recirculation: the switch runs no program in P4 (`kind: bmv2`): not used; expected it beside `kind: bmv2`"),
        (
            {"switches.default.kind": "bmv2", "switches.default.recirculation": {"rate": "1 Gbit/s"}},
            "switches.default.recirculation: the program of `ecn` does not recirculate: `recirculation` is not used; expected none",
        ),
        ({"switches.default.program": "codel", "switches.default.scheme": "ecn"}, "switches.default.scheme: the switch runs the program `codel`: not used; expected `program` alone"),
    ],
)  # fmt: skip
def test_settings_that_no_program_takes_are_refused(overrides: dict[str, Any], error: str) -> None:
    with pytest.raises(LabError) as caught:
        load(LAB, overrides)
    assert any(message.endswith(f": {error}") for message in caught.value.messages), caught.value.messages


def test_a_switch_in_p4_is_in_containers_on_the_labs_kernel_as_any_switch(tmp_path: Path) -> None:
    plan = compiled({"switches.s2.kind": "bmv2"})
    place_of = place(plan, Machine(tmp_path))
    assert not {plan.node_index("s1"), plan.node_index("s2")} & set(place_of.host_kernel)
    made = topology(plan, {"host": "a", "linux-switch": "b"}, plan.lab)["topology"]["nodes"]
    assert made["s1"]["image"] == made["s2"]["image"] == "b"


def test_a_switch_of_bmv2_is_on_the_machines_kernel_and_its_neighbours_are_not(tmp_path: Path) -> None:
    plan = compiled({"switches.s1": {"kind": "bmv2", "engine": "simple_switch_grpc"}})
    assert pipeline(plan, "s1").engine == "simple_switch_grpc" and plan.p4[0].p4info
    assert Plan.loads(plan.dumps()) == plan
    found = place(plan, Machine(tmp_path), 1)
    assert found.host_kernel == (plan.node_index("s1"),)  # this machine's kernel has no dctcp
    assert "not dilated" in place(plan, Machine(tmp_path), 5).warnings[0]
    made = topology(plan, {"host": "a", "linux-switch": "b", "bmv2": "c"}, plan.lab)["topology"]["nodes"]
    beside = made["s1_bmv2"]
    assert (beside["image"], beside["network-mode"], beside["binds"]) == ("c", "container:s1", made["s1"]["binds"])
    assert not {name for name in made if name.endswith("_bmv2")} - {"s1_bmv2"}
    both = compiled({"switches.default.kind": "bmv2", "switches.default.engine": "simple_switch_grpc"})
    with pytest.raises(LabError, match=r"`s1-s2` joins two switches of BMv2, both on.*expected `engine: p4switch` for"):
        place(both, Machine(tmp_path))
    with pytest.raises(LabError, match=r"joins a host and a switch of BMv2.*expected `kernel: qbed` for the host"):
        place(compiled({"switches.s1.engine": "simple_switch_grpc", "switches.s1.kind": "bmv2",
                        "hosts.default": {"tcp": "cubic", "kernel": "host"}}), machine_with_cubic(tmp_path))  # fmt: skip


def machine_with_cubic(folder: Path) -> Machine:
    (folder / "net/ipv4").mkdir(parents=True)
    (folder / "net/ipv4/tcp_available_congestion_control").write_text("cubic\n")
    return Machine(folder)


def test_counters_of_switches_are_gathered_from_the_nodes_that_are_them() -> None:
    plan = compiled({"switches.default.kind": "bmv2"})
    parts: list[dict[str, Any]] = [
        {"links": [{"a": {}, "b": {}} for _ in plan.links], "queues": [{}] * len(plan.queues), "nodes": [{}] * 6}
        for _ in plan.nodes
    ]
    for name in ("s1", "s2"):
        parts[plan.node_index(name)]["switches"] = {name: {"shell": {"received": len(name)}}}
    merged = merged_counters(plan, [*parts[:-1], {}], range(len(parts)))  # the last node has left none
    assert set(merged["switches"]) == {node.name for node in plan.nodes[:-1] if node.pipeline}


# --- user-supplied programs -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lab.yml").write_text(LAB.replace(SWITCHES, "  default: {program: ./mine.p4, buffer: 50 packets}\n"))
    for suffix in ("json", "p4info.txtpb"):
        shutil.copy(schemes_folder() / "ecn" / "p4" / f"ecn.{suffix}", tmp_path / f"mine.{suffix}")
    return tmp_path


def test_a_program_beside_the_lab(folder: Path) -> None:
    plan = compile_lab(load_lab(folder))
    assert [program.name for program in plan.p4] == ["mine"]
    assert json.loads(plan.p4[0].bmv2) == json.loads((folder / "mine.json").read_text())
    assert {entry.table for entry in pipeline(plan, "s1").entries} == {"next_hops", "ipv4_routes"}
    assert {queue.scheme for queue in plan.queues} == {"droptail"}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "mine.p4info.txtpb").unlink(), "mine.p4info.txtpb, the P4Info that p4c writes with mine.json"),
        (lambda f: (f / "mine.json").write_text("{"), "mine.json is not BMv2's JSON"),
        (lambda f: (f / "mine.json").write_text("[" * 100_000), "mine.json is not BMv2's JSON"),
        (lambda f: (f / "mine.json").write_bytes(b"\xff"), "mine.json: cannot read it: not UTF-8 text"),
        (lambda f: shutil.copy(schemes_folder() / "rpm/p4/rpm.p4info.txtpb", f / "mine.p4info.txtpb"),
         "mine.p4info.txtpb has a table `rpm` that"),
        (lambda f: rewrite(f / "mine.json", '"version" : [', '"version" : [1'), "is not BMv2's JSON"),
    ],
)  # fmt: skip
def test_what_is_beside_the_lab_must_fit(folder: Path, spoil: Any, message: str) -> None:
    spoil(folder)
    with pytest.raises(LabError) as error:
        load_lab(folder)
    assert message in str(error.value)


def rewrite(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new) if old in path.read_text() else "{}")


def test_a_program_that_only_half_has_the_forwarding_is_refused(folder: Path) -> None:
    form = json.loads((folder / "mine.json").read_text())
    next(table for table in form["pipelines"][0]["tables"] if table["name"] == "next_hops")["name"] = "hops"
    (folder / "mine.json").write_text(json.dumps(form))
    info = folder / "mine.p4info.txtpb"
    info.write_text(info.read_text().replace('name: "next_hops"', 'name: "hops"'))
    with pytest.raises(LabError, match="the program has a table `ipv4_routes` but no `next_hops`"):
        load_lab(folder)


# --- table entries ---------------------------------------------------------------------------------------------------

TOPOLOGIES = [
    "{star: {hosts: 5}}",
    "{parking-lot: {switches: 4, hosts: 2}}",
    "{clos: {racks: 4, hosts: 2, spines: 3}}",
    "{clos: {racks: 6, hosts: 2, spines: 3, leaves: 2, pods: 3}}",
    "{explicit: {nodes: {h1..h4: host, s1..s2: switch}, links: [{ends: [h1..h2, s1]}, {ends: [s1, s2]}, "
    "{ends: [s1, s2]}, {ends: [s2, h3..h4]}]}}",
]


class Walk:
    """Follows a packet through the entries, as p4/forwarding.p4 looks them up."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.peers: dict[tuple[int, str], tuple[int, str, str, str]] = {}
        for link in plan.links:
            for near, peer in ((link.a, link.b), (link.b, link.a)):
                self.peers[near.node, near.interface] = (peer.node, link.name, near.mac, peer.mac)

    def way(self, node: int, address: Any, share: float) -> str:
        """The interface by which a switch sends; `share` is the hash, from 0 to 1."""
        found = self.plan.nodes[node].pipeline
        assert found is not None
        routes = [e for e in found.entries if e.table == f"ipv{address.version}_routes" and e.key is not None]
        matches = {e.key["destination"]: e.arguments for e in routes if e.key is not None}
        networks = {
            ipaddress.ip_network((match.value.to_bytes(address.max_prefixlen // 8, "big"), match.prefix)): arguments
            for match, arguments in matches.items()
            if isinstance(match, Prefix)
        }
        assert len(networks) == len(matches) == len(routes)
        route = networks[
            max((network for network in networks if address in network), key=lambda network: network.prefixlen)
        ]
        number = route["first"] + int(route["count"] * share)
        (hop,) = [e for e in found.entries if e.table == "next_hops" and e.key == {"hop": number}]
        interface = found.ports[hop.arguments["port"]]
        macs = [hop.arguments[name].to_bytes(6, "big").hex(":") for name in ("source", "destination")]
        assert tuple(macs) == self.peers[node, interface][2:]
        return interface

    def path(self, source: int, target: int, family: int, shares: tuple[float, float]) -> list[str]:
        address = next(a for a in map(ipaddress.ip_address, self.plan.nodes[target].addresses) if a.version == family)
        node, names = source, list[str]()
        while node != target:
            assert len(names) < 20, "a loop"
            interface = (
                "eth0" if node == source else self.way(node, address, shares[self.plan.routing.levels[node] % 2])
            )
            node, name = self.peers[node, interface][:2]
            names.append(name)
        return names


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_pair_is_reached_by_the_same_links_both_ways(topology: str) -> None:
    text = f"name: x\ntopology: {topology}\nlinks: {{default: {{rate: 10 Gbit/s}}}}\naddressing: both\n"
    plan = compile_lab(load(text + "switches: {default: {program: droptail}}\nduration: 1 ms\n"))
    linux = compile_lab(load(text + "duration: 1 ms\n"))
    walk = Walk(plan)
    hosts = [i for i, node in enumerate(plan.nodes) if node.kind == "host"]
    for shares in ((0.0, 0.99), (0.3, 0.6), (0.99, 0.0)):
        for a in hosts:
            for b in (host for host in hosts if host != a):
                for family in (4, 6):
                    forward, back = walk.path(a, b, family, shares), walk.path(b, a, family, shares)
                    assert forward == back[::-1] and len(forward) == len(plan.path(a, b).ends)
    assert plan.one_path == linux.one_path
    shifts = {
        (plan.routing.levels[i] % 2, entry.arguments["shift_by"])
        for i, node in enumerate(plan.nodes)
        if node.pipeline is not None
        for entry in node.pipeline.entries
        if entry.action == "route"
    }
    assert shifts <= {(0, 0), (1, 16)}


@pytest.mark.parametrize("name", with_programs())
def test_entries_of_a_scheme_match_its_program(name: str) -> None:
    program, form = scheme_program(name), json.loads(scheme_program(name).text)
    widths = {
        (action["name"], parameter["name"]): parameter["bitwidth"]
        for action in form["actions"]
        for parameter in action["runtime_data"]
    }
    defaults = registry()[name].defaults()
    recirculation = recirculation_port(name, [defaults], 10**12)
    entries = [*switch_entries(name, [defaults], recirculation), *port_entries(name, Port(510, 10**12, 9014), defaults)]
    tables = {t for t in program.tables if not t.startswith("tbl_")} - {
        "ipv4_routes",
        "ipv6_routes",
        "next_hops",
        "bins",
    }
    assert {entry.table for entry in entries} == tables
    for entry in entries:
        table = program.tables[entry.table]
        assert tuple(entry.arguments) == table.actions[entry.action]
        assert tuple(entry.key or ()) == table.keys
        for parameter, value in entry.arguments.items():
            assert 0 <= int(value) < 1 << widths[entry.action, parameter], (parameter, value)


@settings(max_examples=300)
@given(
    buffer=st.tuples(st.integers(1, 10_000_000), st.sampled_from(("bytes", "packets"))),
    rate=st.integers(1, 10**12),
    frame=st.integers(64, 65549),
)
def test_stamps_full_buffer_is_the_kernels(buffer: tuple[int, Any], rate: int, frame: int) -> None:
    """stamp_vars_set of schemes/stamp/kernel/stamp_algorithm.h, and inverses by which the program divides exactly."""
    amount, known = Amount(*buffer), rate // 1_000_000 * 1_000_000
    values = registry()["stamp"].defaults() | {"buffer": amount}
    (entry,) = port_entries("stamp", Port(0, rate, frame), values)
    numbers = {name: int(value) for name, value in entry.arguments.items()}
    max_u32 = 2**32 - 1
    packets = amount.value if amount.unit == "packets" else max(1, amount.value // frame)
    size = amount.value if amount.unit == "bytes" else amount.value * frame
    time = min(size, 2**31) * 8 * 10**9 // known if known else 0
    assert numbers["full_packets"] == packets and numbers["full_bytes"] == min(size, max_u32)
    assert numbers["full_ns"] == (time if time <= max_u32 else 0)
    for unit in ("packets", "bytes", "ns"):
        full, inverse = numbers[f"full_{unit}"], numbers[f"inverse_{unit}"]
        assert (full == 0) == (inverse == 0)
        for length, bits in ((full // 3, 4), (max(full - 1, 0), 12)):
            if full >> bits:
                found = length * inverse >> (64 - bits)
                found += full * (found + 1) <= length << bits
                assert found == (length << bits) // full


ASKING = LAB.replace("{tcp: dctcp}", "{controller: {name: timely, signal: SIGNAL, unit: UNIT, bits: BITS}}")


def stands_for(values: dict[str, Any], full: int, bits: int, length: int) -> int:
    """stamp_quantized of schemes/stamp/kernel/stamp_algorithm.h, bin by bin."""

    def edge(step: int) -> int:
        if step == 1 << bits:
            return full
        if values["fine_at_full"]:
            return full - full * ((1 << bits) - step) ** 2 // (1 << 2 * bits)
        return (full * step**2 + (1 << 2 * bits) - 1) // (1 << 2 * bits)

    length = min(length, full)
    number = max(step for step in range(1 << bits) if edge(step) <= length)
    last = full if number + 1 == 1 << bits else edge(number + 1) - 1
    return edge(number) + (last - edge(number)) // 2 if values["middle"] else edge(number)


@settings(max_examples=60, deadline=None)
@given(full=st.integers(1, 300), bits=st.integers(1, 9), fine=st.booleans(), middle=st.booleans())
def test_unequal_bins_are_the_kernels(full: int, bits: int, fine: bool, middle: bool) -> None:
    values = registry()["stamp"].defaults()
    values |= {"buffer": Amount(full, "packets"), "exponent": 2, "fine_at_full": fine, "middle": middle}
    entries = [e for e in port_entries("stamp", Port(3, 10**9, 1514), values, {("packets", bits)}) if e.table == "bins"]
    seen = []
    for entry in entries:
        assert entry.key is not None and entry.priority == 1
        lengths = entry.key["length"]
        assert isinstance(lengths, Range)
        assert {name: entry.key[name] for name in ("port", "unit", "bits")} == {"port": 3, "unit": 0, "bits": bits}
        for length in range(lengths.low, min(lengths.high, full + 3) + 1):
            seen.append(length)
            assert entry.arguments["value"] == stands_for(values, full, bits, length), length
    assert seen == list(range(full + 4))


def test_bins_have_entries_for_the_units_that_hosts_ask_for() -> None:
    text = ASKING.replace("SIGNAL", "max").replace("UNIT", "packets").replace("BITS", "4")
    stamp = {"switches.default.kind": "bmv2", "switches.default.scheme": "stamp", "switches.default.exponent": 2}
    plan = compiled(stamp, text)
    bins = [entry for entry in pipeline(plan, "s1").entries if entry.table == "bins"]
    assert len(bins) == 3 * 16
    assert {tuple(entry.key or ()) for entry in bins} == {("port", "unit", "bits", "length")}
    (message,) = messages(text.replace("packets, bits: 4", "bytes, bits: 13"), stamp)
    assert (
        "exponent: `exponent`: in P4 there are at most 4096 unequal bins, but hosts request 13 bits of bytes" in message
    )
    (message,) = messages(text.replace("packets, bits: 4", "bytes, bits: 12"), stamp)
    assert "its ports need 12207 entries in the program's table `bins`, which has room for 4096" in message


# --- what a lab tells a program of its own --------------------------------------------------------------------------

EVERYTHING = schemes_folder().parent / "crates" / "p4runtime" / "tests" / "programs"


@pytest.fixture
def everything(tmp_path: Path) -> Any:
    """A lab of a program that has one of everything; make(text): the settings of its switches."""
    for suffix in ("json", "p4info.txtpb"):
        shutil.copy(EVERYTHING / f"everything.{suffix}", tmp_path / f"mine.{suffix}")

    def make(text: str) -> ResolvedLab:
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        lab = LAB.replace(SWITCHES, f"  default: {{buffer: 50 packets}}\n  s1:\n    program: ./mine.p4\n{lines}")
        (tmp_path / "lab.yml").write_text(lab)
        return load_lab(tmp_path)

    return make


def test_a_user_supplied_program_gets_the_entries_of_the_lab(everything: Any) -> None:
    plan = compile_lab(
        everything("""\
recirculation: {port: 300}
tables:
  hosts:
    - {match: {hdr.probe.address: 10.0.0.1}, action: host_forward, params: {port: ">h2"}}
    - {match: {hdr.probe.address: "0x0a000002"}, action: ProbeIngress.host_forward, params: {port: 2}}
  routes:
    - {match: {hdr.probe.address: 10.0.1.0/24}, action: forward, params: {port: 1}}
  rules:
    - {match: {hdr.probe.flags: "0x1&&&0x3", hdr.probe.low: 5..9}, action: forward, params: {port: 1}}
    - {match: {hdr.probe.flow: 7, hdr.probe.low: "*"}, action: forward, params: {port: 0}}
initial: {last_seen: {0: 5, 2..3: 0x1f}}
clones: {7: {ports: [300, ">s2"], truncate: 64 B}}
groups: {9: [0, 1]}
""")
    )
    found = pipeline(plan, "s1")
    assert [(e.table, e.key, e.arguments, e.priority) for e in found.entries] == [
        ("ProbeIngress.hosts", {"hdr.probe.address": 0x0A000001}, {"port": 1}, 0),
        ("ProbeIngress.hosts", {"hdr.probe.address": 0x0A000002}, {"port": 2}, 0),
        ("ProbeIngress.routes", {"hdr.probe.address": Prefix(0x0A000100, 24)}, {"port": 1}, 0),
        ("ProbeIngress.rules", {"hdr.probe.flags": Masked(1, 3), "hdr.probe.low": Range(5, 9)}, {"port": 1}, 2),
        ("ProbeIngress.rules", {"hdr.probe.flow": 7}, {"port": 0}, 1),
    ]
    assert [(r.name, r.index, r.value) for r in found.registers] == [
        ("ProbeIngress.last_seen", 0, 5),
        ("ProbeIngress.last_seen", 2, 31),
        ("ProbeIngress.last_seen", 3, 31),
    ]
    assert [(s.session, s.ports, s.truncate_bytes) for s in found.sessions] == [(7, [300, 2], 64)]
    assert [(g.group, g.ports) for g in found.groups] == [(9, [0, 1])]
    assert Plan.loads(plan.dumps()) == plan


def change(path: Path, *changes: tuple[str, str]) -> None:
    """Replace parts of a file, each of which must be in it."""
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


def test_values_of_translated_types_have_the_programs_widths(everything: Any, tmp_path: Path) -> None:
    # As p4c writes them: `type bit<9> port_t` and the key's type translated to 32 bits, the register's to a string.
    port = ('name: "port"\n    bitwidth: 9', 'name: "port"\n    bitwidth: 32\n    type_name { name: "port_t" }')
    flow = ('name: "hdr.probe.flow"\n    bitwidth: 16', 'name: "hdr.probe.flow"\n    type_name { name: "flow_t" }')
    seen = "bitstring {\n      bit {\n        bitwidth: 48\n      }\n    }"
    change(tmp_path / "mine.p4info.txtpb", port, flow, (seen, 'new_type { name: "time_t" }'))
    rule = "tables: {rules: [{match: {hdr.probe.flow: FLOW}, action: forward, params: {port: PORT}}]}"
    found = pipeline(
        compile_lab(
            everything(
                rule.replace("FLOW", "65535").replace("PORT", "511") + "\ninitial: {last_seen: {0: 0xffffffffffff}}"
            )
        ),
        "s1",
    )
    assert [(e.key, e.arguments) for e in found.entries] == [({"hdr.probe.flow": 65535}, {"port": 511})]
    assert [r.value for r in found.registers] == [0xFFFFFFFFFFFF]
    for text, message in [
        (rule.replace("FLOW", "65536").replace("PORT", "1"), "`65536` does not fit into 16 bits"),
        (rule.replace("FLOW", "1").replace("PORT", "512"), "params.port: `512` does not fit into 9 bits"),
        ("initial: {last_seen: {0: 0x1000000000000}}", "`0x1000000000000` does not fit into 48 bits"),
    ]:
        with pytest.raises(LabError) as error:
            everything(text)
        assert message in str(error.value)


def test_initial_entries_may_be_changed_and_leave_room(everything: Any, tmp_path: Path) -> None:
    lab = "tables: {fixed: [{match: {hdr.probe.kind: 1}, action: drop}]}"
    change(tmp_path / "mine.p4info.txtpb", ("  is_const_table: true\n", ""))  # `entries`, without `const`
    plan = compile_lab(everything(lab))
    assert [entry.table for entry in pipeline(plan, "s1").entries] == ["ProbeIngress.fixed"]
    (table,) = [
        table
        for form in json.loads(plan.p4[0].bmv2)["pipelines"]
        for table in form["tables"]
        if table["name"] == "ProbeIngress.fixed"
    ]
    assert (table["constant_entries"], table["max_size"], len(table["entries"])) == (False, 1024, 2)


# Each row: what a lab tells the program, and the message: behind the switch's `switches.s1.`
UNTOLD = [
    ("tables: {host: []}", "tables.host: the program has no table `host`; did you mean `hosts`?"),
    ("tables: {by_hop: []}", "tables.by_hop: entries of a table with an action profile come by P4Runtime"),
    ("tables: {fixed: [{match: {hdr.probe.kind: 1}, action: NoAction}]}", "the entries of `fixed` are the program's own"),
    ("tables: {rules: [{action: drop}]}", "the default action of `rules` is constant: expected a `match`"),
    ("tables: {hosts: [{match: {hdr.probe.address: 1}, action: learn}]}", "tables.hosts[0].action: `learn` is the default only of `hosts`"),
    ("tables: {hosts: [{match: {hdr.probe.address: 1}, action: drip}]}", "the table `hosts` has no action `drip`; did you mean `drop`?"),
    ("tables: {hosts: [{action: learn}, {action: learn}]}", "tables.hosts[1]: a second default action as in entry 0 (/"),
    ("tables: {routes: [{match: {hdr.probe.address: 10.0.0.0/8}, action: drop}, {match: {hdr.probe.address: 10.0.0.0/8}, action: forward, params: {port: 1}}]}", "tables.routes[1]: the same match as in entry 0"),
    ("tables: {routes: [{match: {hdr.probe.address: 10.0.0.1/8}, action: drop}]}", "`10.0.0.1/8` has bits that its mask or prefix leaves out"),
    ("tables: {routes: [{match: {hdr.probe.address: 10.0.0.0/33}, action: drop}]}", "expected a prefix of 0 to 32 bits, got `10.0.0.0/33`"),
    ("tables: {routes: [{match: {hdr.probe.address: 'fd00::/8'}, action: drop}]}", "`fd00::` has 128 bits; expected 32"),
    ("tables: {routes: [{match: {hdr.probe.adress: 1}, action: drop}]}", "the key of `routes` has no `hdr.probe.adress`; did you mean `hdr.probe.address`?"),
    ("tables: {routes: [{match: {hdr.probe.address: 1}, action: forward}]}", "the action `forward` has `port`, too: expected a value of 9 bits"),
    ("tables: {routes: [{match: {hdr.probe.address: 1}, action: forward, params: {port: 512}}]}", "params.port: `512` does not fit into 9 bits"),
    ("tables: {routes: [{match: {hdr.probe.address: 1}, action: forward, params: {port: '>h9'}}]}", "no link leads to `h9`; "),
    ("tables: {routes: [{match: {hdr.probe.address: 1}, action: drop, params: {port: 1}}]}", "the action `drop` has no `port`"),
    ("tables: {routes: [{match: {hdr.probe.address: 1}, action: drop, priority: 3}]}", "no two entries of `routes` fit the same packet: not used"),
    ("tables: {hosts: [{match: {}, action: drop}]}", "`hdr.probe.address` is of the kind exact: expected a value of 32 bits"),
    ("tables: {rules: [{match: {hdr.probe.low: 9..5}, action: drop}]}", "`9..5` ends before it begins"),
    ("tables: {rules: [{match: {hdr.probe.low: here}, action: drop}]}", "expected a number, `0x1f`, an address"),
    ("tables: {hosts: [" + ", ".join(f"{{match: {{hdr.probe.address: {n}}}, action: drop}}" for n in range(65)) + "]}", "tables.hosts: 65 entries; the table has room for 64"),
    ("initial: {last_seem: {0: 1}}", "the program has no register `last_seem`; did you mean `"),
    ("initial: {ProbeIngress.balance: {0: 1}}", "its elements are not numbers"),
    ("initial: {ProbeIngress.last_seen: {8: 1}}", "expected an index up to 7, or some (`0..7`), got `8`"),
    ("initial: {ProbeIngress.last_seen: {0..3: 1, 3: 2}}", "an element that was given already"),
    ("clones: {0: {ports: [1]}}", "expected a number from 1 to 32767"),
    ("clones: {1: {ports: [3]}}", "clones.1.ports[0]: the switch has no port 3"),
    ("groups: {1: [1, 1]}", "groups.1[1]: port 1 is given twice"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), UNTOLD)
def test_what_does_not_fit_the_program_is_refused(everything: Any, given: str, message: str) -> None:
    with pytest.raises(LabError) as error:
        everything(given)
    assert any("lab.yml:" in text and message in text for text in error.value.messages), error.value.messages


def test_tables_of_the_plan_and_of_schemes_take_no_entries(folder: Path) -> None:
    text = (folder / "lab.yml").read_text()
    entry = "tables: {next_hops: [{match: {hop: 1}, action: no_next_hop}]}"
    (folder / "lab.yml").write_text(text.replace("./mine.p4,", f"./mine.p4, {entry},"))
    with pytest.raises(LabError, match=r"tables\.next_hops: the plan fills it with the routes of the lab"):
        load_lab(folder)
    (folder / "lab.yml").write_text(text.replace("./mine.p4,", "ecn, tables: {marking: [{action: mark_above}]},"))
    with pytest.raises(LabError, match=r"the program of `ecn` takes its entries from the parameters: expected a"):
        load_lab(folder)


# --- controllers ----------------------------------------------------------------------------------------------------

SCRIPT = "#!/usr/bin/env python3\nimport asyncio, qbed.base.errors\nfrom json import loads\n"


@pytest.fixture
def controlled(folder: Path) -> Path:
    text = (folder / "lab.yml").read_text()
    (folder / "lab.yml").write_text(text.replace("hosts:\n", "  s2: {controller: ./mine.py}\nhosts:\n", 1))
    (folder / "mine.py").write_text(SCRIPT)
    return folder


def test_a_controller_is_files_and_programs_of_its_switch(controlled: Path) -> None:
    plan = compile_lab(load_lab(controlled))
    without, switch = (plan.nodes[plan.node_index(name)] for name in ("s1", "s2"))
    assert not without.programs and not without.files
    assert [program.argv[0] for program in switch.programs] == ["p4switch", "/run/p4/mine.py"]
    assert switch.programs[0].ready and switch.programs[0].ready.startswith("/run/p4/")
    assert switch.files["/run/p4/mine.py"] == SCRIPT
    assert switch.files["/run/p4/mine.json"] == plan.p4[0].bmv2
    assert switch.environment["QBED_EPOCH_NS"] == str(plan.epoch_ns)
    assert list(missing_parts(find_toolchain(), plan)) == []
    off = compile_lab(load_lab(controlled, {"switches.s2.controller": "off"}))
    assert off.dumps() == compile_lab(load_lab(controlled, {"switches.s2.controller": False})).dumps()
    assert not any(node.programs for node in off.nodes) and off.memory_bytes < plan.memory_bytes


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"switches.s2.controller": "./none.py"}, "switches.s2.controller: ./none.py: cannot read it: No such file"),
        ({"switches.s2.controller": "../mine.py"}, "switches.s2.controller: `../mine.py` leads out of the folder"),
        ({"switches.s2.controller": "./lab.yml"}, "./lab.yml is no script: expected `#!/usr/bin/env python3`"),
        ({"switches.s2>h3.controller": "./mine.py"}, "applies to the switch, not to a port: expected it under `s2`"),
    ],
)
def test_what_is_no_controller(controlled: Path, overrides: dict[str, Any], message: str) -> None:
    with pytest.raises(LabError) as error:
        load_lab(controlled, overrides)
    assert message in str(error.value)


def test_a_switch_without_a_program_has_no_controller(controlled: Path) -> None:
    resolved = load_lab(controlled, {"switches.s2.kind": "linux"})
    assert any(
        "controller: the switch runs no program in P4 (`kind: bmv2`): not used" in warning
        for warning in resolved.warnings
    )
    assert not any(node.programs for node in compile_lab(resolved).nodes)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("#!/usr/bin/env python3\nfrom no_such_module.part import x\n", "imports no_such_module, which is not here; "),
        ("#!/usr/bin/env python3\nimport (\n", "node s2 runs mine.py, which is not Python: "),
    ],
)
def test_a_missing_package_of_a_controller_is_reported_before_the_run(
    controlled: Path, script: str, message: str
) -> None:
    (controlled / "mine.py").write_text(script)
    (lack,) = missing_parts(find_toolchain(), compile_lab(load_lab(controlled)))
    assert message in lack.text


def test_the_server_that_few_labs_run_is_built_for_the_first(
    controlled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plan, toolchain, folder = compile_lab(load_lab(controlled)), find_toolchain(), tmp_path / "toolchain"
    shutil.copytree(toolchain.folder, folder, ignore=shutil.ignore_patterns("p4switch", "frr"))
    without = toolchain_in(folder)
    monkeypatch.setattr("qbed.substrates.rebuild.checkout", lambda: None)
    (lack,) = missing_parts(without, plan)
    assert lack.text.startswith("node s2 runs p4switch, which is not here; ")
    monkeypatch.setattr("qbed.substrates.virtual.provision.checkout", lambda: None)
    (lack,) = missing_parts(without, plan)
    assert lack.text.endswith("labs with a `controller` run in a checkout, or from a wheel of this machine's kind;"
                              " no image has it")  # fmt: skip
    monkeypatch.undo()
    assert list(missing_parts(without, plan)) == []
    assert (folder / "programs" / "p4switch").is_file()
    assert capfd.readouterr().err.count("building p4switch, which only labs with a controller run") == 1
    assert list(missing_parts(without, plan)) == [] and capfd.readouterr().err == ""


def test_a_controller_needs_what_holds_its_guest(controlled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = compile_lab(load_lab(controlled))
    monkeypatch.setattr("qbed.substrates.virtual.provision.landlock_version", lambda: 0)
    (lack,) = missing_parts(find_toolchain(), plan)
    assert "mine.py, a program of the lab's own, and this machine has no Landlock to hold it" in lack.text
    monkeypatch.setenv("QBED_TRUST", "1")
    assert list(missing_parts(find_toolchain(), plan)) == []


def test_containers_have_no_controllers(controlled: Path) -> None:
    with pytest.raises(
        LabError, match=r"s2: a switch's controller runs in virtual time only; expected `controller: off`"
    ):
        place(compile_lab(load_lab(controlled)), Machine())
