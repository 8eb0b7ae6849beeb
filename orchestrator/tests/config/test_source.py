# SPDX-License-Identifier: Apache-2.0
"""YAML with positions."""

import pytest

from qbed.base.errors import LabError
from qbed.config.source import parse, show_path


def test_every_value_has_its_position() -> None:
    source = parse("a: 1\nb:\n  - {c: x}\n")
    assert source.values == {"a": 1, "b": [{"c": "x"}]}
    assert source.positions["b", 0, "c"] == (3, 9)
    assert source.keys["b", 0, "c"] == (3, 6)


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = "[on, off, yes, true, ~, 10, 1.5, 1:30, 0x10, 2001-01-01, '5']"
    assert parse(text).values == ["on", "off", "yes", True, None, 10, 1.5, "1:30", "0x10", "2001-01-01", "5"]


def test_anchors_and_merges() -> None:
    source = parse("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a\n")
    assert source.values == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "<text>:2:1: the field `a` is given twice"),
        ("a: {b: 1, b: 2}\n", "<text>:1:11: a: the field `b` is given twice"),
        ("a: [1\nb: 2\n", "<text>:2:2: not valid YAML: did not find expected ',' or ']'"),
        ("a: &x [*x]\n", "<text>:1:4: a[0]: the anchor contains itself"),
        ("a: *x\n", "<text>:1:4: not valid YAML: found undefined alias 'x'"),
        (
            "a: !!python/object:os.system x\n",
            "<text>:1:4: a: the tag `tag:yaml.org,2002:python/object:os.system` is not allowed",
        ),
        ("? [a]\n: 1\n", "<text>:1:3: a field's name must be plain text"),
        ("a: {<<: 1}\n", "<text>:1:9: a: `<<` merges fields, so it needs a mapping"),
        (
            "bound: > 1.5\nb: 1\n",
            "<text>:1:10: not valid YAML: did not find expected comment or line break; quote text that begins with `>`",
        ),
        (
            "a:\n\tb: 1\n",
            "<text>:2:1: not valid YAML: found character that cannot start any token; write spaces instead of the tab",
        ),
        ("a: 1\n---\nb: 1\n", "<text>:2:1: not valid YAML: but found another document"),
        ("a: \x07", "<text>:1:1: not valid YAML: character 7 at 3"),
    ],
)
def test_a_message_names_the_position(text: str, message: str) -> None:
    with pytest.raises(LabError) as error:
        parse(text)
    assert error.value.messages == [message]


def test_refuses_bombs() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(LabError, match="more than 200000 values"):
        parse("\n".join(lines))
    with pytest.raises(LabError, match="nested too deeply"):
        parse("[" * 200 + "]" * 200)
    with pytest.raises(LabError, match="nested too deeply"):
        parse("[" * 20_000)


def test_paths_read_as_they_are_written() -> None:
    assert show_path(("workload", 0, "flow", "from")) == "workload[0].flow.from"
    assert show_path(("links", "h1>s1", "ends")) == "links.h1>s1.ends"
    assert show_path(("hosts", "h1..h4", "tcp")) == 'hosts."h1..h4".tcp'
