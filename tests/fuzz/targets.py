# SPDX-License-Identifier: Apache-2.0
"""Targets of the fuzzers: each runs a case and returns its outcome; an exception is a finding."""

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
from qbed.campaign.claim import Claim
from qbed.campaign.figure import Figure
from qbed.campaign.file import load_campaign
from qbed.campaign.matrix import Matrix, build_matrix
from qbed.claims import sql
from qbed.claims.samples import SampleError, answer
from qbed.claims.views import connect_empty
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
from qbed.service.events import EVENTS
from qbed.service.jobs import LAB, RUN
from qbed.service.settings import Settings
from qbed.service.work import EventScreen
from qbed.substrates import substrate

from fuzz.cases import ROOT

with warnings.catch_warnings():  # Starlette warns about the version of httpx
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient

Outcome = Literal["refused", "accepted"]
Target = Callable[[Path], Outcome]


def lab(folder: Path) -> Outcome:
    """Load and compile a lab, write its plan and read it."""
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


def topology(folder: Path) -> Outcome:
    """Import a topology file of Containerlab, and load the lab that is written."""
    written = folder / "imported.yml"
    written.unlink(missing_ok=True)
    outcome = command("import", str(folder / "lab.clab.yml"), "-o", str(written))(folder)
    if outcome == "accepted":
        with contextlib.suppress(LabError):  # some fields are for the user to fill in
            load_lab(written)
    return outcome


def campaign(folder: Path) -> Outcome:
    """Run the preflight of a campaign or of one of its profiles."""
    try:
        loaded, source = load_campaign(folder / "campaign.yml")
    except QbedError:
        return "refused"
    profiles = [None, *list(loaded.profiles)[:2]]
    profile = profiles[
        zlib.crc32(loaded.question.encode("utf-8", "replace") + str(len(loaded.axes)).encode()) % len(profiles)
    ]
    try:
        matrix = build_matrix(loaded, profile)
        json.dumps(matrix.describe(), default=str)
        preflight.run_preflight(folder / "lab.yml", matrix, loaded, source, profile, substrate("virtual"))
    except QbedError:
        return "refused"
    return "accepted"


def queries(folder: Path) -> Outcome:
    """Bind a view, a claim, a figure and a condition, and judge the claim on empty tables."""
    texts = json.loads((folder / "sql.json").read_text())
    sql.LIMIT_S = 2.0
    connection, matrix = _tables(texts["campaign"])
    claim = Claim(name="claim", sql=texts["claim"])
    figures = [Figure(kind="line", sql=texts["figure"]), Figure(kind="fct", where=texts["where"])]
    with contextlib.suppress(duckdb.Error):
        sql.define(connection, f"view_{time.monotonic_ns()}", texts["view"])
    outcome: Outcome = "accepted" if preflight._wrong_claim(connection, claim) is None else "refused"
    for figure in figures:
        for name, text in preflight._wrong_figure(connection, figure, matrix, []):
            Source("campaign.yml", folder).message(("figures", 0, name), text)
    with contextlib.suppress(SampleError):
        json.dumps(answer(connection, claim).measured)
    return outcome


@cache
def _tables(name: str) -> tuple[sql.Connection, Matrix]:
    """Create empty tables of a campaign of labs/, and its views."""
    campaign, _ = load_campaign(ROOT / "labs" / name)
    matrix = build_matrix(campaign)
    connection = connect_empty(matrix.columns)
    for view, text in campaign.views.items():
        sql.define(connection, view, text)
    return connection, matrix


def service(folder: Path) -> Outcome:
    """Upload and submit a case, and run the preflight as a job does. The job's events name no folder of the service."""
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        with TestClient(make_app(Settings(Path(home), jobs=0)), base_url="http://127.0.0.1") as api:
            kind = {"content-type": "application/zip"}
            sent = api.post("/api/uploads", content=packed(folder), headers=kind)
            assert sent.status_code == 201, sent.text
            answer = api.post("/api/jobs", json={"upload": sent.json()["upload"]})
            assert answer.status_code == 201, answer.text
        patch.setenv(FOREIGN, "1")
        job, outcome = Path(home, "jobs", "000001"), "refused"
        screen = EventScreen(job)
        try:
            prepare(job / LAB, RunOptions(None, job / RUN))
            outcome = "accepted"
        except LabError as error:
            screen.refuse(error.messages)
        except QbedError as error:
            screen.refuse([str(error)])
        events = (job / EVENTS).read_text()
        assert home not in events and ("refused" in events) == (outcome == "refused"), events
    return "refused" if outcome == "refused" else "accepted"


def command(*arguments: str) -> Target:
    """A target that runs a `qbed` command, which must exit with 0, 1 or 2 and without a traceback."""

    def run(folder: Path) -> Outcome:
        words = [argument.replace("FOLDER", str(folder)) for argument in arguments]
        output = io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            patch.setattr(sys, "argv", ["qbed", *words])
            try:
                cli.main()
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        assert status in (0, 1, 2), status
        assert "Traceback" not in output.getvalue()
        assert "internal error in qbed" not in output.getvalue(), output.getvalue()[-500:]
        return "accepted" if status == 0 else "refused"

    return run


@cache
def targets() -> dict[str, Target]:
    """The targets by name."""
    return {
        "labs": lab,
        "campaigns": campaign,
        "sql": queries,
        "inspect": command("inspect", "FOLDER"),
        "import": topology,
        "service": service,
    }
