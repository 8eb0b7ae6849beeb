# SPDX-License-Identifier: Apache-2.0
"""Errors of the system become one line with the path and the cause."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from qbed.base.crash_report import describe_system_error
from qbed.base.files import named


def write_to_full() -> None:
    Path("/dev/full").write_text("x")


def write_to_open_file() -> None:
    with open("/dev/full", "w") as file:  # noqa: PTH123
        file.write("x")
        file.flush()


def open_missing() -> None:
    Path("/nosuch/x").read_text()


def fail_with_name() -> None:
    with named("/a/b"):
        raise OSError(errno.EIO, "Input/output error")


def read_missing_table() -> None:
    with duckdb.connect() as connection:
        connection.execute("SELECT * FROM read_parquet('/nosuch/x.parquet')")


@pytest.mark.parametrize(
    ("failing", "path", "cause"),
    [
        (write_to_full, "/dev/full", "no space left on device"),
        (write_to_open_file, "/dev/full", "no space left on device"),
        (open_missing, "/nosuch/x", "no such file or directory"),
        (fail_with_name, "/a/b", "input/output error"),
        (read_missing_table, "/nosuch/x.parquet", "No files found"),
    ],
)
def test_a_system_error_has_a_path_and_a_cause(failing: Callable[[], None], path: str, cause: str) -> None:
    with pytest.raises((OSError, duckdb.IOException)) as caught:
        failing()
    message = describe_system_error(caught.value)
    assert message is not None
    assert path in message
    assert cause in message
    assert "\n" not in message


def test_other_errors_are_no_system_errors() -> None:
    assert describe_system_error(ValueError("x")) is None
    assert describe_system_error(OSError("without a number")) is None
