# SPDX-License-Identifier: Apache-2.0
"""Errors of the file system, arguments, SQL and untrusted run folders give a message and no traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qbed.base import crash_report
from qbed.base.json_files import write_sealed
from qbed.cli import load_commands
from qbed.report import make_report
from qbed.storage.identity import read_identity

from qbed_testing.untrusted_lab import CAMPAIGN, call_main, make_run, qbed, write_lab

MOUNTS = ["unshare", "-rm"]
LONG = "n" * 300
"""A file name over the limit."""


def assert_message(status: int, out: str, errors: str) -> None:
    """Assert that a command succeeded or failed with a message, without a traceback or an internal error."""
    assert "Traceback" not in out + errors
    assert "internal error in qbed" not in errors
    assert status in (0, 1, 2), (status, errors)
    if status:
        assert out + errors, "a failure without a message"
        assert len(errors) < 20_000


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("tracebacks"))


@pytest.fixture
def run(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the run that may be damaged."""
    shutil.copytree(finished_run, tmp_path / "run")
    return tmp_path / "run"


# --- file system ---


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("/proc/run", "no such file or directory"),
        ("/proc/1/run", ""),
        ("file/run", "not a directory"),
        ("file", "file"),
        (LONG, "file name too long"),
        ("loop/run", "symlink loop"),
    ],
)
def test_an_output_folder_that_cannot_be_written(tmp_path: Path, out: str, message: str) -> None:
    write_lab(tmp_path / "lab")
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    done = qbed(tmp_path, "run", "lab", "--out", out, "--no-images")
    assert_message(done.returncode, done.stdout, done.stderr)
    assert done.returncode
    assert message in done.stderr.lower()


@pytest.mark.parametrize(
    ("options", "message"), [("ro,size=1m", "read-only file system"), ("size=256k", "disk is full")]
)
def test_a_read_only_or_full_file_system(tmp_path: Path, options: str, message: str) -> None:
    write_lab(tmp_path / "lab")
    (tmp_path / "m").mkdir()
    mount = f"mount -t tmpfs -o {options} none m"
    if subprocess.run([*MOUNTS, "sh", "-c", mount], cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount file systems")
    command = f"{mount} && exec {sys.executable} -m qbed run lab --out m/run --no-images"
    done = subprocess.run([*MOUNTS, "sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert_message(done.returncode, done.stdout, done.stderr)
    assert done.returncode
    assert message in done.stderr


def test_output_to_a_closed_or_full_descriptor(tmp_path: Path) -> None:
    write_lab(tmp_path / "lab")
    for command in ("labs", "schema", "compile lab", "inspect lab", "--version"):
        for where in (">/dev/full", ">&-", "| true", "2>&- >/dev/full", "<&-"):
            line = f"{sys.executable} -m qbed {command} {where}"
            done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert "Traceback" not in done.stderr, line
            assert "Exception ignored" not in done.stderr, line


def test_an_internal_error_is_one_line_and_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    load_commands()  # before the patch, which other modules would import
    monkeypatch.setattr("qbed.cli.lab.load", lambda *_: json.loads("{}")["\x1b[2J surprise"])
    status, _, errors = call_main("inspect", str(write_lab(tmp_path / "lab")))
    (log,) = (tmp_path / "cache" / "faults").iterdir()
    assert status == 1
    assert len(errors.splitlines()) == 1
    assert "internal error in qbed: KeyError" in errors
    assert str(log) in errors
    assert "please report it" in errors
    assert "\x1b" not in errors
    assert "Traceback (most recent call last)" in log.read_text()
    assert "surprise" in log.read_text()
    monkeypatch.setenv("QBED_CACHE", "/proc/nothing")
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/proc/nothing")
    assert "could not be saved" in crash_report.explain(ValueError("x"))


# --- arguments ---

COMMANDS = (
    "run {}",
    "run lab --out {} --seeds 1..",
    "run lab --profile {} --out /proc/no",
    "run lab --set {} --out /proc/no",
    "run lab --set {}=1 --out /proc/no",
    "run lab --set name={} --out /proc/no",
    "run lab --seeds {} --out /proc/no",
    "run lab --on {} --out /proc/no",
    "run lab --dilate {} --seeds x",
    "report {}",
    "cells {}",
    "cells {} --json",
    "samples {}",
    "inspect {}",
    "inspect lab --set {}",
    "inspect lab --seed {}",
    "compile {}",
    "up {}",
    "up nosuch --on {}",
    "up nosuch --seed {}",
    "exec {} h1 -- true",
    "exec {} {} -- {}",
    "advance {} 1s",
    "advance none {}",
    "down {}",
    "new {}",
    "new here --like {}",
    "export {}",
    "export dumbbell --out {} --dilate 0",
    "import {}",
    "import {} -o {}",
    "graph {}",
    "graph dumbbell --format {}",
    "doctor --on {}",
    "labs {}",
    "ps {}",
    "schema {}",
    "{}",
)
UNUSUAL_ARGUMENTS = (
    "",
    " ",
    ".",
    "..",
    "/",
    "-",
    "--",
    "-1",
    "0",
    "\n",
    "a\nb",
    "[/x]",
    "{}",
    "{0.__class__}",
    "%s",
    "\x1b[2J",
    "é\u202e",
    "\udcff",
    LONG,
    "x" * 100_000,
    "/dev/null",
    "/proc/self/mem",
    "/etc/shadow",
    "~",
    "*",
    "a=b",
    "9" * 400,
    "1e400",
    "nan",
    "a.b[0]",
    "a[99999999999999999999]",
    "a..b",
    "1..1",
    "[[[[",
    "{a: {a: 1}}",
    "!!python/object:x",
    "&a [*a]",
)


@pytest.mark.parametrize("part", range(3))
def test_unusual_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Each command gets some of the unusual arguments, in turn."""
    monkeypatch.chdir(tmp_path)
    write_lab(tmp_path / "lab")
    for number, command in enumerate(COMMANDS[part::3]):
        step = 12 if command.startswith("run lab") else 4  # runs the preflight each time
        for argument in UNUSUAL_ARGUMENTS[number % step :: step]:
            assert_message(*call_main(*(word.replace("{}", argument) for word in command.split(" "))))


def test_unusual_files_in_place_of_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    contents = (
        b"",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"a: b: c",
        b"- 1",
        b"1",
        b"{",
        b"'",
        b"%",
        b"\t",
        b"[" * 3000,
        b"x" * 100_000,
    )
    for content in contents:
        for name in ("lab.yml", "campaign.yml"):
            write_lab(tmp_path / "lab")
            (tmp_path / "lab" / name).write_bytes(content)
            for command in ("inspect", "run", "import", "cells", "report"):
                assert_message(*call_main(command, "lab"))


def test_a_campaign_with_an_invalid_lab_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for lab in (
        ".",
        "..",
        "",
        "/",
        "lab",
        "nosuch.yml",
        LONG,
        "a\0b",
        "campaign.yml",
        "loop",
        "\x1b[2J",
        "/etc/shadow",
    ):
        write_lab(tmp_path / "lab", campaign=f"lab: {json.dumps(lab)}\n{CAMPAIGN}")
        (tmp_path / "lab" / "loop").unlink(missing_ok=True)
        (tmp_path / "lab" / "loop").symlink_to("loop")
        status, out, errors = call_main("run", "lab", "--out", "run")
        assert_message(status, out, errors)
        assert status == 2, (lab, errors)
        assert "campaign.yml:1:" in errors or lab in ("campaign.yml",)
        assert "root:" not in errors


# --- SQL ---

UNUSUAL_SQL = (
    "",
    " ",
    ";",
    ";;",
    "--",
    "/*",
    "'",
    '"',
    "\0",
    "SELECT",
    "SELECT 1;SELECT 2",
    "SELECT '\\ud800'",
    "FROM",
    "()",
    "VALUES",
    "SELECT true AS holds, 'nan'::DOUBLE AS a",
    "SELECT true AS holds, 'inf'::FLOAT AS a",
    "SELECT NULL AS holds",
    "SELECT true AS holds, '290000-01-01 (BC)'::DATE AS a",
    "SELECT true AS holds, 'infinity'::TIMESTAMP AS a",
    "SELECT true AS holds, now() AS a",
    "SELECT true AS holds, MAP {'a': 1} AS a",
    "SELECT true AS holds, {'x': [1]} AS a",
    "SELECT true AS holds, '\\x1b'::BLOB AS a",
    "SELECT true AS holds, INTERVAL 1000000 YEAR AS a",
    "SELECT true AS holds, 1::HUGEINT AS a",
    "SELECT true AS holds, 1::DECIMAL(38,10) AS a",
    "SELECT true AS holds, '101'::BIT AS a",
    "SELECT true AS holds, true AS holds",
    "SELECT true AS holds, uuid() AS a",
    "SELECT true AS holds, '00:00:00'::TIMETZ AS a",
    "SELECT true AS HOLDS",
    "SELECT [true] AS holds",
    "SELECT true AS holds FROM range(3)",
    "SELECT true AS holds WHERE false",
    "SELECT error('[/x] \\x1b[2J') AS holds",
    "WITH RECURSIVE t AS (SELECT 1 UNION ALL SELECT 1 FROM nosuch) SELECT * FROM t",
    "SELECT " + "(" * 5_000,
    "SELECT " + "-" * 5_000 + "1",
    "SELECT 1" + "+1" * 20_000 + " AS holds",
    "SELECT \x1b",
    "SUMMARIZE cells",
    "DESCRIBE cells",
    "SHOW TABLES",
    "PIVOT cells ON seed",
    "FROM cells",
    "SELECT $1 AS holds",
    "SELECT ? AS holds",
)


@pytest.mark.parametrize("chunk", range(4))
def test_unusual_sql_in_a_received_run_folder(run: Path, chunk: int) -> None:
    """Claims are judged; `report` runs views and figures."""
    from qbed.campaign.claim import Claim
    from qbed.campaign.file import Campaign
    from qbed.claims.judge import judge_all

    texts = UNUSUAL_SQL[chunk::4]
    claims = [Claim(name=f"c{number}", paper="", sql=sql) for number, sql in enumerate(texts)]
    verdicts = judge_all(run, Campaign(question="?", claims=claims), None)
    json.loads(json.dumps([verdict.model_dump() for verdict in verdicts], allow_nan=False))
    identity = read_identity(run)
    identity["figures"] = [
        {"kind": kind, "name": f"f{number}{kind}", "sql": sql.replace("holds", "x").replace(" a", " y")}
        for number, sql in enumerate(texts)
        for kind in ("line", "bar")
    ]
    identity["figures"] += [{"kind": "goodput", "where": sql, "name": f"w{n}"} for n, sql in enumerate(texts)]
    identity["figures"] += [
        {"kind": "fct", "x": sql or "x", "series": sql, "name": f"x{n}"} for n, sql in enumerate(texts)
    ]
    write_sealed(run / "campaign.json", identity)
    report = make_report(run, images=False)
    assert len(report.problems) > len(texts)
    for sql in texts[:6]:
        identity |= {"figures": [], "views": [{"name": "mine", "sql": sql}]}
        write_sealed(run / "campaign.json", identity)
        assert_message(*call_main("report", "--no-images", str(run)))


# --- untrusted run folders ---


def test_symlinks_fifos_and_folders_in_a_run_folder(run: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    for name in (
        "report.html",
        "meta.json",
        "claims.json",
        "cells.parquet",
        "flows.parquet",
        "cells/000000",
        "figures/x.png",
    ):
        place = run / name
        kept = tmp_path / "kept"
        place.parent.mkdir(exist_ok=True)
        if place.exists():
            place.rename(kept)
        for make in (lambda at: at.symlink_to(secret), os.mkfifo):
            make(place)
            status, out, errors = call_main("report", "--no-images", str(run))
            assert_message(status, out, errors)
            assert status == 2 or make is os.mkfifo, name  # a FIFO that is not read blocks no command
            assert_message(*call_main("cells", str(run)))
            assert "the secret" not in out + errors
            place.unlink()
        if kept.exists():
            kept.rename(place)
    assert secret.read_text() == "the secret"
    for name in ("cells.parquet", "flows.parquet", "queues.parquet", "cells/000000/cell.json", "cells"):
        place = run / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
        place.mkdir()
        assert_message(*call_main("report", "--no-images", str(run)))
        assert_message(*call_main("cells", str(run)))


# --- third-party packages ---


def test_an_invalid_substrate_package(tmp_path: Path) -> None:
    for name, text in (
        ("noname", ""),
        ("broken", "raise RuntimeError('x')"),
        ("odd", "NAME = ['\\x1b[2J']"),
        ("exits", "import nosuch"),
    ):
        (tmp_path / "more" / name).mkdir(parents=True)
        (tmp_path / "more" / name / "__init__.py").write_text(text)
    environment = os.environ | {"QBED_SUBSTRATES": str(tmp_path / "more")}
    for command in (
        "ps",
        "down nosuch",
        "run lab --on noname",
        "run lab --on broken",
        "doctor --on exits",
        "doctor --on x",
    ):
        done = subprocess.run(
            [sys.executable, "-m", "qbed", *command.split()],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert_message(done.returncode, done.stdout, done.stderr)
        assert done.returncode == (0 if command == "ps" else done.returncode)
    assert "cannot be used" in subprocess.run(
        [sys.executable, "-m", "qbed", "up", "dumbbell", "--on", "noname"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
    ).stderr  # fmt: skip
