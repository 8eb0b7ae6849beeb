# SPDX-License-Identifier: Apache-2.0
"""Provides a guest with the agent, modules, toolboxes and folders of the machine, and finds missing ones."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from qbed.base import terminal
from qbed.base.files import open_regular
from qbed.base.locations import checkout
from qbed.config.reach import trusted
from qbed.plan.controlling import PROGRAMS, PYTHON
from qbed.plan.model import Node, Plan
from qbed.plan.queue import Queue, TcQdisc
from qbed.plan.workload import Launch
from qbed.substrates import CellError, MissingPart
from qbed.substrates.p4_images import COMPILER, write_images
from qbed.substrates.rebuild import BUILT_ON_DEMAND, build_program
from qbed.substrates.toolchain import MODULES, REPAIR, Toolchain
from qbed.substrates.virtual.confinement import SYSTEM, landlock_version, public_settings

TOOLS = "guest"
TOOLBOXES = "/run/qbed/tools"  # where the guest sees them
FRR = "frr"
TC_PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"
"""The folders in which tc is looked for."""
EVERY_TOOLBOX = (FRR,)
HIDDEN = (Path("/tmp"), Path("/run"))  # of the host's, by a guest's own
SEEN = "seen"
_NO_CONTROLLER = "labs with a `controller` run in a checkout, or from a wheel of this machine's kind; no image has it"


def shared_folders(lab: Path | None = None) -> list[Path]:
    """The folders of the machine that an interactive lab can read, besides programs.

    They are the working folder, the folder of the lab file, and this checkout, but never the home or its parents.
    """
    home = Path.home().resolve()
    places = {path.resolve() for path in (Path.cwd(), lab and lab.parent, checkout()) if path is not None}
    places = {path for path in places if path != home and path not in home.parents}
    return sorted(path for path in places if not places.intersection(path.parents))


def readable_paths(toolchain: Toolchain, plan: Plan, mode: Literal["cell", "lab"], seen: Sequence[Path]) -> list[Path]:
    """The paths of the machine that the guest may read, besides system programs."""
    boxes = [*toolboxes(toolchain, plan).values(), *([Path(sys.base_prefix)] if has_user_programs(plan) else [])]
    # Some 150 files of /etc, which only programs read.
    runs = mode == "lab" or has_programs(plan) or tc_queue(plan)
    etc = public_settings() if runs else ()
    return [(toolchain.folder / "qbed-agent").resolve(), *boxes, *etc, *seen]


def toolboxes(toolchain: Toolchain, plan: Plan) -> dict[str, Path]:
    """Folders of programs in the guest, by their names there; for user-supplied programs also qbed's Python."""
    added = {PROGRAMS: toolchain.programs, PYTHON: Path(sys.prefix)} if has_user_programs(plan) else {}
    return toolchain.toolboxes | added


def has_user_programs(plan: Plan) -> bool:
    """Whether a lab runs user-supplied programs."""
    return bool(plan.launches or _scripts(plan))


def has_programs(plan: Plan) -> bool:
    """Whether programs are part of the lab."""
    return bool(plan.launches) or any(node.programs for node in plan.nodes)


def has_frr(plan: Plan) -> bool:
    """Whether nodes run programs of FRR."""
    return any(f"{TOOLBOXES}/{FRR}/" in node.environment.get("PATH", "") for node in plan.nodes)


def tc_queue(plan: Plan) -> Queue | None:
    """The first queue that the agent configures by running tc."""
    return next((queue for queue in plan.queues if isinstance(queue.qdisc, TcQdisc)), None)


def _scripts(plan: Plan) -> list[tuple[Node, str]]:
    """The lab's scripts, with the nodes that run them."""
    return [
        (node, program.argv[0]) for node in plan.nodes for program in node.programs if program.argv[0] in node.files
    ]


def provide(toolchain: Toolchain, folder: Path, plan: Plan, seen: Sequence[Path]) -> Path:
    """Link or copy the guest's files into its cell folder: the guest may mount over the toolchain's folder."""
    for lack in missing_parts(toolchain, plan):
        raise CellError(lack.text)
    toolchain.check(loaded(toolchain, plan))
    tools = folder / TOOLS
    shutil.rmtree(tools, ignore_errors=True)
    (tools / "modules").mkdir(parents=True)
    (tools / "qbed-agent").symlink_to(toolchain.folder / "qbed-agent")
    for name in (*MODULES, *plan.modules):
        _copy_module(toolchain, name, tools / "modules" / f"{name}.ko")
    # An empty one for what is not here: a mount point draws a random number, and the results must be the same.
    (tools / "none").mkdir()
    for name, box in (dict.fromkeys(EVERY_TOOLBOX, "none") | toolboxes(toolchain, plan)).items():
        (tools / name).symlink_to(box)
    (tools / SEEN).mkdir()
    hidden = (path for path in seen if any(scratch in path.parents for scratch in HIDDEN))
    for number, path in enumerate(hidden):
        (tools / SEEN / str(number)).symlink_to(path)
    write_images(toolchain, plan, range(len(plan.nodes)), folder)
    return tools


def _copy_module(toolchain: Toolchain, name: str, place: Path) -> None:
    """Copy a module; `ToolchainError` if it cannot be read, as in a toolchain without checksums."""
    try:
        with open_regular(_module(toolchain, name)) as source:
            content = source.read()
    except OSError as error:
        raise toolchain.damaged(f"modules/{name}.ko", f"cannot be read: {error.strerror}") from error
    place.write_bytes(content)


def _module(toolchain: Toolchain, name: str) -> Path:
    return toolchain.folder / "modules" / f"{name}.ko"


def loaded(toolchain: Toolchain, plan: Plan) -> list[str]:
    """The toolchain's files that a guest with this plan loads."""
    names = ["linux", "qbed-agent", *(f"modules/{name}.ko" for name in (*MODULES, *plan.modules))]
    if plan.p4:
        names.append(COMPILER)
    if has_user_programs(plan):
        names += toolchain.names_in("programs")
    if has_frr(plan):
        names += toolchain.names_in(FRR)
    return names


def missing_parts(toolchain: Toolchain, plan: Plan) -> Iterator[MissingPart]:
    """Kernel modules that are not built, and programs of this machine that are in no toolbox and not installed.

    What `make setup` leaves out is built now.
    """
    for name in (*MODULES, *plan.modules):
        if not _module(toolchain, name).exists():
            yield MissingPart("module", name, f"the kernel module {name} is not built; {REPAIR}")
    if plan.p4 and not (toolchain.folder / COMPILER).exists():
        yield MissingPart("program", COMPILER, f"the compiler of P4 programs is not built; {REPAIR}")
    for node in plan.nodes:
        path = node.environment.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        search_path = os.pathsep.join(path.replace(f"{TOOLBOXES}/", f"{toolchain.folder}/").split(":"))
        for program in node.programs:
            name = program.argv[0]
            if name in node.files or program.optional:
                continue
            if shutil.which(name, path=search_path) is None and not build_program(
                toolchain, name, terminal.print_status
            ):
                fix = "run `make setup`" if checkout() else "for labs with `routing: frr`, install FRR (package frr)"
                if name in BUILT_ON_DEMAND:
                    fix = "its build failed, as said above" if checkout() else _NO_CONTROLLER
                yield MissingPart("program", name, f"node {node.name} runs {name}, which is not here; {fix}")
                if name in BUILT_ON_DEMAND:
                    return  # what else a controller needs is where that is
    for node, name in _scripts(plan):
        yield from _missing_for_script(node, name, name)
    for launch in plan.launches:
        yield from _missing_for_launch(toolchain, plan.nodes[launch.node], launch)
    given = tc_queue(plan)
    if given is not None and shutil.which("tc", path=TC_PATH) is None:
        text = f"the queue {given.name} is given by arguments of tc, which is not here; install iproute2"
        yield MissingPart("program", "tc", text)


def _missing_for_launch(toolchain: Toolchain, node: Node, launch: Launch) -> Iterator[MissingPart]:
    """Check a program as workload: a file of the lab, or one that is installed."""
    name = launch.argv[0]
    path = str(Path(launch.folder, name))
    if path in node.files:
        yield from _missing_for_script(node, path, name)
        return
    if (held := _unconfined(node, name)) is not None:
        yield held
    elif not _is_installed(name, launch.environment["PATH"], toolchain):
        where = "and the lab sees what is installed in /usr and /opt" if "/" in name else "install it"
        yield MissingPart("program", name, f"node {node.name} runs {name}, which is not here; {where}")


def _is_installed(name: str, path: str, toolchain: Toolchain) -> bool:
    if name.startswith("/"):
        place = Path(name)
        return any(folder in place.parents for folder in SYSTEM) and shutil.which(name) is not None
    if "/" in name:
        return False  # relative to this process's working folder
    path = path.replace(f"{TOOLBOXES}/{PYTHON}/", f"{sys.prefix}/").replace(f"{TOOLBOXES}/", f"{toolchain.folder}/")
    return shutil.which(name, path=path) is not None


def _unconfined(node: Node, name: str) -> MissingPart | None:
    """A finding if a user-supplied program, which is root in the guest, would run unconfined."""
    if landlock_version() or trusted():
        return None
    why = "and this machine has no Landlock to hold it (docs/security.md); only with --trust"
    return MissingPart("program", name, f"node {node.name} runs {Path(name).name}, a program of the lab's own, {why}")


def _missing_for_script(node: Node, path: str, program: str) -> Iterator[MissingPart]:
    """Check that a script is confined and that its imports are installed."""
    name, text = Path(path).name, node.files[path]
    if (unconfined := _unconfined(node, program)) is not None:
        yield unconfined
    if "python" not in text.partition("\n")[0]:
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        yield MissingPart("program", program, f"node {node.name} runs {name}, which is not Python: {error}")
        return
    beside = {Path(file).name.removesuffix(".py") for file in node.files} | {
        Path(file).parent.name for file in node.files
    }
    for module in sorted(set(_imported(tree)) - beside):
        if importlib.util.find_spec(module) is None:
            fix = f"{sys.executable} -m pip install {module}"
            yield MissingPart(
                "program", program, f"node {node.name} runs {name}, which imports {module}, which is not here; {fix}"
            )


def _imported(tree: ast.Module) -> Iterator[str]:
    """The packages that a script imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
