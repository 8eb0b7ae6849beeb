# SPDX-License-Identifier: Apache-2.0
"""Checks of `header: compact`: what its signal can be, and which queues add to it."""

from collections.abc import Iterator

from qbed.network.controllers import ControllerSpec
from qbed.network.frames import COMPACT_SIGNALS
from qbed.network.resolve import ResolvedLab
from qbed.schemes.declaration import controllers, registry

EXPECTED = "expected `header: full`"


def check_compact_headers(resolved: ResolvedLab) -> None:
    """Report the hosts whose compact headers cannot carry their signal."""
    reasons: dict[ControllerSpec, list[str]] = {}
    for host, spec in resolved.controllers.items():
        if spec.compact is None:
            continue
        if spec not in reasons:
            reasons[spec] = list(_reasons(resolved, spec))
        for text in reasons[spec]:
            resolved.problems.error(resolved.hosts[host]["controller"]["header"][1], text)


def _reasons(resolved: ResolvedLab, spec: ControllerSpec) -> Iterator[str]:
    if "feedback" in controllers()[spec.name].inputs:
        yield f"a compact header has no feedback, which the controller `{spec.name}` needs; {EXPECTED}"
    if spec.signal not in COMPACT_SIGNALS:
        yield f"a compact header cannot carry the signal `{spec.signal}`; {EXPECTED}, or `sum`, `max` or `ind`"
    if spec.signal in ("rtt", "ind"):
        return
    if spec.unit == "time":
        yield f"a compact header carries a share of a buffer, whose time depends on the port; {EXPECTED}, or packets"
    lengths = resolved.signal_buffers(spec)
    if len(lengths) > 1:
        text = "a compact header carries a share of a buffer, so all buffers have to be equal"
        yield f"{text}, but they have {min(lengths)} and {max(lengths)} {spec.unit}; {EXPECTED}"
    if lengths and max(lengths) >= 1 << 32:
        yield f"a compact header carries shares of less than 4 GiB, but a buffer has {max(lengths)}; {EXPECTED}"
    for queue in resolved.queues.values():
        scheme = registry().get(queue.scheme)
        if scheme is None or "signal" not in scheme.provides:
            continue
        if scheme.compact is None:
            yield f"the scheme `{scheme.name}` does not read compact headers; {EXPECTED}"
        defaults = scheme.defaults()
        for name in scheme.compact or ():
            if queue.values.get(name, defaults[name]) != defaults[name]:
                yield f"with compact headers, `{name}` of `{scheme.name}` has to keep its default; {EXPECTED}"
