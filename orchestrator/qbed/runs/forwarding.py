# SPDX-License-Identifier: Apache-2.0
"""Measure the rate that this machine forwards through one switch on the wall clock, warn about faster links or cap
them.

The rate is measured once for a machine, by a cell of one TCP flow through a link without limit, and cached. It is
an upper bound for a single busy link: several busy links share the machine's cores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from qbed.base import terminal
from qbed.base.cache import read_cache, write_cache
from qbed.base.errors import QbedError
from qbed.config.source import FieldPath, show_path
from qbed.config.units import format_rate
from qbed.network.load import load_lab
from qbed.network.resolve import ResolvedLab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.runs.calibrate import key_of, run_cell
from qbed.substrates import Substrate

CACHE = "forwarding.json"
SLOW_BPS = 10_000_000
"""Every machine that runs labs in containers forwards this: for slower links nothing is measured."""
MAX_NAMES = 4
LAB = """\
name: qbed-forwarding
topology: {star: {hosts: 2}}
links: {default: {rate: 100 Gbit/s, delay: 10 us}}
switches: {default: {scheme: droptail, buffer: 64 MB}}
hosts: {default: {tcp: cubic}}
workload: [flow: {from: h1, to: h2, size: unlimited}]
duration: 1500 ms
"""

NOT_MEASURED = "how fast this machine forwards could not be measured, so links may be too fast for it: {}"

Measure = Callable[[Substrate], int]


def overloaded_links(on: Substrate, plan: Plan, dilation: int, measure: Measure | None = None) -> Iterator[str]:
    """A warning about links that are faster than this machine's forwarding rate at this dilation."""
    rates, fastest = _rates(plan), fastest_bps(plan)
    limit, warnings = limit_bps(on, fastest, dilation, measure)
    if limit is None:
        yield from warnings
        return
    links = [name for name, rate_bps in rates.items() if rate_bps > limit * dilation]
    if not links:
        return
    yield (
        f"this machine forwards about {_rounded(limit)} through a switch in containers: at dilation {dilation}"
        f" it does not carry {_named(links)} (up to {format_rate(fastest)}) when they are"
        " full: packets come late and in bursts, which overflow queues;"
        f" `--dilate {-(-fastest // limit)}` carries them, or rates of at most {_rounded(limit * dilation)}"
    )


def capped_rates(
    on: Substrate, lab: ResolvedLab, plan: Plan, measure: Measure | None = None
) -> tuple[dict[str, object], list[str]]:
    """Rates for the lab's fields with faster ones than this machine forwards undilated, and a warning if there are any.

    Rates in the trace of an event are not capped.
    """
    rates, fastest = _rates(plan), fastest_bps(plan)
    exact, warnings = limit_bps(on, fastest, 1, measure)
    if exact is None:
        return {}, warnings
    limit = round_down(exact)
    capped: dict[str, object] = {}
    for path, given in _given_rates(lab):
        if max(given) > limit:
            shown = [f"{min(rate_bps, limit)} bit/s" for rate_bps in given]
            capped[show_path(path)] = shown if len(shown) > 1 else shown[0]
    if not capped:
        return {}, list(overloaded_links(on, plan, 1, measure))
    fast = [name for name, rate_bps in rates.items() if rate_bps > limit]
    warning = (
        f"{_named(fast)} (up to {format_rate(fastest)}) got {format_rate(limit)}, which this machine"
        " forwards through a switch in real time; `--dilate auto` keeps the rates and slows the lab's clock"
    )
    return capped, [warning]


def limit_bps(on: Substrate, fastest: int, dilation: int, measure: Measure | None) -> tuple[int | None, list[str]]:
    """The rate (bit/s) that this machine forwards, if `fastest` may be more; or a warning that it is unknown."""
    if on.clock == "virtual" or fastest <= SLOW_BPS * dilation:
        return None, []
    try:
        return forwarding_bps(on, measure or _measure), []
    except QbedError as error:
        return None, [NOT_MEASURED.format(error)]


def _given_rates(lab: ResolvedLab) -> Iterator[tuple[FieldPath, Sequence[int]]]:
    """The fields of a lab that give links' rates."""
    for key, settings in lab.lab.links.items():
        entries = [
            (("links", key), settings),
            *((("links", key, "ends", at), end) for at, end in settings.ends.items()),
        ]
        yield from (((*path, "rate"), fields.rate) for path, fields in entries if fields.rate is not None)
    for index, event in enumerate(lab.lab.events):
        if event.rate is not None:
            yield ("events", index, "rate"), [event.rate]


def _rates(plan: Plan) -> dict[str, int]:
    """The largest rate of each link during the lab, by the link's name."""
    return {
        link.name: max(plan.ends_ever[index, side][0].rate_bps for side in "ab")
        for index, link in enumerate(plan.links)
    }


def fastest_bps(plan: Plan) -> int:
    """The largest rate of a link during the lab; 0 without links."""
    return max(_rates(plan).values(), default=0)


def _named(links: list[str]) -> str:
    more = f" and {len(links) - MAX_NAMES} more" if len(links) > MAX_NAMES else ""
    return ", ".join(links[:MAX_NAMES]) + more


def forwarding_bps(on: Substrate, measure: Measure) -> int:
    """The undilated rate of a TCP flow through one switch, at least 1; measured if it is not cached."""
    key = key_of(on, LAB)
    known = read_cache(CACHE).get(key)
    if isinstance(known, int) and known > 0:
        return known
    terminal.print_status("measuring how fast this machine forwards; this is done once")
    found = max(1, measure(on))
    write_cache(CACHE, key, found)
    return found


def _measure(on: Substrate) -> int:
    with tempfile.TemporaryDirectory(prefix="qbed-forwarding-") as name:
        file = Path(name) / "lab.yml"
        file.write_text(LAB)
        row, _ = run_cell(on, compile_lab(load_lab(file, {})), 1)
    return int(row["goodput_bps"] or 0)


def _rounded(bps: int) -> str:
    return format_rate(round_down(bps))


def round_down(value: int) -> int:
    """A number with two significant digits, the precision of measurements."""
    unit = int("1" + "0" * max(0, len(str(value)) - 2))
    return value // unit * unit
