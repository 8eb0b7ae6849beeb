# SPDX-License-Identifier: Apache-2.0
"""Run cells as Slurm array jobs (`qbed run --slurm`): a task is one `qbed cell KEY` on a node with the user's cache.

Slurm's variables configure the jobs: `SBATCH_PARTITION`, `SBATCH_ACCOUNT`, `SBATCH_TIMELIMIT`. A task that ends without
a result, because its node failed or it was killed, is submitted up to `MAX_TRIES` times.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qbed.runs.executor import RunAbortedError
from qbed.runs.executor.command import CommandError, Returned, command_of
from qbed.storage.queue import Queue
from qbed.substrates import Limits

MAX_TRIES = 4
DEFAULT_ARRAY_SIZE = 1001
LOG_CHARACTERS = 2_000
_TASKS = re.compile(r"\d+_(?:(\d+)|\[([\d,-]+).*)")
"""A task of an array, or pending tasks in the format of squeue: `7_[3-9,12%4]`."""


@dataclass
class _Array:
    """An array job: its id, and the keys of its tasks that have not ended."""

    job: str
    tasks: dict[int, str]
    begun: float


@dataclass
class SlurmEngine:
    """An `Engine` that uses the commands of Slurm."""

    _arrays: list[_Array] = field(default_factory=list)
    _new: list[str] = field(default_factory=list)
    _tries: dict[str, int] = field(default_factory=dict)
    _array_size: int = DEFAULT_ARRAY_SIZE

    def begin(self, queue: Queue, limits: Limits) -> None:
        self._queue, self._limits = queue, limits
        self._folder = queue.folder / f"slurm-{uuid.uuid4().hex[:12]}"
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)", self._command("scontrol", "show", "config"), re.MULTILINE)
        self._array_size = int(found[1]) - 1 if found else DEFAULT_ARRAY_SIZE
        self._folder.mkdir(parents=True)

    def _command(self, *command: str) -> str:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        except FileNotFoundError:
            raise CommandError(f"--slurm needs Slurm's commands, and `{command[0]}` is not on this machine") from None
        except subprocess.TimeoutExpired:
            raise RunAbortedError(f"Slurm's `{command[0]}` does not answer; finished cells are kept") from None
        if done.returncode != 0:
            text = " ".join(done.stderr.split())[:LOG_CHARACTERS]
            raise RunAbortedError(f"Slurm's `{command[0]}` fails: {text}; finished cells are kept")
        return done.stdout

    def room(self) -> int:
        return max(self._array_size, 1)

    def submit(self, key: str, plan: bytes) -> None:
        self._queue.add(key, plan)
        self._new.append(key)

    def ended(self, wait_s: float) -> Iterator[Returned]:
        if self._new:
            self._start(self._new)
            self._new = []
        time.sleep(wait_s)
        again: list[str] = []
        for array in self._arrays:
            alive, has = self._alive(array.job), self._queue.store.has
            for task in [task for task, key in array.tasks.items() if task not in alive or has(key)]:
                key = array.tasks.pop(task)
                known = self._queue.store.has(key) or self._queue.ended(key) is not None
                self._tries[key] = self._tries.get(key, 0) + 1
                if not known and self._tries[key] < MAX_TRIES:
                    again.append(key)
                else:
                    error = (
                        None
                        if known
                        else f"its task in Slurm left no result {MAX_TRIES} times: {self._end_of_log(array, task)}"
                    )
                    yield Returned(key, time.monotonic() - array.begun, error)
        self._arrays = [array for array in self._arrays if array.tasks]
        self._new = again

    def _start(self, keys: list[str]) -> None:
        """Submit an array job for these cells; its tasks read their keys from a file."""
        file = self._folder / f"{uuid.uuid4().hex[:8]}.keys"
        file.write_text("".join(f"{key}\n" for key in keys))
        command = command_of("KEY", self._limits)
        quoted = shlex.join(command).replace(" KEY ", ' "$key" ')
        script = f'key=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {shlex.quote(str(file))})\nexec {quoted}\n'
        job = self._command(
            "sbatch", "--parsable", "--job-name=qbed", "--requeue", "--ntasks=1", "--cpus-per-task=1",
            f"--array=0-{len(keys) - 1}", f"--output={file.with_suffix('')}-%a.log", f"--chdir={self._folder}",
            f"--wrap={script}",
        )  # fmt: skip
        self._arrays.append(_Array(job.strip().partition(";")[0], dict(enumerate(keys)), time.monotonic()))

    def _alive(self, job: str) -> set[int]:
        """The pending and running tasks of a job; none if Slurm no longer has the job."""
        try:
            lines = self._command("squeue", "--noheader", "--jobs", job, "--format=%i %t").splitlines()
        except RunAbortedError as error:
            if "Invalid job id" in str(error):
                return set()
            raise
        alive: set[int] = set()
        for line in lines:
            found = _TASKS.match(line.strip())
            if found is not None:
                alive.update(_numbers(found[1] or found[2]))
        return alive

    def _end_of_log(self, array: _Array, task: int) -> str:
        logs = sorted(self._folder.glob(f"*-{task}.log"), key=lambda log: log.stat().st_mtime)
        return _tail(logs[-1]) if logs else "it left no log, either"

    def stop(self) -> None:
        for array in self._arrays:
            subprocess.run(["scancel", array.job], capture_output=True, check=False, timeout=120)
        self._arrays, self._new = [], []


def _numbers(text: str) -> Iterator[int]:
    """`3-5,9`: 3, 4, 5 and 9."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _tail(log: Path) -> str:
    return " ".join(log.read_text(errors="replace").split())[-LOG_CHARACTERS:] or "its log is empty"
