# SPDX-License-Identifier: Apache-2.0
"""The virtual substrate: a cell is one User-Mode Linux process in time-travel mode (docs/formats.md section 2).

The guest may depend on the plan only. Its random generator mixes in the command line, so that contains nothing of the
host: the toolchain is reached through the cell folder, and the gate has the same descriptor in every run.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import select
import shutil
import signal
import socket
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from qbed.base.json_files import Row
from qbed.plan.model import Plan
from qbed.substrates import CellError
from qbed.substrates.command_line import GATE_FD, guest_arguments
from qbed.substrates.lines import LineReader, encode
from qbed.substrates.toolchain import Toolchain
from qbed.substrates.virtual.confinement import ruleset
from qbed.substrates.virtual.guest_memory import GuestMemory, guest_memory
from qbed.substrates.virtual.provision import TOOLS, has_programs, provide, readable_paths
from qbed.substrates.virtual.turns import long_turns

_LIBC = ctypes.CDLL(None, use_errno=True)
_GET_PERSONALITY, _ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000  # personality(2)
_STARTED = itertools.count(os.getpid())  # of several processes none begins where another does
MANY_NODES = 100
"""Below this number of nodes a guest always has IPv6: disabling it changes the kernel's random numbers."""


@dataclass(frozen=True)
class PartOfLab:
    """The part of a divided lab that a guest runs, and the memory that it shares with the others, as a descriptor."""

    number: int
    memory_fd: int
    shares_core: bool
    """There are fewer cores than parts."""

    def seed(self, of_lab: int) -> int:
        """The seed of the guest's random numbers."""
        return zlib.crc32(f"{of_lab} {self.number}".encode())


def command_line(
    kernel: Path,
    plan: Plan,
    mode: Literal["cell", "lab"],
    gate_fd: int,
    confine_fd: int,
    part: PartOfLab | None = None,
) -> list[str]:
    """The guest's command line: a function of the plan, but for the kernel's path, which the guest does not see."""
    arguments = guest_arguments(
        memory_bytes=memory_bytes(plan, part),
        seed=plan.seed if part is None else part.seed(plan.seed),
        agent=f"/proc/self/cwd/{TOOLS}/qbed-agent",
        modules=f"/mnt/{TOOLS}/modules",
        gate_fd=gate_fd,
        confine_fd=confine_fd,
    )
    has_ipv6 = mode == "lab" or len(plan.nodes) < MANY_NODES or may_use_ipv6(plan)
    without = [] if has_ipv6 else ["ipv6.disable=1"]
    shared = [] if part is None else [f"parts={part.memory_fd}:{part.number}", f"QBED_PART={part.number}"]
    return [str(kernel), *arguments, *without, *shared, "--", mode]


def memory_bytes(plan: Plan, part: PartOfLab | None) -> int:
    """Memory of a guest that runs a part, or all of the lab."""
    return plan.memory_bytes * (plan.part_count if part is None else 1)


def may_use_ipv6(plan: Plan) -> bool:
    """Whether a cell may have a use for IPv6: by its addresses, its user's sysctls, or a program of whatever kind.

    To a thousand nodes that never speak it, it is half of their set-up and a third of their memory (docs/decisions).
    """
    return has_programs(plan) or any(_sets_ipv6(node.sysctls) for node in plan.nodes)


def _sets_ipv6(sysctls: dict[str, str]) -> bool:
    """Whether a node's sysctls use IPv6. The plan of an IPv4 lab disables it on every node, which does not count."""
    ipv6 = {name: value for name, value in sysctls.items() if name.startswith("net/ipv6/")}
    return any(value != "1" or not name.endswith("/disable_ipv6") for name, value in ipv6.items())


class Guest:
    """A running guest: its process group and the host's end of the gate."""

    def __init__(self, process: subprocess.Popen[bytes], gate: socket.socket) -> None:
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._reader = LineReader()
        self.gate = gate
        self.cpu_s = 0.0
        """CPU time of the guest, once it has ended."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def descriptors(self) -> tuple[int, int]:
        """Readable if there is a message, or if the guest has ended."""
        return self.gate.fileno(), self._pidfd

    def wait(self, timeout_s: float) -> list[Row] | None:
        """The gate's next messages; an empty list at the timeout; None if the guest has ended."""
        ready, _, _ = select.select([self.gate.fileno(), self._pidfd], [], [], max(0.0, timeout_s))
        if self.gate.fileno() in ready:
            messages = self._reader.read(self.gate)
            if messages is not None:
                return messages
            select.select([self._pidfd], [], [], 5.0)
            return None
        return None if ready else []

    def send(self, message: Row) -> None:
        self.gate.sendall(encode(message))

    def end(self) -> int:
        """Kill the guest's process group and return the guest's exit status."""
        if self._pidfd >= 0:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # before it is reaped: until then its group's number is its own
            _, status, usage = os.wait4(self.pid, 0)
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime
            os.close(self._pidfd)
            self._pidfd = -1
            self.gate.close()
        return self._process.returncode


@contextmanager
def _child_settings(part: PartOfLab | None) -> Iterator[None]:
    """Set the calling thread's affinity and personality, which the guest inherits. Parts of a lab get different cores.

    The guest's kernel and processes switch to each other constantly, which is ten times slower on two cores. Without
    ADDR_NO_RANDOMIZE, User-Mode Linux would execute itself a second time.
    """
    cores, persona = sorted(os.sched_getaffinity(0)), _LIBC.personality(_GET_PERSONALITY)
    try:
        number = next(_STARTED) if part is None else part.number
        os.sched_setaffinity(0, {cores[number % len(cores)]})
        _LIBC.personality(persona | _ADDR_NO_RANDOMIZE)
        with long_turns() if part is not None and part.shares_core else nullcontext():
            yield
    finally:
        try:
            with suppress(OSError):  # the cores may have been taken away meanwhile
                os.sched_setaffinity(0, cores)
        finally:
            _LIBC.personality(persona)


@contextmanager
def boot(
    toolchain: Toolchain,
    folder: Path,
    plan: Plan,
    mode: Literal["cell", "lab"],
    seen: Sequence[Path] = (),
    part: PartOfLab | None = None,
) -> Iterator[Guest]:
    """Start a guest in `folder`, on one of the calling thread's cores. End it and clean up on exit.

    `seen`: folders of the machine that it may read, besides programs.
    """
    with guest_memory(memory_bytes(plan, part), 1 if part is None else plan.part_count) as memory:
        tools = provide(toolchain, folder, plan, seen)
        (folder / "out").mkdir(exist_ok=True)
        with ruleset(folder, readable_paths(toolchain, plan, mode, seen)) as rules:
            guest = _start(toolchain.kernel, folder, plan, mode, memory, rules, part)
        try:
            yield guest
        finally:
            guest.end()
            shutil.rmtree(tools, ignore_errors=True)


def _start(
    kernel: Path,
    folder: Path,
    plan: Plan,
    mode: Literal["cell", "lab"],
    memory: GuestMemory,
    rules: int,
    part: PartOfLab | None,
) -> Guest:
    host_end, guest_end = socket.socketpair()
    gate_fd = fcntl.fcntl(guest_end.fileno(), fcntl.F_DUPFD_CLOEXEC, GATE_FD)
    try:
        with (folder / "console.log").open("wb") as console, _child_settings(part):
            process = subprocess.Popen(
                command_line(kernel, plan, mode, gate_fd, rules, part),
                cwd=folder,
                env={
                    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                    "TMPDIR": str(memory.folder),
                    "MEMORY_FD": str(memory.descriptor),
                },
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                pass_fds=(gate_fd, rules, memory.descriptor, *([] if part is None else [part.memory_fd])),
                start_new_session=True,
            )
    except OSError as error:
        host_end.close()
        raise CellError(f"the guest's kernel cannot be started: {error.strerror}: {kernel}") from error
    finally:
        os.close(gate_fd)
        guest_end.close()
    return Guest(process, host_end)
