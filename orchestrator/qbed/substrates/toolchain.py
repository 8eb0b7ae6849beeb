# SPDX-License-Identifier: Apache-2.0
"""The built guest: the kernel, its modules and the agent, as `make setup` built them for this checkout or a wheel has
them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from qbed.errors import QbedError
from qbed.places import checkout, setup_folder, toolchain_folder

MODULES = ("qlink", "qtap", "qgate")


REPAIR = "install the wheel of this machine's kind again" if checkout() is None else "run `make setup`"


class ToolchainError(QbedError):
    """The toolchain is missing or incomplete."""


class Manifest(BaseModel):
    """What the toolchain was built from: `manifest.json`."""

    model_config = ConfigDict(frozen=True)

    kernel_version: str = ""
    kernel_series: str = ""
    kernel_hash: str = ""
    modules_hash: str = ""
    agent_hash: str = ""
    p4switch_hash: str = ""
    frr_version: str = ""


@dataclass(frozen=True)
class Toolchain:
    """The absolute, symlink-free folder of a complete toolchain."""

    folder: Path
    manifest: Manifest

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
    """The toolchain of `$QBED_TOOLCHAIN`, or qbed's own; `ToolchainError` says what is missing."""
    named = os.environ.get("QBED_TOOLCHAIN")
    if named:
        return toolchain_in(Path(named), "QBED_TOOLCHAIN names an incomplete folder")
    return toolchain_in(toolchain_folder())


def built_toolchains() -> dict[str, Toolchain]:
    """By kernel series: the toolchains that `tools/setup` built for this virtual environment."""
    return {path.name.partition("-")[2]: toolchain_in(path) for path in sorted(setup_folder().glob("toolchain-*"))}


def toolchain_in(folder: Path, hint: str = REPAIR) -> Toolchain:
    """The toolchain in a folder."""
    wanted = [folder / "linux", folder / "qbed-agent", *(folder / "modules" / f"{name}.ko" for name in MODULES)]
    try:
        missing = next((path for path in wanted if not path.is_file()), None)
    except PermissionError as error:
        raise ToolchainError(f"the virtual-time guest cannot be read: {error.filename}: {error.strerror}") from error
    if missing is not None:
        raise ToolchainError(f"the virtual-time guest is not built: {missing} is missing; {hint}")
    path = folder / "manifest.json"
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ToolchainError(f"{path} is missing or damaged; {REPAIR}") from error
    return Toolchain(folder.resolve(), manifest)
