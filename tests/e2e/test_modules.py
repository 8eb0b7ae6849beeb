# SPDX-License-Identifier: Apache-2.0
"""Kernel modules are built one by one, in a copy of the checkout and a cache without modules."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from qbed.substrates.toolchain import find_toolchain

from qbed_testing.checkouts import make_checkout

MAIN = """\
// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>

int two_other(int number);
int two_core(int number);

static int __init two_init(void)
{
	return two_other(2) + two_core(2);
}

module_init(two_init);

MODULE_DESCRIPTION("Two files and an object");
MODULE_LICENSE("GPL");
"""
OTHER = "int two_other(int number);\n\nint two_other(int number)\n{\n\treturn number;\n}\n"
CORE = "int two_core(int number) { return -number; }\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new cache that shares the built kernel and has no modules."""
    common = Path(os.environ.get("QBED_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "qbed")
    cache = tmp_path_factory.mktemp("cache")
    kernel = cache / "kernel" / find_toolchain().manifest.kernel_hash
    kernel.mkdir(parents=True)
    for name in ("linux", "build", "source"):
        (kernel / name).symlink_to(common.expanduser() / "kernel" / kernel.name / name)
    for name in ("agent", "cargo-target", "frr", "p4image", "p4switch", "source"):
        (cache / name).symlink_to(common.expanduser() / name)
    return cache


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    return make_checkout(tmp_path_factory.mktemp("modules") / "checkout", QBED_CACHE=str(cache))


def built(cache: Path) -> set[str]:
    return {path.name for path in cache.glob("kernel/*/modules/*")}


def build(checkout: Path, cache: Path) -> list[str]:
    """Build the toolchain, and return the modules that were built."""
    before = built(cache)
    environment = os.environ | {"QBED_CACHE": str(cache)}
    subprocess.run([checkout / "tools" / "setup", "--build"], env=environment, capture_output=True, check=True)
    return sorted(name.rpartition("-")[0] for name in built(cache) - before)


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_modules_are_built_one_by_one(checkout: Path, cache: Path) -> None:
    """One test: building all modules takes over a minute, and each of pytest's workers would do it."""
    modules_of_two_checkouts_are_equal_files(checkout)
    an_edit_rebuilds_only_its_module(checkout, cache)
    a_module_may_have_several_files_and_a_linked_object(checkout, cache)


def modules_of_two_checkouts_are_equal_files(checkout: Path) -> None:
    modules = find_toolchain().folder / "modules"
    copies = checkout / ".venv" / "share" / "qbed" / "toolchain" / "modules"
    assert {path.name for path in copies.iterdir()} == {path.name for path in modules.iterdir()}
    for module in copies.iterdir():
        assert module.read_bytes() == (modules / module.name).read_bytes(), module.name


def an_edit_rebuilds_only_its_module(checkout: Path, cache: Path) -> None:
    append(checkout / "schemes" / "rpm" / "kernel" / "rpm_algorithm.h", "/* another line */\n")
    assert build(checkout, cache) == ["rpm"]
    declaration = checkout / "schemes" / "ecn" / "scheme.yml"
    declaration.write_text(
        declaration.read_text().replace("default: 65 packets", "default: 65 packets\n    min: 1 packets")
    )
    assert build(checkout, cache) == ["ecn"]
    declaration = checkout / "schemes" / "droptail" / "scheme.yml"
    append(declaration, "# This scheme has no module.\n")
    assert build(checkout, cache) == []


def a_module_may_have_several_files_and_a_linked_object(checkout: Path, cache: Path) -> None:
    folder = checkout / "kernel" / "modules" / "two"
    (folder / "deep").mkdir(parents=True)
    (folder / "Kbuild").write_text("obj-m := two.o\ntwo-y := main.o deep/other.o core.o\n")
    (folder / "main.c").write_text(MAIN)
    (folder / "deep" / "other.c").write_text(OTHER)
    options = ["-O2", "-ffreestanding", "-fno-pic", "-mcmodel=large", "-xc", "-c"]
    subprocess.run(["cc", *options, "-o", folder / "core.o_shipped", "-"], input=CORE, text=True, check=True)
    assert build(checkout, cache) == ["two"]
    assert (checkout / ".venv" / "share" / "qbed" / "toolchain" / "modules" / "two.ko").exists()
