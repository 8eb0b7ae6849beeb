# SPDX-License-Identifier: Apache-2.0
"""Changes of links of a lab that is up, by `qbed set`: read from text, made, recorded in the lab's folder, undone."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, cast

from pydantic import TypeAdapter, ValidationError

from qbed.base.errors import nearest
from qbed.base.json_files import read_json, temporary_path, write_json
from qbed.config.selectors import is_wide, select
from qbed.config.units import parse_any_rate, parse_duration, parse_fraction
from qbed.plan.base import Part
from qbed.plan.model import End, LinkChange, LinkEvent, Plan
from qbed.plan.ports import port_names
from qbed.substrates import Deployment, SessionError

FIELDS = ("rate", "delay", "loss", "state")
RECORD = "changes.json"
"""The changes of a lab that is up, beside its plan.json."""
_MAX_DELAY_NS = 1 << 56


class LinkSetting(Part):
    """One `qbed set`: the new settings of some links."""

    time_ns: int
    """The lab's time."""
    link: str
    """The links, as they were named."""
    fields: dict[str, str]
    """The new values, as they were written."""
    links: list[LinkChange]
    """The new settings of link ends."""
    states: list[LinkEvent]
    """The links that go down or come up."""


_RECORD = TypeAdapter(list[LinkSetting])


def parse_setting(plan: Plan, link: str, fields: Mapping[str, str], time_ns: int = 0) -> LinkSetting:
    """Read the settings of a link: its name, a glob, a range, or one direction (`s1>s2`). ValueError."""
    for name in fields:
        if name not in FIELDS:
            raise ValueError(f"`{name}`: expected {', '.join(FIELDS[:-1])} or {FIELDS[-1]}{nearest(name, FIELDS)}")
    if not fields:
        raise ValueError("expected settings such as `rate=20 Mbit/s delay=5 ms loss=1% state=down`")
    ends = _ends(plan, link)
    change = LinkChange(link=0, end="a")
    if "rate" in fields:
        change.rate_bps = parse_any_rate(fields["rate"])
        if change.rate_bps < 1:
            raise ValueError("`rate`: expected at least 1 bit/s; `state=down` takes a link down")
    if "delay" in fields:
        change.delay_ns = parse_duration(fields["delay"])
        if change.delay_ns > _MAX_DELAY_NS:
            raise ValueError(f"`delay`: expected at most {_MAX_DELAY_NS} ns")
    if "loss" in fields:
        change.loss = parse_fraction(_number(fields["loss"]))
    state = fields.get("state")
    if state not in (None, "up", "down"):
        raise ValueError(f"`state`: expected up or down, not {state}")
    if state is not None and ">" in link:
        raise ValueError(f"`state` is of a whole link, not of the direction {link}")
    changed = {"rate", "delay", "loss"} & set(fields)
    return LinkSetting(
        time_ns=time_ns,
        link=link,
        fields=dict(fields),
        links=[change.model_copy(update={"link": i, "end": side}) for i, side in ends] if changed else [],
        states=_states({i: cast(Literal["up", "down"], state) for i, _ in ends} if state else {}),
    )


def describe(setting: LinkSetting) -> str:
    """The links and their new settings: `s1-s2 rate=20mbit`."""
    return " ".join([setting.link, *(f"{name}={value}" for name, value in setting.fields.items())])


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _states(states: Mapping[int, Literal["up", "down"]]) -> list[LinkEvent]:
    return [LinkEvent(at_ns=0, link=link, state=state) for link, state in states.items()]


def _ends(plan: Plan, text: str) -> list[tuple[int, Literal["a", "b"]]]:
    """The link ends with the transmitters of a link's name, glob or range, or of one direction."""
    left, arrow, right = text.partition(">")
    if arrow:
        nodes = [node.name for node in plan.nodes]
        local, remote = set(select(left, nodes)), set(select(right, nodes))
        ends = [(i, side) for i, side, a, b in _directions(plan) if nodes[a.node] in local and nodes[b.node] in remote]
        if not ends:
            raise ValueError(f"no link leads `{text}`{nearest(text, port_names(plan))}")
        return ends
    index = {link.name: i for i, link in enumerate(plan.links)}
    chosen = select(text, index)
    if not chosen:
        hint = "" if is_wide(text) else nearest(text, index)
        raise ValueError(f"no link is called `{text}`{hint}; `qbed inspect` lists the links")
    return [(index[name], side) for name in chosen for side in ("a", "b")]


def _directions(plan: Plan) -> Iterator[tuple[int, Literal["a", "b"], End, End]]:
    for i, link in enumerate(plan.links):
        yield i, "a", link.a, link.b
        yield i, "b", link.b, link.a


def undoing(plan: Plan, settings: Sequence[LinkSetting]) -> tuple[list[LinkChange], list[LinkEvent]]:
    """The changes that undo the last one: each of its ends and links gets the value of before."""
    *before, last = settings
    effective = {(i, side): end.model_copy() for i, side, end, _ in _directions(plan)}
    for change in (change for setting in before for change in setting.links):
        for field, value in _given(change).items():
            setattr(effective[change.link, change.end], field, value)
    links = [
        change.model_copy(
            update={field: getattr(effective[change.link, change.end], field) for field in _given(change)}
        )
        for change in last.links
    ]
    states = {state.link: state.state for one in before for state in one.states}
    return links, _states({state.link: states.get(state.link, "up") for state in last.states})


def _given(change: LinkChange) -> dict[str, float]:
    """The settings that a change has: fields of the plan's link ends."""
    return {field: value for field, value in change if field in ("rate_bps", "delay_ns", "loss") and value is not None}


def current(folder: Path) -> list[LinkSetting]:
    """The settings of links in effect in the lab with this folder, in order. SessionError if the record is damaged."""
    try:
        return _RECORD.validate_python(read_json(folder / RECORD))
    except FileNotFoundError:
        return []
    except (OSError, ValidationError, ValueError) as error:
        raise SessionError(f"{folder / RECORD} cannot be read: {str(error).splitlines()[0]}") from None


def set_links(lab: Deployment, link: str, fields: Mapping[str, str]) -> LinkSetting:
    """Record a change of links of a lab that is up, and make it. ValueError for settings that are not valid.

    SessionError: if it cannot be recorded, nothing is changed; if it cannot be made, it is undone and not recorded.
    """
    with _locked(lab.folder):
        plan, before = _plan(lab), current(lab.folder)
        setting = parse_setting(plan, link, fields, lab.status().time_ns or 0)
        settings = [*before, setting]
        _write(lab, settings, "nothing is changed")
        try:
            lab.change_links(setting.links, setting.states)
        except SessionError as error:
            with suppress(SessionError):  # some nodes may have made it
                lab.change_links(*undoing(plan, settings))
            _write(lab, before, f"it still has a change that was not made ({error}); `--undo` removes it")
            raise
    return setting


def undo(lab: Deployment) -> LinkSetting:
    """Undo the last change of links, and return it. SessionError if there is none, or if nothing is undone."""
    with _locked(lab.folder):
        settings, plan = current(lab.folder), _plan(lab)
        if not settings:
            raise SessionError(f"no link of {lab.name} was changed by `qbed set`")
        _check_links(settings, plan, lab)
        _write(lab, settings[:-1], "nothing is undone")
        try:
            lab.change_links(*undoing(plan, settings))
        except SessionError as error:
            _write(lab, settings, f"it lacks a change that was not undone ({error})")
            raise
    return settings[-1]


def _check_links(settings: Sequence[LinkSetting], plan: Plan, lab: Deployment) -> None:
    """SessionError if the record names a link that the lab does not have: the guest can write into the folder."""
    named = {change.link for setting in settings for change in setting.links}
    named |= {state.link for setting in settings for state in setting.states}
    if not named <= set(range(len(plan.links))):
        raise SessionError(f"{lab.folder / RECORD} names links that {lab.name} does not have")


def _plan(lab: Deployment) -> Plan:
    try:
        return Plan.loads((lab.folder / "plan.json").read_bytes())
    except OSError:
        raise SessionError(f"the lab {lab.name} is not up; `qbed ps` lists what is up") from None


def _write(lab: Deployment, settings: list[LinkSetting], consequence: str) -> None:
    """Replace the record, or leave it as it is. SessionError has the consequence."""
    path = lab.folder / RECORD
    try:
        write_json(path, [setting.plain() for setting in settings])
    except OSError as error:
        temporary_path(path).unlink(missing_ok=True)
        reason = (error.strerror or str(error)).lower()
        raise SessionError(f"{path} cannot be written: {reason}: {consequence}") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a lab's folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SessionError(f"{folder}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
