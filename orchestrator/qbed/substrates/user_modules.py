# SPDX-License-Identifier: Apache-2.0
"""Kernel modules of the user's repository: a copy of the toolchain with its schemes and congestion controls, in the
cache under the hash of their sources.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qbed.base import terminal
from qbed.base.cache import cache_folder
from qbed.base.files import MIB, read_bytes
from qbed.base.locations import checkout, repository
from qbed.substrates.build_lock import build_lock
from qbed.substrates.kernel_scripts import BuildError, kernel_script, run_script
from qbed.substrates.toolchain_files import RECORD, all_damaged_files, record

_SOURCES = ("schemes/*/kernel/**/*", "schemes/*/host/*", "congestion/*/kernel/**/*")
_DECLARATIONS = ("schemes/*/scheme.yml", "congestion/*/congestion.yml")
_GENERATOR = Path(__file__).parents[1] / "schemes"
"""The sources of the code generator."""
_LARGEST = 4 * MIB
_SETTLED_NS = 10**9
"""Age from which another write of a file is sure to have another time."""
_hashes: dict[Path, tuple[tuple[int, ...], bytes]] = {}
TC = "tc"
"""The folder of tc's plugins, in a toolchain and in the folder of a lab that is up."""
_VERSION = "version"
"""The file there with the output of `tc -V` of the tc that loads them."""


@dataclass(frozen=True)
class KernelBuild:
    """A kernel that modules are built for: its series, its version, and the folder of its build in the cache."""

    series: str
    version: str
    folder: str


def toolchain_with_modules(base: Path) -> Path | None:
    """The folder in the cache of a toolchain with the modules of the user's repository, built or not. None if it has
    none.
    """
    root = repository()
    if root is None:
        return None
    sources = sorted(_files(root, _SOURCES))
    if not sources:
        return None
    digest = hashlib.sha256(_hash(base / RECORD))
    generator = [*_GENERATOR.glob("*.py"), *_GENERATOR.glob("templates/*.j2")]
    for place, files in ((root, [*sources, *_files(root, _DECLARATIONS)]), (_GENERATOR, generator)):
        for path in sorted(files):
            digest.update(f"{path.relative_to(place)}\n".encode() + _hash(path))
    return cache_folder() / "repository" / digest.hexdigest()[:16]


def _hash(path: Path) -> bytes:
    """The hash of a file's content. It is read once in this process, for many plans, and again after a change."""
    status = path.stat()
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    known = _hashes.get(path)
    if known is not None and known[0] == key:
        return known[1]
    found = hashlib.sha256(read_bytes(path, _LARGEST)).digest()
    if time.time_ns() - status.st_ctime_ns > _SETTLED_NS:
        _hashes[path] = (key, found)
    return found


def build_user_modules(base: Path, kernel: KernelBuild, report: Callable[[str], None]) -> None:
    """Build the modules of the user's repository for a toolchain's kernel, if they are not. `BuildError`; OSError."""
    place, root = toolchain_with_modules(base), repository()
    if place is None or root is None or _is_complete(place):
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with build_lock(place.parent / "building", f"building the kernel modules of {root}", report):
        if _is_complete(place):
            return  # another process has just built it
        report(f"building the kernel modules of {root}")
        modules = _build(root, kernel)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=place.parent) as work:
            new = Path(work, "toolchain")
            copy_toolchain(base, new)
            for module in modules:
                add_module(module, new)
            record(new)
            shutil.rmtree(place, ignore_errors=True)
            new.rename(place)


def tc_plugins(base: Path, version: bytes) -> Path | None:
    """The folder of plugins for the tc that prints `version`, with those of the schemes of the user's repository, built
    if they are not. Those of the toolchain `base` if others cannot be built; None if they are for another tc.
    """
    root, plain = repository(), base / TC
    has_schemes = root is not None and any(_files(root, ("schemes/*/kernel/Kbuild",)))
    with suppress(OSError):
        if (plain / _VERSION).read_bytes() == version and not has_schemes:
            return plain
    # `make setup` builds those of a checkout.
    if has_schemes or (checkout() is None and shutil.which("gcc") and shutil.which("dpkg-source")):
        built = _built_plugins(root if has_schemes else None)
        if built is not None and (built / _VERSION).read_bytes() == version:
            return built
        schemes = f"the schemes of {root}" if has_schemes else "the schemes"
        terminal.print_status(f"no plugins for tc: on nodes it does not print the options of {schemes}")
    with suppress(OSError):
        if (plain / _VERSION).read_bytes() == version:
            return plain
    return None


def _built_plugins(root: Path | None) -> Path | None:
    """Build the plugins, also of a repository. None if that fails: the script prints why."""
    done = subprocess.run(
        [kernel_script("tc-plugins.sh"), *([] if root is None else [root])],
        env=os.environ | {"QBED_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def _files(root: Path, patterns: tuple[str, ...]) -> Iterator[Path]:
    """The files that kernel/modules.sh builds."""
    for path in (path for pattern in patterns for path in root.glob(pattern)):
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith("~"):
            yield path


def _is_complete(place: Path) -> bool:
    return place.is_dir() and not any(True for _ in all_damaged_files(place))


def _build(root: Path, kernel: KernelBuild) -> list[Path]:
    """Build the modules. Return the folder of each module's build."""
    what = f"the kernel modules of {root}"
    built = cache_folder() / "kernel" / kernel.folder
    if not kernel.folder or not (built / "linux").exists():
        line = run_script([kernel_script("build.sh")], kernel.series, what).strip().rpartition("\n")[2]
        place, _, version = line.partition(" ")
        if version != kernel.version:
            raise BuildError(
                f"the kernel modules of {root} are for the kernel {version} of this machine, but the toolchain has"
                f" {kernel.version}: run `make setup`, or install a wheel that was built on this release of Debian"
            )
        built = Path(place)
    output = run_script([kernel_script("modules.sh"), built, root], kernel.series, what)
    return [Path(line) for line in output.splitlines()[1:]]


def copy_toolchain(base: Path, new: Path) -> None:
    """Copy a toolchain; folders that it links to are linked."""
    new.mkdir()
    for path in base.iterdir():
        if path.is_symlink():
            (new / path.name).symlink_to(path.resolve())
        elif path.is_dir():
            (new / path.name).mkdir()
            for file in path.iterdir():
                _link(file, new / path.name / file.name)
        elif path.name != RECORD:
            _link(path, new / path.name)


def _link(file: Path, place: Path) -> None:
    with suppress(OSError):  # another file system, or another user's file
        os.link(file, place)
        return
    shutil.copy2(file, place)


def add_module(module: Path, new: Path) -> None:
    """Add a module's files to a toolchain."""
    (new / "lines").mkdir(exist_ok=True)
    for file in module.iterdir():
        place = new / ("modules" if file.suffix == ".ko" else "lines") / file.name
        place.unlink(missing_ok=True)
        shutil.copyfile(file, place)
