# SPDX-License-Identifier: Apache-2.0
"""Programs that run in the background of a lab in containers: a file beside the nodes says what each is, and one in its
node's folder is there as long as it runs, with its process number there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

from qbed.base.json_files import read_json
from qbed.substrates import Job, SessionError
from qbed.substrates.containers.folder import NODES

JOBS = "jobs"
# The shell leads a process group of its own, which the agent signals. If the shell dies with its agent, the program is
# killed too.
_RUN = """file=$1 output=$2; shift 2
trap : INT TERM
echo $$ >"$file"
setpriv --pdeathsig KILL "$@" >"$output" 2>&1
rm -f "$file"
"""
# 100 ms of the lab's time apart.
_END = """file=$1
for signal in INT TERM KILL; do
    kill -s $signal -- "-$(cat "$file")" 2>/dev/null || break
    for _ in 0 1 2 3 4 5 6 7 8 9; do [ -e "$file" ] || exit 0; sleep 0.01; done
done
rm -f "$file"
"""


@dataclass(frozen=True)
class Begun:
    """A job that begins: its number, and the file for its output."""

    number: int
    output: Path


def begin(folder: Path, mount: str, what: Job, argv: list[str]) -> tuple[Begun, list[str]]:
    """Create a job; return it with the command to run. `folder` is the lab's, `mount` the node's inside the node."""
    (folder / JOBS).mkdir(exist_ok=True)
    for number in count(1):
        try:
            with (folder / JOBS / str(number)).open("x") as file:
                json.dump(asdict(replace(what, number=number)), file)
        except FileExistsError:
            continue
        place, output = folder / NODES / what.node, f"background-{number}.log"
        (place / _mark(number)).touch()
        files = [f"{mount}/{_mark(number)}", f"{mount}/{output}"]
        return Begun(number, place / output), ["/bin/sh", "-c", _RUN, "sh", *files, *argv]
    raise AssertionError


def running(folder: Path) -> list[Job]:
    """Those that have not ended."""
    files = sorted((folder / JOBS).glob("[0-9]*"), key=lambda path: int(path.name))
    jobs = [Job(**read_json(file)) for file in files if file.stat().st_size]
    return [job for job in jobs if (folder / NODES / job.node / _mark(job.number)).exists()]


def find(folder: Path, lab: str, number: int) -> Job:
    """`SessionError` if no job of that number runs."""
    for job in running(folder):
        if job.number == number:
            return job
    raise SessionError(f"no job {number} runs in the background of {lab}; `qbed ps {lab}` lists them")


def ending(mount: str, number: int) -> list[str]:
    """The command that ends a job, run on its node."""
    return ["/bin/sh", "-c", _END, "sh", f"{mount}/{_mark(number)}"]


def _mark(number: int) -> str:
    return f"job-{number}"
