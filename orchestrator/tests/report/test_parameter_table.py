# SPDX-License-Identifier: Apache-2.0
"""The table of parameters in effect over the cells of a campaign."""

from __future__ import annotations

import io
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from qbed.base.errors import QbedError
from qbed.base.json_files import write_json
from qbed.report.parameter_table import (
    MAX_LINES,
    OTHERS,
    Collected,
    ParameterTable,
    read_parameters,
    rich_table,
    show_bytes,
    show_packets,
    show_time,
)  # fmt: skip
from qbed.report.parameters import Effective, Key, Rows
from qbed.storage.run_folder import PARAMETERS

AXES = (("scheme", ("one", "two", "three")), ("delay", ("5 us", "1 ms")))


def collected(rows: Rows, *more: tuple[tuple[int, int], Rows]) -> Collected:
    """Cells of both axes; `more`: further rows of single combinations."""
    found = Collected(AXES, {digits: dict(rows) for digits in product(range(3), range(2))})
    for digits, others in more:
        found.rows[digits] |= others
    return found


def lines(table: ParameterTable) -> list[tuple[str, str, str]]:
    return [
        (parameter.name, line.where, line.value)
        for group in table.groups
        for parameter in group.parameters
        for line in parameter.lines
    ]


def test_a_parameter_that_is_the_same_in_all_cells_has_one_line() -> None:
    table = collected({Key("ports", "buffer"): Effective("128 KB", 84.5, 128000, 102400)}).table(6)
    assert lines(table) == [("buffer", "", "128 KB")]
    assert (table.combinations, table.left_out) == (6, 0)


def test_values_have_the_axes_on_which_they_depend() -> None:
    rows: list[tuple[tuple[int, int], Rows]] = []
    for scheme, delay in product(range(3), range(2)):
        found = {Key("network", "delay"): Effective(AXES[1][1][delay])}
        found[Key("ports", "scheme")] = Effective("fifo" if scheme < 2 else "other")
        if scheme == 1:
            found[Key("ports", "threshold")] = Effective("20 packets" if delay else "10 packets")
        if scheme == 2:
            found[Key("ports", "target")] = Effective("1 ms")
        rows.append(((scheme, delay), found))
    assert lines(collected({}, *rows).table(6)) == [
        ("delay", "delay 5 us", "5 us"),
        ("delay", "delay 1 ms", "1 ms"),
        ("scheme", "scheme one, two", "fifo"),
        ("scheme", "scheme three", "other"),
        ("target", "scheme three", "1 ms"),
        ("threshold", "scheme two; delay 5 us", "10 packets"),
        ("threshold", "scheme two; delay 1 ms", "20 packets"),
    ]


def test_combinations_that_are_no_product_are_listed() -> None:
    rows: list[tuple[tuple[int, int], Rows]] = [((0, 0), {Key("g", "x"): Effective("a")})]
    rows += [((2, 1), {Key("g", "x"): Effective("a")})]
    assert lines(collected({}, *rows).table()) == [("x", "scheme one delay 5 us; scheme three delay 1 ms", "a")]


def test_minor_parameters_share_a_line_unless_an_axis_varies_them() -> None:
    rows: Rows = {Key("g", "a", minor=True): Effective("1"), Key("g", "b", minor=True): Effective("2")}
    rows[Key("g", "c", minor=True)] = Effective("3")
    varied = [((scheme, 1), {Key("g", "b", minor=True): Effective("9")}) for scheme in range(3)]
    assert lines(collected(rows, *varied).table()) == [
        ("b", "delay 5 us", "2"),
        ("b", "delay 1 ms", "9"),
        (OTHERS, "", "a 1, c 3"),
    ]


def test_a_long_axis_is_cut() -> None:
    values = tuple(map(str, range(100)))
    found = Collected([("n", values)], {(n,): {Key("g", "n"): Effective(str(n))} for n in range(100)})
    (group,) = found.table(1000).groups
    assert (len(group.parameters[0].lines), group.parameters[0].left_out) == (MAX_LINES, 100 - MAX_LINES)
    assert found.table(1000).left_out == 900
    console = Console(file=io.StringIO(), width=100)
    console.print(rich_table(found.table()))
    assert isinstance(console.file, io.StringIO) and "and 76 more values" in console.file.getvalue()


def test_numbers_have_three_digits() -> None:
    assert [show_packets(n) for n in (None, 0.0421, 2.477, 14.86, 84.54, 826.4)] == [
        "",
        "0.042",
        "2.5",
        "14.9",
        "84.5",
        "826",
    ]
    assert [show_bytes(n) for n in (None, 999.4, 3715.3, 128000, 1514000)] == [
        "",
        "999 B",
        "3.72 KB",
        "128 KB",
        "1.51 MB",
    ]
    assert [show_time(n) for n in (24224, 999_900, 1.2112e6, 3e10)] == ["24.2 us", "1 ms", "1.21 ms", "30 s"]


def test_the_file_is_read_back_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert read_parameters(tmp_path) is None, "a run of an earlier qbed"
    table = collected({Key("g", "x"): Effective("a", 1, 2, 3)}).table(6)
    write_json(tmp_path / PARAMETERS, table.model_dump(exclude_none=True))
    assert read_parameters(tmp_path) == table
    (tmp_path / PARAMETERS).write_text('{"groups": 1}')
    with pytest.raises(QbedError, match=r"parameters\.json cannot be read: .*`qbed run` writes it again"):
        read_parameters(tmp_path)
