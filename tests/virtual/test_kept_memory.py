# SPDX-License-Identifier: Apache-2.0
"""Results do not depend on what the memory of a guest contains when it starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates.virtual.guest_memory import MEMORY_FD, kept_memory

LAB = """
name: memory
topology: {star: {hosts: 9}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
hosts: {default: {tcp: cubic}}
workload:
  - incast: {senders: 7, receiver: h1, size: 1 MB}
  - arrivals: {from: "h*", to: "h*", interval: 100 us, size: {published: web-search}}
duration: 20 ms
"""
PARTS = LAB + "parts: 2\n"
NOISE_BYTES = 1 << 20


@pytest.mark.parametrize("lab", [LAB, PARTS], ids=["undivided", "parts"])
def test_results_do_not_depend_on_the_content_of_kept_memory(run_cell: Callable[..., Any], lab: str) -> None:
    reference = run_cell(lab)
    with kept_memory():
        assert run_cell(lab).digest() == reference.digest()
        for _ in range(2):
            files = _kept_files()
            assert len(files) == (2 if lab is PARTS else 1)
            for file in files:
                _fill_with_noise(file)
            assert run_cell(lab).digest() == reference.digest()
        assert [os.fstat(file).st_ino for file in _kept_files()] == [os.fstat(file).st_ino for file in files]
    assert not _kept_files()


def _kept_files() -> list[int]:
    """The descriptors of guests' memory in this process."""
    descriptors = [path for path in Path("/proc/self/fd").iterdir() if int(path.name) >= MEMORY_FD]
    return sorted(int(path.name) for path in descriptors if _is_memory(str(path.readlink())))


def _is_memory(file: str) -> bool:
    return file.startswith(("/dev/shm/", "/tmp/", "/var/tmp/")) and file.endswith("(deleted)")


def _fill_with_noise(file: int) -> None:
    noise, size = os.urandom(NOISE_BYTES), os.fstat(file).st_size
    assert size > 32 << 20
    for offset in range(0, size, NOISE_BYTES):
        os.pwrite(file, noise[: size - offset], offset)
