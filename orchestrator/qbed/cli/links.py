# SPDX-License-Identifier: Apache-2.0
"""`qbed set`: change links of a lab that is up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.cli.session import LabName, clock_text
from qbed.substrates import find_lab


def register(app: typer.Typer) -> None:
    """Add this module's command."""
    app.command("set")(change)


def change(
    lab: LabName,
    link: Annotated[
        str | None,
        typer.Argument(metavar="[LINK]", help="A link's name, a glob or a range, or one direction: `s1>s2`."),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIELD=VALUE]...", help="rate=20mbit, delay=5ms, loss=1%, state=down or state=up."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo the last change; may be repeated.")] = False,
) -> None:
    """Change links of a lab that is up, from now on. Without a link, list the changes.

    `events` in the lab file does the same at given times.
    """
    from qbed.substrates import link_changes

    found = find_lab(lab)
    if undo:
        if link is not None:
            raise typer.BadParameter("expected no link: it undoes the last change", param_hint="--undo")
        undone = link_changes.undo(found)
        terminal.print_line(f"undone: {link_changes.describe(undone)}")
    elif link is None:
        settings = link_changes.current(found.folder)
        for setting in settings:
            terminal.print_line(f"{clock_text(setting.time_ns)}: {link_changes.describe(setting)}")
        if not settings:
            terminal.print_status(f"no link of {found.name} was changed by `qbed set`")
    else:
        try:
            setting = link_changes.set_links(found, link, _fields(fields or []))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="LINK FIELD=VALUE") from None
        terminal.print_line(f"{clock_text(setting.time_ns)}: {link_changes.describe(setting)}")


def _fields(texts: Iterable[str]) -> dict[str, str]:
    """Fields by name. ValueError for a text without `=`, or a field that is there twice."""
    fields: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"`{text}`: expected FIELD=VALUE such as `rate=20mbit`")
        if name in fields:
            raise ValueError(f"`{name}` is there twice")
        fields[name] = value
    return fields
