# SPDX-License-Identifier: Apache-2.0
"""Launches of programs as workload. Their files are copied to the programs' nodes, like the files of controllers."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from qbed.lab.programs import Program, filled
from qbed.network.launches import Launch
from qbed.network.resolve import ResolvedLab
from qbed.plan import workload as p
from qbed.plan.controlling import environment
from qbed.plan.model import Node

FOLDER = "/run/lab"
"""Working folder of programs with files from the lab's folder."""
TEMPORARY = "/tmp"
"""Working folder of programs without files."""
LEAD_NS = 1_000_000_000
"""Time from the start of a program with `start: before` to the epoch."""
SIZE = 4
"""Memory of a program, in units of an FRR daemon."""


def launches(resolved: ResolvedLab, seed: int, epoch_ns: int) -> list[p.Launch]:
    """Return all launches, in the order of the file and of the nodes."""
    found = []
    for number, launch in enumerate(resolved.launches):
        for place, node in enumerate(launch.nodes):
            built_in = {"node": node, "number": str(place), "seed": str(seed)}
            found.append(_launch(number, launch, resolved.index[node], built_in, epoch_ns))
    return found


def _launch(number: int, launch: Launch, node: int, built_in: dict[str, str], epoch_ns: int) -> p.Launch:
    program: Program = launch.program
    folder = FOLDER if launch.files else TEMPORARY
    argv = filled(program, built_in)
    if program.is_beside_lab and launch.files and str(PurePosixPath(argv[0])) not in launch.files:
        argv[0] = f"./{next(iter(launch.files))}"  # the program was copied from another folder, as the first file
    # Python scripts have the same environment as scripts of controllers.
    variables = environment(epoch_ns, TEMPORARY) | {"QBED_NODE": built_in["node"], "QBED_SEED": built_in["seed"]}
    return p.Launch(
        program=number,
        label=program.name,
        node=node,
        argv=argv,
        environment=variables | program.environment,
        folder=folder,
        start_ns=program.start if isinstance(program.start, int) else -LEAD_NS,
        stop_ns=program.stop,
        any_status=program.status == "any",
        output=program.output,
    )


def with_files(resolved: ResolvedLab, nodes: list[Node]) -> Iterator[Node]:
    """Return the nodes with the files of their programs."""
    files: dict[int, dict[str, str]] = {}
    for launch in resolved.launches:
        for name in launch.nodes if launch.files else ():
            node_files = {f"{FOLDER}/{path}": text for path, text in launch.files.items()}
            files.setdefault(resolved.index[name], {}).update(node_files)
    for index, node in enumerate(nodes):
        if index not in files:
            yield node
            continue
        yield node.model_copy(update={"folders": [*node.folders, FOLDER], "files": node.files | files[index]})
