# SPDX-License-Identifier: Apache-2.0
"""labs/gap in containers against virtual time: the differences by scheme, switch, number of hosts, path and dilation.

Each setting has the seeds of the campaign in virtual time, and one cell in containers for each dilation, which counts
whether it is valid or not. Nothing is pinned: a lab on the wall clock has the whole machine. Needs root, Docker and
Containerlab (`make containers`), and a machine without other load.

    .venv/bin/python -m bench.gap             # 15 minutes on two cores
    .venv/bin/python -m bench.gap --draw      # the table and docs/pictures/gap.png from the last result
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from bench.containers import is_possible
from bench.harness import RESULTS, write_result
from qbed.base.errors import QbedError
from qbed.base.json_files import Row
from qbed.campaign.file import load_campaign
from qbed.campaign.matrix import Cell, build_matrix
from qbed.cells.arrow import read_cell
from qbed.cells.wall_clock import LATE_SHARE
from qbed.network.load import of_folder, read_lab
from qbed.plan.model import Plan
from qbed.report.figures import Drawing
from qbed.report.images import draw_images
from qbed.report.style import INK, SCREEN, Colours, new_figure
from qbed.runs.calibrate import temporary_cell
from qbed.runs.effects import Plans
from qbed.substrates import substrate

LAB = Path(__file__).parents[1] / "labs" / "gap"
DILATIONS: dict[str, dict[int, tuple[int, ...]]] = {
    "schemes": {4: (1, 10, 20, 50, 100), 8: (10, 100), 16: (10, 100)},
    "paths": {4: (1, 10, 20, 50, 100)},
}
"""By profile and number of hosts."""
LONGEST_S = 30.0
"""A cell that takes more real time is left out."""
PORT = "s1>h1"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
LEAST = 0.01
"""Smaller differences are drawn as this."""


@dataclass(frozen=True)
class Measured:
    """A cell's goodput (bit/s) and mean queue of the shared link (packets) in the window `steady`, and its evidence."""

    goodput: float
    queue: float
    valid: bool = True
    late: float = 0.0
    """The 99th percentile of the lateness of the latest node, as a share of the shortest round trip."""
    busy: float = 0.0
    """Share of the machine's cores that the nodes used."""
    dropped: int = 0
    marked: int = 0


def main() -> None:
    rows: list[Row] = []
    if sys.argv[1:] == ["--draw"]:
        rows = json.loads((RESULTS / "gap.json").read_text())["rows"]
        draw(rows)
    elif is_possible():
        rows = run()
    for line in summary(rows):
        print(line)


def run() -> list[Row]:
    """All cells; what has been measured so far is in the result's file."""
    rows: list[Row] = []
    for profile in DILATIONS:
        for row in compare(profile):
            rows.append(row)
            shown = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values())
            print("  ".join(shown), flush=True)
            write_result("gap", rows=rows)
    return rows


def compare(profile: str) -> Iterator[Row]:
    """A row for each setting and dilation."""
    campaign, _ = load_campaign(of_folder(LAB, "campaign.yml"))
    plans = Plans(read_lab(LAB))
    for _, group in groupby(build_matrix(campaign, profile), key=setting):
        cells = list(group)
        made = [plans.make(cell)[1] for cell in cells]
        virtual = [measure("virtual", plan, 1) for plan in made]
        values = dict(setting(cells[0]))
        for dilation in DILATIONS[profile][int(str(values["hosts"]))]:
            if made[0].duration_ns / 1e9 * dilation <= LONGEST_S:
                yield {"profile": profile, **values, "dilation": dilation, **difference(virtual, made[0], dilation)}


def setting(cell: Cell) -> tuple[tuple[str, object], ...]:
    """The values of a cell's axes without its seed."""
    return tuple((name, value) for name, value in cell.values.items() if name != "seed")


def difference(virtual: list[Measured], plan: Plan, dilation: int) -> Row:
    """One cell in containers: its values over the means in virtual time, and the largest such ratio of seeds there."""
    try:
        found = measure("containerlab", plan, dilation)
    except QbedError as error:
        return {"error": str(error).splitlines()[0]}
    row: Row = asdict(found)
    for name in ("goodput", "queue"):
        mean = statistics.fmean(getattr(one, name) for one in virtual)
        row[f"{name}_difference"] = getattr(found, name) / mean - 1
        row[f"{name}_of_seeds"] = max(abs(getattr(one, name) / mean - 1) for one in virtual)
    return row


def measure(on: str, plan: Plan, dilation: int) -> Measured:
    """Run a cell. QbedError if it fails; an invalid cell has not failed."""
    with temporary_cell(substrate(on), plan, dilation) as (row, _, tables):
        flows = read(tables, "flow_windows")
        queue = next(one for one in read(tables, "queue_windows") if one["port"] == PORT)
    wall = json.loads(row["evidence"]).get("wall", {})
    return Measured(
        sum(flow["goodput_bps"] for flow in flows),
        queue["mean_packets"],
        row["status"] == "complete",
        wall.get("late_share_of_rtt") or 0.0,
        wall.get("cpu_share") or 0.0,
        row["dropped_packets"],
        row["marked_packets"],
    )


def read(tables: Path, name: str) -> list[Row]:
    return [row for table in read_cell(tables / f"{name}.arrow", 0) for row in table.to_pylist()]


def summary(rows: Iterable[Row]) -> Iterator[str]:
    """The table of labs/gap/README.md: a row for each number of hosts and dilation, for TCP and for stamps."""
    yield "| hosts, dilation | valid | lateness / round trip | goodput | queue | beyond seeds: goodput, queue |"
    yield "|---|---:|---:|---:|---:|---:|"
    found = sorted((row for row in rows if row["profile"] == "schemes" and "error" not in row), key=place)
    for (stamps, hosts, dilation), group in groupby(found, key=place):
        cells, sizes, beyond = list(group), [], []
        for name, least in (("goodput", 0.01), ("queue", 0.0)):
            off = [abs(row[f"{name}_difference"]) for row in cells]
            sizes.append(f"{100 * statistics.median(off):.1f} %, {100 * max(off):.1f} %")
            beyond.append(sum(x > row[f"{name}_of_seeds"] + least for x, row in zip(off, cells, strict=True)))
        late = statistics.median(row["late"] for row in cells)
        first = f"{'stamp' if stamps else 'TCP'}: {hosts}, {dilation}"
        valid = f"{sum(row['valid'] for row in cells)} of {len(cells)}"
        shown = f"{late:.{2 if late < 10 else 3}g}"
        yield f"| {first} | {valid} | {shown} | {sizes[0]} | {sizes[1]} | {beyond[0]}, {beyond[1]} |"


def place(row: Row) -> tuple[bool, int, int]:
    """The row of the table that a cell belongs to, as a key."""
    return row["scheme"] == "stamp", row["hosts"], row["dilation"]


def draw(rows: Iterable[Row]) -> None:
    """Write the picture: the difference of the queue over the lateness, a point for each cell of the schemes."""
    figure = new_figure("", "99th percentile of lateness / shortest round trip", "queue's difference from virtual time")
    colours = Colours(())
    found = [row for row in rows if row["profile"] == "schemes" and "error" not in row]
    for scheme in dict.fromkeys(row["scheme"] for row in found):
        cells = [row for row in found if row["scheme"] == scheme]
        figure.add_scatter(
            x=[row["late"] for row in cells],
            y=[max(abs(row["queue_difference"]), LEAST) for row in cells],
            mode="markers",
            marker={"size": 9, "color": colours[scheme], "symbol": colours.symbol(scheme)},
            name=scheme,
        )
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log", tickformat=".0%")
    figure.add_vline(x=LATE_SHARE, line={"dash": "dash", "color": INK})
    drawing = Drawing("gap", "Containers against virtual time: the queue of the shared link", figure)
    files = draw_images(PICTURES, [drawing], SCREEN, ["png"], lambda name: None)
    print(*files.paths, *files.problems)


if __name__ == "__main__":
    main()
