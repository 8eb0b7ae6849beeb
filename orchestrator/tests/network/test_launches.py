# SPDX-License-Identifier: Apache-2.0
"""A lab's `programs`: what is refused, what the plan has of them, and what becomes of their output."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from campaigns import fake_toolchain
from hypothesis import given
from hypothesis import strategies as st

from qbed.base.errors import LabError
from qbed.cells import store_cell
from qbed.cells.program_output import OutputError, parse_output, rows_of_json, rows_of_pairs
from qbed.config.reach import FOREIGN
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.launches import FOLDER
from qbed.plan.model import Plan
from qbed.substrates.containers.placement import Machine, place
from qbed.substrates.toolchain import toolchain_in
from qbed.substrates.virtual.inputs import VirtualInputs

LAB = """
name: mine
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 10 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
hosts: {default: {tcp: cubic}}
duration: 100 ms
programs:
"""


def plan_of(folder: Path, programs: str, overrides: dict[str, Any] | None = None) -> Plan:
    (folder / "lab.yml").write_text(LAB + programs)
    return compile_lab(load_lab(folder, overrides), 7)


def test_a_program_is_started_on_each_of_its_nodes_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "send.py").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "more.py").write_text("x = 1\n")
    text = """
  - {on: [h2..h3, s1], run: "./send.py --rate {rate} --as {node}/{number}/{seed} {{rate}}", arguments: {rate: 10},
     files: [lib], start: before, stop: 50 ms, environment: {A: b}, output: json, status: any}
"""
    plan = plan_of(tmp_path, text, {"programs[0].arguments.rate": "20M"})
    assert [plan.nodes[launch.node].name for launch in plan.launches] == ["h2", "h3", "s1"]
    second = plan.launches[1]
    assert second.argv == ["./send.py", "--rate", "20M", "--as", "h3/1/7", "{rate}"]
    assert (second.start_ns, second.stop_ns, second.any_status, second.label) == (-(10**9), 50_000_000, True, "send.py")
    assert second.environment["A"] == "b" and second.folder == FOLDER
    files = plan.nodes[second.node].files
    assert files == {f"{FOLDER}/send.py": "#!/usr/bin/env python3\n", f"{FOLDER}/lib/more.py": "x = 1\n"}
    assert plan.nodes[0].files == {} and Plan.loads(plan.dumps()) == plan


def test_a_plan_without_programs_leaves_them_out(tmp_path: Path) -> None:
    assert "launches" not in plan_of(tmp_path, "  []\n").dumps()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("{on: h1, run: []}", "programs[0].run: expected a program and its arguments"),
        ("{on: h1, run: iperf3 'x}", "expected words as in a shell: no closing quotation"),
        ("{on: h9, run: a}", "no node is called `h9`; expected one of `h1`"),
        ("{on: 'x*', run: a}", "no node matches `x*`"),
        ("{on: h1, run: 'a {rat}', arguments: {rate: 1}}", "`{rat}` is none of its `arguments`; did you mean `rate`"),
        ("{on: h1, run: a, start: soon}", "expected `before` or a duration such as `5 us`, got `soon`"),
        ("{on: h1, run: a, start: 1 s}", "starts at 1 s, after the lab's end at 100 ms"),
        ("{on: h1, run: a, stop: 0 ms}", "expected a time after the start at 0 ns"),
        ("{on: h1, run: ./none.py}", "./none.py: cannot read it: No such file or directory"),
        ("{on: h1, run: ./plain.txt}", "./plain.txt is no script"),
        ("{on: h1, run: ./binary}", "is no text; expected a script"),
        ("{on: h1, run: a, files: [../x]}", "leads out of the folder"),
        ("{on: h1, run: a, files: [link]}", "leads out of the folder"),
        ("{on: h1, run: a, output: yaml}", "expected `text`, `json` or `key=value`, got `yaml`"),
        ("{on: h1, run: a, argument: {}}", "unknown field; did you mean `arguments`"),
    ],
)
def test_errors_name_the_position(tmp_path: Path, program: str, message: str) -> None:
    (tmp_path / "plain.txt").write_text("hello\n")
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\xfe")
    (tmp_path / "link").symlink_to("/etc/hostname")
    with pytest.raises(LabError) as caught:
        plan_of(tmp_path, f"  - {program}\n")
    assert message in str(caught.value) and "programs[0]" in str(caught.value)


@pytest.mark.parametrize("run", ["iperf3 -s", "/usr/bin/iperf3 -s", "./send.py"])
def test_a_service_runs_no_program_of_a_lab_that_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    (tmp_path / "send.py").write_text("#!/usr/bin/env python3\n")
    monkeypatch.setenv(FOREIGN, "1")
    with pytest.raises(LabError, match=r"programs\[0\].run: .* is a program that comes with the lab: this service"):
        plan_of(tmp_path, f"  - {{on: h1, run: {run}}}\n")


def test_in_containers_programs_need_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(tmp_path, "  - {on: h1, run: iperf3 -s}\n")
    with pytest.raises(LabError, match="only with --trust"):
        place(plan, Machine())
    monkeypatch.setenv("QBED_TRUST", "1")
    assert place(plan, Machine()).dilation == 1


def test_another_program_of_that_name_is_another_input(tmp_path: Path) -> None:
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "mine").write_text("#!/bin/sh\n")
    (bin_ / "mine").chmod(0o755)
    plan = plan_of(tmp_path, f"  - {{on: h1, run: mine, environment: {{PATH: {bin_}}}}}\n")
    inputs = VirtualInputs(toolchain_in(fake_toolchain(tmp_path / "tools")))
    before = inputs.of(plan)
    assert inputs.of(plan) == before and f"program {bin_ / 'mine'}" in before
    (bin_ / "mine").write_text("#!/bin/sh\nexit 1\n")
    assert [name for name, value in inputs.of(plan).items() if before[name] != value] == [f"program {bin_ / 'mine'}"]


def test_the_working_folder_is_no_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "send.sh").write_text("#!/bin/sh\n")
    (tmp_path / "send.sh").chmod(0o755)
    plan = plan_of(tmp_path, "  - {on: h1, run: ./send.sh}\n")
    inputs = VirtualInputs(toolchain_in(fake_toolchain(tmp_path / "tools")))
    before = inputs.of(plan)
    monkeypatch.chdir(tmp_path)
    assert inputs.of(plan) == before and not any("send.sh" in name for name in before)


def test_a_script_behind_a_link_is_started_by_the_links_name(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "send.sh").write_text("#!/bin/sh\n")
    (tmp_path / "send.sh").symlink_to("tools/send.sh")
    plan = plan_of(tmp_path, "  - {on: h1, run: ./send.sh}\n")
    assert plan.nodes[plan.launches[0].node].files == {f"{FOLDER}/send.sh": "#!/bin/sh\n"}


def test_json_becomes_rows_by_the_way_to_its_objects() -> None:
    document = {
        "end": {"bps": 5, "ok": True, "cc": "cubic"},
        "intervals": [{"sum": {"s": 1.5}}, {"streams": [{"n": 2}]}],
    }
    assert rows_of_json('{"\\ud800": 1}')[0]["numbers"] == {"?": 1}, "a name that no table can have"
    rows = rows_of_json(json.dumps(document))
    assert [(row["path"], row["element"]) for row in rows] == [
        ("", None), ("intervals", 0), ("intervals", 1), ("intervals.streams", 0),
    ]  # fmt: skip
    assert rows[0]["numbers"] == {"end.bps": 5, "end.ok": 1} and rows[0]["texts"] == {"end.cc": "cubic"}
    assert rows[1]["numbers"] == {"sum.s": 1.5}
    lines = rows_of_json('{"a": 1}\n\n{"a": [1, 2]}\n')
    assert [(row["record"], row["numbers"], row["texts"]) for row in lines] == [
        (0, {"a": 1}, {}),
        (1, {}, {"a": "[1, 2]"}),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "it is no JSON"),
        ('{"a": 1}\nhello', "line 2: `hello`"),
        ("[1]", "expected JSON objects, got `1`"),
        ('{"a":' * 60 + "1" + "}" * 60, "more than 50 deep"),
    ],
)
def test_output_that_is_no_json_is_reported(text: str, message: str) -> None:
    with pytest.raises(OutputError) as caught:
        rows_of_json(text)
    assert message in str(caught.value)


def test_pairs_become_a_row_a_line() -> None:
    text = "# qbed 1=2\nseq=1 rtt_ms=4.25e1 by='a b' loss=5% x=inf\nnothing here\nseq=2 rtt_ms=\n"
    first, second = rows_of_pairs(text)
    assert first["numbers"] == {"seq": 1, "rtt_ms": 42.5, "x": math.inf}
    assert first["texts"] == {"by": "a b", "loss": "5%"}
    assert (second["record"], second["numbers"], second["texts"]) == (1, {"seq": 2}, {"rtt_ms": ""})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_rows_or_a_sentence(value: Any) -> None:
    try:
        rows = rows_of_json(json.dumps(value))
    except OutputError as error:
        assert "expected JSON objects" in str(error)
        return
    documents = value if isinstance(value, list) else [value]
    assert {row["record"] for row in rows} == set(range(len(documents)))
    assert all(type(number) is float for row in rows for number in row["numbers"].values())


@given(st.text())
def test_any_text_is_pairs_or_none(text: str) -> None:
    for row in rows_of_pairs(text):
        assert row["numbers"] or row["texts"]
        assert all(f"{name}=" in text for name in [*row["numbers"], *row["texts"]])


def test_one_programs_rows_are_held_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[{on: h1, run: a, output: json}, {on: h2, run: b, output: json}, {on: h3, run: c, output: json}]"
    plan = plan_of(tmp_path, "  " + text)
    launches = [
        {"launch": n, "program": n, "label": "abc"[n], "node": f"h{n + 1}", "argv": ["abc"[n]]} for n in range(3)
    ]
    with (tmp_path / "programs.ndjson").open("w") as file:
        for row in launches:
            file.write(json.dumps(row | {"start_ns": 0, "end_ns": 1, "status": 0, "stopped": False}) + "\n")
    for number, content in enumerate(['{"a": 1}\n{"a": 2}', "no json", '{"a": 3}']):
        for stream, text in (("stdout", content), ("stderr", "")):
            (tmp_path / f"program-{number}-h{number + 1}.{stream}").write_text(text)
    opened: list[Path] = []

    def watched(file: Path, form: str) -> list[dict[str, Any]]:
        opened.append(file)
        return parse_output(file, form)

    monkeypatch.setattr(store_cell, "parse_output", watched)
    printed = store_cell._ProgramOutput(plan, tmp_path)
    records = printed.records()
    assert next(records)["label"] == "a" and len(opened) == 1
    assert [row["numbers"]["a"] for row in records] == [2, 3] and len(opened) == 3
    assert [row["records"] for row in printed.programs()] == [2, 0, 1]
    assert len(printed.warnings) == 1 and "the output of b on h2 is not json" in printed.warnings[0]
