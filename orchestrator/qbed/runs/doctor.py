# SPDX-License-Identifier: Apache-2.0
"""Check this machine for every substrate, report missing requirements, and suggest how to install them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from qbed.substrates import DEFAULT, Finding, SubstrateError, names, substrate

DISK_BYTES = 1 << 30
TOOLS = {
    "tc": "iproute2",
    "ip": "iproute2",
    "ping": "iputils-ping",
    "iperf3": "iperf3",
    "tcpdump": "tcpdump",
    "strace": "strace",
}


def examine_machine(on: str | None = None) -> Iterator[Finding]:
    """Generate the findings of all checks. `on`: check one substrate; None: all, of which only one is needed."""
    for name in names() if on is None else [on]:
        for finding in _examine(name):
            needed = name in (on, DEFAULT) or finding.state == "good"
            yield finding if needed else replace(finding, state="optional")
    yield from _cores()
    yield from _disk()
    yield from _tools()


def _examine(name: str) -> Iterator[Finding]:
    try:
        checked = substrate(name)
    except SubstrateError as error:
        yield Finding(name, "missing", str(error))
    else:
        yield from checked.examine()


def _cores() -> Iterator[Finding]:
    count = len(os.sched_getaffinity(0))
    yield Finding("cores", "good", f"{count}: so many cells run at once")


def _disk() -> Iterator[Finding]:
    free = shutil.disk_usage(Path.cwd()).free
    text = f"{free / 1e9:.1f} GB free here"
    yield (
        Finding("disk", "good", text)
        if free >= DISK_BYTES
        else Finding("disk", "missing", text, "make room, or use --out")
    )


def _tools() -> Iterator[Finding]:
    lacking = {
        tool: package
        for tool, package in TOOLS.items()
        if shutil.which(tool, path=f"{os.environ.get('PATH')}:/usr/sbin:/sbin") is None
    }
    if lacking:
        packages = " ".join(sorted(set(lacking.values())))
        yield Finding(
            "tools", "optional", f"not installed: {', '.join(lacking)} (for `qbed exec`)", f"apt install {packages}"
        )
    else:
        yield Finding("tools", "good", f"{', '.join(TOOLS)} are there for `qbed exec`")
