# SPDX-License-Identifier: Apache-2.0
"""The toolchains of the kernels that labs select: found by the kernel's name, built if missing, listed and removed.

A kernel is a series (`7.2`), or the user's patches or source tree of a series, by a hash of them (`6.12+HASH`). Each
has a toolchain beside that of the set-up, `toolchain-KERNEL`, with the modules built against it, in a checkout a record
of the sources of its build, and the path of the user's folder, `origin-KERNEL`. The cache has the builds and a copy of
the patches.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qbed.base import terminal
from qbed.base.cache import cache_folder
from qbed.base.files import move
from qbed.base.locations import checkout, setup_folder, toolchain_folder
from qbed.config.reach import trusted
from qbed.network.kernels import KernelFolderError, LabKernel, patch_files, patched_kernel, user_kernel
from qbed.substrates.build_lock import build_lock
from qbed.substrates.kernel_scripts import BuildError, kernel_script
from qbed.substrates.rebuild import BUILDING, RECORD, changed_sources, run_setup
from qbed.substrates.toolchain import (
    Toolchain,
    ToolchainError,
    base_toolchain,
    build_for_repository,
    find_toolchain,
    toolchain_in,
    with_user_modules,
)
from qbed.substrates.user_modules import toolchain_with_modules
from qbed.substrates.wheel_kernels import build_toolchain

_PREFIX = "toolchain-"
_ORIGIN = "origin-"
Report = Callable[[str], None]


def toolchain_of(kernel: str | None) -> Toolchain:
    """The toolchain of a kernel by its name, with the modules of the user's repository if they are built. None: that of
    the set-up. `ToolchainError` if it is not built.
    """
    return find_toolchain() if kernel is None else with_user_modules(_base_of(kernel))


def _base_of(kernel: str) -> Toolchain:
    """The toolchain of a kernel without modules of the user. `ToolchainError` if it is not built."""
    with suppress(ToolchainError):
        found = base_toolchain()
        if found.manifest.kernel_series == kernel and not _patches_of(kernel):
            return found
    folder = setup_folder() / f"{_PREFIX}{kernel}"
    if not folder.exists():
        raise ToolchainError(f"the kernel {kernel} is not built here: run `qbed kernel build`")
    return toolchain_in(folder)


def build_kernel(kernel: LabKernel, report: Report, *, permitted: bool = False) -> Toolchain:
    """Build a kernel with its modules if that is missing or older than the sources, and return its toolchain.

    Makefiles of patches and trees run on this machine, as the user. So those of a lab are built only if the files are
    trusted, if the user confirms it, or if the command names them (`permitted`).
    """
    if not _is_current(kernel.name):
        _build(kernel, report, permitted=permitted)
    base = _base_of(kernel.name)
    if toolchain_with_modules(base.folder) is not None and with_user_modules(base) == base:
        build_for_repository(report, base)
    return toolchain_of(kernel.name)


def _build(kernel: LabKernel, report: Report, *, permitted: bool) -> None:
    if not kernel_script("build.sh").exists():
        text = "this installation has no sources of kernels: a checkout and a wheel have"
        raise ToolchainError(f"the kernel {kernel.name} is not built, and {text}")
    origin = setup_folder() / f"{_ORIGIN}{kernel.name}"
    if kernel.folder is not None and not origin.exists():  # built before: only modules or qbed's sources have changed
        _refuse_untrusted(kernel, permitted=permitted)
    source = _source(kernel)
    what = f"the kernel {kernel.name}" + (f" of {kernel.folder}" if kernel.folder else "")
    setup_folder().mkdir(parents=True, exist_ok=True)
    with build_lock(setup_folder() / BUILDING, f"building {what}", report):
        if _is_current(kernel.name):
            return
        report(f"building {what} and the modules for it")
        root = checkout()
        if root is not None:
            _build_in_checkout(root, kernel, source, what)
        else:
            _build_from_wheel(kernel, source, what, report)
    if kernel.folder is not None:
        origin.write_text(str(kernel.folder))
        if kernel.is_tree and user_kernel(kernel.folder).name != kernel.name:
            remove_kernel(kernel.name)
            raise ToolchainError(f"{kernel.folder} has changed during its build: run it again")


def _build_in_checkout(root: Path, kernel: LabKernel, source: list[str], what: str) -> None:
    """Build with the checkout's set-up. `ToolchainError`."""
    named = ["--name", kernel.name] if source else []
    if not run_setup(root, _series(kernel.name), "--beside", *source, *named):
        raise ToolchainError(f"{what} was not built: see above")


def _build_from_wheel(kernel: LabKernel, source: list[str], what: str, report: Report) -> None:
    """Build from the sources in the wheel, and link the toolchain. `ToolchainError`."""
    wheel = toolchain_in(toolchain_folder())
    key = [_mark(kernel.name)] if kernel.is_tree else []
    try:
        place = build_toolchain(wheel.folder, _series(kernel.name), [*source, *key], what)
        beside = setup_folder() / f".{_PREFIX}{kernel.name}.{os.getpid()}"
        beside.unlink(missing_ok=True)
        beside.symlink_to(place)
        beside.replace(setup_folder() / f"{_PREFIX}{kernel.name}")
    except BuildError as error:
        raise ToolchainError(str(error)) from error
    except OSError as error:
        raise ToolchainError(f"{what} cannot be built: {error.filename}: {error.strerror}") from error
    built, shipped = toolchain_in(place).manifest, wheel.manifest
    if built.kernel_series == shipped.kernel_series and built.kernel_version != shipped.kernel_version:
        versions = f"Linux {built.kernel_version} of this machine, the wheel's kernel is {shipped.kernel_version}"
        report(f"{what} is {versions}: a comparison of the two also compares these versions")


def _source(kernel: LabKernel) -> list[str]:
    """The option that names the user's patches or tree to the build. `ToolchainError` if they are nowhere."""
    patches = _patches_of(kernel.name)
    if patches is None:
        return []
    if kernel.is_tree:
        return ["--tree", str(kernel.folder)]
    if kernel.folder is not None:
        _keep_patches(kernel, patches)
    if not patches.exists():
        raise ToolchainError(f"the kernel {kernel.name} is not built: run `qbed kernel build FOLDER`")
    return ["--patches", str(patches)]


def _is_current(kernel: str) -> bool:
    """Whether a kernel's toolchain is built, of the sources as they are now."""
    try:
        found = _base_of(kernel)
    except ToolchainError:
        return False
    beside = (setup_folder() / f"{_PREFIX}{kernel}").resolve() == found.folder
    return not beside or not changed_sources(f"{RECORD}-{kernel}")


def _refuse_untrusted(kernel: LabKernel, *, permitted: bool) -> None:
    text = f"makefiles of {kernel.folder} run on this machine when the kernel is built"
    if permitted or trusted() or terminal.confirm(f"{text}. Build it?"):
        return
    raise ToolchainError(f"{text}: `qbed kernel build {kernel.folder}` builds it, or --trust allows it")


def _series(kernel: str) -> str:
    return kernel.partition("+")[0]


def _mark(kernel: str) -> str:
    """The hash of the user's patches or tree in a kernel's name; empty for a series."""
    return kernel.partition("+")[2]


# --- the patches' copies ---


def _patches_of(kernel: str) -> Path | None:
    """The copy of a kernel's patches; None for a series."""
    mark = _mark(kernel)
    return cache_folder() / "kernel" / "patches" / mark if mark else None


def _keep_patches(kernel: LabKernel, place: Path) -> None:
    """Copy the patches, so that they can be built again as they are now. `ToolchainError` if they have changed."""
    assert kernel.folder is not None
    if place.exists():
        return
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        for name, content in patch_files(kernel.folder).items():
            (beside / name).write_bytes(content)
        if _mark(patched_kernel(beside).name) != place.name:
            raise ToolchainError(f"the patches of {kernel.folder} have just changed: run it again")
        with suppress(FileExistsError):
            move(beside, place)
    except (OSError, KernelFolderError) as error:
        raise ToolchainError(f"the patches of {kernel.folder} cannot be copied: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


# --- the list ---


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel of this installation. `origin`: the user's folder, which may have changed since."""

    name: str
    version: str
    origin: str
    in_use: bool
    """Whether it is the kernel of labs that select none."""


def built_kernels() -> Iterator[BuiltKernel]:
    """The kernels that are built, in the order of their names."""
    default = toolchain_folder()
    links = {link.name.removeprefix(_PREFIX): link for link in setup_folder().glob(f"{_PREFIX}*")}
    if checkout() is None:
        found = base_toolchain()
        default = found.folder
        links[found.manifest.kernel_series] = default
    for name, link in sorted(links.items()):
        try:
            version = toolchain_in(link).manifest.kernel_version
        except ToolchainError:
            version = "damaged"
        origin = ""
        with suppress(OSError):
            origin = (setup_folder() / f"{_ORIGIN}{name}").read_text()
        yield BuiltKernel(name, version, origin, link.resolve() == default.resolve())


def remove_kernel(name: str) -> int:
    """Remove a kernel's build and return the number of bytes on the disk that became free. `ToolchainError`."""
    known = {kernel.name: kernel for kernel in built_kernels()}
    if name not in known:
        raise ToolchainError(f"no kernel {name} is built here; `qbed kernel ls` lists them")
    if known[name].in_use:
        raise ToolchainError(f"{name} is the kernel of the set-up, which labs without `kernel` run on")
    link = setup_folder() / f"{_PREFIX}{name}"
    places = [link.resolve()]
    with suppress(ToolchainError):
        places.append(cache_folder() / "kernel" / toolchain_in(link).manifest.kernel_hash)
    if patches := _patches_of(name):
        places.append(patches)
    freed = sum(_bytes(place) for place in places)
    link.unlink()
    for prefix in (f"{RECORD}-", _ORIGIN):
        (setup_folder() / f"{prefix}{name}").unlink(missing_ok=True)
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
    return freed


def _bytes(folder: Path) -> int:
    """The size of a folder on the disk, without folders that it links to."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))
