# SPDX-License-Identifier: Apache-2.0
"""Malformed netlink messages leave the guest's kernel as it was: a fuzzer of tests/fuzz, for a while."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
import netlink


def test_the_kernel_has_nothing_to_complain_of(tmp_path: Path) -> None:
    books, found = netlink.fuzz(0, 1, tmp_path)
    assert found == []
    assert books["sent"] >= 1500 and books["taken"] > 100 and books["refused"] > 500, books
