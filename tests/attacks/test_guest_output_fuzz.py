# SPDX-License-Identifier: Apache-2.0
"""A short run of the fuzzer tests/fuzz/telemetry.py: each damaged output of a guest is stored or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz import telemetry

SECONDS, CASES = 120.0, 400
"""Each run tries equal cases; `make fuzz` tries others."""


@pytest.fixture
def cell(tmp_path: Path) -> telemetry.Cell:
    return telemetry.Cell(tmp_path)


@pytest.mark.parametrize("number", range(len(telemetry.corpus())))
def test_a_case_of_the_corpus_is_refused(cell: telemetry.Cell, number: int) -> None:
    assert cell.store({}) == "stored"
    assert cell.store(telemetry.corpus()[number]) == "refused"


def test_fuzzing_finds_nothing(tmp_path: Path) -> None:
    outcomes, found = telemetry.fuzz(SECONDS, 1, tmp_path, CASES)
    assert found == []
    assert outcomes["stored"] and outcomes["refused"] > outcomes["stored"], outcomes
