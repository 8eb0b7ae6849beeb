# SPDX-License-Identifier: Apache-2.0
"""One campaign on two substrates: each metric side by side, the difference, its likely cause, and whether it is in the
band that the campaign tolerates.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from qbed.base import json_files
from qbed.base.json_files import write_json
from qbed.campaign.bands import METRICS, Band
from qbed.claims.sql import Connection
from qbed.claims.views import connect
from qbed.storage.identity import ran_on
from qbed.storage.run_folder import RunFolder

FILE, TEXT = "gap.json", "gap.md"
LATE_SHARE_OF_RTT = 0.02
_BUSY = 0.9


@dataclass(frozen=True)
class Row:
    """One metric of one setting of the axes, as means over its seeds. `within`: None without a band."""

    setting: str
    metric: str
    virtual: float | None
    other: float | None
    seeds: int
    spread: float
    band: str | None
    within: bool | None
    cause: str

    @property
    def difference(self) -> float | None:
        if self.virtual is None or self.other is None:
            return None
        return self.other - self.virtual

    @property
    def relative(self) -> float | None:
        return self.difference / self.virtual if self.difference is not None and self.virtual else None


@dataclass(frozen=True)
class Gap:
    """The comparison of two runs of one campaign."""

    virtual: str
    other: str
    reference: str
    """The substrate of `virtual`."""
    substrate: str
    dilation: int
    rows: list[Row]

    @property
    def broken(self) -> list[Row]:
        return [row for row in self.rows if row.within is False]

    def text(self) -> str:
        """Markdown."""
        head = f"# {self.reference} and {self.substrate} (dilation {self.dilation})\n\n"
        table = f"| setting | metric | {self.reference} | {self.substrate} | difference | tolerated | likely cause |\n"
        table += "|---|---|---|---|---|---|---|\n"
        for row in self.rows:
            cells = (row.setting or "-", row.metric, _show(row.virtual), _show(row.other), _difference(row))
            mark = "" if row.within is None else f"{row.band}" if row.within else f"**{row.band}: broken**"
            table += "| " + " | ".join([*cells, mark, row.cause]) + " |\n"
        return head + table + f"\nMeans over {max((row.seeds for row in self.rows), default=0)} seeds.\n"


def _show(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _difference(row: Row) -> str:
    if row.difference is None:
        return "-"
    return f"{row.difference:+.4g}" + (f" ({row.relative:+.1%})" if row.relative is not None else "")


def compare(virtual: Path, other: Path, bands: Mapping[str, Band]) -> Gap:
    """Compare two run folders of one campaign, cell by cell of equal settings."""
    reference, substrate = ran_on(virtual), ran_on(other)
    axes = [axis["name"] for axis in RunFolder(virtual).identity()["matrix"]["axes"] if axis["name"] != "seed"]
    virtual_data, other_data = connect(virtual), connect(other)
    try:
        evidence = _evidence(other_data)
        settings = _settings(virtual_data, axes)
        rows = [
            _row(setting, cells, name, _values(virtual_data, sql), _values(other_data, sql), bands.get(name), evidence)
            for setting, cells in settings.items()
            for name, sql in METRICS.items()
        ]
    finally:
        virtual_data.close()
        other_data.close()
    compared = [row for row in rows if row.band or row.virtual or row.other]
    return Gap(str(virtual), str(other), reference.name, substrate.name, substrate.dilation, compared)


def _settings(connection: Connection, axes: list[str]) -> dict[str, list[int]]:
    """The cells of each setting of the axes, whatever their seeds."""
    columns = "".join(f', "{axis}"' for axis in axes)
    found: dict[str, list[int]] = {}
    for cell, *values in connection.execute(f"SELECT cell{columns} FROM all_cells ORDER BY cell").fetchall():
        text = ", ".join(f"{axis}={value}" for axis, value in zip(axes, values, strict=True))
        found.setdefault(text, []).append(cell)
    return found


def _values(connection: Connection, sql: str) -> dict[int, float]:
    return {cell: float(value) for cell, value in connection.execute(sql).fetchall() if value is not None}


def _evidence(connection: Connection) -> dict[int, json_files.Row]:
    rows = connection.execute("SELECT cell, status, error, contradictions, evidence FROM all_cells").fetchall()
    return {
        cell: {"status": status, "why": error or "; ".join(wrong or ()), **json.loads(text or "{}").get("wall", {})}
        for cell, status, error, wrong, text in rows
    }


def _row(
    setting: str,
    cells: list[int],
    metric: str,
    virtual_data: dict[int, float],
    other_data: dict[int, float],
    band: Band | None,
    evidence: dict[int, json_files.Row],
) -> Row:
    virtual_sample = [virtual_data[cell] for cell in cells if cell in virtual_data]
    other_sample = [other_data[cell] for cell in cells if cell in other_data]
    virtual, other = _mean(virtual_sample), _mean(other_sample)
    both = virtual is not None and other is not None
    within = None if band is None else both and band.holds(virtual or 0.0, other or 0.0)
    spread = max(virtual_sample) - min(virtual_sample) if virtual_sample else 0.0
    cause = _cause(virtual, other, spread, [evidence[cell] for cell in cells if cell in evidence])
    return Row(setting, metric, virtual, other, len(cells), spread, None if band is None else str(band), within, cause)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _cause(virtual: float | None, other: float | None, spread: float, evidence: Iterable[json_files.Row]) -> str:
    """The first of what the evidence shows, from what certainly matters to what may."""
    found = list(evidence)
    bad = next((cell for cell in found if cell["status"] != "complete"), None)
    if bad is not None:
        why = bad["why"].splitlines()[0] if bad["why"] else "no reason given"
        return f"{bad['status']} on the other substrate: {why}"
    if virtual is None or other is None:
        return "no value on one of the two"
    if virtual == other:
        return ""
    hosts = next((cell["host_kernel"] for cell in found if cell.get("host_kernel")), None)
    if hosts:
        return f"{len(hosts)} hosts on the machine's kernel: another TCP than the lab's"
    late = max((cell.get("late_share_of_rtt") or 0.0 for cell in found), default=0.0)
    if late > LATE_SHARE_OF_RTT:
        return f"timers late by {late:.1%} of the shortest round trip"
    if any((cell.get("cpu_share") or 0.0) > _BUSY for cell in found):
        return "the machine's cores were busy"
    if abs(other - virtual) <= spread:
        return "no more than seeds differ in virtual time"
    return "the order of packets that virtual time sends at one instant"


def write_gap(folder: Path, gap: Gap) -> Path:
    """Write `gap.json` and `gap.md`; returns the latter."""
    rows = [asdict(row) | {"difference": row.difference, "relative": row.relative} for row in gap.rows]
    write_json(folder / FILE, {**asdict(gap), "rows": rows, "broken": len(gap.broken)})
    (folder / TEXT).write_text(gap.text())
    return folder / TEXT
