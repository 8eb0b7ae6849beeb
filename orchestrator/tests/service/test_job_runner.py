# SPDX-License-Identifier: Apache-2.0
"""A failure of one job does not stop the others."""

from __future__ import annotations

import asyncio
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.service.job_runner import JobRunner
from qbed.service.job_spec import JobSpec
from qbed.service.jobs import FullError, Jobs
from qbed.service.settings import Settings
from qbed.service.states import ENDED

REQUEST = {"lab": "dumbbell", "campaign": None}
CHILD_PROGRAM = """\
import json, pathlib, sys
place = pathlib.Path(json.loads(sys.stdin.readline())["place"])
with (place / "events.ndjson").open("a") as events:
    events.write('{"event": "concluded"}\\n')
"""


class Fake(JobRunner):
    """A runner with processes that end at once."""

    async def _start_spare(self) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD_PROGRAM, stdin=PIPE, stdout=DEVNULL, start_new_session=True
        )


def states(folder: Path, spoil: Callable[[Jobs, JobRunner], None], jobs_kept: int = 3) -> list[str]:
    """The states of jobs that are submitted to a runner of one, after all have ended."""

    async def run() -> list[str]:
        jobs = Jobs(folder)
        runner = Fake(jobs, Settings(folder, jobs=1))
        numbers = [jobs.add("x", REQUEST, None, queue=9, retention=9) for _ in range(jobs_kept)]
        spoil(jobs, runner)
        working = asyncio.create_task(runner.work())
        async with asyncio.timeout(60):
            while jobs.get(numbers[-1])["state"] not in ENDED:
                await asyncio.sleep(0.01)
            await runner.stop()
            await working
        found = [str(jobs.get(job)["state"]) for job in numbers]
        jobs.close()
        return found

    return asyncio.run(run())


def test_a_job_whose_folder_is_gone_does_not_stop_the_others(tmp_path: Path) -> None:
    found = states(tmp_path, lambda jobs, _: shutil.rmtree(jobs.place(1)))
    assert found == ["queued", "finished", "finished"]


def test_a_job_of_which_no_spec_can_be_made_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = JobRunner._spec

    def spec(self: JobRunner, job: int) -> JobSpec:
        if job == 1:
            raise KeyError("lab")
        return usual(self, job)

    monkeypatch.setattr(JobRunner, "_spec", spec)
    assert states(tmp_path, lambda *_: None) == ["failed", "finished", "finished"]


def test_a_job_whose_end_cannot_be_reported_frees_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(jobs: Jobs, runner: JobRunner) -> None:
        usual = runner._ended

        def ended(job: int, status: int) -> Any:
            if job == 1:
                raise PermissionError(13, "Permission denied")
            return usual(job, status)

        monkeypatch.setattr(runner, "_ended", ended)

    assert states(tmp_path, spoil) == ["failed", "finished", "finished"]


def test_what_a_service_before_was_running_waits_again(tmp_path: Path) -> None:
    assert states(tmp_path, lambda jobs, _: jobs.apply(1, "start") and None) == ["finished"] * 3


def test_a_job_that_was_left_and_is_cancelled_stops_no_other(tmp_path: Path) -> None:
    def spoil(jobs: Jobs, runner: JobRunner) -> None:
        jobs.apply(1, "start")
        apply, tries = jobs.apply, [0]

        def full(job: int, event: Any, status: int | None = None) -> Any:
            if event == "interrupt" and not tries[0]:  # cancelled, while it could not be written
                tries[0] += 1
                apply(job, "cancel")
                apply(job, "stop", 1)
            return apply(job, event, status)

        jobs.apply = full  # type: ignore[method-assign]

    assert states(tmp_path, spoil) == ["cancelled", "finished", "finished"]


def test_numbers_of_jobs_start_at_1_and_a_refused_job_uses_none(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path)
    numbers = [jobs.add("x", REQUEST, None, queue=1, retention=9)]
    with pytest.raises(FullError):
        jobs.add("x", REQUEST, None, queue=1, retention=9)
    numbers += [jobs.add("x", REQUEST, None, queue=9, retention=9)]
    jobs.close()
    assert numbers == [1, 2]
