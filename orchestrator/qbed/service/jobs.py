# SPDX-License-Identifier: Apache-2.0
"""The jobs: a row each in SQLite, and a folder each. A change is on the disk before its request is answered.

Write-ahead log, so that readers and the one writer do not wait for each other; a state changes only by a rule
(`qbed.service.states`), in one statement that names the previous state, so that of concurrent requests one succeeds.
"""

from __future__ import annotations

import json
import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from qbed.base.errors import MissingError, QbedError
from qbed.base.files import sync_tree
from qbed.base.json_files import Row
from qbed.service.events import ATTEMPT, append_events
from qbed.service.job_table import describe_job, job_folder, open_table
from qbed.service.states import ENDED, RULES, Event, State, TransitionError

_log = logging.getLogger("qbed.service")
LAB, RUN, LOG = "lab", "run", "log.txt"
_TIMES: dict[Event, str] = {
    "start": ", started = :now, ended = NULL, exit_status = NULL, attempts = attempts + 1",
    "retry": ", ended = NULL, exit_status = NULL",
}
_ENDING = ", ended = :now, exit_status = :status"


class FullError(QbedError):
    """A limit of the service is reached; a later request may succeed."""


class Jobs:
    """All jobs of a service's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "jobs"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._db = open_table(folder)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def place(self, job: int) -> Path:
        """A job's folder: its events, its uploaded lab if any, its run folder, and the output of its process."""
        return job_folder(self.folder, job)

    def add(self, name: str, request: Row, lab: Path | None, *, queue: int, retention: int) -> int:
        """Add a job, with a copy of the uploaded lab folder; returns its number. `FullError`."""
        with self._lock:
            waiting, total = self._fetch("SELECT sum(state = 'queued'), count(*) FROM jobs")
            if (waiting or 0) >= queue:
                raise FullError(f"{waiting} jobs wait already: try again later")
            if total >= retention:
                raise FullError(f"{total} jobs are kept already: remove some that have ended")
            with self._transaction():
                created = time.time()
                job = self._db.execute(
                    "INSERT INTO jobs (state, name, request, created) VALUES ('queued', ?, ?, ?)",
                    (name, json.dumps(request), created),
                ).lastrowid
                assert job is not None
                place = self.place(job)
                shutil.rmtree(place, ignore_errors=True)  # of a job without a row
                place.mkdir()
                describe_job(place, name, request, created)
                if lab is not None:
                    shutil.copytree(lab, place / LAB)
                # No client reads the folder before the row exists.
                append_events(place, {"event": "state", "state": "queued"})
                sync_tree(place)
        return job

    def get(self, job: int) -> Row:
        """A job's row; `MissingError`."""
        with self._lock, closing(self._db.execute("SELECT * FROM jobs WHERE id = ?", (job,))) as found:
            row = found.fetchone()
        if row is None:
            raise MissingError(f"there is no job {job}")
        return _row(row)

    def newest(self, limit: int, before: int | None = None, state: State | None = None) -> list[Row]:
        """Jobs, the newest first."""
        where = "id < ?" + (" AND state = ?" if state else "")
        values = (before if before is not None else 1 << 62, *([state] if state else []), limit)
        with self._lock:
            return [_row(row) for row in self._db.execute(
                f"SELECT * FROM jobs WHERE {where} ORDER BY id DESC LIMIT ?", values)]  # fmt: skip

    def waiting(self, excluded: Collection[int] = ()) -> int | None:
        """The job that has waited longest, without those in `excluded`."""
        with self._lock:
            found = [int(row[0]) for row in self._db.execute("SELECT id FROM jobs WHERE state = 'queued' ORDER BY id")]
        return next((job for job in found if job not in excluded), None)

    def left_over(self) -> list[int]:
        """Running jobs of a service that has ended."""
        with self._lock:
            found = self._db.execute("SELECT id FROM jobs WHERE state IN ('running', 'cancelling') ORDER BY id")
            return [int(row[0]) for row in found]

    def apply(self, job: int, event: Event, status: int | None = None) -> State:
        """Apply an event to the job; returns the new state. `TransitionError` if the event is not allowed now.

        Viewers get the state once the row is on the disk; the row is authoritative if that fails. Only the start of a
        new attempt is written first, so that its events cannot follow the conclusion of an earlier attempt.
        """
        with self._lock:
            found = self._db.execute("SELECT state FROM jobs WHERE id = ?", (job,)).fetchone()
            if found is None:
                raise MissingError(f"there is no job {job}")
            before: State = found[0]
            state = RULES[event].get(before)
            if state is None:
                raise TransitionError(job, event, before)
            times = _TIMES.get(event, "") + (_ENDING if state in ENDED else "")
            with self._transaction():
                self._db.execute(
                    f"UPDATE jobs SET state = :state{times} WHERE id = :job AND state = :before",
                    {"state": state, "job": job, "before": before, "now": time.time(), "status": status},
                )
                if event == "start":
                    append_events(self.place(job), {"event": ATTEMPT})
            try:
                append_events(self.place(job), {"event": "state", "state": state, "exit_status": status})
            except OSError as error:
                _log.warning("job %d is %s, which could not be reported to its viewers: %s", job, state, error.strerror)
        return state

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction: all statements or none."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def remove(self, job: int) -> None:
        """Remove a job that has ended, with its results."""
        with self._lock:
            found = self._db.execute("SELECT state FROM jobs WHERE id = ?", (job,)).fetchone()
            if found is None:
                raise MissingError(f"there is no job {job}")
            if found[0] not in ENDED:
                raise TransitionError(job, "be removed", found[0])
            self._db.execute("DELETE FROM jobs WHERE id = ?", (job,))
        shutil.rmtree(self.place(job), ignore_errors=True)

    def _fetch(self, sql: str) -> Any:
        return self._db.execute(sql).fetchone()


def _row(row: sqlite3.Row) -> Row:
    return {**dict(row), "request": json.loads(row["request"])}
