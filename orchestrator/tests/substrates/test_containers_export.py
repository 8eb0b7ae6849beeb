# SPDX-License-Identifier: Apache-2.0
"""Labs for containers: which kernel a host runs on, the exported topology, and the way back from a topology."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import write_lab

from qbed.base.errors import LabError
from qbed.config.source import parse
from qbed.network.importing import import_topology
from qbed.network.load import lab_from_source, load_lab
from qbed.plan.communicating_pairs import shortest_rtt_ns
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.substrates.command_line import GATE_FD
from qbed.substrates.containers import bmv2
from qbed.substrates.containers.folder import topology, write_folder
from qbed.substrates.containers.placement import Machine, Placement, place, shorten
from qbed.substrates.virtual.confinement import CONFINE_FD
from qbed.substrates.virtual.guest import command_line

LABS = sorted((Path(__file__).parents[3] / "labs").glob("*/lab.yml"))
IMAGES = {role: f"qbed/{role}:1" for role in ("host", "linux-switch", "router", bmv2.ROLE)}
LAB = """\
name: small
topology:
  explicit:
    nodes: {h1..h3: host, s1: switch}
    links: [{ends: [h1..h2, s1]}, {ends: [h3, h1]}]
links: {default: {rate: 1 Gbit/s, delay: 1 ms}}
switches: {default: {buffer: 100 KB}}
hosts:
  default: {tcp: cubic}
  HOST: {SETTING}
duration: 1 s
"""
KERNEL = {"hosts.h1.kernel": "host"}


def machine(folder: Path, controls: str = "reno cubic", *sysctls: str) -> Machine:
    ipv4 = folder / "net/ipv4"
    ipv4.mkdir(parents=True, exist_ok=True)
    (ipv4 / "tcp_available_congestion_control").write_text(controls + "\n")
    for name in sysctls:
        (folder / name).touch()
    return Machine(folder)


def placed(folder: Path, host: str, setting: str, dilation: int = 1, controls: str = "reno cubic") -> Placement:
    lab = lab_from_source(parse(LAB.replace("HOST", host).replace("SETTING", setting), "lab.yml"))
    return place(compile_lab(lab), machine(folder, controls), dilation)


def test_auto_takes_the_machines_kernel_where_it_can_do_the_same(tmp_path: Path) -> None:
    found = placed(tmp_path, "h2", "tcp: cubic")
    assert found.host_kernel == (1,)  # h1 and h3 have a link with each other
    assert found.notes == (
        "h1 on the qbed kernel: the link to h3, a host too, needs it",
        "h3 on the qbed kernel: the link to h1, a host too, needs it",
    )
    assert placed(tmp_path, "h2", "tcp: dctcp").host_kernel == ()
    assert placed(tmp_path, "h2", "tcp: dctcp", controls="dctcp cubic").host_kernel == (1,)
    assert placed(tmp_path, "h2", "kernel: qbed").host_kernel == ()
    assert placed(tmp_path, "h2", "rto_min: 10 ms").host_kernel == (1,)
    assert placed(tmp_path, "h2", "rto_min: 100 us").host_kernel == ()
    assert placed(tmp_path, "h2", "rto_min: 10 ms, sysctls: {net/ipv4/tcp_rto_min_us: 5}").host_kernel == ()
    assert placed(tmp_path, "h2", "sysctls: {net/ipv4/tcp_ecn: 1}").host_kernel == (1,)
    assert placed(tmp_path, "h2", "sysctls: {net/ipv4/tcp_sack: 0}").host_kernel == ()
    (tmp_path / "net/ipv4/tcp_sack").touch()
    assert placed(tmp_path, "h2", "sysctls: {net/ipv4/tcp_sack: 0}").host_kernel == (1,)
    assert "dilation 50" in placed(tmp_path, "h2", "tcp: cubic", 50).notes[0]
    assert placed(tmp_path, "h2", "tcp: cubic", 50).host_kernel == ()


def test_with_parameters_of_its_kernel_a_lab_has_no_host_on_the_machines(tmp_path: Path) -> None:
    text = LAB.replace("HOST", "h2").replace("SETTING", "tcp: cubic") + "kernel_parameters: {tcp_cubic/hystart: 0}\n"
    plan = compile_lab(lab_from_source(parse(text, "lab.yml")))
    found = place(plan, machine(tmp_path), 1)
    assert found.host_kernel == ()
    assert "h1, h2, h3 on the qbed kernel: the machine's kernel keeps its own tcp_cubic/hystart" in found.notes


def test_the_transport_rate_is_a_module_of_the_labs_kernel(tmp_path: Path) -> None:
    workload = "workload: [{flow: {from: h2, to: h1, transport: rate}}]\n"
    text = LAB.replace("HOST", "h2").replace("SETTING", "controller: fixed") + workload
    found = place(compile_lab(lab_from_source(parse(text, "lab.yml"))), machine(tmp_path), 1)
    assert found.host_kernel == ()
    assert found.notes[0] == "h1, h2 on the qbed kernel: the machine's kernel has no transport `rate`"
    requested = lab_from_source(parse(text.replace("fixed", "fixed, kernel: host"), "lab.yml"))
    with pytest.raises(LabError) as refused:
        place(compile_lab(requested), machine(tmp_path), 1)
    assert refused.value.messages == [
        "lab.yml:10:35: hosts.h2.kernel: host h2: the machine's kernel has no transport `rate`;"
        " expected `kernel: qbed` or `auto`"
    ]


def test_what_the_machines_kernel_cannot_do_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(LabError) as refused:
        placed(tmp_path, "h2", "{tcp: dctcp, kernel: host}"[1:-1])
    assert refused.value.messages == [
        "lab.yml:10:28: hosts.h2.kernel: host h2: the machine's kernel has no dctcp; expected `kernel: qbed` or `auto`,"
        " or load the module (`modprobe tcp_NAME`)"
    ]
    with pytest.raises(LabError, match=r"joins two hosts on the machine's kernel.*expected `kernel: qbed` for one"):
        placed(tmp_path, '"*"', "kernel: host")
    with pytest.raises(LabError, match="expected `auto`, `host` or `qbed`"):
        placed(tmp_path, "h2", "kernel: mine")
    from_outside = lab_from_source(parse(LAB.replace("HOST", "h1").replace("SETTING", "tcp: dctcp"), "lab.yml"), KERNEL)
    with pytest.raises(LabError, match=r"^lab.yml with hosts\.h1\.kernel=host: hosts\.h1\.kernel: host h1: "):
        place(compile_lab(from_outside), machine(tmp_path))


def test_dilation_on_the_machines_kernel_is_allowed_and_says_what_stays_undilated(tmp_path: Path) -> None:
    found = placed(tmp_path, "h2", "kernel: host", 50)
    assert found.host_kernel == (1,)
    assert len(found.warnings) == 1
    assert all(word in found.warnings[0] for word in ("h2", "delayed ACKs", "50 times", "kernel: qbed"))


def test_the_plan_says_which_kernel_a_host_asks_for_and_nothing_where_it_asks_for_none(tmp_path: Path) -> None:
    text = LAB.replace("HOST", "h2")
    for kernel in ("host", "qbed", "auto"):
        plan = compile_lab(lab_from_source(parse(text.replace("SETTING", f"kernel: {kernel}"), "x")))
        assert [node.kernel for node in plan.nodes] == [None, None if kernel == "auto" else kernel, None, None]
        assert plan.dumps().count("kernel") == (kernel != "auto")
        assert Plan.loads(plan.dumps()).dumps() == plan.dumps()
        read_back = place(Plan.loads(plan.dumps()), machine(tmp_path))
        assert read_back.host_kernel == (() if kernel == "qbed" else (1,))


def test_an_image_runs_beside_its_host_on_the_machines_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(settings: str) -> Plan:
        text = LAB.replace("{ends: [h3, h1]}", "{ends: [h3, s1]}").replace("HOST", "h2").replace("SETTING", settings)
        return compile_lab(lab_from_source(parse(text, "x")))

    with pytest.raises(LabError, match="h2: an image would be root on this machine; only with --trust"):
        place(plan("image: nginx"), machine(tmp_path))
    monkeypatch.setenv("QBED_TRUST", "1")
    with pytest.raises(LabError, match="h2: an image runs on the machine's kernel; expected `kernel: host` or `auto`"):
        place(plan("image: nginx, kernel: qbed"), machine(tmp_path))
    found = plan("image: 'nginx:1.27'")
    placement = place(found, machine(tmp_path), 50)
    assert placement.host_kernel == (1,)
    file = write_folder(tmp_path / "x", found, placement, IMAGES, name="x", file="l.clab.yml", start="on go")
    nodes = yaml.safe_load(file.read_text())["topology"]["nodes"]
    assert nodes["h2_image"] == {"kind": "linux", "image": "nginx:1.27", "network-mode": "container:h2"}
    assert set(nodes) == {"h1", "h2", "h3", "s1", "h2_image"}


@pytest.mark.parametrize("file", LABS, ids=lambda path: path.parent.name)
def test_every_lab_becomes_a_topology(file: Path) -> None:
    plan = compile_lab(load_lab(file))
    made = topology(plan, IMAGES, plan.lab)["topology"]
    assert list(made["nodes"]) == [node.name for node in plan.nodes]
    ends = [end for link in made["links"] for end in link["endpoints"]]
    assert sorted(ends) == sorted(f"{plan.nodes[q.node].name}:{q.interface}" for q in plan.queues)
    assert {link["mtu"] for link in made["links"]} == {link.mtu for link in plan.links}


def test_the_folder_holds_each_nodes_part(tmp_path: Path) -> None:
    plan = compile_lab(load_lab(LABS[0].parent.parent / "dumbbell"))
    file = write_folder(
        tmp_path / "x", plan, Placement((0, 1), 50), IMAGES, name="other", file="l.clab.yml", start="on go"
    )
    made: dict[str, Any] = yaml.safe_load(file.read_text())
    assert made["name"] == "other"
    assert made["topology"]["kinds"]["linux"]["network-mode"] == "none"
    assert made["topology"]["nodes"]["s1"]["image"] == "qbed/linux-switch:1"
    node = tmp_path / "x/nodes/s1"
    assert (node / "plan.json").samefile(tmp_path / "x/plan.json")
    written = json.loads((node / "place.json").read_text())
    boot = written.pop("boot")
    assert written == {"version": 1, "node": 4, "host_kernel": [0, 1], "dilation": 50, "gso": False, "start": "on go"}
    assert {"mem=128M", "init=/opt/qbed/qbed-agent", f"seed={plan.seed + 4}", f"qgate={GATE_FD}"} < set(boot)
    assert "boot" not in json.loads((tmp_path / "x/nodes/h1/place.json").read_text())  # it has no guest
    assert (node / "out").is_dir() and (tmp_path / "x/shared").is_dir()


def test_a_guest_has_the_same_arguments_on_both_substrates(tmp_path: Path) -> None:
    plan = compile_lab(load_lab(LABS[0].parent.parent / "dumbbell"))
    write_folder(tmp_path / "x", plan, Placement((), 50), IMAGES, name="other", file="l.clab.yml", start="on go")
    boot = json.loads((tmp_path / "x/nodes/s1/place.json").read_text())["boot"]
    kernel, *virtual, dashes, mode = command_line(Path("/kernel"), plan, "lab", GATE_FD, CONFINE_FD)
    assert (kernel, dashes, mode) == ("/kernel", "--", "lab")
    substrate_words = ("mem=", "seed=", "init=", "wall.batch=", "QBED_MODULES=")
    assert [*(word for word in boot if not word.startswith(substrate_words)), f"confine={CONFINE_FD}"] == [
        word for word in virtual if not word.startswith(substrate_words)
    ]
    assert len(boot) == len(virtual)


@pytest.mark.parametrize(
    ("dilation", "interactive", "batch_ns"),
    [(1, False, 67_920 // 20), (5, False, 5 * 67_920 // 20), (50, False, 50_000), (1, True, 50_000)],
)
def test_a_guest_defers_frames_by_a_part_of_a_round_trip(
    tmp_path: Path, dilation: int, interactive: bool, batch_ns: int
) -> None:
    plan = compile_lab(load_lab(write_lab(tmp_path / "lab") / "lab.yml"))
    assert shortest_rtt_ns(plan) == 67_920
    names = {"name": "x", "file": "l.clab.yml"}
    write_folder(tmp_path / "x", plan, Placement((), dilation), IMAGES, start="on go", interactive=interactive, **names)
    boot = json.loads((tmp_path / "x/nodes/s1/place.json").read_text())["boot"]
    assert f"wall.batch={batch_ns}" in boot


@pytest.mark.parametrize(
    ("dilation", "interactive", "switch", "gso"),
    [
        (1, True, "scheme: droptail", True),
        (1, False, "scheme: droptail", False),
        (2, True, "scheme: droptail", False),
        (1, True, "scheme: stamp, kind: bmv2, engine: simple_switch_grpc", False),
    ],
)
def test_only_interactive_labs_in_real_time_without_bmv2_use_gso(
    tmp_path: Path, dilation: int, interactive: bool, switch: str, gso: bool
) -> None:
    text = LAB.replace("HOST", "h2").replace("SETTING", "kernel: qbed").replace("100 KB}", f"100 KB, {switch}}}")
    plan = compile_lab(lab_from_source(parse(text, "x")))
    placement = place(plan, machine(tmp_path), dilation)
    names = {"name": "x", "file": "l.clab.yml"}
    write_folder(tmp_path / "x", plan, placement, IMAGES, start="on go", interactive=interactive, **names)
    assert {json.loads(path.read_text())["gso"] for path in tmp_path.glob("x/nodes/*/place.json")} == {gso}


def test_a_topology_becomes_a_lab(tmp_path: Path) -> None:
    file = tmp_path / "x.clab.yml"
    file.write_text("""\
name: My_Lab
topology:
  kinds: {nokia_srlinux: {image: srl}}
  defaults: {kind: linux, image: "debian:12"}
  nodes: {PC1: {}, pc2: {image: "x/tool@sha256:0f", cmd: sleep 9}, leaf_1: {kind: nokia_srlinux}, hub: {}, alone: {}}
  links:
    - endpoints: ["PC1:eth1", "leaf_1:e1-1"]
    - {type: veth, endpoints: [{node: leaf_1, interface: e1-2}, {node: hub, interface: eth1}], mtu: 9000}
    - endpoints: ["hub:eth2", "pc2:eth1"]
    - endpoints: ["hub:eth3", "host:hub3"]
    - {type: mgmt-net, endpoint: {node: hub, interface: eth4}, host-interface: x}
""")
    text = import_topology(file)
    resolved = lab_from_source(parse(text, "lab.yml"))
    assert resolved.lab.name == "my-lab"
    assert resolved.network.nodes == {"pc1": "host", "pc2": "host", "leaf-1": "switch", "hub": "switch"}
    links = [(link.a, link.b) for link in resolved.network.links]
    assert links == [("pc1", "leaf-1"), ("leaf-1", "hub"), ("hub", "pc2")]
    assert [link.mtu for link in compile_lab(resolved).links] == [1500, 9000, 1500]
    assert "Left out: alone: it has no link" in text and "hub - host" in text
    assert text.count("# fill in") == 4
    assert {node.name: node.image for node in compile_lab(resolved).nodes if node.kind == "host"} == {
        "pc1": "debian:12",
        "pc2": "x/tool@sha256:0f",
    }
    assert "Left out: cmd of pc2: its image runs its default command" in text


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: 1", "expected a Containerlab topology"),
        ("topology: {nodes: {a: {}, b: {}}, links: [{endpoints: ['a:e', 'c:e']}]}", "no node is called `c`"),
        ("topology: {nodes: {a: {}, b: {}}, links: [{endpoints: ['a:e']}, 3]}", "expected a link"),
        ("topology: {nodes: {a: {}}, links: []}", "no two nodes have a link"),
        ("name: {{ .x }}", "is a template"),
        ("topology: {nodes: {" + 40 * "a" + ": {}, b: {}}, links: [{endpoints: [x, y]}]}", "cannot be a name"),
    ],
)
def test_what_is_no_topology_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "x.clab.yml"
    file.write_text(text)
    with pytest.raises(LabError, match=message):
        import_topology(file)


def test_long_lists_of_names_are_shortened() -> None:
    assert shorten(["a", "b"]) == "a, b"
    assert shorten(f"h{i}" for i in range(1, 11)) == "h1, h2, h3, h4 and 6 more"
