# SPDX-License-Identifier: Apache-2.0
"""Results do not depend on what the memory of a guest contains when it starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from qbed.substrates.virtual import guest_memory
from qbed.substrates.virtual.guest_memory import kept_memory

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
            files = [memory.descriptor for memory in guest_memory._kept]
            assert len(files) == (2 if lab is PARTS else 1)
            for file in files:
                _fill_with_noise(file)
            inodes = {os.fstat(file).st_ino for file in files}
            assert run_cell(lab).digest() == reference.digest()
            assert {os.fstat(memory.descriptor).st_ino for memory in guest_memory._kept} == inodes
    assert not guest_memory._kept


def _fill_with_noise(file: int) -> None:
    noise, size = os.urandom(NOISE_BYTES), os.fstat(file).st_size
    assert size > 32 << 20
    for offset in range(0, size, NOISE_BYTES):
        os.pwrite(file, noise[: size - offset], offset)
