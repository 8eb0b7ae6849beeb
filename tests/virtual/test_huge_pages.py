# SPDX-License-Identifier: Apache-2.0
"""Guests use huge pages if the host has them, in new memory and in that of a guest that ended; results are equal with
and without them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates.toolchain import find_toolchain
from qbed.substrates.virtual.guest import boot
from qbed.substrates.virtual.guest_memory import kept_memory, memory_folder
from qbed.substrates.virtual.machine import HUGE_BYTES, has_huge_pages
from qbed.testing import write_plan

LAB = """
name: huge
topology: {star: {hosts: 8}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
hosts: {default: {tcp: cubic}}
workload: [{incast: {senders: 7, receiver: h1, size: 1 MB}}]
duration: 50 ms
"""


def test_resident_memory_is_in_huge_pages(tmp_path: Path) -> None:
    folder_of_memory = memory_folder(HUGE_BYTES)
    assert folder_of_memory is not None
    with kept_memory():
        for turn in ("new", "kept"):
            resident, huge = _resident_and_huge(tmp_path / turn)
            if has_huge_pages(folder_of_memory):
                assert huge > resident / 2, f"{turn}: {huge} kB of {resident} kB"
            else:
                assert huge == 0


def _resident_and_huge(folder: Path) -> tuple[int, int]:
    """Resident memory of a guest that is ready, and what of it is in huge pages, in kB."""
    plan = write_plan(folder, LAB)
    with boot(find_toolchain(), folder, plan, "lab") as guest:
        while not any(message["event"] == "ready" for message in guest.wait(60) or []):
            pass
        mappings = re.split(r"\n(?=[0-9a-f]+-)", Path(f"/proc/{guest.pid}/smaps").read_text())
    # The guest's memory is the executable mapping; the one before it starts at the end of the kernel's image.
    memory = "\n".join(mapping for mapping in mappings if "(deleted)" in mapping and " rwxs " in mapping)
    sizes = (re.findall(rf"^{name}: +(\d+)", memory, re.M) for name in ("Rss", "ShmemPmdMapped"))
    resident, huge = (sum(map(int, found)) for found in sizes)
    return resident, huge


def test_memory_on_a_disk_gives_equal_results(
    run_cell: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk has no huge pages, unless temporary folders are on tmpfs."""
    reference = run_cell(LAB)
    other = tmp_path / "memory"
    other.mkdir()
    assert shutil.disk_usage(other).free > reference.plan.memory_bytes
    monkeypatch.setattr("qbed.substrates.virtual.guest_memory.memory_folder", lambda needed: other)
    assert run_cell(LAB).digest() == reference.digest()
