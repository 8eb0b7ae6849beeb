# SPDX-License-Identifier: Apache-2.0
"""Unread settings: those that apply to nothing, and overrides for which every element has a more specific setting."""

from collections.abc import Iterator, Mapping

from qbed.config.problems import Problems
from qbed.config.source import FieldPath
from qbed.lab.programs import unread_arguments
from qbed.lab.settings import ControllerSettings, QueueSettings
from qbed.lab.workloads import Paired
from qbed.network.pairs import select_hosts
from qbed.network.resolve import ResolvedLab


def not_read_within(problems: Problems, path: FieldPath, text: str) -> None:
    """Record that nothing reads a setting with all its parts: at its own field, and at each part that
    an override set.
    """
    inside = [axis for axis in problems.source.axes if axis[: len(path)] == path]
    if path in problems.source.positions or not inside:
        problems.not_read(path, text)
    for axis in inside:
        problems.not_read(axis, text)


def check_unread(resolved: ResolvedLab) -> None:
    """Find and record the unread settings."""
    problems, lab = resolved.problems, resolved.lab
    if problems.errors:  # not everything has been resolved
        return
    for number, workload in enumerate(lab.workload):
        _check_pairing(resolved, ("workload", number, workload.kind), workload.content)
    for number, program in enumerate(lab.programs):
        for name in unread_arguments(program):
            text = f"`run` has no `{{{name}}}`: not used; expected it among the words of `run`"
            problems.not_read(("programs", number, "arguments", name), text)
    for kind, path in _given(resolved):
        if problems.is_known(path) or not problems.source.is_override(path) or _is_overridden(problems, path):
            continue  # in a file, a general setting may be the fallback of more specific ones
        text = f"every {kind} that `{path[1]}` names has a more specific setting: not used; expected it there"
        problems.not_read(path, text, conditional=False)


def _is_overridden(problems: Problems, path: FieldPath) -> bool:
    """Whether an override of another, more specific entry sets the same field."""
    return any(
        axis[0] == path[0] and axis[1:2] not in ((), path[1:2]) and axis[2:] == path[2 : len(axis)]
        for axis in problems.source.axes
    )


def _given(resolved: ResolvedLab) -> Iterator[tuple[str, FieldPath]]:
    """Return the settings of links, switches and hosts, each with the kind of element that it is for."""
    lab = resolved.lab
    for key, link in lab.links.items():
        yield from (("link", ("links", key, name)) for name in link.given())
        for node, end in link.ends.items():
            yield from (("link", ("links", key, "ends", node, name)) for name in end.given())
    for key, switch in lab.switches.items():
        yield from (("switch", ("switches", key, name)) for name in switch.given())
    for key, host in lab.hosts.items():
        for name, value in host.given().items():
            inside: Mapping[str, object] = value if isinstance(value, dict) else {}
            inside = value.given() if isinstance(value, QueueSettings | ControllerSettings) else inside
            path: FieldPath = ("hosts", key, name)
            yield from (("host", (*path, part)) for part in inside)
            if not inside and not (name in ("controller", "reflect") and not resolved.has_rate):
                yield "host", path


def _check_pairing(resolved: ResolvedLab, path: FieldPath, content: object) -> None:
    """Check `pairing`, which applies to `from` and `to`; a permutation needs equal numbers of both."""
    if not isinstance(content, Paired) or content.pairing == "in order":
        return
    if content.pairs is not None:
        resolved.problems.not_read(
            (*path, "pairing"), "`pairs` has a receiver for each sender: expected `from` and `to`"
        )
        return
    senders, receivers = (len(select_hosts(names or [], resolved.hosts)) for names in (content.source, content.to))
    if content.pairing == "permutation" and senders != receivers:
        text = f"{senders} senders and {receivers} receivers: expected as many of the one as of the other, or `random`"
        resolved.problems.not_read((*path, "pairing"), text)
