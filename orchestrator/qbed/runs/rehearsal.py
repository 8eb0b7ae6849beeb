# SPDX-License-Identifier: Apache-2.0
"""What can be known of a campaign before its first cell runs: labels, plans, modules, programs, SQL and figures.

What is wrong costs a second here and an hour at the end of a run.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from qbed.campaign.axes import column_name
from qbed.campaign.file import ROWS, Campaign, Claim, Figure
from qbed.campaign.matrix import Cell, Matrix
from qbed.errors import LabError, nearest
from qbed.language.source import FieldPath, Source
from qbed.network.load import load_cell, read_lab
from qbed.network.resolve import ResolvedLab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.results import tables
from qbed.schemes.declaration import registry
from qbed.substrates import Substrate

if TYPE_CHECKING:  # loading DuckDB takes longer than most commands
    from qbed.claims.sql import Connection

MOST_PLANS = 1000
_TABLE_OF = {"fct": "flows", "slowdown": "flows", "cdf": "queues"}
"""Where figures take their cells from, if not from `cells`."""


@dataclass
class Rehearsal:
    """What was found: the lab's name, a hash of the plans that were looked at, and remarks for the user."""

    name: str = ""
    plans: str = ""
    warnings: list[str] = field(default_factory=list)


def rehearse(
    lab: Path, matrix: Matrix, campaign: Campaign, source: Source, profile: str | None, on: Substrate
) -> Rehearsal:
    """Look at cells in which every value of every axis occurs, and bind the SQL to empty tables; `LabError` says all
    that is wrong.
    """
    found, wrong = Rehearsal(), list[str]()
    digest, ports, plans = hashlib.sha256(), dict[str, None](), _Plans(lab)
    for cell in matrix.samples():
        try:
            loaded, plan, text = plans.make(cell)
        except LabError as error:
            wrong.extend(error.messages)
            continue
        found.name = plan.lab
        digest.update(text.encode())
        ports |= dict.fromkeys(port_names(plan))
        wrong.extend(_missing(loaded, plan, on))
    if not wrong:
        wrong.extend(_without_effect(plans, matrix, source, found))
    if campaign.views or campaign.claims or campaign.figures:
        wrong.extend(_wrong_sql(campaign, source, profile, matrix, list(ports)))
    if wrong:
        raise LabError(list(dict.fromkeys(wrong)))
    found.plans = digest.hexdigest()
    return found


class _Plans:
    """The plans of a lab under several settings; what is kept of each is a hash."""

    def __init__(self, lab: Path) -> None:
        self._lab = lab
        self._known: dict[str, str] = {}

    def make(self, cell: Cell) -> tuple[ResolvedLab, Plan, str]:
        loaded = load_cell(read_lab(self._lab), dict(cell.settings))
        cell.check(loaded.source.values)
        plan = compile_lab(loaded, cell.seed)
        text = plan.dumps()
        self._known[self._key(cell)] = hashlib.sha256(text.encode()).hexdigest()
        return loaded, plan, text

    def mark(self, cell: Cell) -> str:
        """Equal for cells that run the same."""
        if self._key(cell) not in self._known:
            self.make(cell)
        return self._known[self._key(cell)]

    @staticmethod
    def _key(cell: Cell) -> str:
        return json.dumps([cell.seed, dict(cell.settings)], sort_keys=True, default=str)


# --- this machine ---


def _missing(lab: ResolvedLab, plan: Plan, on: Substrate) -> Iterator[str]:
    """Kernel modules that are not built, and programs that are nowhere: each once."""
    for lack in {(lack.kind, lack.of): lack for lack in reversed(list(on.lacks(plan)))}.values():
        place: FieldPath = ("switches",) if lack.of == "tc" else ("routing",)
        own = [number for number, program in enumerate(lab.lab.programs) if program.run[0] == lack.of]
        if own and lack.kind == "program":
            place = ("programs", own[0], "run")
        if lack.kind == "module":
            schemes = [scheme.name for scheme in registry().values() if scheme.qdisc.module == lack.of]
            place = _scheme_place(lab, schemes)
        yield lab.source.message(place, lack.text)


def _scheme_place(lab: ResolvedLab, schemes: list[str]) -> FieldPath:
    """Where a lab first names one of these schemes."""
    for kind in ("switches", "hosts"):
        for key, settings in (lab.source.values.get(kind) or {}).items():
            queue = settings.get("queue") if kind == "hosts" else settings
            if isinstance(queue, dict) and queue.get("scheme") in schemes:
                return (kind, key, "queue", "scheme") if kind == "hosts" else (kind, key, "scheme")
    return ("switches",)


# --- labels ---


def _without_effect(plans: _Plans, matrix: Matrix, source: Source, found: Rehearsal) -> Iterator[str]:
    """Values of an axis under which the same would run; alternatives and a `--set` that do nothing are remarked on.

    What makes no difference beside the first values of the other axes may do so beside their others: a threshold is
    nothing to drop-tail.
    """
    names = {column_name(name): name for name in (source.values or {}).get("axes") or {}}
    for place, axis in enumerate(matrix.axes):
        if axis.name == "seed":
            continue
        for one, other in _alike(plans, matrix, place):
            text = f"`{axis.values[one]}` and `{axis.values[other]}` give the same plan: nothing in the lab takes them"
            message = source.message(("axes", names[axis.name]), text)
            if axis.field is not None:
                yield message
            else:
                found.warnings.append(message)
    for text, value in matrix.fixed.items():
        with suppress(LabError):  # without it the lab may be none
            if all(plans.mark(cell) == plans.mark(cell.without(text)) for cell in matrix.samples()):
                found.warnings.append(f"--set {text}={value} changes nothing in the plan")


def _alike(plans: _Plans, matrix: Matrix, place: int) -> Iterator[tuple[int, int]]:
    """Pairs of an axis' values that make no difference anywhere; none where that would take too many plans to say."""
    groups, left = [list(range(len(matrix.axes[place].values)))], MOST_PLANS
    for cell in matrix.beside(place):
        split = [defaultdict[str, list[int]](list) for _ in groups]
        for group, parts in zip(groups, split, strict=True):
            for value in group:
                parts[plans.mark(cell(value))].append(value)
        groups = [part for parts in split for part in parts.values() if len(part) > 1]
        left -= sum(map(len, groups))
        if left < 0:
            return
    for first, *others in groups:
        yield from ((first, other) for other in others)


# --- SQL ---


def _wrong_sql(
    campaign: Campaign, source: Source, profile: str | None, matrix: Matrix, ports: list[str]
) -> Iterator[str]:
    import duckdb

    from qbed.claims.judge import connect_empty, define
    from qbed.claims.sql import said

    with connect_empty(matrix.columns) as connection:
        for name, sql in campaign.views.items():
            try:
                define(connection, name, sql)
            except duckdb.Error as error:
                yield source.message(("views", name), f"the SQL is wrong: {said(error)}")
                return  # what builds on it would be called wrong, too
        wrong = False
        for number, claim in enumerate(campaign.claims):
            if campaign.asks(claim, profile):
                text = _wrong_claim(connection, claim)
                if text is not None:
                    wrong = True
                    yield source.message(("claims", number, "sql"), text)
        if profile is not None and not wrong:
            asked = [claim for claim in campaign.claims if campaign.asks(claim, profile)]
            known = [f"{claim.name}.{name}" for claim in asked for name in _columns(connection, claim.sql)]
            for pattern in campaign.profiles[profile].within:
                if not any(fnmatchcase(name, pattern) for name in known):
                    text = "fits no number of a claim of this profile; expected CLAIM.NUMBER, with `*` for any part"
                    yield source.message(("profiles", profile, "within", pattern), text, at_key=True)
        for number, figure in enumerate(campaign.figures):
            for name, text in _wrong_figure(connection, figure, matrix, ports):
                yield source.message(("figures", number, name), text)


def _columns(connection: Connection, sql: str) -> dict[str, str]:
    """The names and types of what a SELECT gives; it is bound, and not run."""
    from qbed.claims.sql import checked, foreseen

    with foreseen():
        return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {checked(sql)}").fetchall()}


def _wrong_claim(connection: Connection, claim: Claim) -> str | None:
    import duckdb

    from qbed.claims.sql import said

    try:
        columns = _columns(connection, claim.sql)
    except duckdb.Error as error:
        return f"the SQL is wrong: {said(error)}"
    if "holds" not in columns:
        return f"expected one row with a column `holds`, got {', '.join(f'`{name}`' for name in columns)}"
    if columns["holds"] != "BOOLEAN":
        return f"expected `holds` to be BOOLEAN, got {columns['holds']}"
    return None


def _wrong_figure(
    connection: Connection, figure: Figure, matrix: Matrix, ports: list[str]
) -> Iterator[tuple[str, str]]:
    import duckdb

    from qbed.claims.sql import said

    if figure.sql is not None:
        try:
            columns = _columns(connection, figure.sql)
        except duckdb.Error as error:
            yield "sql", f"the SQL is wrong: {said(error)}"
        else:
            if not set(ROWS[figure.kind]) <= set(columns):
                wanted = " and ".join(f"`{name}`" for name in ROWS[figure.kind])
                got = ", ".join(f"`{name}`" for name in columns)
                yield "sql", f"expected the columns {wanted}, and perhaps `series`, got {got}"
        return
    if figure.queue is not None and ports and figure.queue not in ports:
        yield "queue", f"no queue is called `{figure.queue}`{nearest(figure.queue, ports)}"
    table = _TABLE_OF.get(figure.kind, "cells")
    known = {*matrix.columns, *(tables.cells_schema({}) if table == "cells" else tables.SCHEMAS[table]).names}
    for name, value in (("series", figure.series), ("x", figure.x)):
        if value is not None and value not in known:
            yield name, f"no axis is called `{value}`{nearest(value, matrix.columns)}"
    if figure.where is not None:
        try:
            _columns(connection, f"SELECT 1 FROM {table} WHERE {figure.where}")
        except duckdb.Error as error:
            yield "where", f"the SQL is wrong: {said(error)}"
