# SPDX-License-Identifier: Apache-2.0
"""Builds the toolchain of another kernel from the sources in an installed wheel, without Rust.

The kernel and its modules are built on this machine. The agent, the compiler of P4 programs and other programs are
the wheel's: they are the same for all kernels. So is the object of Rust in the module qp4, which includes no header of
Linux; kernel/rust-object.sh compares its hashes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from qbed.base.cache import cache_folder
from qbed.substrates.kernel_scripts import kernel_script, run_script
from qbed.substrates.toolchain_files import MANIFEST, RECORD, all_damaged_files, record
from qbed.substrates.user_modules import add_module, copy_toolchain


def build_toolchain(base: Path, series: str, source: Sequence[str], what: str) -> Path:
    """Build a kernel of a series with its modules, and return the folder of a toolchain with them and the other files
    of the toolchain `base`.

    `source`: kernel/build.sh's options for the user's patches or tree. `what`: the kernel in messages. `BuildError`;
    OSError.
    """
    kernel, _, version = run_script([kernel_script("build.sh"), *source], series, what).strip().partition(" ")
    modules = run_script([kernel_script("modules.sh"), kernel], series, f"the modules of {what}").splitlines()
    parts = (Path(kernel).name, modules[0], hashlib.sha256((base / RECORD).read_bytes()).hexdigest())
    place = cache_folder() / "toolchain" / hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]
    if place.is_dir() and not any(True for _ in all_damaged_files(place)):
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as work:
        new = Path(work, "toolchain")
        copy_toolchain(base, new)
        for name in ("linux", MANIFEST):
            (new / name).unlink()
        shutil.rmtree(new / "modules")
        (new / "modules").mkdir()
        shutil.copy2(Path(kernel, "linux"), new / "linux")
        for folder in modules[1:]:
            add_module(Path(folder), new)
        manifest = json.loads((base / MANIFEST).read_text())
        fields = {"kernel_version": version, "kernel_series": series, "kernel_hash": parts[0], "modules_hash": parts[1]}
        (new / MANIFEST).write_text(json.dumps(manifest | fields))
        record(new)
        shutil.rmtree(place, ignore_errors=True)
        new.rename(place)
    return place
