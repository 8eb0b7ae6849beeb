# SPDX-License-Identifier: Apache-2.0
"""Properties of the machine that qbed detects."""

import os
from pathlib import Path

from qbed.substrates.virtual.machine import has_huge_pages, xstate_bytes

FIRST_KERNEL = (6, 1)  # with MADV_COLLAPSE of shared memory


def test_the_register_state_has_a_plausible_size_or_is_not_there() -> None:
    flags = Path("/proc/cpuinfo").read_text()
    size = xstate_bytes()
    if " xsave " not in flags:
        assert size is None
        return
    assert size is not None and size % 8 == 0
    assert size >= (2432 if " avx512f " in flags else 832 if " avx " in flags else 576)


def test_huge_pages_need_a_newer_kernel_and_memory(tmp_path: Path) -> None:
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if version < FIRST_KERNEL:
        assert not has_huge_pages(Path("/dev/shm"))
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    kinds = {mount[1]: mount[2] for mount in mounts}
    home = next(folder for folder in (tmp_path, *tmp_path.parents) if str(folder) in kinds)
    if kinds[str(home)] != "tmpfs":
        assert not has_huge_pages(tmp_path)
