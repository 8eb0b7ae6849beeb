# SPDX-License-Identifier: Apache-2.0
"""The table of jobs in SQLite: opened with a check of every page and row, and rebuilt from the jobs' folders."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from qbed.base.errors import QbedError
from qbed.base.json_files import read_json, write_json
from qbed.service.events import EVENTS, latest
from qbed.service.states import ENDED, State

TABLE = "jobs.sqlite"
JOB = "job.json"
"""File in a job's folder: the name, the request and the time of its creation, as in its row."""
_SIDE_FILES = ("", "-wal", "-shm")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    state TEXT NOT NULL,
    name TEXT NOT NULL,
    request TEXT NOT NULL,
    created REAL NOT NULL,
    started REAL,
    ended REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    exit_status INTEGER
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, id);
"""
_COLUMNS = "id, state, name, request, created, started, ended, attempts, exit_status"
_UNUSABLE = (
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM,
)  # fmt: skip
"""Primary error codes of a table that may be sound."""
_STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True)
class Recovery:
    """The result of `recover`: the recovered jobs, and folders without a readable `job.json`."""

    jobs: list[int]
    unreadable: list[str]
    aside: Path | None
    """The new place of the earlier table."""


def open_table(folder: Path) -> sqlite3.Connection:
    """Open the table of a service's folder; it is created if it is missing. QbedError if it is damaged."""
    path = folder / TABLE
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
        problem = next(_problems(connection, folder / "jobs"), None)
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _UNUSABLE:
            connection.close()
            raise QbedError(f"{path} cannot be used: {error}") from error
        problem = str(error)
    except (UnicodeDecodeError, OverflowError) as error:
        problem = str(error)
    if problem is not None:
        connection.close()
        raise QbedError(
            f"{path} is damaged ({' '.join(problem.split())[:120]}): `qbed serve --recover` rebuilds the list of jobs"
            " from their folders"
        )
    return connection


def _problems(connection: sqlite3.Connection, jobs: Path) -> Iterator[str]:
    """Damage of pages, and rows that no service has written or that differ from their job's folder."""
    yield from (str(row[0]) for row in connection.execute("PRAGMA quick_check(1)") if row[0] != "ok")
    for row in connection.execute(f"SELECT {_COLUMNS} FROM jobs"):
        values = dict(row)
        if values["state"] not in _STATES or not _has_types(values) or not _agrees(values, jobs):
            yield f"the row of job {values['id']}"


def _has_types(values: dict[str, Any]) -> bool:
    numbers = ("created", "started", "ended", "attempts", "exit_status")
    return isinstance(values["name"], str) and all(isinstance(values[name], int | float | None) for name in numbers)


def _agrees(values: dict[str, Any], jobs: Path) -> bool:
    """Whether a row has a request, and that of its job's folder if there is one (a service of old wrote none)."""
    try:
        request = json.loads(values["request"])
        described = read_json(job_folder(jobs, values["id"]) / JOB)
    except FileNotFoundError:
        return isinstance(request, dict)
    except (QbedError, OSError, ValueError, TypeError):
        return False
    return bool(described == {"name": values["name"], "request": request, "created": values["created"]})


def job_folder(jobs: Path, job: int) -> Path:
    """A job's folder below the folder of all jobs."""
    return jobs / f"{job:06d}"


def describe_job(place: Path, name: str, request: dict[str, Any], created: float) -> None:
    """Write what `recover` needs into a job's folder."""
    write_json(place / JOB, {"name": name, "request": request, "created": created})


def recover(folder: Path) -> Recovery:
    """Rebuild the table of a service's folder from the folders of its jobs. The earlier table is kept beside it.

    The state is the last that was reported to viewers. The end of a job is the time of its last event; its start and
    the number of its attempts are not known.
    """
    jobs, unreadable = folder / "jobs", list[str]()
    rows: list[tuple[object, ...]] = []
    for place in sorted(jobs.glob("[0-9]*")):
        try:
            described = read_json(place / JOB)
            rows.append((int(place.name), *_row(place, described)))
        except (QbedError, OSError, ValueError, KeyError, TypeError):
            unreadable.append(place.name)
    aside = _set_aside(folder)
    rebuilt = folder / f"{TABLE}.part"
    rebuilt.unlink(missing_ok=True)
    with closing(sqlite3.connect(rebuilt)) as connection:
        connection.executescript(_SCHEMA)
        marks = ", ".join("?" * 9)
        connection.executemany(f"INSERT INTO jobs ({_COLUMNS}) VALUES ({marks})", rows)
        connection.commit()
    rebuilt.rename(folder / TABLE)
    return Recovery([int(str(row[0])) for row in rows], unreadable, aside)


def _row(place: Path, described: dict[str, Any]) -> tuple[object, ...]:
    last = latest(place)
    state = last.get("state", {}).get("state", "queued")
    if state not in _STATES:
        raise ValueError(state)
    name, request, created = described["name"], described["request"], float(described["created"])
    if not isinstance(name, str) or not isinstance(request, dict):
        raise TypeError(name)
    has_ended = state in ENDED
    ended = (place / EVENTS).stat().st_mtime if has_ended else None
    status = last["state"].get("exit_status") if has_ended else None
    return (state, name, json.dumps(request), created, None, ended, int(has_ended), status)


def _set_aside(folder: Path) -> Path | None:
    """Rename a table, with its write-ahead log, and return its new name."""
    present = [folder / (TABLE + suffix) for suffix in _SIDE_FILES if (folder / (TABLE + suffix)).exists()]
    if not present:
        return None
    mark = f".damaged-{time.time_ns()}"
    for file in present:
        file.rename(file.with_name(TABLE + mark + file.name.removeprefix(TABLE)))
    return folder / (TABLE + mark)
