# SPDX-License-Identifier: Apache-2.0
"""Changes made by the events of a lab file: one link end, queue or host each, in the order of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qbed.base.errors import nearest
from qbed.config.layers import Layer, layer
from qbed.config.source import FieldPath
from qbed.config.units import format_duration
from qbed.lab.events import Event, Rates
from qbed.network import links
from qbed.network.frames import ETHERNET_BYTES
from qbed.network.links import LinkEnd
from qbed.network.queues import CUSTOM, QueueSpec, check_names, merge
from qbed.network.resolve import ResolvedLab
from qbed.schemes.declaration import registry

MAX_CHANGES = 100_000


@dataclass(frozen=True)
class LinkChange:
    """New properties of a link end; those that are None do not change."""

    at_ns: int
    end: LinkEnd
    rate_bps: int | None = None
    delay_ns: int | None = None
    loss: float | None = None


@dataclass(frozen=True)
class QueueChange:
    """The new specification of a queue."""

    at_ns: int
    end: LinkEnd
    spec: QueueSpec


@dataclass(frozen=True)
class HostChange:
    """The new congestion control of a host."""

    at_ns: int
    host: str
    tcp: str


Change = LinkChange | QueueChange | HostChange


def changes(lab: ResolvedLab) -> list[Change]:
    """Return all changes except links that go down or up; errors are added to the lab's problems."""
    found: list[Change] = []
    events = sorted(enumerate(lab.lab.events), key=lambda item: item[1].at)
    given = {end: dict(lab.given_at(end, node)) for end, node in lab.ends("switch")}
    for number, event in events:
        path: FieldPath = ("events", number)
        if event.state is not None:
            continue
        for change in _changes(lab, path, event, given):
            found.append(change)
            if len(found) > MAX_CHANGES:
                lab.problems.error(path, f"more than {MAX_CHANGES} changes up to here")
                return []
    return sorted(found, key=lambda change: change.at_ns)


def _changes(lab: ResolvedLab, path: FieldPath, event: Event, given: dict[LinkEnd, Layer]) -> Iterator[Change]:
    if event.link is not None:
        for end in _link_ends(lab, path, event.link):
            yield from _of_link(lab, event, end)
    elif event.queue is not None:
        ends = links.directions(lab.network, lab.problems, (*path, "queue"), event.queue)
        for end in ends:
            spec = _queue(lab, path, event, end, given)
            if spec is not None:
                yield QueueChange(event.at, end, spec)
    elif event.host is not None and event.tcp is not None:
        hosts = dict.fromkeys(lab.network.hosts)
        chosen = lab.problems.select((*path, "host"), event.host, hosts)
        if not chosen:
            lab.problems.error((*path, "host"), f"no host is called `{event.host}`{nearest(event.host, hosts)}")
        yield from (HostChange(event.at, host, event.tcp) for host in chosen)


def _link_ends(lab: ResolvedLab, path: FieldPath, name: str) -> list[LinkEnd]:
    if ">" in name:
        return links.directions(lab.network, lab.problems, (*path, "link"), name)
    index = lab.network.link_names
    return [(index[link], side) for link in lab.problems.select((*path, "link"), name, index) for side in ("a", "b")]


def _of_link(lab: ResolvedLab, event: Event, end: LinkEnd) -> Iterator[LinkChange]:
    rates: Rates = event.trace if isinstance(event.trace, list) else []
    yield from (LinkChange(event.at + at, end, rate_bps=rate) for at, rate in rates if event.at + at < lab.lab.duration)
    if event.rate is not None or event.delay is not None or event.loss is not None:
        yield LinkChange(event.at, end, event.rate, event.delay, event.loss)


def _queue(
    lab: ResolvedLab, path: FieldPath, event: Event, end: LinkEnd, given: dict[LinkEnd, Layer]
) -> QueueSpec | None:
    """Return a queue's specification with the settings of an event; None if they are invalid."""
    assert event.settings is not None
    problems, port = lab.problems, event.queue
    if end not in given:
        problems.error((*path, "queue"), f"`{port}` is a host's own queue; expected a switch's")
        return None
    if getattr(lab.network.links[end[0]], end[1]) in lab.programs:
        problems.error((*path, "queue"), f"`{port}` is a switch in P4, whose tables P4Runtime changes")
        return None
    before = lab.switch_queues.get(end)
    for name in ("scheme", "qdisc", "preset"):
        if name in event.settings.given():
            problems.error((*path, "set", name), "a queue keeps its scheme while the lab runs")
            return None
    if before is None or before.scheme == CUSTOM:
        problems.error((*path, "queue"), f"`{port}` has a queue in tc's words; expected one with a scheme")
        return None
    check_names(event.settings, (*path, "set"), problems)
    if problems.errors:
        return None
    given[end] = merge(given[end], layer(event.settings.given(), (*path, "set")))
    spec = lab.queue_spec(given[end], lab.links[end[0]].mtu + ETHERNET_BYTES)
    scheme = registry()[before.scheme]
    if spec is not None and scheme.kind(spec.values) != scheme.kind(before.values):
        text = f"the queue of `{port}` is counted in the unit that it began with: bytes or packets"
        problems.error((*path, "set", "buffer"), text)
        return None
    return spec


def too_late(event: Event, end_ns: int) -> str | None:
    """Return the error in an event's time, or None."""
    if event.at < end_ns:
        return None
    return f"{format_duration(event.at)} is after the lab's end at {format_duration(end_ns)}"
