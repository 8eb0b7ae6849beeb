# SPDX-License-Identifier: Apache-2.0
"""Runs jobs, a limited number at once, in the order of their submission.

A job is a child process in its own process group, started before the job so that its modules are loaded. A service that
ends by SIGTERM ends these processes and queues their jobs again. If the service is killed, the kernel ends them
(`qbed.service.child_lifetime`), and the next service queues the jobs that its table still calls running.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from qbed.base import crash_report
from qbed.base.errors import MissingError
from qbed.lab.library import find
from qbed.service.child_lifetime import clean_environment, end, kill_group, start
from qbed.service.events import append_events, latest
from qbed.service.job_spec import STOPPED, UNWRITTEN, JobSpec
from qbed.service.jobs import LAB, LOG, Jobs
from qbed.service.settings import Settings
from qbed.service.states import State, TransitionError

_log = logging.getLogger("qbed.service")
RESTS_S = 1.0


class JobRunner:
    """The processes of the jobs that run."""

    def __init__(self, jobs: Jobs, settings: Settings) -> None:
        self._jobs, self._settings = jobs, settings
        self._running: dict[int, Process] = {}
        self._spare: Process | None = None
        self._wake_up = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def wake(self) -> None:
        """Wake the runner: a job may be waiting."""
        self._wake_up.set()

    async def work(self) -> None:
        """Start waiting jobs, until `stop`."""
        left_over = set(self._jobs.left_over())
        while not self._stopping:
            try:
                self._requeue(left_over)
                await self._fill()
            except Exception:
                _log.exception("no job could be started")
                await asyncio.sleep(RESTS_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake_up.wait(), 60)
            self._wake_up.clear()

    def _requeue(self, left_over: set[int]) -> None:
        """Queue the jobs again that were running when the service ended."""
        for job in sorted(left_over):
            with suppress(TransitionError, MissingError):  # cancelled or removed, while this could not be written
                _log.info(
                    "job %d was running when the service ended: it is %s", job, self._jobs.apply(job, "interrupt")
                )
            left_over.discard(job)

    async def _fill(self) -> None:
        excluded: set[int] = set()
        while len(self._running) < self._settings.jobs and not self._stopping:
            if self._spare is None or self._spare.returncode is not None:
                self._spare = await self._start_spare()
            job = self._jobs.waiting(excluded)
            if job is None:
                return
            process, self._spare = self._spare, None
            try:
                self._jobs.apply(job, "start")
            except TransitionError:  # cancelled meanwhile
                self._spare = process
                continue
            except Exception as error:
                self._spare = process
                if crash_report.is_full(error):
                    raise
                _log.exception("job %d cannot be started now", job)
                excluded.add(job)  # other jobs may start
                continue
            self._running[job] = process
            task = asyncio.create_task(self._supervise(job, process))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _start_spare(self) -> Process:
        argv = [sys.executable, "-m", "qbed.service.child", str(os.getpid())]
        descriptor = os.open(self._jobs.folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            return await start(argv, environment=clean_environment(), stdin=PIPE, out=descriptor, error=descriptor)
        finally:
            os.close(descriptor)

    def _spec(self, job: int) -> JobSpec:
        row = self._jobs.get(job)
        place, request = self._jobs.place(job), row["request"]
        sent = request["lab"] is None
        lab = place / LAB / (request["campaign"] or "") if sent else find(Path(request["lab"]))
        foreign = sent and not self._settings.allow_programs
        trusted = sent and self._settings.allow_files
        return JobSpec(str(place), str(lab), request, self._settings.cores, foreign, trusted)

    async def _supervise(self, job: int, process: Process) -> None:
        """Send the job to a process, wait for its end, and record the result. An error fails this job only."""
        try:
            status = await self._execute(job, process)
            kill_group(process)
            _log.info("job %d: %s", job, await self._conclude(job, status))
        except Exception:
            _log.exception("job %d has ended, and its result is unknown", job)
            with suppress(Exception):
                self._jobs.apply(job, "fail", 1)
        finally:
            self._running.pop(job, None)
            self.wake()

    async def _execute(self, job: int, process: Process) -> int:
        """Run the job in the process; returns the exit status."""
        try:
            assert process.stdin is not None
            with suppress(ConnectionError):
                process.stdin.write(json.dumps(asdict(self._spec(job))).encode() + b"\n")
                await process.stdin.drain()
                process.stdin.close()
            return await process.wait()
        except Exception as error:
            _log.exception("job %d", job)
            await end(process, 1.0)
            self._refuse(job, f"it could not be started: {error}")
            return 1

    async def _conclude(self, job: int, status: int) -> State | None:
        """Record the result once the disk has room; None if the next service has to."""
        while True:
            try:
                return self._ended(job, status)
            except (OSError, sqlite3.OperationalError) as error:
                if isinstance(error, OSError) and not crash_report.is_full(error):
                    raise
                _log.warning("job %d has ended, and that cannot be written: %s", job, error)
            if self._stopping:
                return None
            await asyncio.sleep(RESTS_S)

    def _refuse(self, job: int, reason: str) -> None:
        """Write the reason why the job has no conclusion. A full disk is an error; other errors are logged."""
        try:
            append_events(self._jobs.place(job), {"event": "refused", "messages": [reason]})
        except OSError as error:
            if crash_report.is_full(error):
                raise
            _log.warning("job %d: %s; its viewers cannot be notified: %s", job, reason, error.strerror)

    def _ended(self, job: int, status: int) -> State:
        state: State = self._jobs.get(job)["state"]
        if state == "running" and self._stopping and (status < 0 or status in (STOPPED, 143)):
            return self._jobs.apply(job, "interrupt")
        if state == "cancelling" and (status < 0 or status in (STOPPED, 143)):
            return self._jobs.apply(job, "stop", STOPPED)
        if status in (0, 1) and self._concluded(job):
            return self._jobs.apply(job, "finish", status)
        if "refused" not in latest(self._jobs.place(job)):
            how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            how = "could not write its result: the service's disk was full" if status == UNWRITTEN else how
            text = f"its process {how}; `retry` runs the unfinished cells"
            self._refuse(job, text)
        return self._jobs.apply(job, "fail", status if status >= 0 else 1)

    def _concluded(self, job: int) -> bool:
        return "concluded" in latest(self._jobs.place(job))

    async def cancel(self, job: int) -> State:
        """Cancel a waiting job, or end a running one."""
        state = self._jobs.apply(job, "cancel")
        process = self._running.get(job)
        if state == "cancelling" and process is not None:
            task = asyncio.create_task(end(process))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif state == "cancelling":  # the result of its process could not be written
            state = self._jobs.apply(job, "stop", STOPPED)
        self.wake()
        return state

    async def stop(self) -> None:
        """End all processes; running jobs are queued again."""
        self._stopping = True
        self._wake_up.set()
        spare = [self._spare] if self._spare is not None else []
        await asyncio.gather(*(end(process) for process in (*self._running.values(), *spare)))
        if self._tasks:
            await asyncio.wait(self._tasks)
