# SPDX-License-Identifier: Apache-2.0
"""Caveats of claims: facts about a run's cells that change the meaning of a claim's numbers.

* The bottleneck was a host's own queue: the switches, and so their schemes, were not what limited the flows.
* A time-weighted mean includes time in which no flow was active.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from qbed.campaign.claim import Claim
from qbed.claims.sql import Connection, quoted

MIN_IDLE = 0.1
"""Share of a span without active flows from which its means have a caveat."""
_MEANS = re.compile(r"\b(mean_packets|mean_bytes|histogram_ns)\b|/\s*(nullif\(\s*)?(\w+\.)?duration_ns\b")
_SERIES = re.compile(r"\b(packet_ns|byte_ns|min_packets|max_packets|queue_packets|queue_bytes)\b")
_HOSTS = """
SELECT c.cell, c.bottleneck FROM cells c JOIN queues q ON q.cell = c.cell AND q.port = c.bottleneck
WHERE q.role = 'host' ORDER BY c.cell
"""
# Programs may send at any time: cells with some are left out.
_ACTIVE = """
SELECT f.cell, min(f.start_ns) AS begin_ns, max(coalesce(f.end_ns, c.duration_ns)) AS end_ns,
  any_value(c.duration_ns) AS duration_ns
FROM flows f JOIN cells c ON c.cell = f.cell WHERE f.cell NOT IN (SELECT cell FROM programs) GROUP BY f.cell
"""
_SPANS = f"""
WITH active AS ({_ACTIVE}),
  spans AS (
    SELECT cell, '' AS span, 0 AS from_ns, duration_ns AS until_ns FROM active
    UNION ALL SELECT cell, span, from_ns, until_ns FROM windows)
SELECT s.cell, s.span,
  1 - greatest(least(a.end_ns, s.until_ns) - greatest(a.begin_ns, s.from_ns), 0) / (s.until_ns - s.from_ns) AS idle
FROM spans s JOIN active a USING (cell) ORDER BY s.cell
"""


@dataclass
class Caveats:
    """The facts about the cells of a connection. `views`: the campaign's, which claims may read."""

    cells: int = 0
    axes: dict[str, dict[int, object]] = field(default_factory=dict)
    """Values by cell, of axes with several."""
    hosts: dict[int, str] = field(default_factory=dict)
    """Bottlenecks that are a host's queue, by cell."""
    idle: dict[str, dict[int, float]] = field(default_factory=dict)
    """By span (the whole run is an empty name) and cell: the share of its time without active flows."""
    views: Mapping[str, str] = field(default_factory=dict)

    def of_claim(self, claim: Claim) -> list[str]:
        """The caveats of a claim, as sentences."""
        found = []
        if self.hosts:
            ports = list(dict.fromkeys(self.hosts.values()))
            more = f" and {len(ports) - 1} more" if len(ports) > 1 else ""
            found.append(f"packets waited most in a host's own queue ({ports[0]}{more}) {self._where(self.hosts)}")
        for span in self._spans(claim):
            cells = {cell: share for cell, share in self.idle.get(span, {}).items() if share >= MIN_IDLE}
            if cells:
                low, high = min(cells.values()), max(cells.values())
                share = " to ".join(dict.fromkeys(f"{100 * bound:.0f} %" for bound in (low, high)))
                part = f"the window `{span}`" if span else "the run"
                advice = "" if span else "; `observe.until` and `queue_windows` leave it out"
                found.append(
                    f"a mean includes time without active flows, {share} of {part} {self._where(cells)}{advice}"
                )
        return found

    def _spans(self, claim: Claim) -> Iterator[str]:
        """The spans over which a claim's SQL has time-weighted means, the views that it reads included."""
        text = self._expanded(claim.query)
        totals = _reads(text, "queues") and _MEANS.search(text)
        series = _reads(text, "queue_series") and _SERIES.search(text) and not _reads(text, "time_ns")
        if totals or series:
            yield ""
        if _reads(text, "queue_windows") and _MEANS.search(text):
            named = [span for span in self.idle if span and f"'{span}'" in text]
            yield from named or [span for span in self.idle if span]

    def _expanded(self, text: str) -> str:
        left = dict(self.views)
        while used := [name for name in left if _reads(text, name)]:
            text = "\n".join([text, *(left.pop(name) for name in used)])
        return text

    def _where(self, cells: Iterable[int]) -> str:
        """Which cells these are: by the values of an axis if it separates them from the others."""
        chosen = set(cells)
        if len(chosen) == self.cells:
            return "in all cells"
        for name, values in self.axes.items():
            shown_values = dict.fromkeys(values[cell] for cell in sorted(chosen))
            if {cell for cell, value in values.items() if value in shown_values} == chosen:
                return f"in the cells with {name} {', '.join(map(str, shown_values))}"
        return f"in {len(chosen)} of {self.cells} cells, first in cell {min(chosen)}"


def find_caveats(connection: Connection, axes: Iterable[str], views: Mapping[str, str]) -> Caveats:
    """The facts about the complete cells of a run. `axes`: names of columns."""
    names = [*axes]
    columns = "".join(f", {quoted(name)}" for name in names)
    rows = connection.execute(f"SELECT cell{columns} FROM cells ORDER BY cell").fetchall()
    found = Caveats(len(rows), hosts=dict(connection.execute(_HOSTS).fetchall()), views=views)
    for place, name in enumerate(names, 1):
        values = {row[0]: row[place] for row in rows}
        if len(set(values.values())) > 1:
            found.axes[name] = values
    for cell, span, idle in connection.execute(_SPANS).fetchall():
        found.idle.setdefault(span, {})[cell] = idle
    return found


def _reads(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None
