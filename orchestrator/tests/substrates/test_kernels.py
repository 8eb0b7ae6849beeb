# SPDX-License-Identifier: Apache-2.0
"""Toolchains of the kernels that labs select: inputs of cells, builds of untrusted patches, list and removal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from campaigns import fake_toolchain, write_manifest
from kernel_labs import plan_of, write_patches

from qbed.network.kernels import patched_kernel
from qbed.substrates import toolchain_files
from qbed.substrates.kernels import build_kernel, built_kernels, remove_kernel, toolchain_of
from qbed.substrates.toolchain import ToolchainError, toolchain_in
from qbed.substrates.virtual.inputs import VirtualInputs
from qbed.substrates.virtual.substrate import VirtualSubstrate


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the set-up, with the toolchains of two kernels."""
    folder = tmp_path / "venv" / "share" / "qbed"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("QBED_TOOLCHAIN", raising=False)
    for name in ("6.12", "7.2"):
        toolchain = fake_toolchain(tmp_path / name)
        write_manifest(toolchain, kernel_version=f"{name}.1", kernel_series=name, kernel_hash=f"{name}-h")
        (folder / f"toolchain-{name}").symlink_to(toolchain)
    (folder / "toolchain").symlink_to(tmp_path / "6.12")
    return folder


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    return write_patches(tmp_path)


def test_a_cell_has_the_inputs_of_the_kernel_that_its_plan_loads(tmp_path: Path, setup: Path) -> None:
    inputs = VirtualInputs(toolchain_of(None))
    stock, other = plan_of(tmp_path), plan_of(tmp_path, "7.2")
    assert inputs.of(stock)["kernel"] == "6.12.1 6.12-h"
    found = inputs.of(other)
    assert found["kernel@7.2"] == "7.2.1 7.2-h" and "kernel" not in found
    module = tmp_path / "7.2" / "modules" / "qlink.ko"
    module.write_bytes(b"another")
    toolchain_files.record(tmp_path / "7.2")
    changed = {name for name, value in inputs.of(other).items() if value != found[name]}
    assert changed == {"modules/qlink.ko@7.2"}
    assert inputs.of(stock) == VirtualInputs(toolchain_in(tmp_path / "6.12")).of(stock)


def test_an_input_of_a_removed_kernel_has_no_value(setup: Path) -> None:
    inputs = VirtualInputs(toolchain_of(None))
    (setup / "toolchain-7.2").unlink()
    assert inputs.value("kernel@7.2") == "" and inputs.value("kernel") == "6.12.1 6.12-h"


def test_patches_of_a_lab_are_not_built_unless_the_user_permits_it(
    tmp_path: Path, setup: Path, patches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QBED_TRUST", raising=False)
    plan = plan_of(tmp_path, "./my-patches")
    (part,) = VirtualSubstrate().missing_parts(plan)
    assert (part.kind, part.name) == ("kernel", plan.kernel)
    assert f"`qbed kernel build {patches}` builds it, or --trust allows it" in part.text
    assert not (tmp_path / "cache").exists()


def test_a_kernel_that_is_not_built_has_the_command_in_its_message(setup: Path, patches: Path) -> None:
    name = patched_kernel(patches).name
    with pytest.raises(ToolchainError, match=r"is not built here: run `qbed kernel build`"):
        toolchain_of(name)


def test_a_built_kernel_is_not_built_again(setup: Path, patches: Path) -> None:
    kernel, reports = patched_kernel(patches), list[str]()
    (setup / f"toolchain-{kernel.name}").symlink_to((setup / "toolchain-7.2").resolve())
    assert build_kernel(kernel, reports.append).manifest.kernel_series == "7.2"
    assert reports == []


def test_kernels_are_listed_and_removed_but_not_that_of_the_set_up(tmp_path: Path, setup: Path) -> None:
    assert [(kernel.name, kernel.version, kernel.in_use) for kernel in built_kernels()] == [
        ("6.12", "6.12.1", True),
        ("7.2", "7.2.1", False),
    ]
    build = tmp_path / "cache" / "kernel" / "7.2-h"
    build.mkdir(parents=True)
    (build / "linux").write_bytes(bytes(1 << 20))
    assert remove_kernel("7.2") >= 1 << 20
    assert not build.exists() and not (tmp_path / "7.2").exists()
    assert [kernel.name for kernel in built_kernels()] == ["6.12"]
    for name in ("6.12", "7.2"):
        with pytest.raises(ToolchainError, match=name.replace(".", r"\.")):
            remove_kernel(name)
