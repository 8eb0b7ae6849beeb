# SPDX-License-Identifier: Apache-2.0
"""A damaged table of jobs is refused or has every job as it was, and is rebuilt from the jobs' folders."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from qbed.base.errors import QbedError
from qbed.base.json_files import Row
from qbed.service.events import EVENTS
from qbed.service.job_table import JOB, TABLE, open_table, recover
from qbed.service.jobs import Jobs
from qbed.service.states import State

KEPT = ("id", "state", "name", "request", "created")
JOBS = 12
DAMAGES = 150


def rows(folder: Path) -> list[Row]:
    jobs = Jobs(folder)
    try:
        return [{name: row[name] for name in KEPT} for row in jobs.newest(100)]
    finally:
        jobs.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A service's folder with jobs in several states."""
    jobs = Jobs(tmp_path)
    for number in range(JOBS):
        job = jobs.add(f"lab-{number}", {"lab": "incast", "profile": "quick" * number}, None, queue=100, retention=100)
        if number % 3:
            jobs.apply(job, "start")
        if number % 3 == 2:
            jobs.apply(job, "finish", number % 2)
    jobs.close()
    return tmp_path


def test_no_damage_is_a_traceback_or_another_list(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    draw, before, refused = random.Random(34), rows(folder), 0
    size = (folder / TABLE).stat().st_size
    for number in range(DAMAGES):
        copy = tmp_path_factory.mktemp("damaged") / "service"
        shutil.copytree(folder, copy)
        data = bytearray((copy / TABLE).read_bytes())
        if number % 5 == 0:
            del data[draw.randrange(1, size) :]
        for _ in range(draw.choice([1, 1, 8, 64])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        (copy / TABLE).write_bytes(data)
        try:
            found = rows(copy)
        except QbedError as error:
            refused += 1
            assert f"{copy / TABLE} is damaged" in str(error) and "--recover" in str(error)
            recover(copy)
            found = rows(copy)
        unchanged = ("id", "name", "request", "created")
        assert [[row[name] for name in unchanged] for row in found] == [
            [row[name] for name in unchanged] for row in before
        ]
        shutil.rmtree(copy)
    assert refused > DAMAGES // 3


def test_the_list_is_rebuilt_from_the_folders(folder: Path) -> None:
    before = rows(folder)
    (folder / TABLE).write_bytes(b"no database")
    (folder / "jobs/000003" / JOB).unlink()
    (folder / "jobs/000007" / JOB).write_text("{")
    recovery = recover(folder)
    assert recovery.unreadable == ["000003", "000007"]
    assert recovery.aside is not None and recovery.aside.read_bytes() == b"no database"
    assert rows(folder) == [row for row in before if row["id"] not in (3, 7)]
    jobs = Jobs(folder)
    ended = jobs.get(6)
    assert (ended["state"], ended["exit_status"]) == ("finished", 1)
    assert ended["ended"] == (jobs.place(6) / EVENTS).stat().st_mtime
    assert set(jobs.left_over()) == {row["id"] for row in before if row["state"] == "running"}
    assert jobs.add("next", {}, None, queue=100, retention=100) == JOBS + 1
    jobs.close()


def test_a_lost_table_is_rebuilt(folder: Path) -> None:
    before = rows(folder)
    for file in folder.glob(f"{TABLE}*"):
        file.unlink()
    assert recover(folder).aside is None
    assert rows(folder) == before


def test_a_table_of_another_version_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / TABLE)) as connection:
        connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT)")
    with pytest.raises(QbedError, match="is damaged"):
        open_table(tmp_path)


def test_a_table_that_cannot_be_written_is_not_called_damaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(sqlite3.Connection):
        def executescript(self, script: str) -> sqlite3.Cursor:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **more: connect(path, factory=Full, **more))
    with pytest.raises(QbedError, match="cannot be used: database or disk is full"):
        open_table(folder)


def test_each_state_is_recovered(folder: Path) -> None:
    states: set[State] = {row["state"] for row in rows(folder)}
    assert states == {"queued", "running", "finished"}
    recover(folder)
    assert {row["state"] for row in rows(folder)} == states
