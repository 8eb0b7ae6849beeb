# SPDX-License-Identifier: Apache-2.0
"""Text of untrusted files is shown without control characters, markup or endless lines."""

from __future__ import annotations

import ast
import json
import os
import pty
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

import qbed as package
from qbed.base import terminal

from qbed_testing.untrusted_lab import call_main, make_run, qbed, write_lab

ROOT = Path(__file__).parents[2]
PAYLOADS = ("\x1b]0;owned\x07", "\x1b[2J\x1b[H", "\x9b31m", "\u202egnp.exe", "\r", "\b\b", "\x7f", "\u2066", "\x1bc")
EVIL = "a" + "".join(PAYLOADS) + "[/x][bold]z"
WRITERS = {
    *("base/terminal.py", "__main__.py", "substrates/virtual/keeper.py", "substrates/rebuild.py"),
    *("service/query_worker.py", "service/events.py", "cli/look.py", "base/limited.py"),
}
"""Modules that may write to a descriptor: the terminal's module, the start before its import, a pipe from the keeper to
its parent, the set-up's output, a query worker's reply, a job's events, packets of a capture, and a limited function's
result.
"""


def assert_visible(text: str) -> None:
    """Assert that a text has no control or format characters."""
    hidden = {
        hex(ord(character))
        for character in text
        if unicodedata.category(character) in ("Cc", "Cf", "Cs") and character not in "\n\t"
    }
    assert not hidden, text


def test_all_output_goes_through_one_module() -> None:
    root = Path(package.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name in ("print", "Console", "typer.echo", "os.write") or name.startswith(("sys.stdout", "sys.stderr")):
                found.add(path.relative_to(root).as_posix())
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr"):
                found.add(path.relative_to(root).as_posix())
    assert found - {"substrates/sessions.py"} == WRITERS


def test_p4switch_escapes_names_of_a_program(tmp_path: Path) -> None:
    program = json.loads((ROOT / "schemes/ecn/p4/ecn.json").read_text())
    program["actions"][0]["name"] = EVIL
    renamed = write_program(tmp_path / "renamed.json", program)
    program["headers"][0]["header_type"] = EVIL
    refused = write_program(tmp_path / "refused.json", program)
    p4switch = subprocess.check_output([ROOT / "tools/built", "p4switch"], text=True).strip()
    for path, status in ((renamed, 0), (refused, 1)):
        done = subprocess.run([p4switch, "check", path], capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert_visible(done.stdout + done.stderr)
    assert "\\u{1b}" in done.stderr


def write_program(path: Path, program: object) -> Path:
    path.write_text(json.dumps(program))
    return path


def test_clean_removes_control_characters() -> None:
    all_characters = "".join(map(chr, range(sys.maxunicode + 1)))
    left = [
        character
        for character in terminal.clean(all_characters)
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    ]
    assert sorted(left) == ["\t", "\n"]
    assert not {"\u202e", "\u2066", "\u200f", "\ufeff"} & set(terminal.clean(all_characters))
    assert terminal.clean("\x1b[2J\U000e0041") == "\\u001b[2J\\udb40\\udc41"
    assert json.loads(terminal.clean(json.dumps({"a": "\x7f\u202e"}, ensure_ascii=False))) == {"a": "\x7f\u202e"}
    assert len(terminal.shorten("\x1b" * 1_000_000)) < 7 * terminal.MAX_LENGTH


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("terminal"))


def test_a_labs_names_and_errors_are_shown_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    lab = write_lab(tmp_path / "lab", json.dumps(EVIL))
    for command in (["inspect"], ["inspect", "--json"], ["compile"]):
        status, out, errors = call_main(*command, str(lab))
        assert status == 0, errors
        assert_visible(out + errors)
    assert "[/x][bold]z" in call_main("inspect", str(lab))[1]
    assert json.loads(call_main("compile", str(lab))[1])["workloads"][0]["label"] == EVIL
    text = (lab / "lab.yml").read_text()
    for old, new in (("star", EVIL), ("droptail", EVIL), ("1 Gbit/s", EVIL), ("bulk", EVIL), ("5 ms", "z" * 1_000_000)):
        (lab / "lab.yml").write_text(
            text.replace(old, new if new.startswith("z") else "#").replace("#", json.dumps(new))
        )
        status, out, errors = call_main("inspect", str(lab))
        if status:
            assert_visible(out + errors)
            assert len(errors) < 2 * terminal.MAX_LENGTH
    evil = tmp_path / f"folder{EVIL.replace('/', '')}"
    evil.mkdir()
    (evil / "lab.yml").write_text("name: [")
    status, out, errors = call_main("inspect", str(evil))
    assert status == 2
    assert_visible(out + errors)


def test_a_run_folders_names_are_shown_as_text(finished_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    identity = json.loads((run / "campaign.json").read_text())
    identity |= {"name": EVIL, "question": EVIL, "figures": [{"kind": "line", "name": "x", "sql": f"SELECT '{EVIL}'"}]}
    identity["matrix"]["axes"][0]["values"] = [EVIL, EVIL + "2"]
    (run / "campaign.json").write_text(json.dumps(identity))
    (run / "cells.parquet").unlink()
    for cell in run.glob("cells/*/cell.json"):
        cell.write_text(json.dumps(json.loads(cell.read_text()) | {"status": EVIL, "error": EVIL, "bottleneck": EVIL}))
    for command in (["cells"], ["cells", "--json"], ["report", "--no-images"], ["samples"]):
        _, out, errors = call_main(*command, str(run))
        assert out + errors
        assert_visible(out + errors)


def test_a_runs_summary_on_a_terminal_is_text(tmp_path: Path) -> None:
    """Claims, views and reasons with markup and escapes are shown as text on a terminal."""
    sql = f"SELECT CASE WHEN count(*) > 0 THEN error('{EVIL}') ELSE true END AS holds FROM flows"
    claims = [{"name": "evil", "paper": EVIL, "source": EVIL, "sql": sql}]
    campaign = {"question": EVIL, "axes": {"seed": [1]}, "claims": claims}
    write_lab(tmp_path / "lab", json.dumps(EVIL), json.dumps(campaign))
    terminal_fd, terminal_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "qbed", "run", "lab", "--out", "run", "--no-images"],
        cwd=tmp_path, stdin=terminal_end, stdout=terminal_end, stderr=terminal_end,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(terminal_end)
    output = b""
    while True:
        try:
            data = os.read(terminal_fd, 65536)
        except OSError:
            break
        if not data:
            break
        output += data
    os.close(terminal_fd)
    assert process.wait(60) == 1
    text = output.decode()
    assert "\x1b[" in text, "no escape sequences: qbed did not detect the terminal"
    for payload in PAYLOADS[:4]:
        assert payload not in text
    assert "[/x][bold]z" in text
    assert "1 of 1 cells complete" in text
    assert (tmp_path / "run" / "report.html").exists()


def test_many_and_long_messages_are_shortened(tmp_path: Path) -> None:
    lab = write_lab(tmp_path / "lab")
    fields = "\n".join(f"{'x' * 100}{number}: 1" for number in range(5_000))
    (lab / "lab.yml").write_text((lab / "lab.yml").read_text() + fields + "\n")
    done = qbed(tmp_path, "inspect", "lab")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) <= terminal.MAX_MESSAGES + 1
    assert "error: and at least 50 more" in done.stderr
