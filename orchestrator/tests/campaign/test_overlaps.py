# SPDX-License-Identifier: Apache-2.0
"""Overlapping settings: a cell runs the values of its columns, or the campaign is refused."""

from __future__ import annotations

import json
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import write_lab
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qbed.base.errors import QbedError
from qbed.campaign.file import CampaignError, load_campaign
from qbed.campaign.matrix import Cell, Matrix, build_matrix
from qbed.campaign.overlaps import leaves, look
from qbed.config.layers import rank
from qbed.config.units import format_duration, format_rate, parse_amount, parse_duration, parse_rate
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.plan.queue import KernelQdisc, Qdisc
from qbed.schemes.declaration import registry

DUMBBELL = Path(__file__).parents[3] / "labs" / "dumbbell"


def in_plan(plan: Plan, field: str) -> set[str]:
    """A field's values in a plan, read off the qdiscs' options, the links and the routes: not the way they came in."""
    names = port_names(plan)
    match field.split(".", 2):
        case ["switches", where, name]:
            queues = [q for q, port in zip(plan.queues, names, strict=True) if q.role == "switch" and _is(port, where)]
            if name == "scheme":
                return {queue.scheme for queue in queues}
            given = [_parameters(queue.scheme, queue.qdisc) for queue in queues]
            return {
                settings[name] for settings in given if name in settings
            }  # a scheme without the parameter has no use for it
        case ["links", _, "delay"]:
            return {format_duration(end.delay_ns) for link in plan.links for end in (link.a, link.b)}
        case ["links", _, name] if name.startswith("rate"):
            return {format_rate(end.rate_bps) for link in plan.links for end in (link.a, link.b)}
        case ["hosts", _, "queue.buffer"] | ["hosts", _, "queue"]:
            return {_parameters(queue.scheme, queue.qdisc)["buffer"] for queue in plan.queues if queue.role == "host"}
        case ["hosts", _, "tcp"]:
            return {n.sysctls["net/ipv4/tcp_congestion_control"] for n in plan.nodes if n.kind == "host"}
    raise AssertionError(field)


def _is(port: str, where: str) -> bool:
    return where == "default" or fnmatch(port, f"{where}>*")


def _parameters(scheme: str, qdisc: Qdisc) -> dict[str, str]:
    assert isinstance(qdisc, KernelQdisc)
    return registry()[scheme].describe(qdisc.kind, bytes.fromhex(qdisc.options))


def same(field: str, first: str, second: str) -> bool:
    parse: Any = {"buffer": parse_amount, "queue": parse_amount, "threshold": parse_amount, "delay": parse_duration}
    parse |= {"rate": parse_rate, "rate[0]": parse_rate}
    read = parse.get(field.rpartition(".")[2], str)
    return bool(read(first) == read(second))


def plan_of(folder: Path, cell: Cell) -> Plan:
    lab = load_lab(folder, dict(cell.settings))
    cell.check(lab.source.values)
    return compile_lab(lab, cell.seed)


def matrix_of(folder: Path, set_: dict[str, Any] | None = None, profile: str | None = None) -> Matrix:
    return build_matrix(load_campaign(folder / "campaign.yml")[0], profile, settings=set_)


# --- the two examples of the issue ---


def test_a_set_option_is_not_overridden_by_an_axis() -> None:
    """`qbed run labs/dumbbell --profile quick --set switches.default.buffer='1 MB'` ran 128 KB and said 1 MB."""
    cells = list(matrix_of(DUMBBELL, {"switches.default.buffer": "1 MB"}, "quick"))
    assert list(dict.fromkeys(cell.values["scheme"] for cell in cells)) == ["droptail", "ecn", "codel"]
    for cell in cells:
        plan = plan_of(DUMBBELL, cell)
        assert in_plan(plan, "switches.default.buffer") == {"1 MB"}
        assert in_plan(plan, "switches.default.scheme") == {cell.values["scheme"]}
        settings = cell.settings_of(load_lab(DUMBBELL, dict(cell.settings)).source.values)
        assert settings["switches.default.buffer"] == look(settings, ["switches.default", "buffer"]) == "1 MB"


def test_an_axis_is_not_overridden_by_a_later_one(tmp_path: Path) -> None:
    """An axis of `switches.default.buffer` above one that sets `switches.default` gave two rows, both of 128 KB."""
    axes = {
        "buffer": {"field": "switches.default.buffer", "values": ["128 KB", "1 MB"]},
        "scheme": [
            {"name": name, "set": {"switches.default": {"scheme": name, "buffer": "128 KB"}}}
            for name in ("droptail", "ecn")
        ],
    }  # fmt: skip
    write_lab(tmp_path, yaml.safe_dump({"question": "?", "axes": axes}, sort_keys=False))
    for cell in matrix_of(tmp_path):
        plan = plan_of(tmp_path, cell)
        assert in_plan(plan, "switches.default.buffer") == {cell.values["buffer"]}
        assert in_plan(plan, "switches.default.scheme") == {cell.values["scheme"]}


# --- what --set does to axes ---

AXES = """\
question: Who wins?
axes:
  scheme:
    - {name: droptail, set: {switches.default: {scheme: droptail, buffer: 64 KB}}}
    - {name: ecn, set: {switches.default: {scheme: ecn, buffer: 64 KB, threshold: 20 packets}}}
  delay: {field: links.default.delay, values: [5 us, 10 us]}
"""


@pytest.mark.parametrize(
    ("set_", "message"),
    [
        ({"switches.default.scheme": "codel"}, "the name `droptail` of the axis `scheme` untrue"),
        ({"switches.default.threshold": "5 packets"}, "alternatives differ in `switches.default.threshold`"),
        ({"switches.default": {"scheme": "ecn"}}, "the name `droptail` of the axis `scheme` untrue"),
        ({"switches": {"default": {"qdisc": "fq"}}}, "of the axis `scheme` untrue"),
        ({"links.default": {"rate": "1 Gbit/s"}}, "leaves no value of `links.default.delay` for the axis `delay`"),
        ({"links.default.delay": ["5 us", "9 us"]}, "leaves no value of `links.default.delay` for the axis `delay`"),
        ({"links.default.delay[0]": "5 us"}, "is a part of `links.default.delay`, which the axis `delay` varies"),
        ({"links..delay": "5 us"}, "expected a field such as"),
    ],
)
def test_a_set_option_that_contradicts_a_label_is_refused(tmp_path: Path, set_: dict[str, Any], message: str) -> None:
    write_lab(tmp_path, AXES)
    with pytest.raises(QbedError) as caught:
        matrix_of(tmp_path, set_)
    assert message in str(caught.value) and "--set" in str(caught.value)


@pytest.mark.parametrize(
    "set_",
    [
        {"links.default.delay": "7 us"},
        {'links."default".delay': "7 us"},
        {"links.default": {"rate": "1 Gbit/s", "delay": "7 us"}},
        {"links": {"default": {"rate": "1 Gbit/s", "delay": "7 us"}}},
    ],
)
def test_an_axis_that_is_set_has_that_one_value(tmp_path: Path, set_: dict[str, Any]) -> None:
    write_lab(tmp_path, AXES)
    cells = list(matrix_of(tmp_path, set_))
    assert {cell.values["delay"] for cell in cells} == {"7 us"} and len(cells) == 2
    assert all(in_plan(plan_of(tmp_path, cell), "links.default.delay") == {"7 us"} for cell in cells)


def test_the_seed_can_be_set_like_any_field(tmp_path: Path) -> None:
    write_lab(tmp_path, AXES.replace("axes:\n", "axes:\n  seed: [1, 2, 3]\n"))
    assert {cell.seed for cell in matrix_of(tmp_path, {"seed": 7})} == {7}
    with pytest.raises(QbedError, match="not both"):
        build_matrix(load_campaign(tmp_path / "campaign.yml")[0], seeds=[1], settings={"seed": 7})


# --- what axes and settings for all cells do to axes ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "axes:\n  a: {field: links.default.delay, values: [5 us]}\n"
            "  b: {field: links.default.delay, values: [9 us]}\n",
            "campaign.yml:4:7: axes.b.field: the axis `b` sets `links.default.delay`,"
            " the axis `a` sets `links.default.delay` (FILE:3): one would undo the other",
        ),
        (
            "axes:\n  a:\n    - {name: x, set: {links.default.delay: 5 us}}\n    - {name: y, set: {}}\n"
            "  b:\n    - {name: x, set: {links.default: {delay: 9 us, rate: 1 Gbit/s}}}\n    - {name: y, set: {}}\n",
            "campaign.yml:7:23: axes.b[0].set.\"links.default\": the axis `b` sets `links.default`,"
            " the axis `a` sets `links.default.delay` (FILE:4): one would undo the other",
        ),
        (
            "axes:\n  queue: {field: hosts.default.queue, values: [64 KB]}\n"
            "  kind: {field: hosts.default.queue.scheme, values: [ecn]}\n",
            "the axis `queue` sets `hosts.default.queue` (FILE:3): one would undo the other",
        ),
        (
            "axes:\n  a:\n    - {name: x, set: {hosts.default.queue: {scheme: ecn}}}\n    - {name: y, set: {}}\n"
            "  queue: {field: hosts.default.queue, values: [64 KB]}\n",
            "campaign.yml:6:11: axes.queue.field: the axis `queue` sets `hosts.default.queue`, the axis `a` sets",
        ),
        (
            "axes:\n  a:\n    - {name: x, set: {switches.default: {scheme: ecn}}}\n"
            "    - {name: y, set: {switches.default: {scheme: codel}}}\nset: {switches.default.scheme: abq}\n",
            "campaign.yml:6:7: set.\"switches.default.scheme\": would undo what the axis `a` varies (FILE:3):"
            " `switches.default.scheme`",
        ),
        (
            "axes:\n  queue: {field: hosts.default.queue, values: [64 KB]}\n"
            "profiles: {quick: {set: {hosts.default.queue.scheme: ecn}}}\n",
            "would undo what the axis `queue` varies (FILE:3): `hosts.default.queue`",
        ),
        ("set: {seed: 5}\n", "campaign.yml:2:7: set.seed: `seed` is always an axis of its own"),
        ("axes:\n  links..delay: [5 us]\n", "campaign.yml:3:3: axes.\"links..delay\": expected a field such as"),
    ],
)  # fmt: skip
def test_axes_that_override_each_other_are_refused_with_both_positions(tmp_path: Path, text: str, message: str) -> None:
    file = write_lab(tmp_path, f"question: Who wins?\n{text}") / "campaign.yml"
    with pytest.raises(CampaignError) as caught:
        load_campaign(file)
    assert message.replace("FILE", str(file)) in str(caught.value)


def test_settings_for_all_cells_outlive_an_axis_above_them(tmp_path: Path) -> None:
    write_lab(tmp_path, AXES + "set: {switches.default.buffer: 1 MB}\n")
    assert all(in_plan(plan_of(tmp_path, cell), "switches.default.buffer") == {"1 MB"} for cell in matrix_of(tmp_path))


# --- any matrix ---

BUFFERS, DELAYS = ["64 KB", "128 KB", "1 MB", "1000 KB", "200 packets"], ["5 us", "10 us", "0.01 ms"]
VALUES: dict[str, list[Any]] = {
    "switches.default.buffer": BUFFERS,
    'switches."default".buffer': BUFFERS,
    "switches.default.scheme": ["droptail", "ecn", "codel"],
    "switches.default.threshold": ["20 packets", "40 packets"],
    "switches.default": [{"scheme": "ecn", "buffer": b, "threshold": "9 packets"} for b in BUFFERS[:3]]
    + [{"scheme": "droptail"}],
    "switches.s1.buffer": BUFFERS,
    "switches.s*.buffer": BUFFERS,
    "switches": [{"default": {"scheme": "codel"}, "s2": {"buffer": "256 KB"}}],
    "links.default.delay": DELAYS,
    "links.default": [{"rate": "1 Gbit/s", "delay": d} for d in DELAYS] + [{"rate": "2 Gbit/s"}],
    "links.default.rate": ["1 Gbit/s", "2 Gbit/s", ["1 Gbit/s"]],
    "links.default.rate[0]": ["3 Gbit/s"],
    "hosts.default.queue": ["64 KB", {"buffer": "256 KB"}],
    "hosts.default.queue.buffer": ["64 KB", "300 KB"],
    "hosts.default.tcp": ["cubic", "reno", "dctcp"],
}
PATHS = st.sampled_from(sorted(VALUES))


@st.composite
def fields(draw: Any, count: int = 3) -> dict[str, Any]:
    return {path: draw(st.sampled_from(VALUES[path])) for path in draw(st.lists(PATHS, max_size=count, unique=True))}


@st.composite
def axes(draw: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            path = draw(PATHS)
            values = [value for value in VALUES[path] if isinstance(value, str)] or ["1 MB"]
            chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True))
            found[f"axis{number}"] = {"field": path, "values": chosen}
        else:
            found[f"axis{number}"] = [{"name": f"v{i}", "set": draw(fields())} for i in range(2)]
    return found


LINK = {"rate": "1 Gbit/s", "delay": "5 us"}
TWICE = [{"name": "v", "set": {}}, {"name": "w", "set": {"links.default": LINK, "links.default.rate": ["1 Gbit/s"]}}]
"""A field in two settings of one alternative, of which the second replaces a value by a list of it."""


@settings(max_examples=200, deadline=None)
@example(axes={"a": TWICE}, common={}, set_={})
@given(axes(), fields(), fields(2))
def test_each_cells_plan_has_each_of_its_labels_values(
    axes: dict[str, Any], common: dict[str, Any], set_: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = write_lab(Path(name), yaml.safe_dump({"question": "?", "axes": axes, "set": common}, sort_keys=False))
        try:
            matrix = matrix_of(folder, set_)
        except QbedError:
            return  # refused: nothing runs under a wrong label
        for cell in matrix:
            try:
                plan = plan_of(folder, cell)
            except QbedError as error:
                assert "the axis" not in str(error), "what the matrix lets pass, its cells keep"
                continue
            _labels_hold(plan, cell, axes, set_)


def _labels_hold(plan: Plan, cell: Cell, axes: dict[str, Any], set_: dict[str, Any]) -> None:
    for axis, entry in axes.items():
        if isinstance(entry, dict):
            promised: dict[str, Any] = {entry["field"].replace('"', "").replace("[0]", ".0"): cell.values[axis]}
        else:  # what alternatives differ in, if no column of its differing says it
            differing = {
                other["field"].replace('"', "").replace("[0]", ".0")
                for other in axes.values()
                if isinstance(other, dict)
            }
            every = [
                {".".join(map(str, path)): v for path, v in leaves(alternative["set"]).items()} for alternative in entry
            ]
            chosen = every[[alternative["name"] for alternative in entry].index(cell.values[axis])]
            promised = {
                f: v for f, v in chosen.items()
                if f not in differing and any(settings.get(f) != v for settings in every)
            }  # fmt: skip
        for field, value in promised.items():
            _holds(plan, field, value, cell)
    for place, value in leaves(set_).items():
        path = ".".join(map(str, place))
        inner = [other for other in leaves(set_) if other != place and other[: len(place)] == place]
        if not inner:
            _holds(plan, path, value, cell)


def _holds(plan: Plan, field: str, value: Any, cell: Cell) -> None:
    """Everything that a field means has its value; switches only where no more specific key overrides it."""
    field = field.replace(".0", "[0]")
    if not isinstance(value, str):
        return
    if field.startswith("switches."):
        _, key, name = field.split(".")
        ruled = {path[1] for path in leaves(cell.settings) if path[0] == "switches" and path[2:] == (name,)}
        stronger = [other for other in ruled if isinstance(other, str) and rank(other) > rank(key)]
        places = [s for s in ("s1", "s2") if key == "default" or fnmatch(s, key)]
        places = [s for s in places if not any(fnmatch(s, other) for other in stronger)]
        found = set[str]().union(*(in_plan(plan, f"switches.{place}.{name}") for place in places))
    else:
        found = in_plan(plan, field)
    assert all(same(field, value, equal_value) for equal_value in found), (
        field,
        value,
        found,
        json.dumps(dict(cell.settings)),
    )


def test_a_field_in_two_spellings_is_one_field(tmp_path: Path) -> None:
    twice = {"switches.default.buffer": "64 KB", 'switches."default".buffer': "128 KB"}
    for campaign in (
        {"axes": {"size": [{"name": "a", "set": twice}, {"name": "b", "set": {}}]}},
        {"axes": {"seed": [1]}, "set": twice},
    ):
        file = tmp_path / "campaign.yml"
        file.write_text(yaml.safe_dump({"question": "Which of the two?", **campaign}))
        with pytest.raises(CampaignError, match=r"is the field `switches.*` once more"):
            load_campaign(file)
