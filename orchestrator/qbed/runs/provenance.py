# SPDX-License-Identifier: Apache-2.0
"""The content of meta.json: command, versions, machine and wall-clock times, which may differ between equal runs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from qbed import __version__
from qbed.base.json_files import Row
from qbed.base.machine import processor_model
from qbed.runs.executor import WALL_TIMES
from qbed.runs.worker import Task


def meta(task: Task, commit: str | None, wall_s: float) -> Row:
    """The content of meta.json for a run that began at `commit` and took `wall_s` seconds."""
    return {
        "provenance": {
            "command": " ".join(["qbed", *sys.argv[1:]]),
            "run_at": time.strftime("%Y-%m-%d %H:%M:%S %z"),
            "wall_clock_s": round(wall_s, 2),
            "qbed": __version__,
            "commit": commit,
            "substrate": task.on,
            "dilation": task.dilation,
            "python": platform.python_version(),
            "host": f"{platform.system()} {platform.release()}, {platform.machine()}",
            "processor": processor_model(),
            "cores": len(os.sched_getaffinity(0)),
            **({"parts": parts} if (parts := part_times(task.out)) else {}),
        },
        "cell_wall_s": {str(cell): seconds for cell, seconds in wall_times(task.out).items()},
    }


def commit_of(folder: Path) -> str | None:
    """The commit that is checked out in the Git repository that has the folder; None without a repository or Git.

    Whether files differ from it is not asked: Git then runs programs that the repository's own configuration names
    (`core.fsmonitor`, filters), and a lab's folder is not trusted. campaign.json has the lab's checksum.
    """
    command = ["git", "-C", str(folder), "rev-parse", "--verify", "--quiet", "--short=12", "HEAD"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip() or None
    return None


def wall_times(run: Path) -> dict[int, float]:
    """The wall-clock time of each ended cell of a run in seconds, by number."""
    times: dict[int, float] = {}
    for entry in _times(run):
        with suppress(ValueError, KeyError, TypeError):
            times[int(entry["cell"])] = float(entry["wall_s"])
    return times


def part_times(run: Path) -> str:
    """CPU seconds of each part of the divided cells, and seconds for which it waited; empty if there are none."""
    busy, waited = defaultdict[int, float](float), defaultdict[int, float](float)
    for entry in _times(run):
        with suppress(ValueError, TypeError):
            for part, (busy_s, waited_s) in enumerate(entry.get("parts", ())):
                busy[part] += busy_s
                waited[part] += waited_s
    return "; ".join(
        f"part {part} computed {busy[part]:.1f} s and waited {waited[part]:.1f} s" for part in sorted(busy)
    )


def _times(run: Path) -> Iterator[Row]:
    with suppress(FileNotFoundError), (run / "cells" / WALL_TIMES).open() as lines:
        for line in lines:
            with suppress(ValueError):  # the last line of a runner that was killed
                entry = json.loads(line)
                if isinstance(entry, dict):
                    yield entry
