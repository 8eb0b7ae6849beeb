# SPDX-License-Identifier: Apache-2.0
"""Kernels that labs select, in an installed wheel: scripts that compile nothing are in place of its build scripts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns import fake_toolchain, write_manifest
from kernel_labs import write_patches

from qbed.base import locations
from qbed.base.locations import kernel_series
from qbed.network.kernels import LabKernel, patched_kernel, user_kernel
from qbed.substrates import kernel_scripts
from qbed.substrates.kernels import build_kernel, built_kernels, remove_kernel, toolchain_of
from qbed.substrates.toolchain import Toolchain, ToolchainError

BUILD = """\
#!/bin/sh
[ ! -e "$QBED_CACHE/broken" ] || exit 1
kernel=$QBED_CACHE/kernel/$QBED_KERNEL-0123
mkdir -p "$kernel"
echo "Linux $*" >"$kernel/linux"
echo "$kernel $QBED_KERNEL.9"
"""
MODULES = """\
#!/bin/sh
echo 4567
for name in qlink qtap qgate; do
    mkdir -p "$1/modules/$name-89"
    echo "$name for $1" >"$1/modules/$name-89/$name.ko"
    echo lines >"$1/modules/$name-89/$name.lines"
    echo "$1/modules/$name-89"
done
"""


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data of an installed wheel with the kernel 6.12, on a machine with the packages that a build needs."""
    package = tmp_path / "site-packages" / "qbed"
    scripts = package / "bundle" / "sources" / "kernel"
    for series in ("6.12", "7.2"):
        (scripts / "patches" / series).mkdir(parents=True)
    for name, text in (("build.sh", BUILD), ("modules.sh", MODULES)):
        (scripts / name).write_text(text)
        (scripts / name).chmod(0o755)
    (package / "bundle" / "identity").write_text("0a1b\n")
    toolchain = fake_toolchain(package / "bundle" / "toolchain")
    write_manifest(toolchain, kernel_version="6.12.9", kernel_series="6.12", kernel_hash="6.12-x", agent_hash="a")
    for name in ("linux-source-6.12.tar.xz", "libelf.h"):
        (tmp_path / name).touch()
    monkeypatch.setattr(kernel_scripts, "_PROGRAMS", {"sh": "dash"})
    monkeypatch.setattr(kernel_scripts, "_LIBELF", tmp_path / "libelf.h")
    monkeypatch.setattr(kernel_scripts, "_SOURCES", tmp_path)
    monkeypatch.setattr(locations, "_PACKAGE", package)
    monkeypatch.setattr(locations, "BUNDLE", package / "bundle")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))  # of this one, other kernels may be built
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("QBED_TOOLCHAIN", raising=False)
    locations.checkout.cache_clear()
    yield package / "bundle"
    locations.checkout.cache_clear()


def reports_of_build(kernel: LabKernel) -> tuple[Toolchain, list[str]]:
    reports = list[str]()
    return build_kernel(kernel, reports.append, permitted=True), reports


def test_another_series_has_its_kernel_and_modules_and_the_wheels_programs(tmp_path: Path, wheel: Path) -> None:
    assert kernel_series() == ["6.12", "7.2"]
    built, reports = reports_of_build(LabKernel("7.2"))
    assert reports == ["building the kernel 7.2 and the modules for it"]
    manifest = built.manifest
    assert (manifest.kernel_series, manifest.kernel_version, manifest.kernel_hash) == ("7.2", "7.2.9", "7.2-0123")
    assert (manifest.modules_hash, manifest.agent_hash) == ("4567", "a")
    assert (built.folder / "linux").read_text() == "Linux \n"
    assert (built.folder / "modules" / "qlink.ko").read_text() == f"qlink for {tmp_path / 'cache/kernel/7.2-0123'}\n"
    assert (built.folder / "qbed-agent").read_bytes() == (wheel / "toolchain" / "qbed-agent").read_bytes()
    built.check(built.checksums)
    assert toolchain_of("7.2") == built
    assert reports_of_build(LabKernel("7.2")) == (built, [])


def test_the_wheels_series_is_the_shipped_kernel(wheel: Path) -> None:
    built, reports = reports_of_build(LabKernel("6.12"))
    assert built.folder == wheel / "toolchain" and reports == []


def test_patches_are_built_from_their_copy_and_listed(tmp_path: Path, wheel: Path) -> None:
    patches = write_patches(tmp_path)
    kernel = patched_kernel(patches)
    built, _ = reports_of_build(kernel)
    copy = tmp_path / "cache" / "kernel" / "patches" / kernel.name.partition("+")[2]
    assert (built.folder / "linux").read_text() == f"Linux --patches {copy}\n"
    listed = [(one.name, one.version, one.origin, one.in_use) for one in built_kernels()]
    assert listed == [("6.12", "6.12.9", "", True), (kernel.name, "6.12.9", str(patches), False)]
    remove_kernel(kernel.name)
    assert [one.name for one in built_kernels()] == ["6.12"]
    with pytest.raises(ToolchainError, match=r"6\.12 is the kernel of the set-up"):
        remove_kernel("6.12")


def test_a_tree_is_named_with_its_content(tmp_path: Path, wheel: Path) -> None:
    (wheel / "sources" / "kernel" / "unused-sources").write_text("drivers/gpu/*\n")
    tree = tmp_path / "my-tree"
    (tree / "arch" / "um").mkdir(parents=True)
    (tree / "Kconfig").touch()
    (tree / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 9\n")
    kernel = user_kernel(tree)
    built, _ = reports_of_build(kernel)
    assert (built.folder / "linux").read_text() == f"Linux --tree {tree} {kernel.name.partition('+')[2]}\n"


def test_another_version_than_the_wheels_is_reported(tmp_path: Path, wheel: Path) -> None:
    write_manifest(wheel / "toolchain", kernel_version="6.12.8", kernel_series="6.12")
    _, reports = reports_of_build(patched_kernel(write_patches(tmp_path)))
    assert "Linux 6.12.9 of this machine, the wheel's kernel is 6.12.8" in reports[-1]


def test_a_newer_wheel_builds_kernels_again(wheel: Path) -> None:
    reports_of_build(LabKernel("7.2"))
    (wheel / "identity").write_text("2c3d\n")
    _, reports = reports_of_build(LabKernel("7.2"))
    assert reports == ["building the kernel 7.2 and the modules for it"]


def test_a_failed_build_leaves_no_kernel(tmp_path: Path, wheel: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "broken").touch()
    with pytest.raises(ToolchainError, match=r"^the kernel 7\.2 did not build: see above$"):
        reports_of_build(LabKernel("7.2"))
    assert [one.name for one in built_kernels()] == ["6.12"]


def test_missing_packages_are_named_before_a_build(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_scripts, "_PROGRAMS", {"sh": "dash", "no-such-program": "bison"})
    (tmp_path / "libelf.h").unlink()
    expected = "the kernel 7.2 cannot be built here: install Debian's packages, `sudo apt install bison libelf-dev`"
    with pytest.raises(ToolchainError) as caught:
        reports_of_build(LabKernel("7.2"))
    assert str(caught.value) == expected
    (tmp_path / "linux-source-6.12.tar.xz").unlink()
    kernel = patched_kernel(write_patches(tmp_path))
    with pytest.raises(ToolchainError, match=r"bison libelf-dev linux-source-6\.12`"):
        reports_of_build(kernel)


def test_an_image_has_its_kernel_and_builds_none(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBED_TOOLCHAIN", str(wheel / "toolchain"))
    shutil.rmtree(wheel / "sources")
    (wheel / "identity").unlink()
    assert kernel_series() == []
    assert reports_of_build(LabKernel("6.12"))[1] == []
    assert [one.name for one in built_kernels()] == ["6.12"]
    with pytest.raises(ToolchainError, match=r"^the kernel 7\.2 is not built, and this installation has no sources"):
        reports_of_build(LabKernel("7.2"))
