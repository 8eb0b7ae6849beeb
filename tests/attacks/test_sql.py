# SPDX-License-Identifier: Apache-2.0
"""Untrusted SQL in claims, views and figures reads the run's tables only, has limits, and leaves no files behind."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qbed.base.json_files import sealed, unsealed
from qbed.campaign.claim import Claim
from qbed.campaign.file import Campaign
from qbed.claims import sql
from qbed.claims.judge import judge_all
from qbed.claims.verdict import Verdict
from qbed.claims.views import connect, connect_empty

from qbed_testing.untrusted_lab import LAB, qbed

SECRET = "the-secret"
HONEST = """
claims:
  - {name: honest, paper: It ends., sql: "SELECT count(*) = 1 AS holds FROM flows"}
"""


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab, its run folder `run`, and a secret file beside them."""
    folder = tmp_path_factory.mktemp("attack")
    (folder / "lab").mkdir()
    (folder / "lab" / "lab.yml").write_text(LAB.replace("LABEL", "bulk"))
    (folder / "lab" / "campaign.yml").write_text("question: Who reads along?\naxes: {seed: [1]}" + HONEST)
    (folder / "secret").write_text(SECRET)
    done = qbed(folder, "run", "lab", "--out", "run", "--no-images")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(finished_run: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of the run; at the end no attack has written a file to it."""
    shutil.copytree(finished_run, tmp_path / "x")
    yield tmp_path / "x"
    assert not list(tmp_path.rglob("evil*"))


def judge(folder: Path, *queries: str) -> list[Verdict]:
    claims = [Claim(name=f"claim-{number}", paper="-", random=False, sql=query) for number, query in enumerate(queries)]
    return judge_all(folder / "run", Campaign(question="?", claims=claims), None)


LARGE = "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY hash(i)) AS r FROM range(4000000) t(i))"


def test_a_query_spills_to_the_run_folder_and_removes_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "MEMORY_BYTES", 64 << 20)
    first, second = (connect(folder / "run") for _ in range(2))
    assert sql.first_rows(first, LARGE, 2)[1] == sql.first_rows(second, LARGE, 2)[1] == [(4_000_000,)]
    settings = [one.execute("SELECT current_setting('temp_directory')").fetchone() for one in (first, second)]
    assert settings[0] != settings[1]
    assert not list((folder / "run").glob(".sql*"))


def test_a_query_that_spills_too_much_or_too_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "MEMORY_BYTES", 64 << 20)
    monkeypatch.setattr(sql, "DISK_BYTES", 8 << 20)
    with connect(folder / "run") as connection, pytest.raises(sql.LimitError, match=r"more than 0\.00781 GiB, or half"):
        sql.first_rows(connection, LARGE, 2)
    monkeypatch.setattr(sql, "DISK_BYTES", 1 << 30)
    monkeypatch.setattr(sql, "LIMIT_S", 1.5)
    with connect(folder / "run") as connection, pytest.raises(sql.LimitError, match=r"longer than 1\.5 s"):
        sql.first_rows(connection, LARGE.replace("4000000", "40000000"), 2)
    assert not list((folder / "run").glob(".sql*"))


ATTACKS = (
    "SELECT true AS holds, content FROM read_text('{secret}')",
    "SELECT true AS holds, count(*) AS n FROM glob('{folder}/*')",
    "SELECT true AS holds FROM read_csv('{secret}')",
    "COPY (SELECT 1) TO '{evil}'",
    "SELECT true AS holds; COPY (SELECT 1) TO '{evil}'",
    "COPY (SELECT 1) TO '{run}/cells.parquet'",
    "ATTACH '{evil}'",
    "EXPORT DATABASE '{evil}'",
    "INSTALL httpfs",
    "LOAD '{secret}'",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "PRAGMA enable_profiling",
    "CREATE OR REPLACE VIEW flows AS SELECT 1",
    "CREATE TABLE mine AS SELECT 1",
    "SELECT true AS holds, a FROM secret_of_python",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_claim_reads_only_the_runs_tables(folder: Path, attack: str) -> None:
    secret_of_python = [SECRET]
    assert secret_of_python
    before = (folder / "run" / "cells.parquet").read_bytes()
    places = {"secret": folder / "secret", "folder": folder, "evil": folder / "evil", "run": folder / "run"}
    attacked, honest = judge(folder, attack.format(**places), "SELECT count(*) = 1 AS holds FROM flows")
    assert attacked.verdict == "undecided" and SECRET not in attacked.model_dump_json()
    assert honest.verdict == "holds", "the next claim is judged as usual"
    assert (folder / "run" / "cells.parquet").read_bytes() == before


ENDLESS = (
    "SELECT count(*) > 0 AS holds FROM range(1000000000000) a, range(1000000000) b",
    "SELECT levenshtein(repeat('a', 1000000), repeat('b', 1000000)) > 0 AS holds",
)
"""The second is one call of a function, which DuckDB's interrupt does not end."""


@pytest.mark.parametrize("endless", ENDLESS)
def test_an_endless_query_is_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, endless: str) -> None:
    monkeypatch.setattr(sql, "LIMIT_S", 1.0)
    begun = time.monotonic()
    stopped, honest = judge(folder, endless, "SELECT true AS holds")
    assert (stopped.verdict, honest.verdict) == ("undecided", "holds")
    assert time.monotonic() - begun < 60
    assert "it took longer than 1 s" in str(stopped.reason) or "GiB of memory" in str(stopped.reason)


GREEDY = (
    "SELECT max(text) > '' AS holds FROM (SELECT repeat(i::VARCHAR, 100) AS text FROM range(100000000) t(i)"
    " ORDER BY hash(i) LIMIT 50000000)",
    "SELECT length(repeat('x', 4000000000)) > 0 AS holds",
    "SELECT list_sum(range(1000000000)) > 0 AS holds",
    "SELECT max(length(repeat(i::VARCHAR, 10000000))) > 0 AS holds FROM range(5000) t(i)",
    "SELECT true AS holds, list_transform(range(100000000), x -> repeat('x', 1000)) AS a",
    "SELECT printf('%1000000000d', 1) > '' AS holds",
    "SELECT true AS holds FROM range(list_sum(range(1000000000))::BIGINT) LIMIT 1",
)


@pytest.mark.parametrize("greedy", GREEDY)
def test_a_query_over_the_memory_limit_fails(folder: Path, monkeypatch: pytest.MonkeyPatch, greedy: str) -> None:
    """Also when DuckDB does not count the memory: `ADDRESS_BYTES`."""
    monkeypatch.setattr(sql, "MEMORY_BYTES", 1 << 27)
    monkeypatch.setattr(sql, "ADDRESS_BYTES", 1 << 28)
    monkeypatch.setattr(sql, "DISK_BYTES", 1 << 27)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    stopped, long, honest = judge(
        folder, greedy, "SELECT true AS holds, repeat('x', 1000000) AS text", "SELECT true AS holds"
    )
    assert (stopped.verdict, long.verdict, honest.verdict) == ("undecided", "undecided", "holds")
    assert "GiB" in str(stopped.reason) and "longer than" in str(long.reason)
    assert "\n" not in str(stopped.reason)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10, "KiB"
    assert not list(folder.glob("run/.sql*"))


def test_binding_a_view_has_the_limits_of_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "ADDRESS_BYTES", 1 << 28)
    with connect_empty({"seed": "int"}) as connection:
        with pytest.raises(sql.LimitError, match="GiB of memory"):
            sql.define(connection, "mine", GREEDY[-1])
        # A constant that exceeds the limit is not computed while its query is bound.
        found = sql.columns(connection, "SELECT array_to_string(range(100000000), ',') AS holds")
        assert found == {"holds": "VARCHAR"}


def test_an_interrupt_during_a_query_is_an_interrupt() -> None:
    """DuckDB turns it into a RuntimeError."""
    code = (
        "import os, signal, threading\n"
        "from qbed.claims.views import connect_empty\n"
        "from qbed.claims.sql import as_duckdb_errors\n"
        "with connect_empty({'seed': 'int'}) as connection, as_duckdb_errors():\n"
        "    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    connection.execute('SELECT count(*) FROM range(1000000000000) a, range(1000000000) b')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if "secret_of" not in attack])
def test_a_campaign_with_a_forbidden_query_does_not_run(folder: Path, attack: str) -> None:
    places = {"secret": folder / "secret", "folder": folder, "evil": folder / "evil", "run": folder / "run"}
    campaign = {
        "question": "Who reads along?",
        "axes": {"seed": [1]},
        "claims": [{"name": "attack", "paper": "-", "sql": attack.format(**places)}],
    }
    (folder / "lab" / "campaign.yml").write_text(json.dumps(campaign))
    done = qbed(folder, "run", "lab", "--out", "second", "--no-images")
    assert done.returncode == 2 and "claims[0].sql" in done.stderr and SECRET not in done.stderr
    assert not (folder / "second").exists()


def report_with(folder: Path, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Make the report of a run folder after changes to its campaign.json."""
    path = folder / "run" / "campaign.json"
    path.write_bytes(sealed(unsealed(path.read_bytes()) | changes))
    return qbed(folder, "report", "run", "--no-images")


def test_a_received_run_folder_writes_and_reads_no_other_file(folder: Path) -> None:
    evil, secret = folder / "evil", folder / "secret"
    for changes in (
        {"views": [{"name": "mine", "sql": f"SELECT 1; COPY (SELECT 1) TO '{evil}'"}]},
        {"views": [{"name": f"mine AS SELECT 1; COPY (SELECT 1) TO '{evil}'; CREATE VIEW x", "sql": "SELECT 1"}]},
        {"views": [{"name": "mine", "sql": f"SELECT * FROM read_text('{secret}')"}]},
        {"views": [{"name": "flows", "sql": "SELECT 1"}]},
        {"figures": [{"kind": "line", "sql": f"SELECT 1 AS x, 1 AS y, content AS series FROM read_text('{secret}')"}]},
        {"figures": [{"kind": "fct", "where": f"true) TO '{evil}'; COPY (SELECT 1"}]},
        {"figures": [{"kind": "fct", "name": "../../evil"}]},
    ):
        path = folder / "run" / "campaign.json"
        before = path.read_bytes()
        done = report_with(folder, **changes)
        assert "Traceback" not in done.stderr, done.stderr
        report = folder / "run" / "report.html"
        assert SECRET not in done.stdout + done.stderr + (report.read_text() if report.exists() else "")
        path.write_bytes(before)
    assert not os.path.lexists(evil)
    assert qbed(folder, "report", "run", "--no-images").returncode == 0
