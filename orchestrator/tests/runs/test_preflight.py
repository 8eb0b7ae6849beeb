# SPDX-License-Identifier: Apache-2.0
"""Errors of a campaign are reported before its first cell runs, with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest
from campaigns import CAMPAIGN, LAB, add_module, fake_toolchain, write_lab

from qbed.base.errors import LabError, QbedError
from qbed.runs.experiment import Experiment, RunOptions, prepare


@pytest.fixture(autouse=True)
def toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tools = fake_toolchain(tmp_path / "tools")
    monkeypatch.setenv("QBED_TOOLCHAIN", str(tools))
    return tools


def prepared(folder: Path, campaign: str = CAMPAIGN, lab: str = LAB, **settings: str) -> Experiment:
    return prepare(write_lab(folder / "lab", campaign, lab), RunOptions(settings=settings))


def error_of(folder: Path, campaign: str = CAMPAIGN, lab: str = LAB) -> str:
    with pytest.raises(QbedError) as caught:
        prepared(folder, campaign, lab)
    assert caught.value.exit_status == 2
    return str(caught.value)


def test_a_valid_campaign_has_no_warnings(tmp_path: Path) -> None:
    assert prepared(tmp_path).warnings == []


def test_a_warning_of_the_lab_in_every_cell_is_one_of_the_run(tmp_path: Path) -> None:
    program = "programs:\n  - {run: [sleep, '1'], on: [h1], start: 1 ms, stop: 30 ms}\n"
    (warning,) = prepared(tmp_path, lab=LAB + program).warnings
    assert "programs[0].stop: is after the lab's end at 20 ms" in warning


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{kind: queue}", "{kind: queue, queue: s2>s9}", "campaign.yml:21:26: figures[0].queue: no queue is called"),
        ("{kind: queue}", "{kind: queue, queue: s1>s3}", "`s1>s3`; did you mean `s1>s2`?"),
        ("{kind: fct}", "{kind: fct, series: tpc}", "figures[1].series: no axis is called `tpc`; did you mean `tcp`?"),
        ("{kind: fct}", "{kind: fct, x: senders}", "`senders`; expected one of `delay`, `delay_ns`, `seed`, `tcp`"),
        ("{kind: goodput}", "{kind: goodput, where: dealy = '5 us'}", 'figures[2].where: the SQL is wrong'),
        ("{kind: goodput}", "{kind: goodput, where: 'slowdown > 1'}", 'Referenced column "slowdown" not found'),
        ("avg(jain) AS y", "avg(jain) AS z", "campaign.yml:24:45: figures[3].sql: expected the columns `x` and `y`"),
        ("avg(jain) AS y", "avg(jane) AS y", 'Referenced column "jane" not found'),
        ("= count(*) AS holds", "= count(*) AS hold", "claims[0].sql: expected one row with a column `holds`, got"),
        ("= count(*) AS holds", "+ count(*) AS holds", "expected `holds` to be BOOLEAN, got BIGINT"),
        ("count(*) AS flows", "count(* AS flows", "campaign.yml:19:10: claims[0].sql: the SQL is wrong: Parser Error"),
        ("FROM ended GROUP", "FROM endde GROUP", "campaign.yml:13:11: views.shares: the SQL is wrong: Catalog Error"),
        ("[5 us, 10 us]", "[5 us, 5000 ns]", "campaign.yml:6:10: axes.delay: `5 us` and `5000 ns` give the same plan"),
    ],
)  # fmt: skip
def test_figures_and_sql_are_bound_to_empty_tables(tmp_path: Path, old: str, new: str, message: str) -> None:
    campaign = CAMPAIGN.replace(old, new)
    assert campaign != CAMPAIGN
    assert message in error_of(tmp_path, campaign)


def test_a_claim_that_is_not_judged_is_not_bound(tmp_path: Path) -> None:
    later = CAMPAIGN.replace("    sql: SELECT", "    profiles: [quick]\n    sql: SELECT nonsense,")
    assert prepared(tmp_path, later).warnings == []


def test_a_module_that_is_not_built_is_named_with_the_scheme_that_needs_it(tmp_path: Path, toolchain: Path) -> None:
    lab = LAB.replace("scheme: droptail", "scheme: codel")
    message = error_of(tmp_path, lab=lab)
    assert "lab.yml:6:21: switches.default.scheme: the kernel module sch_qcodel is not built" in message
    add_module(toolchain, "sch_qcodel")
    assert prepared(tmp_path, lab=lab)


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    assert "lab.yml:11:10: routing: node s1 runs zebra, which is not here" in error_of(
        tmp_path, lab=LAB + "routing: frr\n"
    )


def test_a_qdisc_in_words_of_tc_requires_tc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = LAB.replace("{scheme: droptail, buffer: 128 KB}", "{qdisc: fq_codel limit 100}")
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    message = (
        "lab.yml:6:3: switches: the queue s1:eth0 is given by arguments of tc, which is not here; install iproute2"
    )
    assert message in error_of(tmp_path, lab=lab)


def test_an_axis_that_no_queue_uses_is_refused(tmp_path: Path) -> None:
    """Each switch has a custom buffer, so two values of the default give the same plan."""
    lab = LAB.replace("  default: {scheme", "  s*: {buffer: 64 KB}\n  default: {scheme")
    campaign = "question: ?\naxes:\n  switches.default.buffer: [128 KB, 1 MB]\n".replace("?", "Which?")
    assert 'axes."switches.default.buffer": `128 KB` and `1 MB` give the same plan' in error_of(tmp_path, campaign, lab)


def test_an_axis_that_some_alternatives_use_is_accepted(tmp_path: Path, toolchain: Path) -> None:
    """Drop-tail, the first scheme, has no threshold."""
    add_module(toolchain, "sch_ecn")
    campaign = """\
question: Which?
axes:
  switches.default.scheme: [droptail, ecn]
  switches.default.threshold: [20 packets, 40 packets]
"""
    assert prepared(tmp_path, campaign).warnings == []


def test_a_set_without_an_effect_is_a_warning(tmp_path: Path) -> None:
    warnings = prepared(tmp_path, **{"switches.default.buffer": "128 KB"}).warnings
    assert warnings == ["--set switches.default.buffer=128 KB changes nothing in the plan"]


def test_a_set_that_nothing_reads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"switches\.default\.threshold: the scheme `droptail` has no parameter"):
        prepared(tmp_path, **{"switches.default.threshold": "5 packets"})


def test_a_buffer_axis_beside_a_qdisc_is_refused(tmp_path: Path) -> None:
    """With the qdisc's limit of 1,000 packets, a label of 20 packets would be false."""
    campaign = """\
question: Which?
axes:
  aqm:
    - {name: droptail, set: {switches.default: {scheme: droptail}}}
    - {name: pfifo, set: {switches.default: {qdisc: pfifo limit 1000}}}
  buffer: {field: switches.default.buffer, values: [20 packets, 1000 packets]}
"""
    text = "switches.default.buffer: has no effect beside `qdisc: pfifo limit 1000`"
    messages = error_of(tmp_path, campaign).splitlines()
    assert [f"with switches.default.buffer={n} packets: {text}" in line for line in messages for n in (20, 1000)] == [
        True, False, False, True,
    ]  # fmt: skip


def test_a_value_that_has_no_effect_beside_an_alternative_is_refused(tmp_path: Path) -> None:
    campaign = """\
question: Which?
axes:
  aqm:
    - {name: droptail, set: {}}
    - {name: pfifo, set: {switches.s*: {qdisc: pfifo limit 1000}}}
  delay: {field: links.default.delay, values: [5 us, 10 us]}
  buffer: {field: switches.default.buffer, values: [20 packets, 1000 packets]}
"""
    assert error_of(tmp_path, campaign).endswith(
        "campaign.yml:7:11: axes.buffer: `20 packets` and `1000 packets` give the same plan beside aqm=pfifo,"
        " delay=5 us: nothing there takes them; expected alternatives (`name`, `set`) that set this field only where it"
        " has an effect"
    )


def test_a_value_that_has_no_effect_beside_two_others_is_refused(tmp_path: Path) -> None:
    """The axis loses its effect only if both other axes have their second value."""
    campaign = """\
question: Which?
axes:
  first: [{name: a, set: {}}, {name: b, set: {switches.s1: {buffer: 9 packets}}}]
  second: [{name: a, set: {}}, {name: b, set: {switches.s2: {buffer: 9 packets}}}]
  buffer: {field: switches.default.buffer, values: [20 packets, 1000 packets]}
"""
    assert "give the same plan beside first=b, second=b" in error_of(tmp_path, campaign)


def test_a_setting_without_a_reader_is_an_error_or_in_a_smaller_profile_a_warning(
    tmp_path: Path, toolchain: Path
) -> None:
    add_module(toolchain, "sch_ecn")
    axes = "question: Which?\naxes:\n  scheme: {field: switches.default.scheme, values: [droptail, SCHEME]}\n"
    profile = "profiles: {few: {axes: {scheme: [droptail]}}}\n"
    campaign = axes + "set: {switches.default.threshold: 20 packets}\n" + profile
    text = "switches.default.threshold: the scheme `droptail` has no parameter `threshold`: not used"
    assert text in error_of(tmp_path, campaign.replace(", SCHEME", ""))
    folder = write_lab(tmp_path / "lab", campaign.replace("SCHEME", "ecn"), LAB)
    assert prepare(folder, RunOptions()).warnings == []
    (warning,) = prepare(folder, RunOptions(profile="few")).warnings
    assert text in warning


def test_an_axis_does_not_hide_an_error_in_the_lab_file(tmp_path: Path) -> None:
    lab = LAB.replace("128 KB", "128 kilobytes")
    campaign = "question: Which?\naxes: {switches.default.buffer: [20 packets, 1000 packets]}\n"
    assert "lab.yml:6:39: switches.default.buffer: expected" in error_of(tmp_path, campaign, lab)


def test_a_large_campaign_is_checked_in_part_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Combinations with up to two values other than the first are compared, and some with three are not."""
    axes = {"duration": "10 ms, 20 ms", "links.default.delay": "5 us, 10 us", "hosts.default.tcp": "cubic, reno"}
    campaign = "question: Which?\naxes:\n" + "".join(f"  {name}: [{values}]\n" for name, values in axes.items())
    monkeypatch.setattr("qbed.runs.effects.MAX_PLANS", 7)
    (warning,) = prepared(tmp_path, campaign).warnings
    assert warning.startswith("7 of the 8 combinations of the axes' values were compared")
