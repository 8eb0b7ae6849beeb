# SPDX-License-Identifier: Apache-2.0
"""The built guest: the kernel, its modules and the agent, as `make setup` built them for this checkout or a wheel has
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from qbed.base.files import read_bytes
from qbed.base.json_files import LARGEST, SealError
from qbed.base.locations import checkout, repository, setup_folder, toolchain_folder
from qbed.substrates import SubstrateError
from qbed.substrates.kernel_scripts import BuildError
from qbed.substrates.toolchain_files import MANIFEST, RECORD, checksums, damaged_files
from qbed.substrates.user_modules import KernelBuild, build_user_modules, toolchain_with_modules

MODULES = ("qlink", "qtap", "qgate")


REPAIR = "install the wheel of this machine's kind again" if checkout() is None else "run `make setup`"
_REPLACE = "copy it again, or unset the variable"


class ToolchainError(SubstrateError):
    """The toolchain is missing, incomplete or damaged."""


class Manifest(BaseModel):
    """The inputs of the toolchain's build: `manifest.json`."""

    model_config = ConfigDict(frozen=True)

    kernel_version: str = ""
    kernel_series: str = ""
    kernel_hash: str = ""
    modules_hash: str = ""
    agent_hash: str = ""
    p4image_hash: str = ""
    p4switch_hash: str = ""
    frr_version: str = ""


@dataclass(frozen=True)
class Toolchain:
    """The absolute, symlink-free folder of a complete toolchain."""

    folder: Path
    manifest: Manifest
    checksums: Mapping[str, str] = field(repr=False, hash=False)
    """The recorded checksums, by the files' names in the folder."""

    def check(self, names: Iterable[str]) -> None:
        """`ToolchainError` if one of these files differs from its checksum."""
        for name, problem in damaged_files(self.folder, self.checksums, names):
            raise self.damaged(name, problem)

    def damaged(self, name: str, problem: str) -> ToolchainError:
        """The error for one of its files."""
        return ToolchainError(_damaged(self.folder / name, problem))

    def names_in(self, folder: str) -> list[str]:
        """The recorded files in one of its folders."""
        return [name for name in self.checksums if name.startswith(f"{folder}/")]

    @property
    def kernel(self) -> Path:
        return self.folder / "linux"

    @property
    def programs(self) -> Path:
        """The folder of programs of ours that run in nodes: the P4Runtime server."""
        return self.folder / "programs"

    @property
    def toolboxes(self) -> dict[str, Path]:
        """Folders of programs that guests see in /run/qbed/tools, by their names there."""
        links = sorted(path for path in self.folder.iterdir() if path.is_symlink() and path.is_dir())
        return {path.name: path.resolve() for path in links}


def find_toolchain() -> Toolchain:
    """The toolchain with the modules of the user's repository, if they are built; `ToolchainError` says what is
    missing.
    """
    return with_user_modules(base_toolchain())


def with_user_modules(base: Toolchain) -> Toolchain:
    """A toolchain's copy with the modules of the user's repository, if they are built; `ToolchainError`."""
    with _module_errors():
        place = toolchain_with_modules(base.folder)
    return base if place is None or not place.is_dir() else toolchain_in(place)


def base_toolchain() -> Toolchain:
    """The toolchain of `$QBED_TOOLCHAIN`, or qbed's own, without modules of the user; `ToolchainError` says what is
    missing.
    """
    named = os.environ.get("QBED_TOOLCHAIN")
    if named:
        return toolchain_in(Path(named), f"QBED_TOOLCHAIN names an incomplete folder: {_REPLACE}")
    return toolchain_in(toolchain_folder())


def build_for_repository(report: Callable[[str], None], base: Toolchain | None = None) -> None:
    """Build the modules of the user's repository for a toolchain's kernel, by default that of the set-up.
    `ToolchainError` if the build fails.
    """
    if repository() is None:
        return
    base = base or base_toolchain()
    kernel = KernelBuild(base.manifest.kernel_series, base.manifest.kernel_version, base.manifest.kernel_hash)
    with _module_errors():
        build_user_modules(base.folder, kernel, report)


@contextmanager
def _module_errors() -> Iterator[None]:
    try:
        yield
    except BuildError as error:
        raise ToolchainError(str(error)) from error
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}"
        raise ToolchainError(f"the kernel modules of {repository()} cannot be built: {reason}") from error


def built_toolchains() -> dict[str, Toolchain]:
    """By kernel series: the toolchains that `tools/setup` built for this virtual environment."""
    return {path.name.partition("-")[2]: toolchain_in(path) for path in sorted(setup_folder().glob("toolchain-*"))}


def toolchain_in(folder: Path, hint: str = REPAIR) -> Toolchain:
    """The toolchain in a folder. Its manifest is checked; other files are when they are loaded."""
    wanted = [folder / "linux", folder / "qbed-agent", *(folder / "modules" / f"{name}.ko" for name in MODULES)]
    try:
        missing = next((path for path in wanted if not path.is_file()), None)
        place = folder.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else f"{folder}: a loop of links"
        raise ToolchainError(f"the virtual-time guest cannot be read: {reason}; {hint}") from error
    if missing is not None:
        raise ToolchainError(f"the virtual-time guest is not built: {missing} is missing; {hint}")
    path = folder / MANIFEST
    try:
        manifest = Manifest.model_validate_json(read_bytes(path, LARGEST))
    except (OSError, ValidationError) as error:
        raise ToolchainError(_damaged(path, "is missing or not as it was written")) from error
    toolchain = Toolchain(place, manifest, _checksums(place))
    toolchain.check([MANIFEST])
    return toolchain


def _checksums(folder: Path) -> dict[str, str]:
    try:
        return checksums(folder)
    except FileNotFoundError:
        raise ToolchainError(_damaged(folder / RECORD, "is missing")) from None
    except OSError as error:
        raise ToolchainError(_damaged(folder / RECORD, f"cannot be read: {error.strerror}")) from error
    except SealError as error:
        raise ToolchainError(_damaged(folder / RECORD, str(error))) from error


def _damaged(path: Path, problem: str) -> str:
    hint = f"QBED_TOOLCHAIN names this folder: {_REPLACE}" if os.environ.get("QBED_TOOLCHAIN") else REPAIR
    return f"the virtual-time guest is damaged: {path} {problem}; {hint}"
