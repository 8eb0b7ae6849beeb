# SPDX-License-Identifier: Apache-2.0
"""Plans of labs that select a kernel, and a folder of patches."""

from __future__ import annotations

from pathlib import Path

from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan

LAB = """\
name: mine
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
duration: 10 ms
"""


def plan_of(folder: Path, kernel: str | None = None) -> Plan:
    """The plan of a lab in `folder` with this text as its `kernel`, or without the field."""
    field = "" if kernel is None else f"kernel: {kernel}\n"
    (folder / "lab.yml").write_text(LAB + field)
    return compile_lab(load_lab(folder / "lab.yml"))


def write_patches(place: Path) -> Path:
    """A folder with one patch."""
    folder = place / "my-patches"
    folder.mkdir()
    (folder / "0001-one.patch").write_text("one")
    return folder
