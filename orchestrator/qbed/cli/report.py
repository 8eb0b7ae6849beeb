# SPDX-License-Identifier: Apache-2.0
"""`qbed report`: the page and the figures of a run, for the screen and for papers."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import nearest
from qbed.cli.run import Trust


def register(app: typer.Typer) -> None:
    app.command()(report)


class Look(StrEnum):
    """The styles of figures."""

    screen = "screen"
    paper = "paper"


def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    images: Annotated[bool, typer.Option(help="Draw the figures as files, too.")] = True,
    style: Annotated[
        Look, typer.Option(help="Style of the files. `paper`: small figures without titles, in figures/paper/.")
    ] = Look.screen,
    width: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="With --style paper: `88 mm`, which is the default, or `7 in`.")
    ] = None,
    font_size: Annotated[
        str | None, typer.Option(metavar="LENGTH", help="With --style paper: `8 pt`, which is the default.")
    ] = None,
    formats: Annotated[
        str, typer.Option("--format", metavar="NAMES", help="Comma-separated formats of the files: png, svg, pdf.")
    ] = "png,svg,pdf",
    trust: Trust = False,
) -> None:
    """Write a run's report from its Parquet files."""
    from qbed.report import Images, describe_images, make_report
    from qbed.report.images import FORMATS
    from qbed.report.style import SCREEN, paper

    if style is Look.screen and (width or font_size):
        raise typer.BadParameter("is of --style paper", param_hint="--width" if width else "--font-size")
    names = [name.strip() for name in formats.split(",")]
    for name in names:
        if name not in FORMATS:
            raise typer.BadParameter(f"`{name}` is none{nearest(name, FORMATS)}", param_hint="--format")
    if style is Look.paper:
        size_mm = parse_length(width or "88 mm", 20, 1000, "--width")
        letters = paper(size_mm, parse_length(font_size or "8 pt", 1, 20, "--font-size") / _LENGTHS["pt"])
        chosen = Images(letters, names, style.value)
    else:
        chosen = Images(SCREEN, names)
    made = make_report(folder, images=images and chosen)
    terminal.warn(made.problems)
    if text := describe_images(made):
        terminal.print_status(text)
    terminal.print_line(made.images[0].parent if made.images and chosen.name else made.page)


_LENGTHS = {"mm": 1.0, "cm": 10.0, "in": 25.4, "pt": 25.4 / 72}
"""In millimetres."""


def parse_length(text: str, minimum: float, maximum: float, option: str) -> float:
    """`88 mm`, in millimetres."""
    number, _, unit = text.strip().rpartition(" ")
    try:
        length = float(number) * _LENGTHS[unit]
    except (KeyError, ValueError):
        length = -1.0
    if not minimum <= length <= maximum:
        raise typer.BadParameter(
            f"expected a length of {minimum:g} to {maximum:g} mm, such as `88 mm`, `7 in` or `9 pt`, got `{text}`",
            param_hint=option,
        )
    return length
