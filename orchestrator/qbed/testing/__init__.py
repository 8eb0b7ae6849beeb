# SPDX-License-Identifier: Apache-2.0
"""The test kit for labs, schemes and congestion controls (docs/repository.md)."""

from qbed.testing.algorithms import run_algorithm_test
from qbed.testing.cells import (
    LIMITS,
    CellOutput,
    assert_tcp_as_with_droptail,
    run_lab,
    store_tables,
    write_plan,
)

__all__ = [
    "LIMITS",
    "CellOutput",
    "assert_tcp_as_with_droptail",
    "run_algorithm_test",
    "run_lab",
    "store_tables",
    "write_plan",
]
