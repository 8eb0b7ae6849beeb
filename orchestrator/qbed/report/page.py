# SPDX-License-Identifier: Apache-2.0
"""The page: figures, claims, the matrix of cells, the evidence and the provenance."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import jinja2
import plotly.io
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from pydantic import ValidationError

from qbed.base.crash_report import describe_exception
from qbed.base.json_files import Json, Row, read_json
from qbed.campaign.axes import Value
from qbed.campaign.figure import Figure
from qbed.claims.compare import compared
from qbed.claims.sql import Connection, SqlRow, one_line
from qbed.claims.verdict import NOT_JUDGED, Verdict, read_verdicts
from qbed.claims.views import connect
from qbed.report.figures import TITLES, USUAL, Artist, Drawing
from qbed.report.image_record import ImageRecord
from qbed.report.images import FORMATS, draw_images, write
from qbed.report.parameter_table import COLUMNS, read_parameters
from qbed.report.strip import strip
from qbed.report.style import SCREEN, Style
from qbed.storage.identity import IDENTITY, StoreError
from qbed.storage.listing import flows_text
from qbed.storage.run_folder import RunFolder

_UNITS = {
    "gbps": "Gbit/s", "mbps": "Mbit/s", "bps": "bit/s", "ns": "ns", "us": "µs", "ms": "ms", "s": "s",
    "bytes": "bytes", "packets": "packets",
}  # fmt: skip
MAX_QUEUES = 40
_SHOWN = ("name", "profile", "question", "lab_file", "lab_sha256", "matrix", "toolchain", "figures")


@dataclass
class Made:
    """The written files, and problems with others."""

    page: Path
    images: list[Path] = field(default_factory=list)
    kept: int = 0
    """Number of `images` that showed the same already, and were not rendered again."""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Images:
    """Which files of its figures a report has; those of a style that has a name lie in a folder of that name."""

    style: Style = SCREEN
    formats: Sequence[str] = FORMATS
    name: str = ""


def describe_images(made: Made) -> str:
    """The numbers of images that were rendered and kept, in words; empty if none was kept."""
    rendered = len(made.images) - made.kept
    return f"images of figures: {rendered} rendered, {made.kept} kept (unchanged)" if made.kept else ""


def make_report(run: Path, *, images: bool | Images = True, advance: Callable[[str], None] = lambda _: None) -> Made:
    """Write `report.html` and `figures/*` into a merged run folder."""
    identity = RunFolder(run).identity()
    missing = [name for name in _SHOWN if name not in identity]
    if missing:
        raise StoreError(f"{run / IDENTITY} is damaged: it has no `{missing[0]}`")
    try:
        return _make(run, identity, Images() if images is True else images or None, advance)
    except duckdb.Error as error:
        raise StoreError(f"{run} is damaged: its tables do not fit together: {one_line(error)}") from None


def _make(run: Path, identity: Row, images: Images | None, advance: Callable[[str], None]) -> Made:
    made = Made(run / "report.html")
    with connect(run) as connection:
        artist = Artist(connection, _axes(identity))
        advance("figures")
        drawings = _drawings(run, identity, artist)
        page = _render(run, identity, connection, drawings, artist)
    write(made.page, page.encode(errors="backslashreplace"))
    made.problems.extend(f"figure {drawing.name}: {drawing.missing}" for drawing in drawings if drawing.missing)
    if images is not None:
        place = run / "figures" / images.name
        files = draw_images(place, drawings, images.style, images.formats, advance, ImageRecord(run))
        made.images, made.kept = files.paths, files.kept
        made.problems.extend(files.problems)
    return made


def draw(run: Path) -> list[Drawing]:
    """The figures of a merged run folder, as its report has them."""
    identity = RunFolder(run).identity()
    with connect(run) as connection:
        return _drawings(run, identity, Artist(connection, _axes(identity)))


def _axes(identity: Row) -> dict[str, list[Value]]:
    """Those with several values."""
    return {axis["name"]: axis["values"] for axis in identity["matrix"]["axes"] if len(axis["values"]) > 1}


def _drawings(run: Path, identity: Row, artist: Artist) -> list[Drawing]:
    try:
        specs = [Figure.model_validate(item) for item in identity["figures"]]
    except ValidationError as error:
        raise StoreError(f"{run / IDENTITY} is damaged: its figures are none: {error.errors()[0]['msg']}") from None
    wanted = specs or USUAL
    drawings = _draw_each(run, identity, artist.axes, wanted) or [artist.draw(spec) for spec in wanted]
    if not specs:
        drawings = [drawing for drawing in drawings if drawing.figure is not None]
    _rename(drawings)
    return drawings


def _draw_each(run: Path, identity: Row, axes: dict[str, list[Value]], specs: Sequence[Figure]) -> list[Drawing]:
    """Each figure for each value of the axis along which the run compares; none if there is no such axis."""
    compare, values = compared(identity)
    others = {name: shown for name, shown in axes.items() if name != compare}
    drawings: list[Drawing] = []
    for value in values:
        with connect(run, {compare: value}) as connection:
            artist = Artist(connection, others)
            for spec in specs:
                name = f"{spec.name or spec.kind}-{re.sub('[^A-Za-z0-9]+', '-', str(value))}"
                title = f"{spec.title or TITLES.get(spec.kind, spec.kind)} ({value})"
                drawings.append(artist.draw(spec.model_copy(update={"name": name, "title": title})))
    return drawings


def _rename(drawings: list[Drawing]) -> None:
    """Two figures of one kind without names of their own: number them."""
    seen: dict[str, int] = {}
    for drawing in drawings:
        seen[drawing.name] = seen.get(drawing.name, 0) + 1
        if seen[drawing.name] > 1:
            drawing.name = f"{drawing.name}-{seen[drawing.name]}"


def _render(run: Path, identity: Row, connection: Connection, drawings: list[Drawing], artist: Artist) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("qbed", "report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {"number": number, "label": label, "as_asked": as_asked, "strip": strip}
    names = [axis["name"] for axis in identity["matrix"]["axes"] if axis["name"] in artist.axes]
    constant = {axis["name"]: axis["values"][0] for axis in identity["matrix"]["axes"] if len(axis["values"]) == 1}
    colours = {str(value): artist.colours[value] for values in list(artist.axes.values())[:1] for value in values}
    verdicts = read_verdicts(run)
    return environment.get_template("report.html.j2").render(
        identity=identity,
        axes=names,
        constant=constant,
        provenance=_provenance(run / "meta.json"),
        plotly=Markup(get_plotlyjs()),
        figures=[_figure(drawing) for drawing in drawings],
        verdicts=verdicts,
        tally=tally(verdicts),
        counts=dict(connection.execute("SELECT status, count(*) FROM all_cells GROUP BY 1 ORDER BY 1").fetchall()),
        parameters=read_parameters(run),
        lengths=COLUMNS,
        cells=_cells(connection, names, colours),
        queues=_queues(connection),
        remarks=_remarks(connection),
    )


def _provenance(file: Path) -> Row:
    """The content of meta.json; empty if it is missing or damaged, because nothing else depends on it."""
    try:
        found = read_json(file)["provenance"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _figure(drawing: Drawing) -> dict[str, str | float | None]:
    data = None
    if drawing.figure is not None:
        try:
            data = Markup(str(plotly.io.to_json(drawing.figure, engine="json")).replace("<", "\\u003c"))
        except Exception as error:  # values of user-supplied SQL that are neither numbers nor text
            drawing.figure, drawing.missing = None, f"it cannot be drawn: {describe_exception(error)}"
    meta = drawing.figure.layout.meta if drawing.figure is not None else {}
    return {
        "name": drawing.name, "title": drawing.title, "subtitle": meta.get("subtitle", ""), "data": data,
        "height": meta.get("height"), "missing": drawing.missing,
    }  # fmt: skip


def tally(verdicts: list[Verdict]) -> dict[str, int | dict[str, int]]:
    """How many claims were judged, had which verdict, and had results that exclude the expected one."""
    judged = [verdict for verdict in verdicts if verdict.verdict != NOT_JUDGED]
    counted = Counter(verdict.verdict for verdict in judged)
    contradicted = sum(verdict.contradicted for verdict in judged)
    return {"judged": len(judged), "contradicted": contradicted, "verdicts": dict(counted.most_common())}


def _dicts(connection: Connection, sql: str) -> list[Row]:
    result = connection.execute(sql)
    names = [column[0] for column in result.description or ()]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def _cells(connection: Connection, axes: list[str], colours: dict[str, str]) -> Markup:
    """All cells, those that are not complete first, as the page's script draws them: rows of texts."""
    columns = "".join(f', "{name}"' for name in axes)
    known = {row[0] for row in connection.execute("DESCRIBE all_cells").fetchall()}
    unlimited = "flows_unlimited" if "flows_unlimited" in known else "0"  # in a run of an earlier qbed
    found = connection.execute(
        f"""SELECT cell{columns}, status, error, contradictions, bottleneck, flows_complete, flows, {unlimited},
            goodput_bps, dropped_packets, marked_packets, retransmits, timeouts
            FROM all_cells ORDER BY status = 'complete', cell"""
    )
    rows: list[list[str]] = []
    while batch := found.fetchmany(1000):
        rows += [_cell(row[: len(axes) + 2], *row[len(axes) + 2 :]) for row in batch]
    data = {"axes": len(axes), "series": 1, "colours": colours, "rows": rows}
    return Markup(json.dumps(data, ensure_ascii=False).replace("<", "\\u003c"))


def _cell(
    start: SqlRow, error: str | None, wrong: list[str], bottleneck: str | None, done: int, flows: int,
    unlimited: int, goodput: float | None, *counts: int,
) -> list[str]:  # fmt: skip
    known = [str(value) for value in start]
    if known[-1] != "complete":
        return [*known, error or "; ".join(wrong or ())]
    rate = number(None if goodput is None else goodput / 1e6)
    return [*known, bottleneck or "\u2013", flows_text(done, flows, unlimited, number), rate, *map(number, counts)]


def _queues(connection: Connection) -> list[Row]:
    """The queues where packets waited, were dropped or marked, over all complete cells; the longest wait first."""
    return _dicts(
        connection,
        f"""SELECT port AS name, any_value(role) AS role, count(*) AS cells,
            sum(packet_ns) / sum(sum(packet_ns)) OVER () AS share, avg(mean_packets) AS mean, max(max_packets) AS most,
            avg(sent_bytes * 8e9 / rate_bps / nullif(duration_ns, 0)) AS busy,
            sum(dropped_packets) AS dropped, sum(marked_packets) AS marked
            FROM queues GROUP BY port HAVING max(max_packets) > 0 OR sum(dropped_packets) > 0
            ORDER BY share DESC NULLS LAST, port LIMIT {MAX_QUEUES}""",
    )


def _remarks(connection: Connection) -> list[Row]:
    """Warnings and contradictions with how many cells have them and the first of these."""
    return _dicts(
        connection,
        """WITH remarks AS (
             SELECT cell, 'contradiction' AS kind, unnest(contradictions) AS text FROM all_cells
             UNION ALL SELECT cell, 'warning', unnest(warnings) FROM all_cells)
           SELECT kind, text, count(*) AS cells, min(cell) AS first FROM remarks
           GROUP BY kind, text ORDER BY kind, cells DESC, text LIMIT 60""",
    )


def label(name: str) -> str:
    """A column's name in words: `ecn_p99_ms` becomes `ecn p99 (ms)`."""
    words = name.split("_")
    if len(words) > 1 and words[-1] in _UNITS:
        return f"{' '.join(words[:-1])} ({_UNITS[words[-1]]})"
    return " ".join(words)


def as_asked(measured: dict[str, Json], sql: str) -> list[tuple[str, Json]]:
    """A claim's numbers in the order in which its SQL names them."""
    return sorted(measured.items(), key=lambda item: sql.find(item[0]))


def number(value: object) -> str:
    """A measured value, short: four significant digits, thousands apart."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(number(item) for item in value)
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}".replace(",", "\u202f")
    if isinstance(value, float):
        if abs(value) >= 1000:
            return f"{round(value):,}".replace(",", "\u202f")
        return f"{value:.4g}"
    return str(value)
