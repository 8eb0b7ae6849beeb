# SPDX-License-Identifier: Apache-2.0
"""Access to a job's run folder for clients: files by names from a list, cells, answers to SQL."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from qbed.base.errors import MissingError, QbedError
from qbed.service.child_lifetime import clean_environment, kill_group, start
from qbed.service.jobs import FullError
from qbed.service.query_worker import REFUSED
from qbed.service.settings import Settings
from qbed.storage.identity import IDENTITY
from qbed.storage.listing import Listing

PLAIN = (IDENTITY, "checksums.json", "claims.json", "parameters.json", "meta.json", "report.html")
FIGURES = {".png": "image/png", ".svg": "image/svg+xml", ".pdf": "application/pdf"}
_FIGURE = re.compile(r"figures/[A-Za-z0-9_][A-Za-z0-9._-]{0,199}\.(png|svg|pdf)")
TYPES = {".json": "application/json", ".html": "text/html; charset=utf-8", **FIGURES}
PARQUET = "application/vnd.apache.parquet"


class QueryError(QbedError):
    """A query that is invalid or exceeds a limit."""


def files(run: Path) -> Iterator[tuple[str, int]]:
    """The files of a run that clients may have, with their sizes."""
    drawn = sorted(path for path in (run / "figures").glob("*") if path.suffix in FIGURES)
    figures = (f"figures/{path.name}" for path in drawn if not path.name.startswith("."))
    tables = sorted(path.name for path in run.glob("*.parquet") if not path.name.startswith("."))
    for name in (*PLAIN, *tables, *figures):
        place = run / name
        if place.is_file() and not place.is_symlink():
            yield name, place.stat().st_size


def file(run: Path, name: str) -> Path:
    """The path of a file of the run; `MissingError`."""
    if name not in dict(files(run)) or (name.startswith("figures/") and not _FIGURE.fullmatch(name)):
        raise MissingError(f"the run has no file {name[:200]!r} (yet)")
    return run / name


def media_type(name: str) -> str:
    return TYPES.get(Path(name).suffix, PARQUET)


def cells(run: Path, offset: int, limit: int) -> dict[str, Any]:
    """A page of the cells that have ended, in order of their numbers, and the numbers of its cells by status."""
    if not (run / IDENTITY).exists():
        return {"axes": {}, "cells": [], "counted": {}}
    listing = Listing(run)
    rows = list(islice(listing.rows(offset), limit))
    return {"axes": listing.axes, "cells": rows, "counted": dict(listing.counted)}


class QueryRunner:
    """Runs SQL queries of clients, a limited number at once."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._folder, self._settings = folder / "answers", settings
        self._folder.mkdir(parents=True, exist_ok=True)
        for rest in self._folder.iterdir():
            rest.unlink()
        self._active = 0

    async def run(self, run: Path, sql: str, form: str) -> Path:
        """Run a query; returns a file with the result, which the caller removes. `QueryError`, `FullError`."""
        if self._active >= self._settings.queries:
            raise FullError("other queries are being answered: try again in a moment")
        self._active += 1
        descriptor, name = tempfile.mkstemp(f".{form}", dir=self._folder)
        os.close(descriptor)
        out = Path(name)
        try:
            await self._execute(run, sql, form, out)
        except BaseException:
            out.unlink(missing_ok=True)
            raise
        finally:
            self._active -= 1
        return out

    async def _execute(self, run: Path, sql: str, form: str, out: Path) -> None:
        max_bytes = str(self._settings.query_bytes)
        argv = [sys.executable, "-m", "qbed.service.query_worker", str(run), form, str(out), max_bytes]
        process = await start(argv, environment=clean_environment(), stdin=PIPE, out=DEVNULL, error=PIPE)
        try:
            _, error = await asyncio.wait_for(process.communicate(sql.encode()), self._settings.query_s)
        except TimeoutError:
            raise QueryError(f"it took longer than {self._settings.query_s:g} s") from None
        finally:
            kill_group(process)
            await process.wait()
        if process.returncode == REFUSED:
            raise QueryError(error.decode(errors="replace"))
        if process.returncode == -25:  # SIGXFSZ
            raise QueryError(f"its answer is longer than {self._settings.query_bytes >> 20} MiB")
        if process.returncode != 0:
            raise QueryError("it took too much memory, or its answer is too long")
