# SPDX-License-Identifier: Apache-2.0
"""Figures: where values stand, what is drawn of which rows, and colours that a grey print keeps apart."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from qbed.campaign.figure import Figure
from qbed.campaign.file import load_campaign
from qbed.campaign.matrix import build_matrix
from qbed.cli import load_commands
from qbed.report import page
from qbed.report.axes import AxisPositions, in_order
from qbed.report.figures import Artist
from qbed.report.style import PALETTE, SCREEN, SYMBOLS, Colours, paper, styled
from qbed.storage.axis_values import quantity_columns
from qbed.storage.identity import StoreError, read_any_identity
from qbed.telemetry import tables


def lightness(colour: str) -> float:
    """CIE L*, 0 to 100: what a grey print leaves of it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return 116 * luminance ** (1 / 3) - 16 if luminance > 0.008856 else 903.3 * luminance


def drawn(spec: Figure, axes: dict[str, list[Any]] | None = None, connection: Any = None) -> Any:
    drawing = Artist(connection or duckdb.connect(), axes or {}).draw(spec)
    assert drawing.missing is None, drawing.missing
    return drawing.figure


def rows(kind: Any, values: str, columns: str = "x, y", **more: Any) -> Figure:
    return Figure(kind=kind, sql=f"SELECT * FROM (VALUES {values}) t({columns})", **more)


def test_the_palette_survives_greyscale() -> None:
    grey = [lightness(colour) for colour in PALETTE]
    assert min(abs(first - other) for first, other in combinations(grey, 2)) > 7.5
    assert min(abs(first - other) for first, other in combinations(grey[:3], 2)) > 15  # most figures have no more
    assert max(grey) < 84  # of white, which is 100
    assert len(set(SYMBOLS)) == len(PALETTE)  # and lines with symbols do not need colours at all


def test_values_stand_by_their_size_and_not_by_their_text() -> None:
    found = AxisPositions(["1 MB", "32 KB", "128 KB"])
    assert found.values == ["32 KB", "128 KB", "1 MB"] and found.measured
    assert [found(value) for value in found.values] == [32_000, 128_000, 1_000_000]
    assert AxisPositions([10, 9, 80]).values == [9, 10, 80]
    names = AxisPositions(["ecn", "codel", "other"], known=["droptail", "ecn", "codel"])
    assert names.values == ["ecn", "codel", "other"] and not names.measured
    assert AxisPositions(["10 ms", "128 KB"]).values == ["10 ms", "128 KB"]  # of two kinds: as they came
    assert in_order(["100 packets", "20 packets"]) == ["20 packets", "100 packets"]
    assert in_order(["b, 2", "a", "b"], ["a", "b"]) == ["a", "b, 2", "b"]


def test_a_line_of_quantities_has_their_distances_and_their_texts() -> None:
    figure = drawn(rows("line", "('1 MB', 3), ('128 KB', 2), ('32 KB', 1)"))
    (line,) = figure.data
    assert list(line.x) == [32_000, 128_000, 1_000_000] and list(line.y) == [1, 2, 3] and line.mode == "lines+markers"
    assert list(figure.layout.xaxis.ticktext) == ["32 KB", "128 KB", "1 MB"]


def test_there_is_no_line_between_categories() -> None:
    figure = drawn(rows("line", "('ecn', 2), ('droptail', 1)"), {"scheme": ["droptail", "ecn"]})
    assert figure.data[0].mode == "markers"
    assert list(figure.layout.xaxis.categoryarray) == ["droptail", "ecn"]


def test_bars_stand_in_the_order_of_their_sizes() -> None:
    figure = drawn(rows("bar", "('128 KB', 2), ('1 MB', 3), ('32 KB', 1)"))
    assert list(figure.layout.xaxis.categoryarray) == ["32 KB", "128 KB", "1 MB"]


def test_parts_of_a_series_are_stacked_on_it() -> None:
    found = "(1, 2, 'a'), (2, 3, 'a'), (1, 4, 'b'), (1, 5, 'a, part'), (2, 6, 'a, part'), (2, 7, 'a, rest')"
    first, part, rest, other = drawn(rows("bar", found, "x, y, series", stacked=True), {"s": ["a", "b"]}).data
    assert [bar.offsetgroup for bar in (first, part, rest, other)] == ["a", "a", "a", "b"]
    assert list(part.base) == [2, 3] and list(rest.base) == [9] and first.base is other.base is None
    assert len({first.marker.color, part.marker.color, rest.marker.color}) == 3
    with pytest.raises(ValueError, match="`stacked` belongs to the kind `bar`"):
        rows("line", "(1, 2)", stacked=True)


def test_what_is_known_exactly_has_no_whiskers() -> None:
    bars = rows("bar", "('a', 1, 1, 1), ('b', 2, 1.5, 3)", "x, y, low, high")
    spread = drawn(bars).data[0].error_y
    assert list(spread.array) == ["none", 1] and list(spread.arrayminus) == ["none", 0.5]
    assert drawn(rows("bar", "('a', 1, 1, 1)", "x, y, low, high")).data[0].error_y.array is None


def test_a_band_is_where_both_ends_are_known() -> None:
    figure = drawn(rows("steps", "(1, 5, 4, 6), (2, 5, 3, 8), (3, 5, NULL, 9), (4, 5, 1, 9)", "x, y, low, high"))
    low, high, line = figure.data
    assert list(low.x) == [1, 2] and list(low.y) == [4, 3] and list(high.y) == [6, 8] and high.fill == "tonexty"
    assert line.line.shape == low.line.shape == "hv" and list(line.x) == [1, 2, 3, 4]


def test_a_heat_map_has_a_field_for_each_pair() -> None:
    figure = drawn(rows("heatmap", "(1, '1 MB', 5), (2, '32 KB', 6)", "x, y, z", z_title="packets"))
    (field,) = figure.data
    assert list(field.x) == [1, 2] and list(field.y) == ["32 KB", "1 MB"]
    assert [list(row) for row in field.z] == [[None, 6], [5, None]]
    assert field.colorbar.title.text == "packets"


def test_a_distribution_has_the_weights_of_its_rows() -> None:
    figure = drawn(rows("cdf", "(5, 1, 'a'), (1, 3, 'a'), (9, 1, 'b')", "x, weight, series"))
    first, second = figure.data
    assert list(first.x) == [1, 1, 5] and list(first.y) == [0, 0.75, 1] and list(second.y) == [0, 1]
    plain = drawn(rows("cdf", "(1), (1), (2), (3)", "x"))
    assert list(plain.data[0].y) == [0, 0.5, 0.75, 1]


def test_a_queues_distribution_counts_time() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE cells AS SELECT unnest([0, 1]) AS cell, 'p' AS bottleneck, 'a' AS s")
    connection.execute(
        "CREATE TABLE queues AS SELECT * FROM (VALUES (0, 'a', 'p', 1000, [30, 0, 10]), (1, 'a', 'p', 1000, [20, 20]),"
        " (1, 'a', 'other', 1000, [0, 0, 0, 99])) t(cell, s, port, bin_bytes, histogram_ns)"
    )
    (line,) = drawn(Figure(kind="cdf"), {"s": ["a", "b"]}, connection).data
    assert list(line.x) == [0, 0, 1, 2] and list(line.y) == [0, 0.625, 0.875, 1] and line.name == "a"


def test_whiskers_of_a_single_seed_are_none() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE cells AS SELECT 0 AS cell, 'a' AS s, 1e9 AS goodput_bps")
    assert drawn(Figure(kind="goodput"), {"s": ["a", "b"]}, connection).data[0].error_y.array is None


def test_figures_for_paper_are_small_and_untitled() -> None:
    figure = drawn(rows("line", "(1, 1), (2, 2)"))
    screen, small = styled(figure, "A title", SCREEN), styled(figure, "A title", paper(88, 8))
    assert "A title" in screen.layout.title.text and small.layout.title.text is None
    assert small.layout.width == pytest.approx(88 / 25.4 * 96) and small.layout.font.size == pytest.approx(8 / 72 * 96)
    assert small.data[0].line.width < screen.data[0].line.width == figure.data[0].line.width
    long = styled(figure, "word " * 40, SCREEN)
    assert long.layout.title.text.count("<br>") >= 2 and long.layout.margin.t > screen.layout.margin.t


SERIES = ", ".join(f"({x}, {x}, 's{number}')" for number in range(9) for x in (1, 2))


@pytest.mark.parametrize("kind", ["line", "steps", "cdf", "scatter"])
def test_each_series_is_known_without_its_colour(kind: str) -> None:
    figure = drawn(rows(kind, SERIES, "x, y, series"), {"s": [f"s{number}" for number in range(9)]})
    looks = {(trace.mode, trace.line.dash, trace.marker.symbol) for trace in figure.data}
    assert len(looks) == len(figure.data) == 9
    assert all("markers" in mode for mode, _, _ in looks)
    if kind != "scatter":
        assert len({dash for _, dash, _ in looks}) == 6


def test_a_line_of_many_points_has_few_symbols() -> None:
    points = ", ".join(f"({x}, {x})" for x in range(500))
    (line,) = drawn(rows("line", points)).data
    assert len(line.x) == 500 and line.mode == "lines+markers" and line.marker.maxdisplayed == 8


def test_bars_have_patterns_and_so_have_their_parts() -> None:
    found = "(1, 2, 'a'), (1, 4, 'b'), (1, 5, 'a, part'), (1, 7, 'a, rest'), (1, 7, 'b, part')"
    bars = drawn(rows("bar", found, "x, y, series", stacked=True), {"s": ["a", "b"]}).data
    assert len({bar.marker.pattern.shape for bar in bars}) == len(bars) == 5
    assert all(bar.marker.line.width for bar in bars)


def test_many_series_do_not_look_alike() -> None:
    colours = Colours(range(100))
    assert len({(colours.symbol(value), colours.dash(value)) for value in range(100)}) == 100


def test_a_figure_has_the_height_and_the_legend_of_the_campaign() -> None:
    spec = rows("line", "(1, 1, 'a'), (2, 2, 'b')", "x, y, series", height=0.3, legend="bottom-right")
    figure = drawn(spec)
    assert (figure.layout.legend.x, figure.layout.legend.y) == (0.99, 0.01)
    for style in (SCREEN, paper(88, 8)):
        made = styled(figure, "A title", style)
        above = styled(drawn(spec.model_copy(update={"legend": None})), "A title", style)
        assert made.layout.height == pytest.approx(0.3 * made.layout.width)
        assert made.layout.margin.t < above.layout.margin.t
    assert drawn(spec.model_copy(update={"legend": "none"})).layout.showlegend is False


def test_axes_have_the_ranges_of_the_campaign() -> None:
    layout = drawn(rows("line", "(1, 1), (2, 2)", x_range=[0, 10], y_range=[0, None])).layout
    assert layout.xaxis.range == (0, 10) and layout.yaxis.range is None
    assert layout.yaxis.autorangeoptions.minallowed == 0 and layout.yaxis.autorangeoptions.maxallowed is None
    logarithmic = drawn(rows("line", "(1, 1), (2, 2)", log_y=True, y_range=[1, 1000])).layout.yaxis
    assert logarithmic.type == "log" and logarithmic.range == (0, 3)
    names = Artist(duckdb.connect(), {}).draw(rows("bar", "('a', 1)", x_range=[0, 1]))
    assert names.missing == "`x_range`: the x-axis has names instead of numbers"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x_range": [5, 5]}, r"`x_range` is empty: expected the smaller number first, got \[5, 5\]"),
        ({"y_range": [0, 1], "log_y": True}, "`y_range` of a logarithmic axis: expected numbers above 0"),
        ({"y_range": [0]}, "y_range"),
        ({"x_range": [0, float("inf")]}, "finite number"),
        ({"height": 0}, "greater than or equal to 0.1"),
        ({"legend": "left"}, "'above', 'right', 'below'"),
    ],
)
def test_an_impossible_layout_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rows("line", "(1, 2)", **fields)


def test_a_figure_without_its_columns_is_reported() -> None:
    drawing = Artist(duckdb.connect(), {}).draw(rows("heatmap", "(1, 2)"))
    assert drawing.figure is None and "it must give the columns x and y and z" in (drawing.missing or "")


def test_axes_of_quantities_have_columns_of_numbers(tmp_path: Path) -> None:
    axes: dict[str, list[Any]] = {
        "buffer": ["1 MB", "32 KB"],
        "rate": ["1 Gbit/s"],
        "p": ["1 %"],
        "n": [1, 2],
        "mixed": ["1 s", "1 B"],
    }
    found = quantity_columns(axes.items())
    assert [column.column for column in found] == [
        "buffer_bytes",
        "axis_rate_bps",
        "p_share",
    ]  # links have a `rate_bps`
    assert found[0].by_text == {"1 MB": 1_000_000, "32 KB": 32_000} and found[2].kind == "float"
    (tmp_path / "lab.yml").write_text("name: x\n")
    (tmp_path / "campaign.yml").write_text("question: Q?\naxes: {switches.default.buffer: [1 MB, 32 KB]}\n")
    matrix = build_matrix(load_campaign(tmp_path / "campaign.yml")[0])
    assert matrix.columns == {"buffer": "str", "seed": "int", "buffer_bytes": "int"}
    schema = tables.cells_schema(matrix.columns)
    assert schema.field("buffer_bytes").type == pa.int64()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--style", "paper", "--width", "88"), "expected a length of 20 to 1000 mm"),
        (("--style", "paper", "--font-size", "8 px"), "such as `88 mm`, `7 in` or `9 pt`, got `8 px`"),
        (("--width", "88 mm"), "is of --style paper"),
        (("--format", "pgn"), "did you mean `png`?"),
    ],
)
def test_sizes_have_units(arguments: tuple[str, ...], message: str) -> None:
    refused = CliRunner().invoke(load_commands(), ["report", "nowhere", *arguments], standalone_mode=False)
    assert message in str(refused.exception)


def test_a_link_among_a_papers_figures_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "run" / "figures" / "paper").mkdir(parents=True)
    (tmp_path / "run" / "figures" / "paper" / ".queue.pdf.tmp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="was changed after its run"):
        read_any_identity(tmp_path / "run")


def test_connections_end_with_what_was_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def connect(_run: Path, _of: Any = None) -> Any:
        made.append(duckdb.connect())
        return made[-1]

    axis = {"name": "switch", "values": ["linux", "bmv2"]}
    spec = {"kind": "line", "name": "line", "sql": "SELECT 1 AS x, 2 AS y"}
    identity = {"matrix": {"axes": [axis]}, "figures": [spec], "compare": "switch"}
    monkeypatch.setattr(page, "connect", connect)
    monkeypatch.setattr(page, "RunFolder", lambda _: SimpleNamespace(identity=lambda: identity))
    assert [drawing.name for drawing in page.draw(tmp_path)] == ["line-linux", "line-bmv2"]
    assert len(made) == 3
    for connection in made:
        with pytest.raises(duckdb.ConnectionException):
            connection.execute("SELECT 1")
