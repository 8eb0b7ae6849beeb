# SPDX-License-Identifier: Apache-2.0
"""`qbed compile`, `inspect`, `schema`, `reference`: what a lab file says, what it becomes, what it can say."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import LabError
from qbed.cli.run import Trust, parse_settings
from qbed.lab.library import find

if TYPE_CHECKING:
    from qbed.network.resolve import ResolvedLab
    from qbed.plan.model import Plan

LabPath = Annotated[
    Path, typer.Argument(metavar="LAB", help="A lab's folder, its lab.yml, or a name of `qbed labs`.", callback=find)
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Set a field of the lab file; may be given several times."),
]
Seed = Annotated[int | None, typer.Option(help="Seed instead of the lab's.", min=0, max=2**32 - 1)]


def load(lab: Path, sets: list[str] | None) -> ResolvedLab:
    """Load the lab and print its warnings to stderr."""
    from qbed.network.load import load_lab

    loaded = load_lab(lab, parse_settings(sets or []))
    terminal.warn(loaded.warnings)
    return loaded


def compile_command(lab: LabPath, sets: Sets = None, seed: Seed = None, trust: Trust = False) -> None:
    """Print a lab's plan (plan.json)."""
    from qbed.plan.compile import compile_lab

    terminal.write_stdout(compile_lab(load(lab, sets), seed).dumps())


def inspect_command(
    lab: LabPath,
    sets: Sets = None,
    seed: Seed = None,
    profile: Annotated[
        str | None, typer.Option(help="Only the parameters in effect in the cells of a profile of its campaign.")
    ] = None,
    parts: Annotated[bool, typer.Option("--parts", help="Only the parts of a divided lab.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    trust: Trust = False,
) -> None:
    """Show the nodes, links, addresses, queues and workloads of a lab's plan, and its parameters in effect."""
    from qbed.network.load import of_folder
    from qbed.plan.compile import compile_lab
    from qbed.report.parameter_table import Collected, rich_table
    from qbed.report.show_plan import summary, tables

    if profile is not None:
        return _inspect_profile(lab, profile, sets, seed, as_json=as_json)
    loaded = load(lab, sets)
    plan = compile_lab(loaded, seed)
    if parts:
        return _inspect_parts(plan, as_json=as_json)
    changes = _changed_links(of_folder(lab) if lab.is_dir() else lab)
    if as_json:
        terminal.write_stdout(json.dumps(summary(plan) | ({"changes": changes} if changes else {}), indent=1) + "\n")
        return
    screen = terminal.console()
    for table in tables(plan):
        screen.print(table)
    collected = Collected([])
    collected.add((), loaded, plan)
    screen.print(rich_table(collected.table()))
    for change in changes:
        terminal.print_line("changed by `qbed set` in {lab}: {change}".format(**change))


def _inspect_parts(plan: Plan, *, as_json: bool) -> None:
    from qbed.report import show_parts

    if not plan.parts:
        raise LabError([f"the lab {plan.lab} is not divided; expected `parts: 2` or `--set parts=2`"])
    found = show_parts.summary(plan)
    if as_json:
        terminal.write_stdout(json.dumps(found, indent=1) + "\n")
        return
    terminal.console().print(show_parts.table(plan))
    for warning in found["warnings"]:
        terminal.print_line(f"warning: {warning}")


def _changed_links(file: Path) -> list[dict[str, object]]:
    """The changes of links by `qbed set` that are in effect in labs that are up from this file."""
    from qbed.substrates import link_changes, substrates

    ups = (lab for substrate in substrates() for lab in substrate.deployments() if lab.is_up())
    return [
        {"lab": lab.name, "time_ns": setting.time_ns, "change": link_changes.describe(setting)}
        for lab in ups
        if Path(lab.file) == file.resolve()
        for setting in link_changes.current(lab.folder)
    ]


def _inspect_profile(lab: Path, profile: str, sets: list[str] | None, seed: int | None, *, as_json: bool) -> None:
    from qbed.campaign.matrix import build_matrix
    from qbed.report.parameter_table import rich_table
    from qbed.runs.experiment import find_campaign
    from qbed.runs.preflight import parameter_table

    campaign, _, file = find_campaign(lab)
    seeds = None if seed is None else [seed]
    table = parameter_table(file, build_matrix(campaign, profile, seeds=seeds, settings=parse_settings(sets or [])))
    if as_json:
        terminal.write_stdout(json.dumps(table.model_dump(exclude_none=True), indent=1) + "\n")
    else:
        terminal.console().print(rich_table(table))


def schema_command() -> None:
    """Print the lab file's JSON Schema (docs/lab.schema.json)."""
    from qbed.lab.reference import schema

    terminal.write_stdout(json.dumps(schema(), indent=1, ensure_ascii=False) + "\n")


class File(StrEnum):
    """The files that a user writes."""

    lab = "lab"
    campaign = "campaign"


def reference_command(
    file: Annotated[File, typer.Argument(metavar="[lab|campaign]", help="The file.")] = File.lab,
) -> None:
    """Print the reference of the lab file (docs/lab-file.md) or of the campaign file (docs/campaign.md)."""
    from qbed.campaign import reference as campaign
    from qbed.lab import reference as lab

    terminal.write_stdout((lab if file is File.lab else campaign).page())


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command("compile")(compile_command)
    app.command("inspect")(inspect_command)
    app.command("schema")(schema_command)
    app.command("reference")(reference_command)
