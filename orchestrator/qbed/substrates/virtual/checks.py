# SPDX-License-Identifier: Apache-2.0
"""Checks of this machine for virtual time."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from qbed.base.machine import processor_model
from qbed.plan.model import Plan
from qbed.substrates import CellError, Finding, Limits
from qbed.substrates.rebuild import changed_sources, shorten_names
from qbed.substrates.toolchain import ToolchainError, find_toolchain
from qbed.substrates.toolchain_files import all_damaged_files
from qbed.substrates.virtual.cell import VirtualCell
from qbed.substrates.virtual.confinement import FILTERED, SIGNALS, landlock_version
from qbed.substrates.virtual.guest_memory import memory_folder
from qbed.substrates.virtual.machine import has_huge_pages, xstate_bytes

MEMORY_BYTES = 512 << 20
TRIVIAL = Plan(
    version=1, lab="doctor", seed=1, epoch_ns=2_000_000_000, duration_ns=1_000_000, memory_bytes=64 << 20,
    modules=[], sysctls={}, nodes=[], links=[], queues=[], workloads=[], captures=[], events=[], flow_interval_ns=0,
)  # fmt: skip


def examine() -> Iterator[Finding]:
    """Run all checks in sequence."""
    for check in (_toolchain, _processor, _memory, _confinement, _boot):
        yield from check()


def _toolchain() -> Iterator[Finding]:
    try:
        toolchain = find_toolchain()
    except ToolchainError as error:
        yield Finding("toolchain", "missing", str(error), "make setup")
        return
    version = toolchain.manifest.kernel_version or "of unknown version"
    damaged = list(all_damaged_files(toolchain.folder, copied=True))
    for name, problem in damaged:
        yield Finding("toolchain", "missing", f"{toolchain.folder / name} {problem}", "make setup")
    if not damaged:
        checked = f"its {len(toolchain.checksums)} files are unchanged"
        yield Finding("toolchain", "good", f"kernel {version} in {toolchain.folder}, {checked}")
    try:
        changed = changed_sources()
    except ToolchainError as error:
        yield Finding("sources", "missing", str(error), "make setup")
        return
    if changed:
        text = f"{shorten_names(changed)} changed after the set-up: `qbed run` and `qbed up` build it again first"
        yield Finding("sources", "optional", text, "make setup")


def _processor() -> Iterator[Finding]:
    model = processor_model()
    size = xstate_bytes()
    registers = "no XSTATE: 512 bytes of registers" if size is None else f"{size} bytes of registers (XSTATE)"
    yield Finding("processor", "good", f"{model}, {registers}")


def _memory() -> Iterator[Finding]:
    place = memory_folder(MEMORY_BYTES)
    size = f"{MEMORY_BYTES >> 20} MB"
    if place is None:
        text = f"neither /dev/shm nor /tmp nor /var/tmp has {size} free and allows executable mappings"
        yield Finding("guest memory", "missing", text, "mount -o remount,exec,size=2G /dev/shm")
    elif place != Path("/dev/shm"):
        text = f"{place}: it works, but slower than memory, since /dev/shm is too small or mounted noexec"
        yield Finding("guest memory", "optional", text, "mount -o remount,exec,size=2G /dev/shm")
    else:
        yield Finding("guest memory", "good", f"{place} has {size} free and allows executable mappings")
    if place is not None and has_huge_pages(place):
        yield Finding("huge pages", "good", f"guest memory in {place} can be in huge pages")
    elif place is not None:
        text = f"guest memory in {place} stays in small pages: labs of hundreds of nodes take longer to set up"
        yield Finding("huge pages", "optional", text, "Linux 6.1 or later, and memory in /dev/shm")


def _confinement() -> Iterator[Finding]:
    version = landlock_version()
    calls = "with a filter of its kernel's system calls (seccomp)"
    series = _series()
    if series not in FILTERED:
        calls = f"without a filter of its kernel's system calls ({series or 'unknown kernel'})"
    if version:
        beyond = "" if version >= SIGNALS else f"; signals to other processes only from Landlock {SIGNALS} on"
        yield Finding("confinement", "good", f"a guest can open only its files (Landlock {version}){beyond}, {calls}")
    else:
        text = f"no Landlock: code in a guest's kernel can open the user's files, {calls}"
        yield Finding("confinement", "optional", text, "Linux 5.13 or later, booted with landlock in `lsm=`")


def _series() -> str:
    with suppress(ToolchainError):
        return find_toolchain().manifest.kernel_series
    return ""


def _boot() -> Iterator[Finding]:
    try:
        toolchain = find_toolchain()
    except ToolchainError:
        return
    begun = time.monotonic()
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(prefix="qbed-doctor-") as name:
        folder = Path(name)
        (folder / "plan.json").write_text(TRIVIAL.dumps())
        os.sched_setaffinity(0, {min(cores)})
        try:
            VirtualCell(toolchain, folder, TRIVIAL).run(Limits(60.0, 30.0), lambda _: None)
        except (CellError, ToolchainError) as error:
            yield Finding("boot", "missing", f"the guest does not run: {error}")
        else:
            yield Finding(
                "boot", "good", f"the guest boots, runs an empty lab and powers off in {time.monotonic() - begun:.2f} s"
            )
        finally:
            os.sched_setaffinity(0, cores)
