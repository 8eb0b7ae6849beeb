# SPDX-License-Identifier: Apache-2.0
"""Objects of Rust that come with the sources of a wheel, for modules of further kernels (kernel/rust-object.sh)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from qbed.base.locations import checkout

CRATE = "p4kernel"
WITHOUT_CARGO = os.environ | {"PATH": "/usr/bin:/bin"}
needs_no_cargo = pytest.mark.skipif(
    shutil.which("cargo", path=WITHOUT_CARGO["PATH"]) is not None, reason="cargo is in /usr/bin"
)


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(root / "kernel" / "rust-object.sh"), *arguments]
    return subprocess.run(command, env=WITHOUT_CARGO, capture_output=True, text=True, check=False)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """The sources of the object in another folder, with the object that this checkout built."""
    root = checkout()
    assert root is not None
    sources = tmp_path / "sources"
    shipped = sources / "kernel" / "rust-objects"
    shipped.mkdir(parents=True)
    for name in ("Cargo.toml", "Cargo.lock", "kernel/rust-object.sh", "tools/cargo", "tools/build-lock"):
        (sources / name).parent.mkdir(exist_ok=True)
        shutil.copy2(root / name, sources / name)
    for crate in ("p4kernel", "p4engine", "p4native"):
        shutil.copytree(root / "crates" / crate, sources / "crates" / crate)
    command = [str(root / "kernel" / "rust-object.sh"), "--ship", CRATE, str(shipped)]
    subprocess.run(command, capture_output=True, check=True)
    return sources


@needs_no_cargo
def test_an_object_of_these_sources_is_used_without_cargo(wheel: Path) -> None:
    found = run(wheel, CRATE)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == str(wheel / "kernel" / "rust-objects" / f"{CRATE}.o")


@needs_no_cargo
def test_an_object_of_other_sources_is_refused(wheel: Path) -> None:
    source = wheel / "crates" / "p4engine" / "src" / "lib.rs"
    source.write_text(f"{source.read_text()}// another line\n")
    refused = run(wheel, CRATE)
    assert refused.returncode == 1 and refused.stdout == ""
    assert f"kernel/rust-objects/{CRATE}.o is of other sources" in refused.stderr
    assert "no cargo" in refused.stderr


@needs_no_cargo
def test_a_damaged_object_is_refused(wheel: Path) -> None:
    place = wheel / "kernel" / "rust-objects" / f"{CRATE}.o"
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(content)
    refused = run(wheel, CRATE)
    assert refused.returncode == 1 and refused.stdout == ""
    assert f"kernel/rust-objects/{CRATE}.o is damaged" in refused.stderr


def test_cargo_runs_the_rustc_beside_it(tmp_path: Path) -> None:
    """The first ones in PATH may be rustup's without a toolchain."""
    root = checkout()
    assert root is not None
    for name in ("cargo", "rustc"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    command = [str(root / "tools" / "cargo"), "tree", "--locked", "--package", "qbed-agent", "--depth", "0"]
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("qbed-agent "), done.stderr
