# SPDX-License-Identifier: Apache-2.0
"""The inputs of a cell: a changed file is one if the cell's plan loads it, and none otherwise."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
from campaigns import fake_toolchain

from qbed.base.locations import schemes_folder
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.storage.cell_store import cell_key
from qbed.substrates import toolchain_files
from qbed.substrates.toolchain import MODULES, Toolchain, find_toolchain, toolchain_in
from qbed.substrates.virtual.inputs import VirtualInputs

LABS = Path(__file__).parents[3] / "labs"
LAB = """\
name: mine
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, threshold: 10 packets}}
hosts: {default: {tcp: dctcp}, h3: {queue: {scheme: stamp}}}
workload:
  - flow: {from: h1, to: h2, size: 100 KB}
duration: 10 ms
"""


def plan_of(tmp_path: Path, lab: str = LAB) -> Plan:
    (tmp_path / "lab.yml").write_text(lab)
    return compile_lab(load_lab(tmp_path / "lab.yml"))


def key_of(toolchain: Path, plan: Plan) -> str:
    return cell_key(plan.dumps().encode(), VirtualInputs(toolchain_in(toolchain)).of(plan))


@pytest.fixture
def toolchain(tmp_path: Path) -> Path:
    """A copy of the built modules in a toolchain."""
    folder = fake_toolchain(tmp_path / "tools")
    for module in (find_toolchain().folder / "modules").glob("*.ko"):
        shutil.copy2(module, folder / "modules")
    toolchain_files.record(folder)
    return folder


def test_a_changed_module_makes_another_key_of_the_plans_that_load_it(tmp_path: Path, toolchain: Path) -> None:
    plan = plan_of(tmp_path)
    assert plan.modules == ["sch_ecn", "sch_stamp"]
    used = {f"{name}.ko" for name in ("qlink", "qtap", "qgate", "sch_ecn", "sch_stamp")}
    modules = sorted((toolchain / "modules").glob("*.ko"))
    assert used < {path.name for path in modules}
    for module in modules:
        before = key_of(toolchain, plan)
        content = bytearray(module.read_bytes())
        content[len(content) // 2] ^= 1
        module.write_bytes(content)
        toolchain_files.record(toolchain)
        assert (key_of(toolchain, plan) != before) == (module.name in used), module.name


def test_a_module_by_another_name_is_an_input_by_its_file(tmp_path: Path, toolchain: Path) -> None:
    """No list of modules is in the code: a plan's module is `modules/NAME.ko` of the toolchain."""
    (toolchain / "modules" / "tcp_mine.ko").write_bytes(b"1")
    toolchain_files.record(toolchain)
    plan = plan_of(tmp_path)
    using = plan.model_copy(update={"modules": [*plan.modules, "tcp_mine"]})
    before, before_using = key_of(toolchain, plan), key_of(toolchain, using)
    (toolchain / "modules" / "tcp_mine.ko").write_bytes(b"2")
    toolchain_files.record(toolchain)
    assert key_of(toolchain, plan) == before and key_of(toolchain, using) != before_using


def test_no_module_needs_another_one_that_is_not_an_input() -> None:
    """The agent loads the modules of every lab and the plan's, and no module that these name as dependencies."""
    for module in sorted((find_toolchain().folder / "modules").glob("*.ko")):
        found = re.search(rb"\0depends=([^\0]*)\0", module.read_bytes())
        assert found is not None, module.name
        assert {*found[1].decode().split(",")} - {""} <= {*MODULES}, module.name


@pytest.mark.parametrize(
    ("lab", "used"),
    [
        ("dumbbell", set[str]()),
        ("controller", {"p4image", "p4switch", "frr", "python", "finsy"}),
        ("bgp-clos", {"frr"}),
    ],
)
def test_programs_of_the_toolchain_are_inputs_of_the_plans_that_run_them(
    tmp_path: Path, lab: str, used: set[str]
) -> None:
    """A worker of another Debian or with another Python has the cells of all other plans."""
    plan, inputs = compile_lab(load_lab(LABS / lab / "lab.yml")), VirtualInputs(find_toolchain())
    found = {name for name in inputs.of(plan) if not name.startswith(("modules/", "program ", "schemes/"))}
    assert found - {"kernel", "agent", "tc"} == used
    for field in ("kernel_hash", "agent_hash", "p4image_hash", "p4switch_hash", "frr_version"):
        manifest = inputs.toolchain.manifest.model_copy(update={field: "another"})
        other = VirtualInputs(dataclasses.replace(inputs.toolchain, manifest=manifest))
        name = field.partition("_")[0]
        assert (other.of(plan) != inputs.of(plan)) == (name in used | {"kernel", "agent"}), field


def test_the_declarations_of_the_schemes_in_use_are_inputs(
    tmp_path: Path, toolchain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statistics of a scheme become rows by its declaration."""
    plan, schemes = plan_of(tmp_path), shutil.copytree(schemes_folder(), tmp_path / "schemes")
    monkeypatch.setenv("QBED_SCHEMES", str(schemes))
    for scheme, used in (("abq", False), ("rpm", False), ("ecn", True), ("stamp", True)):
        before = key_of(toolchain, plan)
        with (schemes / scheme / "scheme.yml").open("a") as file:
            file.write("# another line\n")
        assert (key_of(toolchain, plan) != before) == used, scheme


def test_tc_is_an_input_of_queues_by_its_arguments(tmp_path: Path) -> None:
    inputs = VirtualInputs(find_toolchain())
    lab = LAB.replace("scheme: ecn, threshold: 10 packets", 'qdisc: "fq_codel limit 100"')
    (name,) = (name for name in inputs.of(plan_of(tmp_path, lab)) if name.startswith("program "))
    assert name.endswith("/tc") and not any(name in inputs.of(plan_of(tmp_path)) for name in ("tc", name))


def test_a_missing_program_of_a_record_has_no_value(tmp_path: Path) -> None:
    """A run folder, which names programs, may be untrusted."""
    inputs = VirtualInputs(Toolchain(tmp_path, find_toolchain().manifest, {}))
    for place in ("/no/such", "/dev/zero", "/tmp", "a\0b", ""):
        assert inputs.value(f"program {place}") == "", place
    assert inputs.value("modules/none.ko") == inputs.value("schemes/../x/scheme.yml") == inputs.value("anything") == ""
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    assert inputs.value(f"program {large}").startswith("1099511627776 bytes, ")
