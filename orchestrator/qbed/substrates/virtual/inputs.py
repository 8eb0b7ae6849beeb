# SPDX-License-Identifier: Apache-2.0
"""The inputs of a cell in virtual time besides its plan: the parts of the toolchain and the programs that it loads, and
the declarations by which its statistics become rows.

A module counts by its content, so that an edit of a comment or of a shared header makes no other cell. Kernel, agent
and P4 programs of the toolchain count by the hash of their sources: their binaries contain the builder's paths, and two
machines that build the same sources have the same cells.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from qbed.base.files import open_regular
from qbed.base.locations import scheme_folder
from qbed.plan.model import Plan
from qbed.plan.queue import TcQdisc
from qbed.substrates.kernels import toolchain_of
from qbed.substrates.p4_images import COMPILER
from qbed.substrates.toolchain import MODULES, Toolchain, ToolchainError
from qbed.substrates.virtual.provision import FRR, TC_PATH, TOOLBOXES, has_frr, has_user_programs, tc_queue

KERNEL, AGENT, P4SWITCH, TC = "kernel", "agent", "p4switch", "tc"
_PROGRAM = "program "
"""Prefix of the names of the machine's programs."""
_DEFAULT_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_DECLARATION = re.compile(r"schemes/([A-Za-z0-9_-]+)/scheme\.yml")
_MAX_HASHED_BYTES = 1 << 30
"""Larger programs count by size and time: a run folder, which names programs, may be untrusted."""


@dataclass(frozen=True)
class VirtualInputs:
    """The inputs of cells, by a toolchain and those of other kernels: a `qbed.substrates.Inputs`.

    Parts of another kernel's toolchain are inputs by their name, `@` and the kernel: `modules/qlink.ko@7.2`.
    """

    toolchain: Toolchain
    of_kernel: Callable[[str], Toolchain] = toolchain_of

    def of(self, plan: Plan) -> dict[str, str]:
        """The inputs of a cell with this plan: values by name.

        The agent disables the loading of modules once the plan's are loaded, so no program of a cell can add one.
        """
        names = [KERNEL, AGENT, *(f"modules/{name}.ko" for name in (*MODULES, *plan.modules))]
        names += {f"schemes/{queue.scheme}/scheme.yml" for queue in plan.queues if not isinstance(queue.qdisc, TcQdisc)}
        if plan.p4:
            names.append(COMPILER)
        if has_user_programs(plan):  # they see all folders of programs
            names += [FRR, P4SWITCH, TC, "python", "finsy"]
        elif has_frr(plan):
            names.append(FRR)
        if plan.kernel is not None:
            names = [name if _DECLARATION.fullmatch(name) else f"{name}@{plan.kernel}" for name in names]
        return {name: self.value(name) for name in sorted({*names, *self._programs(plan)})}

    def value(self, name: str) -> str:
        """The value of an input now; empty if it does not exist."""
        if name.startswith(_PROGRAM):
            return _file(name.removeprefix(_PROGRAM))
        name, _, kernel = name.partition("@")
        try:
            toolchain = self.of_kernel(kernel) if kernel else self.toolchain
        except ToolchainError:
            return ""
        manifest, checksums = toolchain.manifest, toolchain.checksums
        if declaration := _DECLARATION.fullmatch(name):
            return _file(str(scheme_folder(declaration[1]) / "scheme.yml"))
        match name:
            case "kernel":
                parts = (manifest.kernel_version, manifest.kernel_hash or checksums.get("linux", ""))
                return " ".join(filter(None, parts))
            case "agent":
                return manifest.agent_hash or checksums.get("qbed-agent", "")
            case "p4image":
                return manifest.p4image_hash or checksums.get(COMPILER, "")
            case "p4switch":
                return manifest.p4switch_hash
            case "frr":
                return manifest.frr_version
            case "tc":
                files = sorted(toolchain.names_in(TC))
                return hashlib.sha256("".join(f"{file} {checksums[file]}\n" for file in files).encode()).hexdigest()
            case "python":
                return platform.python_version()
            case "finsy":
                with suppress(PackageNotFoundError):
                    return version("finsy")
                return ""
        return checksums.get(name, "")

    def _programs(self, plan: Plan) -> Iterator[str]:
        """The machine's programs that a plan runs, without the libraries that they load, by the names of inputs."""
        wanted = [(launch.argv[0], launch.environment["PATH"]) for launch in plan.launches]
        for node in plan.nodes:
            path = node.environment.get("PATH", _DEFAULT_PATH)
            wanted += [(program.argv[0], path) for program in node.programs if program.argv[0] not in node.files]
        if tc_queue(plan) is not None:
            wanted.append(("tc", TC_PATH))
        folder = (self.toolchain if plan.kernel is None else self.of_kernel(plan.kernel)).folder
        for name, path in dict.fromkeys(wanted):
            if "/" in name and not name.startswith("/"):
                continue  # a program of the lab: its text is in the plan
            path = path.replace(f"{TOOLBOXES}/", f"{folder}/")
            place = shutil.which(name, path=path)
            if place is not None and folder not in Path(place).parents:
                yield f"{_PROGRAM}{place}"


def _file(place: str) -> str:
    """The checksum of a file of this machine; empty if it cannot be read."""
    try:
        status = os.stat(place)  # noqa: PTH116 - before each cell
        if status.st_size > _MAX_HASHED_BYTES:
            return f"{status.st_size} bytes, {status.st_mtime_ns}"
        return _checksum(place, status.st_mtime_ns)
    except (OSError, ValueError):  # ValueError: a NUL in an untrusted name
        return ""


@cache
def _checksum(place: str, _changed_ns: int) -> str:
    with open_regular(place) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
