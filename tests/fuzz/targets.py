# SPDX-License-Identifier: Apache-2.0
"""What the fuzzers try their cases on. A target says how it went; whatever it raises is a finding."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

import duckdb
import pytest

from qbed import cli
from qbed.base.errors import LabError, QbedError
from qbed.campaign.file import Claim, Figure, load_campaign
from qbed.campaign.matrix import Matrix, build_matrix
from qbed.claims import sql
from qbed.claims.judge import _ask, connect_empty, define
from qbed.config.reach import FOREIGN
from qbed.config.source import Source
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.plan.model import Plan
from qbed.report.show_plan import summary
from qbed.runs import preflight
from qbed.runs.experiment import RunOptions, prepare
from qbed.service.app import make_app
from qbed.service.client import packed
from qbed.service.jobs import EVENTS, LAB, RUN
from qbed.service.settings import Settings
from qbed.service.work import EventScreen
from qbed.substrates import substrate

from cases import ROOT

with warnings.catch_warnings():  # of Starlette, which would rather have another version of httpx
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

Outcome = Literal["refused", "accepted"]
Target = Callable[[Path], Outcome]


def lab(folder: Path) -> Outcome:
    """Load, compile, write, read."""
    try:
        resolved = load_lab(folder)
        plan = compile_lab(resolved)
    except QbedError as error:
        assert str(error)
        return "refused"
    text = plan.dumps()
    text.encode()
    assert Plan.loads(text).dumps() == text
    json.dumps(summary(plan), allow_nan=False)
    return "accepted"


def campaign(folder: Path) -> Outcome:
    """All that is checked before the first cell runs, for the campaign or one of its profiles."""
    try:
        loaded, source = load_campaign(folder / "campaign.yml")
    except QbedError:
        return "refused"
    some = [None, *list(loaded.profiles)[:2]]
    profile = some[zlib.crc32(loaded.question.encode("utf-8", "replace") + str(len(loaded.axes)).encode()) % len(some)]
    try:
        matrix = build_matrix(loaded, profile)
        json.dumps(matrix.describe(), default=str)
        preflight.run_preflight(folder / "lab.yml", matrix, loaded, source, profile, substrate("virtual"))
    except QbedError:
        return "refused"
    return "accepted"


def queries(folder: Path) -> Outcome:
    """Bind a view, a claim, a figure and a condition, and ask the claim of empty tables."""
    texts = json.loads((folder / "sql.json").read_text())
    sql.LIMIT_S = 2.0
    connection, matrix = _tables(texts["campaign"])
    claim = Claim.model_construct(name="claim", sql=texts["claim"])
    figures = [Figure(kind="line", sql=texts["figure"]), Figure(kind="fct", where=texts["where"])]
    with contextlib.suppress(duckdb.Error):
        define(connection, f"view_{time.monotonic_ns()}", texts["view"])
    outcome: Outcome = "accepted" if preflight._wrong_claim(connection, claim) is None else "refused"
    for figure in figures:
        for name, text in preflight._wrong_figure(connection, figure, matrix, []):
            Source("campaign.yml", folder).message(("figures", 0, name), text)
    json.dumps(_ask(connection, claim))
    return outcome


@cache
def _tables(name: str) -> tuple[sql.Connection, Matrix]:
    """Empty tables of a campaign of labs/, and its views."""
    asked, _ = load_campaign(ROOT / "labs" / name)
    matrix = build_matrix(asked)
    connection = connect_empty(matrix.columns)
    for view, text in asked.views.items():
        define(connection, view, text)
    return connection, matrix


def service(folder: Path) -> Outcome:
    """Send it, submit it, and do what the job's process does before the first cell runs. What it says names no folder
    of the service's.
    """
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        with TestClient(make_app(Settings(Path(place), jobs=0)), base_url="http://127.0.0.1") as api:
            kind = {"content-type": "application/zip"}
            sent = api.post("/api/uploads", content=packed(folder), headers=kind)
            assert sent.status_code == 201, sent.text
            answer = api.post("/api/jobs", json={"upload": sent.json()["upload"]})
            assert answer.status_code == 201, answer.text
        patch.setenv(FOREIGN, "1")
        job, outcome = Path(place, "jobs", "000001"), "refused"
        screen = EventScreen(job)
        try:
            prepare(job / LAB, RunOptions(None, job / RUN))
            outcome = "accepted"
        except LabError as error:
            screen.refuse(error.messages)
        except QbedError as error:
            screen.refuse([str(error)])
        said = (job / EVENTS).read_text()
        assert place not in said and ("refused" in said) == (outcome == "refused"), said
    return "refused" if outcome == "refused" else "accepted"


def command(*arguments: str) -> Target:
    """A command, as it is called: it ends with a status, and says what is wrong without a traceback."""

    def run(folder: Path) -> Outcome:
        given = [argument.replace("FOLDER", str(folder)) for argument in arguments]
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            patch.setattr(sys, "argv", ["qbed", *given])
            try:
                cli.main()
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        assert status in (0, 1, 2), status
        assert "Traceback" not in said.getvalue()
        return "accepted" if status == 0 else "refused"

    return run


@cache
def targets() -> dict[str, Target]:
    """By name. The commands take a sample of the cases of lab files."""
    return {
        "labs": lab,
        "campaigns": campaign,
        "sql": queries,
        "inspect": command("inspect", "FOLDER"),
        "service": service,
    }
