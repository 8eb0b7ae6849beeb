# SPDX-License-Identifier: Apache-2.0
"""`qbed set`: settings of links are read from text, and undone to what was before."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import LinkChange, LinkEvent, Plan
from qbed.substrates import Deployment, SessionError, Status
from qbed.substrates.link_changes import RECORD, LinkSetting, current, parse_setting, set_links, undo, undoing

LAB = """
name: links
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 100 us}}
workload: []
duration: 1 s
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    file = tmp_path_factory.mktemp("lab") / "lab.yml"
    file.write_text(LAB)
    return compile_lab(load_lab(file))


def link(plan: Plan, name: str) -> int:
    return [link.name for link in plan.links].index(name)


def test_units_are_those_of_lab_files_and_of_tc(plan: Plan) -> None:
    s1s2 = link(plan, "s1-s2")
    setting = parse_setting(plan, "s1-s2", {"rate": "20mbit", "delay": "5ms", "loss": "1%", "state": "down"}, 7)
    values = {"rate_bps": 20_000_000, "delay_ns": 5_000_000, "loss": 0.01}
    assert setting.links == [LinkChange(link=s1s2, end=end, **values) for end in ("a", "b")]  # type: ignore[arg-type]
    assert setting.states == [LinkEvent(at_ns=0, link=s1s2, state="down")]
    assert parse_setting(plan, "s1-s2", {"rate": "3 MB/s"}).links[0].rate_bps == 24_000_000
    assert parse_setting(plan, "s1-s2", {"loss": "0.25"}).links[0].loss == 0.25
    assert parse_setting(plan, "s1-s2", {"state": "up"}).links == []


def test_a_direction_has_one_end_and_a_glob_has_those_of_each_link(plan: Plan) -> None:
    one = parse_setting(plan, "s2>s1", {"loss": "1%"})
    assert [(change.link, change.end) for change in one.links] == [(link(plan, "s1-s2"), "b")]
    ends = [(change.link, change.end) for change in parse_setting(plan, "h*>s1", {"loss": "1%"}).links]
    assert ends == [(link(plan, "h1-s1"), "a"), (link(plan, "h2-s1"), "a")]
    assert len(parse_setting(plan, "h*", {"loss": "1%"}).links) == 8


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("s1-s3", {"loss": "1%"}, "no link is called `s1-s3`; did you mean `s1-s2`"),
        ("s1>s3", {"loss": "1%"}, "no link leads `s1>s3`; did you mean `s1>s2`"),
        ("s1-s2", {"rat": "1 Gbit/s"}, "`rat`: expected rate, delay, loss or state; did you mean `rate`"),
        ("s1-s2", {"rate": "0 bit/s"}, "expected at least 1 bit/s"),
        ("s1-s2", {"rate": "fast"}, "expected a rate such as `10 Gbit/s`, got `fast`"),
        ("s1-s2", {"delay": f"{2**60} ns"}, "`delay`: expected at most"),
        ("s1-s2", {"loss": "2"}, "expected a fraction from 0 to 1"),
        ("s1-s2", {"loss": "nan"}, "expected a fraction from 0 to 1"),
        ("s1-s2", {"state": "off"}, "`state`: expected up or down, not off"),
        ("s1>s2", {"state": "down"}, "`state` is of a whole link, not of the direction s1>s2"),
        ("s1-s2", {}, "expected settings such as"),
    ],
)
def test_invalid_settings_are_refused(plan: Plan, name: str, fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_setting(plan, name, fields)


def test_undoing_restores_earlier_changes_and_then_the_plan(plan: Plan) -> None:
    texts = [("s1-s2", {"rate": "20mbit"}), ("s1>s2", {"rate": "5mbit", "loss": "1%"}), ("s1-s2", {"state": "down"})]
    settings: list[LinkSetting] = [parse_setting(plan, name, fields) for name, fields in texts]
    s1s2 = link(plan, "s1-s2")
    assert undoing(plan, settings) == ([], [LinkEvent(at_ns=0, link=s1s2, state="up")])
    second = [LinkChange(link=s1s2, end="a", rate_bps=20_000_000, loss=0.0)]
    assert undoing(plan, settings[:2]) == (second, [])
    first = [LinkChange(link=s1s2, end=end, rate_bps=1_000_000_000) for end in ("a", "b")]
    assert undoing(plan, settings[:1]) == (first, [])


@pytest.mark.parametrize("content", ["{", "[1]", '[{"time_ns": 1}]', "[" * 10_000])
def test_a_damaged_record_is_named(tmp_path: Path, content: str) -> None:
    assert current(tmp_path) == []
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(SessionError, match=f"{RECORD} cannot be read"):
        current(tmp_path)


@dataclass(frozen=True)
class Up:
    """A lab that is up: it keeps the changes that are made, and refuses them after `refuses`."""

    folder: Path
    name: str = "links"
    made: list[tuple[list[LinkChange], list[LinkEvent]]] = field(default_factory=list)
    refuses: list[str] = field(default_factory=list)

    def change_links(self, links: list[LinkChange], states: list[LinkEvent]) -> None:
        self.made.append((links, states))
        if self.refuses:
            raise SessionError(self.refuses.pop())

    def status(self) -> Status:
        return Status("test", 0, "")


def up(plan: Plan, folder: Path) -> tuple[Up, Deployment]:
    (folder / "plan.json").write_text(plan.dumps())
    lab = Up(folder)
    return lab, cast(Deployment, lab)


@pytest.mark.parametrize("number", [99, -1])
def test_a_record_with_links_that_do_not_exist_is_refused(plan: Plan, tmp_path: Path, number: int) -> None:
    _, lab = up(plan, tmp_path)
    setting = parse_setting(plan, "s1-s2", {"loss": "1%"}).plain()
    setting["links"][0]["link"] = number  # type: ignore[index, call-overload]
    (tmp_path / RECORD).write_text(json.dumps([setting]))
    with pytest.raises(SessionError, match="names links that links does not have"):
        undo(lab)


def test_a_change_that_cannot_be_made_is_undone_and_not_recorded(plan: Plan, tmp_path: Path) -> None:
    lab, deployment = up(plan, tmp_path)
    set_links(deployment, "s1-s2", {"rate": "20mbit"})
    lab.refuses.append("s2 does not answer")
    with pytest.raises(SessionError, match="s2 does not answer"):
        set_links(deployment, "s1-s2", {"rate": "5mbit", "state": "down"})
    assert [setting.fields for setting in current(tmp_path)] == [{"rate": "20mbit"}]
    (first, _), _, (restored, states) = lab.made
    assert restored == first and [state.state for state in states] == ["up"]
    lab.refuses.append("s2 does not answer")
    with pytest.raises(SessionError, match="s2 does not answer"):
        undo(deployment)
    assert [setting.fields for setting in current(tmp_path)] == [{"rate": "20mbit"}]
    assert undo(deployment).fields == {"rate": "20mbit"} and current(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_on_a_full_disk_nothing_is_changed(plan: Plan, tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", tmp_path], check=True)
    try:
        lab, deployment = up(plan, tmp_path)
        set_links(deployment, "s1-s2", {"loss": "1%"})
        with suppress(OSError), (tmp_path / "other").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        reason = f"{RECORD} cannot be written: no space left on device"
        with pytest.raises(SessionError, match=f"{reason}: nothing is changed"):
            set_links(deployment, "s1-s2", {"loss": "2%"})
        with pytest.raises(SessionError, match=f"{reason}: nothing is undone"):
            undo(deployment)
        assert len(lab.made) == 1 and [setting.fields for setting in current(tmp_path)] == [{"loss": "1%"}]
        (tmp_path / "other").unlink()
        set_links(deployment, "s1-s2", {"loss": "2%"})
        assert [undo(deployment).fields["loss"] for _ in range(2)] == ["2%", "1%"] and len(lab.made) == 4
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
