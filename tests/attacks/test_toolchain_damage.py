# SPDX-License-Identifier: Apache-2.0
"""Damage in the toolchain: a file that differs from the built one is reported before it is loaded."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.substrates import Limits, toolchain_files
from qbed.substrates.toolchain import (
    Toolchain,
    ToolchainError,
    find_toolchain,
    toolchain_in,
)
from qbed.substrates.virtual.cell import VirtualCell
from qbed.substrates.virtual.provision import loaded, provide

FLIPS = 70
REMEDY = ": copy it again, or unset the variable"
LAB = """\
name: damaged-tools
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 64 KB}}
workload:
  - flow: {from: h1, to: h2, size: 10 KB}
duration: 2 ms
"""


@pytest.fixture(scope="module")
def toolchain_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the toolchain."""
    folder = tmp_path_factory.mktemp("tools") / "toolchain"
    shutil.copytree(find_toolchain().folder, folder)
    return folder


@pytest.fixture
def tools(toolchain_copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(toolchain_files, "_read", {})
    monkeypatch.delenv("QBED_TOOLCHAIN", raising=False)
    return toolchain_copy


@pytest.fixture
def lab(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a lab that runs on the copied toolchain."""
    (tmp_path / "lab.yml").write_text(LAB)
    monkeypatch.setenv("QBED_TOOLCHAIN", str(tools))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("QBED_STORE", "off")
    return tmp_path


class Damaged:
    """A context in which a file of the toolchain is damaged."""

    def __init__(self, path: Path, damage: Callable[[Path], None]) -> None:
        self.path, self.saved, self.damage = path, path.with_name(f"{path.name}.saved"), damage

    def __enter__(self) -> None:
        self.path.rename(self.saved)
        if self.saved.is_file():
            shutil.copy2(self.saved, self.path)
        elif self.saved.is_dir():
            shutil.copytree(self.saved, self.path)
        self.damage(self.path)

    def __exit__(self, *_: object) -> None:
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)
        self.saved.rename(self.path)


def flip(path: Path, bit: int | None = None) -> None:
    """Flip one bit, and keep the file's modification time."""
    content, before = bytearray(path.read_bytes()), path.stat()
    bit = 4 * len(content) if bit is None else bit
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def dangle(path: Path) -> None:
    remove(path)
    path.symlink_to("/nowhere/at/all")


def loop(path: Path) -> None:
    remove(path)
    path.symlink_to(path)


def folder(path: Path) -> None:
    remove(path)
    path.mkdir()


def fifo(path: Path) -> None:
    remove(path)
    os.mkfifo(path)


def overwrite(content: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(content)

    return damage


def qbed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qbed", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    return done


def kinds(tools: Path) -> list[list[str]]:
    """The toolchain's files, grouped by kind."""
    names = json.loads((tools / "files.json").read_bytes())["files"]
    by_folder = {place: [name for name in names if name.startswith(f"{place}/")] for place in ("modules", "tc", "frr")}
    return [["linux"], ["qbed-agent"], ["manifest.json"], ["files.json"], *filter(None, by_folder.values())]


def test_a_flipped_bit_is_detected(tools: Path) -> None:
    rng = random.Random(27)
    undamaged = toolchain_in(tools)
    undamaged.check(undamaged.checksums)
    groups = kinds(tools)
    for number in range(FLIPS):
        path = tools / rng.choice(groups[number % len(groups)])
        bit = rng.randrange(8 * path.stat().st_size)
        with (
            Damaged(path, lambda path, bit=bit: flip(path, bit)),  # type: ignore[misc]
            pytest.raises(ToolchainError, match=rf"^.*{path.name} .*; run `make setup`$"),
        ):
            found = toolchain_in(tools)
            found.check(found.checksums)
    undamaged.check(undamaged.checksums)


def test_files_that_a_guest_loads_are_hashed_once_until_they_change(tools: Path, lab: Path) -> None:
    plan, undamaged = compile_lab(load_lab(lab)), toolchain_in(tools)
    assert loaded(undamaged, plan) == [
        *("linux", "qbed-agent", "modules/qlink.ko", "modules/qtap.ko", "modules/qgate.ko", "modules/sch_ecn.ko")
    ]
    provide(undamaged, lab, plan, [])
    read = dict(toolchain_files._read)
    provide(undamaged, lab, plan, [])
    assert toolchain_files._read == read
    for name in loaded(undamaged, plan):
        with Damaged(tools / name, flip), pytest.raises(ToolchainError, match=f"{name} is not what was built; "):
            VirtualCell(undamaged, lab, plan).run(Limits(60, 30), lambda _: None)


def test_a_module_without_a_checksum_is_not_loaded(tools: Path, lab: Path) -> None:
    plan, undamaged = compile_lab(load_lab(lab)), toolchain_in(tools)
    without = {name: sum for name, sum in undamaged.checksums.items() if name != "modules/sch_ecn.ko"}
    with pytest.raises(ToolchainError, match=r"modules/sch_ecn\.ko is not one of the toolchain's files"):
        provide(Toolchain(tools, undamaged.manifest, without), lab, plan, [])


DAMAGES = [
    *[("linux", damage) for damage in (flip, dangle)],
    *[("qbed-agent", damage) for damage in (truncate, folder)],
    *[("modules/sch_ecn.ko", damage) for damage in (flip, folder, fifo)],
    *[("manifest.json", damage) for damage in (flip, remove, fifo, overwrite(b"[]"))],
    *[("files.json", damage) for damage in (truncate, remove, loop, overwrite(b'{"files": 3}'))],
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES, ids=[f"{name}-{damage.__name__}" for name, damage in DAMAGES])
def test_a_run_names_the_damaged_file_and_its_repair(
    tools: Path, lab: Path, name: str, damage: Callable[[Path], None]
) -> None:
    with Damaged(tools / name, damage):
        done = qbed(lab, "run", ".", "--out", "run", "--no-images")
        assert done.returncode == 1, done.stderr
        assert Path(name).name.partition(".")[0] in done.stderr and REMEDY in done.stderr
        assert not list(lab.glob("run/cells/*")), "a cell was run"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("tc/q_ecn.so", flip),
        ("tc/q_ecn.so", dangle),
        ("tc/version", overwrite(b"\xff")),
        ("tc", dangle),
        ("linux", flip),
    ],
)
def test_a_lab_on_a_damaged_toolchain_is_refused(
    tools: Path, lab: Path, name: str, damage: Callable[[Path], None]
) -> None:
    if not (tools / "tc").exists() and name.startswith("tc"):
        pytest.fail("this toolchain has no plugins for tc: run `make setup`")
    with Damaged(tools / name, damage):
        done = qbed(lab, "up", ".")
        assert done.returncode == 1 and name in done.stderr and REMEDY in done.stderr, done.stderr
        assert "is not up" in qbed(lab, "exec", "damaged-tools", "h1", "true").stderr
        if name != "tc":  # a copy of a toolchain may be without plugins
            report = qbed(lab, "doctor").stdout
            assert any(line.startswith("missing") and name in line for line in report.splitlines()), report


def test_a_toolchain_without_checksums_is_refused(tools: Path) -> None:
    with (
        Damaged(tools / "files.json", remove),
        pytest.raises(ToolchainError, match=r"damaged: .*/files\.json is missing"),
    ):
        toolchain_in(tools)


def test_an_added_program_has_a_checksum(tools: Path, lab: Path) -> None:
    copy = lab / "copy"
    shutil.copytree(tools, copy)
    (lab / "new").write_text("a program")
    toolchain_files.add(copy, "programs/p4switch", lab / "new")
    (lab / "new").rename(copy / "programs" / "p4switch")
    toolchain_in(copy).check(["programs/p4switch"])
    assert list(toolchain_files.all_damaged_files(copy)) == []
    shutil.rmtree(copy / "lines")
    assert list(toolchain_files.all_damaged_files(copy, copied=True)) == []
    assert {name.partition("/")[0] for name, _ in toolchain_files.all_damaged_files(copy)} == {"lines"}
