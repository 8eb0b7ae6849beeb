# SPDX-License-Identifier: Apache-2.0
"""From a command to its end: `qbed run` of one small cell with its report, and `qbed --help`.

The limit is a Python that imports the same libraries, and the cell alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.harness import Cell, Figure, side_by_side

LAB = """\
name: small
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 50 us}}
switches: {default: {scheme: ecn, buffer: 50 packets, threshold: 20 packets}}
workload: [{flows: {pairs: [[h1, h3], [h2, h3]], size: 2 MB}}]
duration: 10 ms
"""
LIBRARIES = "import duckdb, jinja2, numpy, plotly.graph_objects, pyarrow.compute, pydantic, rich.progress, typer, yaml"


def measure(rounds: int) -> list[Figure]:
    cell, work = Cell(LAB), Path(tempfile.mkdtemp(prefix="qbed-bench-"))
    environment = os.environ | {"QBED_STORE": "off"}

    def python(*arguments: str) -> None:
        command = [sys.executable, *arguments]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    def run() -> None:
        shutil.rmtree(work / "run", ignore_errors=True)
        python("-m", "qbed", "run", str(cell.folder / "lab.yml"), "--out", str(work / "run"), "--no-images")

    try:
        whole, listed, libraries, alone = side_by_side(
            rounds, run, lambda: python("-m", "qbed", "--help"), lambda: python("-c", LIBRARIES), cell.run
        )
    finally:
        cell.close()
        shutil.rmtree(work)
    limit = libraries.cpu_s + alone.cpu_s
    return [
        Figure("qbed run, one small cell with its report", whole.wall_s, "s"),
        Figure("qbed run, one small cell with its report, CPU", whole.cpu_s, "s"),
        Figure("the same over its libraries' imports and the cell alone, CPU", whole.cpu_s / limit, "x"),
        Figure("the libraries' imports, CPU", libraries.cpu_s, "s"),
        Figure("the cell alone, CPU", alone.cpu_s, "s"),
        Figure("qbed --help", listed.wall_s, "s"),
    ]
