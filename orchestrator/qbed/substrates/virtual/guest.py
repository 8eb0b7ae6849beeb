# SPDX-License-Identifier: Apache-2.0
"""The virtual substrate: a cell is one User-Mode Linux process in time-travel mode (docs/formats.md section 2).

What the guest does may depend on nothing but the plan, so nothing of the host is on its command line: its random
generator mixes that in. The toolchain is reached through the cell folder, and the gate has the same
descriptor in every run.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from qbed.lab.model import Lab
from qbed.places import checkout
from qbed.plan.model import Plan
from qbed.substrates import CellError, DiskFullError, Limits, Progress
from qbed.substrates.toolchain import MODULES, REPAIR, Toolchain, find_toolchain
from qbed.telemetry.records import read_done

VIRTUAL_EPOCH_NS = 1_577_836_800_000_000_000  # 2020-01-01: what the guest's wall clock says at boot
GATE_FD = 200
TOOLS = "guest"
TOOLBOXES = "/run/qbed/tools"  # where the guest sees them
EVERY_TOOLBOX = ("frr",)
HIDDEN = (Path("/tmp"), Path("/run"))  # of the host's, by a guest's own
SEEN = "seen"
CONSOLE_LINES = 8
DISK_FULL_BYTES = 1 << 20
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


def command_line(kernel: Path, plan: Plan, mode: Literal["cell", "lab"], gate_fd: int) -> list[str]:
    """The guest's command line: a function of the plan, but for the kernel's path, which the guest does not see."""
    return [
        str(kernel),
        f"mem={plan.memory_bytes >> 20}M",
        *("rootfstype=hostfs", "root=none", "rootflags=/", "ro", "hostfs_rw=.", "uml_dir=.", "umid=uml"),
        f"init=/proc/self/cwd/{TOOLS}/qbed-agent",
        *("time-travel=inf-cpu", f"time-travel-start={VIRTUAL_EPOCH_NS}", f"seed={plan.seed}"),
        "seccomp=auto",  # faster than ptrace, from 6.16 on; 6.12 passes it on to its process 1, which ignores it
        *("con=null", "con0=null,fd:1", "quiet"),
        f"qgate={gate_fd}",
        f"QBED_MODULES=/mnt/{TOOLS}/modules",
        *("--", mode),
    ]


def memory_folder(needed: int) -> Path | None:
    """A folder for the guest's memory file: mapped executable, it may grow to `needed` bytes. None: none fits."""
    for folder in (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp")):
        with suppress(OSError):
            status = os.statvfs(folder)
            room = status.f_bavail * status.f_frsize
            if os.access(folder, os.W_OK) and not status.f_flag & os.ST_NOEXEC and room >= needed:
                return folder
    return None


class Guest:
    """A running guest: its process group and the host's end of the gate."""

    def __init__(self, process: subprocess.Popen[bytes], gate: socket.socket) -> None:
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self._received = b""
        self.gate = gate

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait(self, timeout_s: float) -> list[dict[str, Any]] | None:
        """The gate's next messages (none within the time: an empty list); None: the guest has ended and said all."""
        ready, _, _ = select.select([self.gate.fileno(), self._pidfd], [], [], max(0.0, timeout_s))
        if self.gate.fileno() in ready:
            data = self.gate.recv(1 << 16)
            if data:
                *lines, self._received = (self._received + data).split(b"\n")
                return [message for line in lines if (message := _message(line)) is not None]
            select.select([self._pidfd], [], [], 5.0)
            return None
        return None if ready else []

    def send(self, message: dict[str, Any]) -> None:
        self.gate.sendall(json.dumps(message).encode() + b"\n")

    def end(self) -> int:
        """Kill whatever is left of the guest's process group; returns the status of the guest itself."""
        if self._pidfd >= 0:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)  # before it is reaped: until then its group's number is its own
            self._process.wait()
            os.close(self._pidfd)
            self._pidfd = -1
            self.gate.close()
        return self._process.returncode


def _message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def seen_folders(lab: Path | None = None) -> list[Path]:
    """What an interactive lab sees of the machine's /tmp and /run: the folders where somebody works with it.

    The one where it is brought up, that of its file, and this checkout.
    """
    places = (path.resolve() for path in (Path.cwd(), lab and lab.parent, checkout()) if path is not None)
    hidden = {path for path in places if any(scratch in path.parents for scratch in HIDDEN)}
    return sorted(path for path in hidden if not hidden.intersection(path.parents))


def _provide(toolchain: Toolchain, folder: Path, plan: Plan, seen: Sequence[Path]) -> Path:
    """Put what the guest loads into its cell folder: the toolchain may be where the guest mounts something else."""
    tools = folder / TOOLS
    shutil.rmtree(tools, ignore_errors=True)
    (tools / "modules").mkdir(parents=True)
    (tools / "qbed-agent").symlink_to(toolchain.folder / "qbed-agent")
    for name in (*MODULES, *plan.modules):
        source = toolchain.folder / "modules" / f"{name}.ko"
        if not source.exists():
            raise CellError(f"the kernel module {name} is not built; {REPAIR}")
        shutil.copyfile(source, tools / "modules" / source.name)
    # An empty one for what is not here: a mount point draws a random number, and the results must be the same.
    (tools / "none").mkdir()
    for name, box in (dict.fromkeys(EVERY_TOOLBOX, "none") | toolchain.toolboxes).items():
        (tools / name).symlink_to(box)
    (tools / SEEN).mkdir()
    for number, path in enumerate(seen):
        (tools / SEEN / str(number)).symlink_to(path)
    for what, program, mend in missing_programs(toolchain, plan):
        raise CellError(f"{what} {program}, which is not here; {mend}")
    return tools


def missing_programs(toolchain: Toolchain, plan: Plan) -> Iterator[tuple[str, str, str]]:
    """What wants a program of this machine that is in no toolbox and not installed, the program, and what mends it."""
    for node in plan.nodes:
        path = node.environment.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        here = os.pathsep.join(path.replace(f"{TOOLBOXES}/", f"{toolchain.folder}/").split(":"))
        for program in node.programs:
            if not program.optional and shutil.which(program.argv[0], path=here) is None:
                mend = "run `make setup`" if checkout() else "for labs with `routing: frr`, install FRR (package frr)"
                yield f"node {node.name} runs", program.argv[0], mend
    given = next((queue for queue in plan.queues if "tc" in queue.qdisc), None)
    if given is not None and shutil.which("tc", path="/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin") is None:
        yield f"the queue {given.name} is given by arguments of", "tc", "install iproute2"


@contextmanager
def boot(
    toolchain: Toolchain, folder: Path, plan: Plan, mode: Literal["cell", "lab"], lab: Path | None = None
) -> Iterator[Guest]:
    """Start a guest in `folder`, on one of the cores of the calling thread; at the end nothing of it is left.

    `lab`: the file of an interactive lab.
    """
    place = memory_folder(plan.memory_bytes)
    if place is None:
        size = f"{plan.memory_bytes >> 20} MB"
        raise CellError(
            f"no place for the guest's memory: /dev/shm, /tmp and /var/tmp have no {size} free or are mounted noexec"
        )
    tools = _provide(toolchain, folder, plan, seen_folders(lab) if mode == "lab" else ())
    (folder / "out").mkdir(exist_ok=True)
    ours, theirs = socket.socketpair()
    gate_fd = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, GATE_FD)
    parent = os.getpid()

    def settle() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        # Guest kernel and guest processes hand over to each other all the time: on two cores that is ten times slower.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})

    try:
        with (folder / "console.log").open("wb") as console:
            process = subprocess.Popen(
                command_line(toolchain.kernel, plan, mode, gate_fd),
                cwd=folder,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": str(place)},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                pass_fds=(gate_fd,),
                start_new_session=True,
                preexec_fn=settle,
            )
    except OSError as error:
        ours.close()
        raise CellError(f"the guest's kernel cannot be started: {error.strerror}: {toolchain.kernel}") from error
    finally:
        os.close(gate_fd)
        theirs.close()
    guest = Guest(process, ours)
    try:
        yield guest
    finally:
        guest.end()
        shutil.rmtree(tools, ignore_errors=True)


class VirtualSubstrate:
    """Cells in virtual time."""

    def __init__(self, toolchain: Toolchain | None = None) -> None:
        self._toolchain = toolchain or find_toolchain()

    def prepare(self, folder: Path, lab: Lab, plan: Plan) -> None:
        """The plan is all that the guest needs."""

    def run_cell(self, folder: Path, plan: Plan, limits: Limits, progress: Progress) -> None:
        """Run `folder/plan.json`; the guest is gone when this returns or raises."""
        with boot(self._toolchain, folder, plan, "cell") as guest:
            trouble = _watch(guest, plan, limits, progress)
            status = guest.end()
        judge(folder, trouble, status)


def _watch(guest: Guest, plan: Plan, limits: Limits, progress: Progress) -> str | None:
    """Follow the gate until the guest has ended; returns what went wrong with its clock, if anything."""
    begun = moved = time.monotonic()
    at_ns = -1
    while True:
        now = time.monotonic()
        if now - begun > limits.cell_s:
            return (
                f"the cell was stopped after {limits.cell_s:g} s of wall clock, at {max(at_ns, 0)} ns of virtual time"
            )
        if now - moved > limits.stall_s:
            what = f"virtual time stands still at {at_ns} ns" if at_ns >= 0 else "the guest does not become ready"
            return f"{what}: no progress in {limits.stall_s:g} s of wall clock"
        messages = guest.wait(min(begun + limits.cell_s, moved + limits.stall_s) - now)
        if messages is None:
            return None
        for message in messages:
            if message.get("event") == "error":
                return f"the agent says: {message.get('error')}"
            if message.get("event") in ("progress", "ready"):
                moved = time.monotonic()
                at_ns = int(message.get("time_ns", max(at_ns, 0)))
                progress(min(1.0, at_ns / plan.duration_ns))


def judge(folder: Path, trouble: str | None, status: int) -> None:
    """Raise unless the cell in `folder` came to its end."""
    done = read_done(folder / "out" / "done.json")
    if trouble is None and done is not None and done.status == "complete":
        return
    if shutil.disk_usage(folder).free < DISK_FULL_BYTES:
        raise DiskFullError(f"the disk is full: {folder} has no space left")
    lines = console_tail(folder / "console.log")
    if trouble is None:
        panic = next((line for line in lines if "Kernel panic" in line), None)
        if done is not None:
            trouble = f"the agent says: {done.error}"
        elif panic is not None:
            trouble = f"the guest's kernel panicked: {panic}"
        elif status < 0:
            trouble = f"the guest was killed by {signal.Signals(-status).name}"
        else:
            trouble = f"the guest ended with status {status} and without a result"
    shown = "".join(f"\n    | {line}" for line in lines[-CONSOLE_LINES:])
    raise CellError(trouble + (f"; its console said last:{shown}" if shown else "; its console said nothing"))


def console_tail(path: Path, most_bytes: int = 8192) -> list[str]:
    """The last lines of a console log, printable."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - most_bytes))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    clean = ("".join(char for char in line if char.isprintable()).strip() for line in text.splitlines())
    return [line for line in clean if line]
