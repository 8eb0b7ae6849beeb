# SPDX-License-Identifier: Apache-2.0
"""Check a campaign before its first cell runs: labels, plans, modules, programs, SQL and figures.

An error costs a second here and an hour at the end of a run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from qbed.base.errors import LabError, nearest
from qbed.campaign.axes import column_name
from qbed.campaign.claim import Claim
from qbed.campaign.figure import ROWS, Figure
from qbed.campaign.file import Campaign
from qbed.campaign.matrix import Axis, Matrix
from qbed.config.source import FieldPath, Source
from qbed.network.load import lab_from_source, read_lab
from qbed.network.resolve import ResolvedLab
from qbed.plan.model import Plan
from qbed.plan.ports import port_names
from qbed.report.parameter_table import Collected, ParameterTable
from qbed.runs.effects import Plans, Survey
from qbed.schemes.congestion import congestion_controls
from qbed.schemes.declaration import registry
from qbed.substrates import Substrate
from qbed.telemetry import tables

if TYPE_CHECKING:  # loading DuckDB takes longer than most commands
    from qbed.claims.sql import Connection

_TABLE_OF = {"fct": "flows", "slowdown": "flows", "cdf": "queues"}
"""The tables that kinds of figures read; all others read `cells`."""


@dataclass
class PreflightResult:
    """The lab's name, a hash of the compiled plans, their inputs on the substrate, the most parts of one of them, the
    parameters in effect, and warnings for the user.
    """

    name: str = ""
    plans: str = ""
    inputs: dict[str, str] = field(default_factory=dict)
    parts: int = 1
    parameters: ParameterTable = field(default_factory=ParameterTable)
    warnings: list[str] = field(default_factory=list)


def run_preflight(
    lab: Path,
    matrix: Matrix,
    campaign: Campaign,
    source: Source,
    profile: str | None,
    on: Substrate,
    progress: Callable[[str], None] | None = None,
) -> PreflightResult:
    """Check the lab file, compile the combinations of the axes' values, and bind the SQL to empty tables.

    `LabError` has all errors. `progress`: called with a line of progress.
    """
    found, errors = PreflightResult(), list[str]()
    digest, ports = hashlib.sha256(), dict[str, None]()
    warnings: list[dict[str, None]] = []

    def sample(loaded: ResolvedLab, plan: Plan, text: str) -> None:
        found.name = plan.lab
        found.parts = max(found.parts, loaded.lab.parts)
        digest.update(text.encode())
        ports.update(dict.fromkeys(port_names(plan)))
        texts = dict.fromkeys(loaded.warnings)
        warnings[:] = [{text: None for text in warnings[0] if text in texts} if warnings else texts]
        missing = list(_missing(loaded, plan, on))
        errors.extend(missing)
        if on.inputs is not None and not missing:
            found.inputs.update(on.inputs.of(plan))

    file = read_lab(lab)
    plans = Plans(file)
    collected = collected_parameters(matrix)
    survey = Survey(matrix, plans, sample, progress, collected.add)
    try:
        lab_from_source(replace(file))
        survey.run()
    except LabError as error:
        errors.extend(error.messages)
    errors.extend(survey.errors)
    if not errors:
        narrowed = profile is not None and bool(campaign.profile(profile).axes)
        errors.extend(_without_effect(survey, source, found, narrowed=narrowed))
    if campaign.views or campaign.claims or campaign.figures:
        errors.extend(_wrong_sql(campaign, source, profile, matrix, list(ports)))
    if errors:
        raise LabError(list(dict.fromkeys(errors)))
    # A setting that only some values of the axes leave without effect is intended.
    found.warnings[:] = dict.fromkeys([*(text for texts in warnings for text in texts), *found.warnings])
    found.plans = digest.hexdigest()
    found.parameters = collected.table(matrix.combinations)
    return found


def parameter_table(lab: Path, matrix: Matrix) -> ParameterTable:
    """The parameters in effect of a campaign's cells, without any other check; `LabError`."""
    collected = collected_parameters(matrix)
    survey = Survey(matrix, Plans(read_lab(lab)), lambda loaded, plan, text: None, compiled=collected.add)
    survey.run()
    if survey.errors:
        raise LabError(survey.errors)
    return collected.table(matrix.combinations)


def collected_parameters(matrix: Matrix) -> Collected:
    """An empty collection for the axes of a campaign without its seeds."""
    return Collected([(axis.name, [str(value) for value in axis.values]) for axis in matrix.axes[:-1]])


# --- this machine ---


def _missing(lab: ResolvedLab, plan: Plan, on: Substrate) -> Iterator[str]:
    """A message for each kernel module that is not built, and for each missing program."""
    for part in {(part.kind, part.name): part for part in reversed(list(on.missing_parts(plan)))}.values():
        place: FieldPath = ("switches",) if part.name == "tc" else ("routing",)
        if part.kind == "kernel":
            place = ("kernel",)
        launched = [number for number, program in enumerate(lab.lab.programs) if program.run[0] == part.name]
        if launched and part.kind == "program":
            place = ("programs", launched[0], "run")
        if part.kind == "module":
            schemes = [scheme.name for scheme in registry().values() if scheme.qdisc.module == part.name]
            is_control = part.name in {control.module for control in congestion_controls().values()}
            place = ("hosts",) if is_control else _scheme_place(lab, schemes)
        yield lab.source.message(place, part.text)


def _mapping(values: object, name: str) -> dict[str, object]:
    """A field of a file that is a mapping; empty without it."""
    found = values.get(name) if isinstance(values, dict) else None
    return found if isinstance(found, dict) else {}


def _scheme_place(lab: ResolvedLab, schemes: list[str]) -> FieldPath:
    """The field in which a lab first names one of these schemes."""
    for kind in ("switches", "hosts"):
        for key, settings in _mapping(lab.source.values, kind).items():
            queue = _mapping(settings, "queue") if kind == "hosts" else settings
            if isinstance(queue, dict) and queue.get("scheme") in schemes:
                return (kind, key, "queue", "scheme") if kind == "hosts" else (kind, key, "scheme")
    return ("switches",)


# --- labels ---


def _without_effect(survey: Survey, source: Source, found: PreflightResult, *, narrowed: bool) -> Iterator[str]:
    """Messages for values of an axis that give the same plan, and for unused settings (docs/run-folder.md, Labels).

    Alternatives that give the same plan are warnings: they may be repetitions. Unused settings are warnings in a
    profile with fewer values of some axes (`narrowed`): other values may use them.
    """
    matrix = survey.matrix
    names = {column_name(name): name for name in _mapping(source.values, "axes")}
    for place, axis in enumerate(matrix.axes[:-1]):
        at: FieldPath = ("axes", names.get(axis.name, axis.name))
        everywhere = list(survey.equal_everywhere(place))
        for first, second in everywhere:
            text = f"{_pair(axis, first, second)} give the same plan: nothing in the lab takes them"
            if axis.field is None:
                found.warnings.append(source.message(at, text))
            else:
                yield source.message(at, f"{text}; expected values that differ, or no such axis")
        if axis.field is None:
            continue
        for first, second, digits in survey.equal_in_combinations(place):
            if (first, second) not in everywhere:
                text = f"{_pair(axis, first, second)} give the same plan beside {survey.shown(digits, place)}"
                instead = "expected alternatives (`name`, `set`) that set this field only where it has an effect"
                yield source.message(at, f"{text}: nothing there takes them; {instead}")
    for origin, text in survey.never_used():
        if narrowed and origin != "--set":
            found.warnings.append(text)
        else:
            yield text
    for text, value in matrix.fixed.items():
        with suppress(LabError):  # without it the lab may be none
            samples = [matrix.at(digits) for digits in survey.digests if sum(digit > 0 for digit in digits) <= 1]
            if all(survey.plans.digest(cell).plan == survey.plans.digest(cell.without(text)).plan for cell in samples):
                found.warnings.append(f"--set {text}={value} changes nothing in the plan")
    if not survey.is_complete:
        compared, total = len(survey.digests), matrix.combinations
        text = f"{compared} of the {total} combinations of the axes' values were compared, as many as the limits allow"
        found.warnings.append(f"{text}: a value that has no effect in another one is not found")


def _pair(axis: Axis, first: int, second: int) -> str:
    return f"`{axis.values[first]}` and `{axis.values[second]}`"


# --- SQL ---


def _wrong_sql(
    campaign: Campaign, source: Source, profile: str | None, matrix: Matrix, ports: list[str]
) -> Iterator[str]:
    import duckdb

    from qbed.claims.sql import columns as columns_of
    from qbed.claims.sql import define, one_line
    from qbed.claims.views import connect_empty

    with connect_empty(matrix.columns) as connection:
        for name, sql in campaign.views.items():
            try:
                define(connection, name, sql)
            except duckdb.Error as error:
                yield source.message(("views", name), f"the SQL is wrong: {one_line(error)}")
                return  # what builds on it would be reported, too
        errors = False
        for number, claim in enumerate(campaign.claims):
            if campaign.judges(claim, profile):
                text = _wrong_claim(connection, claim)
                if text is not None:
                    errors = True
                    place = "sql" if claim.sql is not None else "measure"
                    yield source.message(("claims", number, place), text)
        if profile is not None and not errors:
            judged = [claim for claim in campaign.claims if campaign.judges(claim, profile)]
            known = [f"{claim.name}.{name}" for claim in judged for name in columns_of(connection, claim.query)]
            for pattern in campaign.profiles[profile].within:
                if not any(fnmatchcase(name, pattern) for name in known):
                    text = "fits no number of a claim of this profile; expected CLAIM.NUMBER, with `*` for any part"
                    yield source.message(("profiles", profile, "within", pattern), text, at_key=True)
        for number, figure in enumerate(campaign.figures):
            for name, text in _wrong_figure(connection, figure, matrix, ports):
                yield source.message(("figures", number, name), text)


def _wrong_claim(connection: Connection, claim: Claim) -> str | None:
    import duckdb

    from qbed.claims.sql import columns as columns_of
    from qbed.claims.sql import one_line

    try:
        columns = columns_of(connection, claim.query)
    except duckdb.Error as error:
        return f"the SQL is wrong: {one_line(error)}"
    if claim.sql is None:
        return None
    if "holds" not in columns:
        return f"expected one row with a column `holds`, got {', '.join(f'`{name}`' for name in columns)}"
    if columns["holds"] != "BOOLEAN":
        return f"expected `holds` to be BOOLEAN, got {columns['holds']}"
    return None


def _wrong_figure(
    connection: Connection, figure: Figure, matrix: Matrix, ports: list[str]
) -> Iterator[tuple[str, str]]:
    import duckdb

    from qbed.claims.sql import columns as columns_of
    from qbed.claims.sql import one_line

    if figure.sql is not None:
        try:
            columns = columns_of(connection, figure.sql)
        except duckdb.Error as error:
            yield "sql", f"the SQL is wrong: {one_line(error)}"
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
            columns_of(connection, f"SELECT 1 FROM {table} WHERE {figure.where}")
        except duckdb.Error as error:
            yield "where", f"the SQL is wrong: {one_line(error)}"
