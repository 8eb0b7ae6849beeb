# SPDX-License-Identifier: Apache-2.0
"""A user's repository: its labs, schemes and congestion controls beside those of qbed. tests/e2e/test_init.py builds
and runs one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qbed.base.errors import LabError, QbedError
from qbed.base.files import read_bytes
from qbed.base.locations import congestion_folder, labs_folder, repository, scheme_folder, schemes_folder
from qbed.lab import library
from qbed.schemes.congestion import congestion_controls
from qbed.schemes.declaration import registry
from qbed.schemes.generate import generated
from qbed.substrates import user_modules
from qbed.substrates.toolchain import find_toolchain
from qbed.substrates.user_modules import toolchain_with_modules
from qbed.substrates.virtual.inputs import VirtualInputs


def copy(model: Path, place: Path) -> None:
    """A folder under another name, as its declaration says."""
    shutil.copytree(model, place, ignore=shutil.ignore_patterns("p4", "__pycache__", "lock.json"))
    for path in place.glob("*.yml"):
        path.write_text(path.read_text().replace(f"name: {model.name}", f"name: {place.name}", 1))


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, as the parent of the working folder."""
    root = tmp_path / "mine"
    copy(schemes_folder() / "ecn", root / "schemes" / "step")
    copy(congestion_folder() / "aimd", root / "congestion" / "gentle")
    copy(labs_folder() / "dumbbell", root / "labs" / "first")
    (root / "qbed.toml").touch()
    monkeypatch.delenv("QBED_REPOSITORY", raising=False)
    monkeypatch.chdir(root / "labs")
    return root


def test_its_folders_are_found_beside_those_of_qbed(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repository() == mine
    assert {"step", "ecn"} < registry().keys() and {"gentle", "aimd"} < congestion_controls().keys()
    assert library.find(Path("first/lab.yml")) == Path("first/lab.yml")
    monkeypatch.chdir(mine)
    assert library.find(Path("first")) == mine / "labs" / "first" and "dumbbell" in library.names()
    assert "first" in [entry.name for entry in library.entries()]
    assert {"step/ecn_scheme.h", "gentle/gentle_parameters.h"} < generated("kernel").keys()
    declaration = VirtualInputs(find_toolchain()).value("schemes/step/scheme.yml")
    with (mine / "schemes" / "step" / "scheme.yml").open("a") as file:
        file.write("# another line\n")
    assert VirtualInputs(find_toolchain()).value("schemes/step/scheme.yml") not in ("", declaration)


def test_nothing_of_it_is_found_elsewhere(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert repository() is None and "step" not in registry() and "gentle" not in congestion_controls()
    monkeypatch.setenv("QBED_REPOSITORY", str(mine))
    assert repository() == mine and scheme_folder("step") == mine / "schemes" / "step"
    monkeypatch.chdir(mine)
    monkeypatch.setenv("QBED_REPOSITORY", "")
    assert repository() is None and scheme_folder("ecn") == schemes_folder() / "ecn"


def test_a_name_that_qbed_has_is_refused(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine)
    for model, load in ((schemes_folder() / "ecn", registry), (congestion_folder() / "aimd", congestion_controls)):
        place = mine / model.parent.name / model.name
        copy(model, place)
        # The declarations are cached by their folders: this is another repository.
        monkeypatch.setenv("QBED_REPOSITORY", str(shutil.copytree(mine, mine.with_name(model.name))))
        with pytest.raises(QbedError) as error:
            load()
        assert f"`{model.name}` already: {model}/" in str(error.value) and "expected another name" in str(error.value)
        shutil.rmtree(place)
        monkeypatch.delenv("QBED_REPOSITORY")
    copy(labs_folder() / "dumbbell", mine / "labs" / "dumbbell")
    with pytest.raises(LabError, match=r"dumbbell: .* have this name; write the path of the one to use"):
        library.find(Path("dumbbell"))
    assert library.find(Path("labs/dumbbell")) == Path("labs/dumbbell")


def test_sources_of_modules_are_read_once_for_many_plans(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_modules, "_SETTLED_NS", -1)
    read: list[Path] = []

    def counting(path: Path, limit: int) -> bytes:
        read.append(path)
        return read_bytes(path, limit)

    monkeypatch.setattr(user_modules, "read_bytes", counting)
    base = find_toolchain().folder
    places = {toolchain_with_modules(base) for _ in range(3)}
    header = mine / "congestion" / "gentle" / "kernel" / "aimd_algorithm.h"
    assert len(places) == 1 and read.count(header) == 1 and len(read) == len(set(read))
    header.write_text(header.read_text() + "/* one more */\n")
    assert toolchain_with_modules(base) not in places and read.count(header) == 2 == len(read) - len(set(read)) + 1


def test_its_modules_are_kept_by_content(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = find_toolchain().folder
    place = toolchain_with_modules(base)
    assert place is not None and not place.is_relative_to(mine)
    header = mine / "congestion" / "gentle" / "kernel" / "aimd_algorithm.h"
    text = header.read_text()
    for path, added in ((header, "/* one more */\n"), (mine / "schemes" / "step" / "scheme.yml", "# one more\n")):
        before = path.read_text()
        path.write_text(before + added)
        assert toolchain_with_modules(base) != place, path
        path.write_text(before)
    header.write_text(text)
    (mine / "labs" / "first" / "README.md").write_text("one more")
    moved = mine.rename(tmp_path / "moved")
    monkeypatch.setenv("QBED_REPOSITORY", str(moved))
    assert toolchain_with_modules(base) == place
    shutil.rmtree(moved / "congestion")
    shutil.rmtree(moved / "schemes" / "step" / "kernel")
    assert toolchain_with_modules(base) is None
