# SPDX-License-Identifier: Apache-2.0
"""Switches in P4: which program runs where, what its tables are told, and what the messages say about the rest."""

import ipaddress
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbed.errors import LabError
from qbed.language.source import parse
from qbed.language.units import Amount
from qbed.network.load import lab_from_source, load_lab
from qbed.network.resolve import ResolvedLab
from qbed.places import schemes_folder
from qbed.plan.compile import compile_lab
from qbed.plan.inspect import summary
from qbed.plan.model import Pipeline, Plan
from qbed.schemes.declaration import registry
from qbed.schemes.programs import scheme_program
from qbed.schemes.told import RUNNABLE, Port, default_parking, port_settings, switch_settings
from qbed.substrates.containers.folder import topology
from qbed.substrates.containers.gather import merged_counters
from qbed.substrates.containers.placement import Machine, place

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
            assert now.qdisc == {"kind": "pfifo", "options": "64000000"}
    assert [node.routes for node in bmv2.nodes if node.kind == "switch"] == [[], []]
    assert Plan.loads(bmv2.dumps()) == bmv2


def test_linux_and_p4_stand_side_by_side() -> None:
    plan = compiled({"switches.s2": {"program": "codel", "target": "1 ms"}})
    assert plan.modules == ["qp4", "sch_ecn"]
    assert plan.nodes[plan.node_index("s1")].pipeline is None
    assert pipeline(plan, "s2").program == "codel"
    assert {q.scheme for q in plan.queues if q.name.startswith("s2:")} == {"codel"}


def test_ports_have_their_own_parameters() -> None:
    plan = compiled({"switches.default.kind": "bmv2", "switches.s1>h2.threshold": "7 packets"})
    told = [entry for entry in pipeline(plan, "s1").entries if entry.table == "marking"]
    assert pipeline(plan, "s1").ports == ["eth0", "eth1", "eth2"]
    assert [(entry.key, entry.arguments["packets"]) for entry in told] == [
        ({"port": 0}, 20),
        ({"port": 1}, 7),
        ({"port": 2}, 20),
    ]
    shown = next(row for row in summary(plan)["nodes"] if row["name"] == "s1")
    assert shown["program"] == "ecn; mark_above(packets 20); mark_above(packets 7)"


def test_qcn_and_abq_have_a_port_without_a_link() -> None:
    plan = compiled({"switches.default.kind": "bmv2", "switches.default.scheme": "qcn"})
    (parking,) = pipeline(plan, "s1").parking
    assert (parking.port, parking.interface, parking.rate_bps) == (510, "parked510", None)
    assert parking.qdisc == {"kind": "pfifo", "options": "e8030000"}
    assert [(s.session, s.ports) for s in pipeline(plan, "s1").sessions] == [(1, [510])]
    assert Plan.loads(plan.dumps()) == plan

    own = {"switches.s2.parking": {"port": 7, "rate": "40 Gbit/s", "buffer": "100 packets"}}
    plan = compiled({"switches.default.kind": "bmv2", "switches.default.scheme": "abq"} | own)
    assert [pipeline(plan, name).parking[0].rate_bps for name in ("s1", "s2")] == [10 * 10**9, 40 * 10**9]
    assert [pipeline(plan, name).parking[0].port for name in ("s1", "s2")] == [510, 7]
    assert pipeline(plan, "s1").sessions == []
    # a struct tc_tbf_qopt: Ethernet with 24 bytes more and 84 at least, bytes a second, and all three ports' 1000 held
    spec = struct.pack("=BBHhHI", 0, 1, 24, 0, 84, 1_250_000_000) + bytes(12) + struct.pack("=III", 3000 * 1514, 0, 0)
    burst = struct.pack("=HHI", 8, 6, 2 * (1514 + 24))
    assert pipeline(plan, "s1").parking[0].qdisc == {
        "kind": "tbf",
        "options": (struct.pack("=HH", 40, 1) + spec + burst).hex(),
    }
    assert "0400" in pipeline(plan, "s2").parking[0].qdisc["options"]  # 5 GB/s is beyond 32 bits: TCA_TBF_RATE64
    told = [entry for entry in pipeline(plan, "s2").entries if entry.table == "abq_parking"]
    assert [(entry.key, entry.arguments) for entry in told] == [(None, {"port": 7, "limit": 1000})]
    shown = next(row for row in summary(plan)["nodes"] if row["name"] == "s2")
    assert shown["program"].endswith("port 7 without a link, at 40 Gbit/s")


# Each row: what a lab says of its switches, and the message.
REFUSED = [
    ("default: {program: stamq}", "no scheme `stamq` has a program in P4; expected one of `abq`, `codel`, `droptail`, `ecn`, `qcn`, `rpm`, `stamp`, or a path: `./mine.p4`"),
    ("default: {kind: bmv2, scheme: qcn, parking: {port: 2}}", "switches.default.parking.port: the switch's 3 links have the ports 0 to 2: expected another than 2"),
    ("default: {kind: bmv2, scheme: qcn, parking: {port: 511}}", "switches.default.parking.port: expected at most 510"),
    ("s1>h1: {scheme: qcn, parking: {port: 9}}", "switches.s1>h1.parking: is of a switch as a whole: expected it under `s1`"),
    ("default: {kind: bmv2, scheme: abq, above: codel}", "switches.default.above: `above`: in P4 it is `ecn` or `droptail`, got `codel`"),
    ("default: {kind: bmv2, scheme: abq, threshold: 30 KB}", "`threshold`: in P4 a queue's length is a number of packets"),
    ("default: {kind: bmv2, scheme: abq}\n  s1>h1: {hold_limit: 3 packets}", "in P4 a switch has the same limit of what is held for all its ports"),
    ("default: {kind: bmv2, scheme: qcn, sample_least: 50 %}", "switches.default.sample_least: `sample_least`: it is more than `sample_most`"),
    ("default: {kind: bmw2}", "expected `linux` or `bmv2`, got `bmw2`"),
    ("default: {kind: bmv2, qdisc: fq_codel}", "a switch that runs a program has plain queues: expected `buffer`"),
    ("s1>h1: {program: stamp}", "lab.yml:6:20: switches.s1>h1.program: is of a switch as a whole: expected it under `s1`"),
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
    assert any(message in one for one in found), found


def test_routes_are_the_compilers() -> None:
    (message,) = messages(LAB + "routing: frr\n", {"switches.s2.kind": "bmv2"})
    assert (
        "routing: a switch in P4 has the routes that the compiler finds: expected `static`, since `s2` is one"
        in message
    )


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        ({"switches.default.program": "stamp", "switches.default.kind": "linux"}, "switches.default.program: the switch runs no program in P4 (`kind: bmv2`): not used"),
        ({"switches.default.parking": {"rate": "1 Gbit/s"}}, "switches.default.parking: the switch runs no program in P4"),
        (
            {"switches.default.kind": "bmv2", "switches.default.parking": {"rate": "1 Gbit/s"}},
            "parking: the program of `ecn` has no use for a port without a link: not used",
        ),
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
    assert any(warning in one for one in found), found


def test_a_switch_in_p4_is_in_containers_on_the_labs_kernel_as_any_switch(tmp_path: Path) -> None:
    plan = compiled({"switches.s2.kind": "bmv2"})
    place_of = place(plan, Machine(tmp_path))
    assert not {plan.node_index("s1"), plan.node_index("s2")} & set(place_of.host_kernel)
    made = topology(plan, {"host": "a", "linux-switch": "b"}, plan.lab)["topology"]["nodes"]
    assert made["s1"]["image"] == made["s2"]["image"] == "b"


def test_counters_of_switches_are_gathered_from_the_nodes_that_are_them() -> None:
    plan = compiled({"switches.default.kind": "bmv2"})
    parts: list[dict[str, Any]] = [
        {"links": [{"a": {}, "b": {}} for _ in plan.links], "queues": [{}] * len(plan.queues), "nodes": [{}] * 6}
        for _ in plan.nodes
    ]
    for name in ("s1", "s2"):
        parts[plan.node_index(name)]["switches"] = {name: {"shell": {"received": len(name)}}}
    merged = merged_counters(plan, [*parts[:-1], {}], ())  # the last node has left none
    assert set(merged["switches"]) == {node.name for node in plan.nodes[:-1] if node.pipeline}


# --- somebody's own program -----------------------------------------------------------------------------------------


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


# --- what the tables are told ---------------------------------------------------------------------------------------

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
        self.far: dict[tuple[int, str], tuple[int, str, str, str]] = {}
        for link in plan.links:
            for near, far in ((link.a, link.b), (link.b, link.a)):
                self.far[near.node, near.interface] = (far.node, link.name, near.mac, far.mac)

    def way(self, node: int, address: Any, share: float) -> str:
        """The interface by which a switch sends; `share` is the hash, from 0 to 1."""
        found = self.plan.nodes[node].pipeline
        assert found is not None
        routes = [e for e in found.entries if e.table == f"ipv{address.version}_routes" and e.key is not None]
        fitting = [e for e in routes if address in ipaddress.ip_network(str(e.key and e.key["destination"]))]
        route = max(fitting, key=lambda e: int(str(e.key and e.key["destination"]).partition("/")[2]))
        number = int(route.arguments["first"]) + int(int(route.arguments["count"]) * share)
        (hop,) = [e for e in found.entries if e.table == "next_hops" and e.key == {"hop": number}]
        interface = found.ports[int(hop.arguments["port"])]
        assert (hop.arguments["source"], hop.arguments["destination"]) == self.far[node, interface][2:]
        return interface

    def path(self, source: int, target: int, family: int, shares: tuple[float, float]) -> list[str]:
        address = next(a for a in map(ipaddress.ip_address, self.plan.nodes[target].addresses) if a.version == family)
        node, names = source, list[str]()
        while node != target:
            assert len(names) < 20, "a loop"
            interface = (
                "eth0" if node == source else self.way(node, address, shares[self.plan.routing.levels[node] % 2])
            )
            node, name = self.far[node, interface][:2]
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
                    there, back = walk.path(a, b, family, shares), walk.path(b, a, family, shares)
                    assert there == back[::-1] and len(there) == len(plan.path(a, b).ends)
    assert plan.one_path == linux.one_path
    shifts = {
        (plan.routing.levels[i] % 2, entry.arguments["shift_by"])
        for i, node in enumerate(plan.nodes)
        if node.pipeline is not None
        for entry in node.pipeline.entries
        if entry.action == "route"
    }
    assert shifts <= {(0, 0), (1, 16)}


@pytest.mark.parametrize("name", sorted(RUNNABLE))
def test_what_a_scheme_says_is_what_its_program_takes(name: str) -> None:
    program, form = scheme_program(name), json.loads(scheme_program(name).text)
    widths = {
        (action["name"], one["name"]): one["bitwidth"] for action in form["actions"] for one in action["runtime_data"]
    }
    defaults = registry()[name].defaults()
    parking = default_parking(name, [defaults], 10**12)
    told = [*switch_settings(name, [defaults], parking), *port_settings(name, Port(510, 10**12, 9014), defaults)]
    own = {t for t in program.tables if not t.startswith("tbl_")} - {"ipv4_routes", "ipv6_routes", "next_hops", "bins"}
    assert {entry.table for entry in told} == own
    for entry in told:
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
    (entry,) = port_settings("stamp", Port(0, rate, frame), values)
    told = {name: int(value) for name, value in entry.arguments.items()}
    most = 2**32 - 1
    packets = amount.value if amount.unit == "packets" else max(1, amount.value // frame)
    size = amount.value if amount.unit == "bytes" else amount.value * frame
    time = min(size, 2**31) * 8 * 10**9 // known if known else 0
    assert told["full_packets"] == packets and told["full_bytes"] == min(size, most)
    assert told["full_ns"] == (time if time <= most else 0)
    for unit in ("packets", "bytes", "ns"):
        full, inverse = told[f"full_{unit}"], told[f"inverse_{unit}"]
        assert (full == 0) == (inverse == 0)
        for length, bits in ((full // 3, 4), (max(full - 1, 0), 12)):
            if full >> bits:
                found = length * inverse >> (64 - bits)
                found += full * (found + 1) <= length << bits
                assert found == (length << bits) // full
