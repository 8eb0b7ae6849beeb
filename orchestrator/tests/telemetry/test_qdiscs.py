# SPDX-License-Identifier: Apache-2.0
"""Statistics of Linux's own queueing disciplines: bytes as the kernel lays them out, and any others."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbed.telemetry import qdiscs

ROOT = Path(__file__).parents[3]


def attribute(number: int, payload: bytes) -> bytes:
    return struct.pack("<HH", 4 + len(payload), number) + payload + bytes(-len(payload) % 4)


def test_structures_are_the_kernels() -> None:
    assert qdiscs.decode("red", struct.pack("<4I", 1, 2, 3, 4)) == {
        "dropped_early": 1, "overlimit": 2, "dropped_other": 3, "marked": 4,
    }  # fmt: skip
    pie = qdiscs.decode("pie", struct.pack("<Q8I", 1 << 62, 15_000, 0, 0, 9, 2, 3, 40, 5))
    assert (pie["probability"], pie["delay_us"], pie["overlimit"], pie["marked"]) == (0.25, 15_000, 3, 5)
    codel = qdiscs.decode("codel", struct.pack("<4Ii4I", 1514, 2, 1, 700, -5, 6, 7, 1, 8))
    assert (codel["last_delay_us"], codel["drop_next_us"], codel["marked_by_threshold"]) == (700, -5, 8)
    assert qdiscs.decode("fq_codel", struct.pack("<10I", 0, *range(1, 10)))["dropped_for_memory"] == 9


def test_cake_has_tins() -> None:
    tins = b"".join(
        attribute(tin, attribute(2, struct.pack("<I", 10 * tin)) + attribute(8, struct.pack("<I", tin)))
        for tin in (1, 2)
    )
    found = qdiscs.decode("cake", attribute(2, struct.pack("<Q", 5 << 32)) + attribute(0x8000 | 10, tins))
    assert found == {
        "capacity_bytes_per_s": 5 << 32, "tin0_enqueued": 10, "tin0_marked": 1, "tin1_enqueued": 20, "tin1_marked": 2,
        "enqueued": 30, "marked": 3,
    }  # fmt: skip


@given(st.sampled_from([*sorted(qdiscs.KINDS), "fq", "pfifo", ""]), st.binary(max_size=200), st.integers(0, 200))
def test_decode_stops_at_the_end_of_truncated_bytes(kind: str, data: bytes, cut: int) -> None:
    complete, part = qdiscs.decode(kind, data), qdiscs.decode(kind, data[:cut])
    assert all(isinstance(value, int | float) for value in complete.values())
    if kind != "cake":
        assert part.items() <= complete.items()


@pytest.mark.parametrize("kind", sorted(qdiscs.KINDS - {"cake"}))
def test_a_whole_structure_has_every_name(kind: str) -> None:
    assert list(qdiscs.decode(kind, bytes(200))) == qdiscs.names(kind)


def test_the_page_lists_them() -> None:
    assert f"|---|---|\n{qdiscs.markdown_rows()}\n" in (ROOT / "docs/measuring.md").read_text()
