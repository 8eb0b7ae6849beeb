# SPDX-License-Identifier: Apache-2.0
"""A scheme is one folder, its P4 program and table entries included: nothing outside it names it."""

import ast
import shutil
from pathlib import Path

import packages
import pytest

from qbed.base.errors import QbedError
from qbed.base.locations import schemes_folder
from qbed.config.source import parse
from qbed.network.load import lab_from_source
from qbed.p4.entry import Port
from qbed.p4.scheme_entries import port_entries, recirculation_port
from qbed.plan.compile import compile_lab
from qbed.schemes.declaration import registry

WORDS_OF_LINUX = {"codel", "dualpi2", "ecn"}
LAB = """\
name: small
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {kind: bmv2, scheme: SCHEME, buffer: 100 packets}}
workload:
  - flows: {pairs: [[h1, h3]], size: 10 KB}
duration: 10 ms
"""


def test_no_module_contains_the_name_of_a_scheme() -> None:
    names = registry().keys() - WORDS_OF_LINUX
    found = [
        f"{module}:{node.lineno}: {node.value!r}"
        for module, tree in packages.modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in names
    ]
    assert not found


@pytest.fixture
def schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(schemes_folder(), tmp_path / "schemes")
    monkeypatch.setenv("QBED_SCHEMES", str(tmp_path / "schemes"))
    return tmp_path / "schemes"


def copied(schemes: Path, scheme: str, name: str) -> None:
    """Copy a scheme's folder under another name, without its controllers: their names are taken."""
    shutil.copytree(schemes / scheme, schemes / name, ignore=shutil.ignore_patterns("host", "tests"))
    declaration = schemes / name / "scheme.yml"
    declaration.write_text(declaration.read_text().replace(f"name: {scheme}\n", f"name: {name}\n"))
    for path in (schemes / name / "p4").glob(f"{scheme}.*"):
        path.rename(path.with_name(path.name.replace(scheme, name, 1)))


@pytest.mark.parametrize("scheme", ["qcn", "abq", "rpm", "stamp", "ecn"])
def test_a_copied_scheme_with_a_program_runs_in_p4(schemes: Path, scheme: str) -> None:
    copied(schemes, scheme, "mine")
    plans = [compile_lab(lab_from_source(parse(LAB.replace("SCHEME", name), "lab.yml"))) for name in (scheme, "mine")]
    for original, copy in zip(plans[0].nodes, plans[1].nodes, strict=True):
        if original.pipeline is None:
            continue
        assert copy.pipeline is not None and copy.pipeline.program == "mine"
        assert copy.pipeline.model_copy(update={"program": scheme}) == original.pipeline
        assert any(entry.table not in ("next_hops", "ipv4_routes") for entry in copy.pipeline.entries)


def test_a_program_without_entries_has_none(schemes: Path) -> None:
    copied(schemes, "qcn", "mine")
    (schemes / "mine" / "p4" / "entries.py").unlink()
    values = registry()["mine"].defaults()
    assert not list(port_entries("mine", Port(0, 10**9, 1514), values))
    assert recirculation_port("mine", [values], 10**9) is None


def test_entries_that_cannot_be_loaded_are_named(schemes: Path) -> None:
    path = schemes / "qcn" / "p4" / "entries.py"
    path.write_text("import no_such_module\n")
    with pytest.raises(QbedError, match=f"{path}: ModuleNotFoundError: No module named 'no_such_module'"):
        compile_lab(lab_from_source(parse(LAB.replace("SCHEME", "qcn"), "lab.yml")))
