# SPDX-License-Identifier: Apache-2.0
"""Whatever a guest leaves behind, its cell is stored or refused by a sentence: a fuzzer of tests/fuzz, for a while."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
import telemetry

SECONDS, CASES = 120.0, 400
"""The same cases in every run: `make fuzz` looks for more."""


@pytest.fixture
def cell(tmp_path: Path) -> telemetry.Cell:
    return telemetry.Cell(tmp_path)


@pytest.mark.parametrize("number", range(len(telemetry.corpus())))
def test_what_was_found_before_is_refused(cell: telemetry.Cell, number: int) -> None:
    assert cell.store({}) == "stored"
    assert cell.store(telemetry.corpus()[number]) == "refused"


def test_nothing_new_is_found(tmp_path: Path) -> None:
    books, found = telemetry.fuzz(SECONDS, 1, tmp_path, CASES)
    assert found == []
    assert books["stored"] and books["refused"] > books["stored"], books
