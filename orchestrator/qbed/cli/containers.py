# SPDX-License-Identifier: Apache-2.0
"""`qbed export`, `import`, `graph`: labs as Containerlab topologies."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.base.errors import LabError
from qbed.cli.lab import LabPath, Seed, Sets, load
from qbed.cli.run import Trust


def register(app: typer.Typer) -> None:
    app.command("export")(export)
    app.command("import")(import_)
    app.command("graph")(graph)


def export(
    lab: LabPath,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Folder to write (default: LAB-clab).")
    ] = None,
    dilate: Annotated[
        int, typer.Option(min=1, metavar="N", help="Factor by which the lab is slower than the clock.")
    ] = 1,
    sets: Sets = None,
    seed: Seed = None,
    trust: Trust = False,
) -> None:
    """Write a lab as a Containerlab topology that `containerlab deploy -t` brings up by itself."""
    from qbed.plan.compile import compile_lab
    from qbed.substrates.containers import bmv2
    from qbed.substrates.containers.folder import write_folder
    from qbed.substrates.containers.images import images, role
    from qbed.substrates.containers.placement import Machine, place

    plan = compile_lab(load(lab, sets), seed)
    if switches := [plan.nodes[node].name for node in bmv2.switches(plan)]:
        text = "BMv2 gets its program from qbed when the lab comes up; expected `engine: p4switch`"
        raise LabError([f"{switches[0]}: {text}"])
    placement = place(plan, Machine(), dilate)
    folder = out or Path(f"{plan.lab}-clab")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LabError([f"{folder} is not empty; expected a new folder (-o DIR)"])
    names = images({role(node) for node in plan.nodes}, build=False)
    folder.mkdir(parents=True, exist_ok=True)
    topology = f"{plan.lab}.clab.yml"
    file = write_folder(
        folder, plan, placement, names, name=plan.lab, file=topology, start="at once", interactive=True
    )  # fmt: skip
    for note in placement.notes:
        terminal.print_status(note)
    terminal.warn(placement.warnings)
    terminal.print_line(f"containerlab deploy -t {file}")


def import_(
    topology: Annotated[Path, typer.Argument(metavar="X.clab.yml", help="A Containerlab topology.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The lab file to write.")] = Path("lab.yml"),
) -> None:
    """Convert a Containerlab topology to a lab file, with rates, delays and queues to fill in."""
    from qbed.network.importing import import_topology

    if out.exists():
        raise LabError([f"{out} exists already; expected another file (-o FILE)"])
    text = import_topology(topology)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
    terminal.print_line(f"{out}: fill in what is marked, then `qbed inspect {out}`")


def graph(
    lab: LabPath,
    kind: Annotated[str, typer.Option("--format", help="`mermaid`, `dot` or `drawio`, as Containerlab draws it.")] = (
        "mermaid"
    ),
    sets: Sets = None,
    trust: Trust = False,
) -> None:
    """Print the graph that Containerlab draws of a lab's topology."""
    from qbed.plan.compile import compile_lab
    from qbed.substrates.containers.containerlab import draw
    from qbed.substrates.containers.folder import write_folder
    from qbed.substrates.containers.images import role as role_of
    from qbed.substrates.containers.placement import Placement

    plan = compile_lab(load(lab, sets))
    names = {role: f"qbed-{role}" for role in map(role_of, plan.nodes)}
    with tempfile.TemporaryDirectory(prefix="qbed-graph-") as name:
        file = write_folder(
            Path(name) / plan.lab, plan, Placement((), 1), names, name=plan.lab, file="lab.clab.yml", start="on go"
        )  # fmt: skip
        terminal.write_stdout(draw(file, kind))
