# SPDX-License-Identifier: Apache-2.0
"""Images of P4 programs: the toolchain's `p4image` compiles them on the host, and the guest's agent loads them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from qbed.plan.model import Plan
from qbed.substrates import CellError
from qbed.substrates.toolchain import Toolchain

COMPILER = "p4image"
"""The program's name in the toolchain."""
_FOLDER = Path("guest", "p4")
"""The folder of images in the folder of the plan."""
_COMPILE_S = 120.0
_MAX_ERROR_CHARS = 2000


def write_images(toolchain: Toolchain, plan: Plan, nodes: Iterable[int], folder: Path) -> None:
    """Write the images of the nodes' programs beside the plan in `folder`. Raise `CellError` if one does not compile."""
    pipelines = (plan.nodes[node].pipeline for node in nodes)
    used = {pipeline.program for pipeline in pipelines if pipeline is not None}
    for number, program in enumerate(plan.p4):
        if program.name in used:
            toolchain.check([COMPILER])
            place = folder / _FOLDER / f"{number}.image"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_image(toolchain.folder / COMPILER, program.name, program.bmv2))


@lru_cache(maxsize=32)
def _image(compiler: Path, name: str, bmv2: str) -> bytes:
    """The image of a program. A process compiles a program once for all its cells."""
    try:
        done = subprocess.run([compiler], input=bmv2.encode(), capture_output=True, timeout=_COMPILE_S, check=False)
    except OSError as error:
        raise CellError(f"program {name}: {compiler} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise CellError(f"program {name}: not compiled within {_COMPILE_S:g} s") from error
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip()[:_MAX_ERROR_CHARS]
        raise CellError(f"program {name}: {reason or f'{COMPILER} ended with status {done.returncode}'}")
    return done.stdout
