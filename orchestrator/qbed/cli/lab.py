# SPDX-License-Identifier: Apache-2.0
"""`qbed compile`, `schema`, `inspect`, `reference`: what a lab file says and what it becomes."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from qbed.compile import compile_lab
from qbed.errors import LabError
from qbed.lab import load_lab
from qbed.source import scalar

LabPath = Annotated[Path, typer.Argument(metavar="LAB", help="A lab's folder, or its lab.yml.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Set a field of the lab file.")]


def parse_sets(sets: list[str] | None) -> dict[str, Any]:
    """`--set links.default.rate="1 Gbit/s"` options as overrides."""
    overrides: dict[str, Any] = {}
    for text in sets or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise LabError([f"--set {text}: expected FIELD=VALUE"])
        overrides[name.strip()] = scalar(value)
    return overrides


def compile_command(
    lab: LabPath,
    sets: Sets = None,
    seed: Annotated[int | None, typer.Option(help="Instead of the lab's own.", min=0, max=2**32 - 1)] = None,
) -> None:
    """Print the lab's plan (plan.json)."""
    loaded = load_lab(lab, parse_sets(sets))
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    sys.stdout.write(compile_lab(loaded, seed).dumps())


def register(app: typer.Typer) -> None:
    app.command("compile")(compile_command)
