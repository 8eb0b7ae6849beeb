# SPDX-License-Identifier: Apache-2.0
"""Congestion controls: the folders of `congestion/`, what is refused, and the code of their parameters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qbed.base.errors import LabError, QbedError
from qbed.base.locations import congestion_folder
from qbed.config.source import parse
from qbed.lab.reference import cached_schema, page, schema
from qbed.network.load import lab_from_source
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.schemes import congestion
from qbed.schemes.congestion import congestion_controls, control_names
from qbed.schemes.generate import generated

DECLARATION = """\
name: mine
title: A test
help: It is a test.
variants: {mine_fast: It is faster.}
parameters:
  - {name: gain, type: number, default: 4, min: 1, max: 9, help: The gain.}
  - {name: interval, type: duration, default: 5 ms, max: 1 s, help: The interval., attribute: {unit: us}}
  - {name: share, type: fraction, default: 0.5, help: The share., attribute: {scale: 1024}}
"""
STATISTICS = """\
statistics:
  - {name: cuts, type: u32, unit: cuts, help: Cuts.}
  - {name: idle, unit: ns, help: Idle time.}
"""
THREE = "statistics: [{name: a, unit: s, help: A}, {name: b, unit: s, help: B}, {name: c, type: u32, unit: s, help: C}]"
LAB = """\
name: test
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail}}
hosts: {default: {tcp: mine}}
workload: [{flow: {from: h1, to: h2, size: 1 KB}}]
duration: 1 ms
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with one congestion control, `mine`, as the only one; returns its declaration."""
    cached_schema.cache_clear()
    monkeypatch.setenv("QBED_CONGESTION", str(tmp_path / "congestion"))
    path = tmp_path / "congestion" / "mine" / "congestion.yml"
    path.parent.mkdir(parents=True)
    path.write_text(DECLARATION)
    yield path
    cached_schema.cache_clear()


def compiled(text: str) -> Plan:
    return compile_lab(lab_from_source(parse(text, "lab.yml")))


def refused(text: str) -> list[str]:
    with pytest.raises(LabError) as error:
        compiled(text)
    return error.value.messages


@pytest.mark.parametrize(
    "folder", sorted(congestion_folder().glob("*/congestion.yml")), ids=lambda path: path.parent.name
)
def test_every_folder_is_a_complete_congestion_control(folder: Path) -> None:
    control = congestion_controls()[folder.parent.name]
    assert (folder.parent / "README.md").read_text().startswith(f"# {control.name}\n")
    code = (folder.parent / "kernel" / f"{control.module}.c").read_text()
    assert (folder.parent / "kernel" / "Kbuild").read_text().endswith(f"obj-m := {control.module}.o\n")
    assert all(f'.name = "{name}"' in code for name in control.controls)
    assert list((folder.parent / "tests").glob("test_*.py")), "expected a test of its behaviour in a lab"


def test_a_folder_is_a_value_of_tcp_and_its_module_is_loaded_where_it_is_used(mine: Path) -> None:
    assert control_names()[-2:] == ["mine", "mine_fast"]
    assert compiled(LAB).modules == ["tcp_mine"]
    assert compiled(LAB.replace("mine", "mine_fast")).modules == ["tcp_mine"]
    assert compiled(LAB.replace("mine", "cubic")).modules == []
    assert compiled(LAB.replace("mine", "cubic").replace("to: h2", "to: h2, tcp: mine")).modules == ["tcp_mine"]


def test_editors_complete_its_name_and_the_reference_lists_it(mine: Path) -> None:
    names = schema()["$defs"]["HostSettings"]["properties"]["tcp"]["enum"]
    assert names == control_names()
    assert "### mine\n" in page() and "Variant `mine_fast`: It is faster." in page()


WITH = LAB + "congestion: {mine: {gain: 4, interval: 2 ms, share: 25 %}}\n"


def test_parameters_of_the_lab_are_the_modules_in_the_kernels_units(mine: Path) -> None:
    assert compiled(WITH).parameters == {"tcp_mine/interval_us": "2000", "tcp_mine/share": "256"}
    assert compiled(LAB).parameters == {}
    both = WITH + "kernel_parameters: {tcp_cubic/hystart: 0}\n"
    assert list(compiled(both).parameters) == ["tcp_cubic/hystart", "tcp_mine/interval_us", "tcp_mine/share"]
    variant = WITH.replace("tcp: mine", "tcp: mine_fast")
    assert compiled(variant).parameters == compiled(WITH).parameters


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{mine:", "{mime:", "8:14: congestion.mime: no folder of congestion/ is called `mime`; did you mean `mine`?"),
        ("{mine:", "{mine_fast:", "8:14: congestion.mine_fast: `mine_fast` is a variant of `mine` and shares its"),
        ("{mine:", "{cubic:", "8:14: congestion.cubic: `cubic` is Linux's, without parameters here; expected `kernel_"),
        (
            "gain: 4",
            "gian: 4",
            "8:21: congestion.mine.gian: the congestion control `mine` has no parameter `gian`;",
        ),
        ("gain: 4", "gain: 0", "8:27: congestion.mine.gain: expected at least `1`, got `0`"),
        ("2 ms", "2 s", "congestion.mine.interval: expected at most `1 s`, got `2 s`"),
        ("2 ms", "2", "congestion.mine.interval: expected a duration such as `5 us`, got `2`"),
        ("gain: 4", "gain: [4]", "congestion.mine.gain: expected a whole number, got `[4]`"),
        ("{gain: 4, interval: 2 ms, share: 25 %}", "4", "congestion.mine: expected fields (`name: value`), got `4`"),
    ],
)
def test_mistakes_in_parameters_have_one_message(mine: Path, old: str, new: str, message: str) -> None:
    assert WITH.count(old) == 1
    (only,) = refused(WITH.replace(old, new))
    assert message in only


def test_parameters_of_a_control_that_no_flow_uses_are_refused(mine: Path) -> None:
    text = WITH.replace("tcp: mine", "tcp: cubic")
    first = (
        "lab.yml:8:27: congestion.mine.gain: no flow uses `mine`: not used; expected `tcp: mine` of a host, a workload"
    )
    assert refused(text)[0].startswith(first)


def test_a_campaign_may_set_parameters_of_a_control_that_only_some_cells_use(mine: Path) -> None:
    """Cells with another control have the plan without the parameters."""
    source, overrides = parse(WITH, "lab.yml"), {"hosts.default.tcp": "cubic"}
    plan = compile_lab(lab_from_source(source, overrides, of_campaign=True))
    assert plan.parameters == {} and plan.dumps() == compiled(LAB.replace("mine", "cubic")).dumps()


def test_an_unknown_name_has_the_nearest_one(mine: Path) -> None:
    text = LAB.replace("tcp: mine", "tcp: mime")
    assert refused(text) == [
        "lab.yml:5:24: hosts.default.tcp: no congestion control is called `mime`; did you mean `mine`?"
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: mine\n", "name: other\n", "expected the folder's name `mine`, got `other`"),
        ("mine_fast", "cubic", "`cubic` is a congestion control of Linux; expected another name"),
        ("mine_fast", "a_name_of_16_chr", "expected up to 15 of a-z, 0-9 and `_`, a letter first, got `a_name_of_16"),
        ("default: 4, ", "", "expected a default of the parameter `gain`"),
        ("default: 4", "default: 12", "expected at most `9`, got `12`"),
        ("{unit: us}", "{type: u64}", "and an attribute of type u32"),
        ("type: fraction, default: 0.5", "type: scheme, default: ecn", "another type of the parameter `share`"),
        ("title: A test\n", "", "title: this field is missing"),
        ("parameters:", "statistics: [{name: Cuts, unit: cuts, help: C.}]\nparameters:", "a-z, 0-9 and `_`, each once"),
        ("parameters:", THREE + "\nparameters:", "statistics: expected at most 20 bytes: the kernel has room for 5 of"),
    ],
)  # fmt: skip
def test_incomplete_declarations_are_refused(mine: Path, old: str, new: str, message: str) -> None:
    assert DECLARATION.count(old) == 1
    mine.write_text(DECLARATION.replace(old, new))
    with pytest.raises(QbedError) as error:
        congestion_controls()
    assert message in str(error.value) and "congestion.yml" in str(error.value)


def test_two_folders_cannot_register_one_name(mine: Path) -> None:
    other = mine.parents[1] / "other" / "congestion.yml"
    other.parent.mkdir()
    other.write_text(DECLARATION.replace("name: mine\n", "name: other\n"))
    with pytest.raises(
        QbedError, match=r"`mine_fast` is a congestion control of .*/congestion/mine; expected another name"
    ):
        congestion_controls()


def test_parameters_become_module_parameters_with_defaults_and_bounds(mine: Path) -> None:
    code = generated("kernel")["mine/mine_parameters.h"]
    for line in (
        "static unsigned int mine_gain __read_mostly = 4;",
        "static unsigned int mine_interval_us __read_mostly = 5000;",
        "return param_set_uint_minmax(text, param, 0u, 1000000u);",
        "return param_set_uint_minmax(text, param, 1u, 9u);",
        "static unsigned int mine_share __read_mostly = 512;",
        "return param_set_uint_minmax(text, param, 0u, 1024u);",
        "module_param_cb(interval_us, &mine_interval_us_ops, &mine_interval_us, 0644);",
    ):
        assert line in code
    assert "mine/mine_parameters.h" not in generated("tc")


def test_statistics_become_a_structure_and_the_plan_names_the_controls(mine: Path) -> None:
    assert compiled(LAB).flow_statistics == [] and "flow_statistics" not in compiled(LAB).dumps()
    assert "mine_put_stats" not in generated("kernel")["mine/mine_parameters.h"]
    mine.write_text(DECLARATION + STATISTICS)
    congestion._congestion_controls.cache_clear()
    code = generated("kernel")
    assert (
        "struct mine_stats {\n\tu32 cuts;\t/* cuts: Cuts. */\n\tu64 idle_ns;\t/* ns: Idle time. */\n};"
        in (code["mine/mine_stats.h"])
    )
    assert '#include "mine_stats.h"' in code["mine/mine_parameters.h"]
    assert "mine_put_stats(const struct mine_stats *stats" in code["mine/mine_parameters.h"]
    assert compiled(LAB).flow_statistics == ["mine", "mine_fast"]
    assert compiled(LAB.replace("mine", "cubic")).flow_statistics == []
