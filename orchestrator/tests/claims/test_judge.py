# SPDX-License-Identifier: Apache-2.0
"""The aggregates that every claim may use."""

from __future__ import annotations

import math

import duckdb
import pytest

from qbed.claims.views import MACROS


def evaluate(expression: str, values: list[float]) -> float | None:
    with duckdb.connect() as connection:
        for macro in MACROS:
            connection.execute(f"CREATE MACRO {macro}")
        row = connection.execute(f"SELECT {expression} FROM (SELECT unnest(?) AS x)", [values]).fetchone()
    assert row is not None
    return None if row[0] is None else float(row[0])


@pytest.mark.parametrize(
    ("values", "index"),
    [([5.0], 1), ([3.0, 3.0, 3.0], 1), ([8.0, 0.0, 0.0, 0.0], 0.25), ([1.0, 3.0], 0.8)],
)
def test_jain_index(values: list[float], index: float) -> None:
    assert evaluate("jain_index(x)", values) == pytest.approx(index)


def test_interval_95_is_students() -> None:
    assert evaluate("interval_95(x)", [1.0]) is None, "one value says nothing of its spread"
    assert evaluate("interval_95(x)", [1.0, 2.0]) == pytest.approx(12.706 * math.sqrt(0.5) / math.sqrt(2))
    assert evaluate("interval_95(x)", [1.0, 2.0, 3.0]) == pytest.approx(4.303 / math.sqrt(3))
    samples = [0.0, 1.0] * 50
    assert evaluate("interval_95(x)", samples) == pytest.approx(2.042 * math.sqrt(25 / 99) / 10)
