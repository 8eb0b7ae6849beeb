# SPDX-License-Identifier: Apache-2.0
"""Guest memory is in huge pages where the host has them, and a run is the same with and without."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates.toolchain import find_toolchain
from qbed.substrates.virtual.guest import boot, memory_folder
from qbed.substrates.virtual.machine import HUGE_BYTES, has_huge_pages

from qbed_testing.cells import write_plan

LAB = """
name: huge
topology: {star: {hosts: 8}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
hosts: {default: {tcp: cubic}}
workload: [{incast: {senders: 7, receiver: h1, size: 1 MB}}]
duration: 50 ms
"""


def test_memory_that_is_in_use_is_in_huge_pages(tmp_path: Path) -> None:
    place = memory_folder(HUGE_BYTES)
    assert place is not None
    folder = tmp_path / "cell"
    plan = write_plan(folder, LAB)
    with boot(find_toolchain(), folder, plan, "lab") as guest:
        while not any(message["event"] == "ready" for message in guest.wait(60) or []):
            pass
        mappings = re.split(r"\n(?=[0-9a-f]+-)", Path(f"/proc/{guest.pid}/smaps").read_text())
    # Executable: what the guest's pages come from. Before it lies what begins where the kernel's image ends.
    memory = "\n".join(mapping for mapping in mappings if "(deleted)" in mapping and " rwxs " in mapping)
    sizes = (re.findall(rf"^{name}: +(\d+)", memory, re.M) for name in ("Rss", "ShmemPmdMapped"))
    resident, huge = (sum(map(int, found)) for found in sizes)
    if has_huge_pages(place):
        assert huge > resident / 2, f"{huge} kB of {resident} kB"
    else:
        assert huge == 0


def test_memory_on_a_disk_gives_the_same_results(
    run_cell: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There no page is huge, unless this machine has its temporary folders in memory too."""
    reference = run_cell(LAB)
    other = tmp_path / "memory"
    other.mkdir()
    assert shutil.disk_usage(other).free > reference.plan.memory_bytes
    monkeypatch.setattr("qbed.substrates.virtual.guest.memory_folder", lambda needed: other)
    assert run_cell(LAB).digest() == reference.digest()
