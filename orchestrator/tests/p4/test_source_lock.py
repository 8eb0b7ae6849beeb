# SPDX-License-Identifier: Apache-2.0
"""A P4 program with changed sources is compiled again, or refused.

`P4C` names a script in place of the compiler: it writes ecn's files, and fails for a source that has `wrong` in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qbed.base.errors import LabError
from qbed.base.locations import schemes_folder
from qbed.network.load import load_lab
from qbed.p4 import source_lock
from qbed.p4.compiler import compiled_files, sources
from qbed.p4.source_lock import StaleError, ensure_current
from qbed.p4.sources import ProgramError, load, scheme_program
from qbed.plan.compile import compile_lab

ECN = schemes_folder() / "ecn" / "p4"
LAB = """\
name: own
topology: {star: {hosts: 2}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}}
switches: {default: {program: ./mine.p4, buffer: 50 packets}}
workload:
  - flow: {from: h1, to: h2, size: 1 MB}
duration: 10 ms
"""
COMPILER = """\
#!/bin/sh
echo "$*" >>{calls}
[ "$1" != --version ] || {{ echo "p4c 1.2.5"; exit; }}
while [ $# -gt 1 ]; do
    case $1 in -o) json=$2 ;; --p4runtime-files) info=$2 ;; esac
    shift
done
if grep -q wrong "$1"; then echo "$1(1): error: wrong is not P4"; exit 1; fi
cp {ecn}/ecn.json "$json" && cp {ecn}/ecn.p4info.txtpb "$info"
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lab with a program that was compiled by hand, without an installed p4c."""
    monkeypatch.setenv("P4C", "/nowhere/p4c")
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "lab.yml").write_text(LAB)
    (folder / "mine.p4").write_text('#include <core.p4>\n  # include "part.p4"\n#include "headers.p4"\n')
    (folder / "part.p4").write_text("// A part.\n")
    for path in compiled_files(folder / "mine.p4"):
        shutil.copy(ECN / path.name.replace("mine", "ecn"), path)
    for path in folder.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return folder


@pytest.fixture
def calls(tmp_path: Path, lab: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The compiler is there, and the source was changed; returns how often it has compiled."""
    script, log = tmp_path / "p4c", tmp_path / "calls"
    script.write_text(COMPILER.format(calls=log, ecn=ECN))
    script.chmod(0o755)
    log.touch()
    monkeypatch.setenv("P4C", str(script))
    os.utime(lab / "mine.p4", (1_000_000_003,) * 2)
    return lambda: log.read_text().count("--p4runtime-files")


def append(path: Path, text: str = "// Changed.\n") -> None:
    """Change a file without a trace in its time."""
    before = path.stat()
    with path.open("a") as file:
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def refusal(lab: Path) -> str:
    with pytest.raises(LabError) as error:
        load_lab(lab)
    (message,) = error.value.messages
    assert message.startswith(f"{lab / 'lab.yml'}:4:"), message
    return message


def test_what_a_program_is_made_of(lab: Path) -> None:
    names = [path.name for path in sources(lab / "mine.p4", schemes_folder().parent / "p4")]
    assert sorted(names) == ["headers.p4", "mine.p4", "part.p4"]


@pytest.mark.parametrize("name", ["mine.p4", "part.p4"])
def test_without_a_lock_a_newer_source_is_refused(lab: Path, name: str) -> None:
    load_lab(lab)  # the headers of a checkout are newer, which says nothing
    os.utime(lab / name, (1_000_000_001,) * 2)  # as a copy of the folder may leave them
    load_lab(lab)
    os.utime(lab / name, (1_000_000_003,) * 2)
    refused = refusal(lab)
    assert f"{lab / name} is newer than mine.json, which was compiled of it; `qbed p4 compile" in refused
    (lab / "mine.p4").unlink()
    load_lab(lab)  # nothing to compare


def test_with_a_compiler_a_newer_source_is_compiled_once(
    lab: Path, calls: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert calls() == 0
    for count in (1, 1):
        assert compile_lab(load_lab(lab)).p4[0].name == "mine"
        assert calls() == count
    assert "is newer than mine.json, which was compiled of it: compiling it" in capsys.readouterr().err
    lock = json.loads((lab / "mine.lock.json").read_bytes())
    assert lock["p4c"] == "1.2.5" and set(lock["sources"]) == {"mine.p4", "part.p4", "p4/headers.p4"}
    assert set(lock["made"]) == {"mine.json", "mine.p4info.txtpb"}
    append(lab / "part.p4")
    load_lab(lab)
    assert calls() == 2
    append(lab / "mine.p4", "wrong\n")
    assert "mine.p4 does not compile: " in (refused := refusal(lab)) and "error: wrong is not P4" in refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lab: append(lab / "mine.p4"), "mine.p4 changed after mine.json was compiled; `qbed p4 compile"),
        (lambda lab: append(lab / "part.p4"), "part.p4 changed after mine.json was compiled; `qbed p4 compile"),
        (lambda lab: (lab / "part.p4").unlink(), "mine.p4 changed after mine.json was compiled; `qbed p4 compile"),
        (lambda lab: append(lab / "mine.json", " "), "is not what was compiled of mine.p4; `qbed p4 compile"),
        (lambda lab: append(lab / "mine.p4info.txtpb", " "), "is not what was compiled of mine.p4; `qbed p4"),
        (lambda lab: (lab / "mine.lock.json").write_text("["), "mine.lock.json is damaged: expected JSON; remove it"),
        (lambda lab: (lab / "mine.lock.json").write_text("[]"), "mine.lock.json is damaged: expected JSON; remove it"),
    ],
    ids=["source", "include", "include-gone", "json", "p4info", "lock-cut", "lock-list"],
)
def test_with_a_lock_whatever_changed_is_refused(
    lab: Path,
    calls: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], object],
    message: str,
) -> None:
    load_lab(lab)
    monkeypatch.setenv("P4C", "/nowhere/p4c")
    load_lab(lab)
    change(lab)
    assert message in refusal(lab)


def test_files_that_were_compiled_by_hand_after_the_lock_are_taken(
    lab: Path, calls: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    load_lab(lab)
    monkeypatch.setenv("P4C", "/nowhere/p4c")
    append(lab / "mine.p4")
    assert "mine.p4 changed after" in refusal(lab)
    append(lab / "mine.json", "\n")
    os.utime(lab / "mine.json")
    assert compile_lab(load_lab(lab)).p4[0].name == "mine"


def test_a_compiler_that_does_not_work_is_named(
    lab: Path, tmp_path: Path, calls: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for text, message in (("#!/bin/sh\n", "p4c wrote no JSON: "), ("no program", "p4c does not run: ")):
        (tmp_path / "p4c").write_text(text)
        assert "mine.p4 does not compile: " in (refused := refusal(lab)) and message in refused


def test_a_program_that_comes_with_qbed_is_compared_with_its_lock(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    for name in ("p4", "schemes/ecn/p4", "labs/young-flows"):
        shutil.copytree(schemes_folder().parent / name, root / name)
    monkeypatch.setattr(source_lock, "p4_folder", lambda: root / "p4")
    for program in (root / "schemes/ecn/p4/ecn.p4", root / "labs/young-flows/young.p4"):
        os.utime(program)  # a checkout's times say nothing
        ensure_current(program)
        append(root / "p4" / "headers.p4")
        with pytest.raises(StaleError, match=r"p4/headers\.p4 changed after .*\.json was compiled; `make p4` compiles"):
            ensure_current(program)
        shutil.copy(schemes_folder().parent / "p4" / "headers.p4", root / "p4")
        ensure_current(program)


def test_a_program_that_a_user_adds_to_the_tree_is_compared_too(
    lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(schemes_folder().parent / "p4", tmp_path / "p4")
    monkeypatch.setattr(source_lock, "p4_folder", lambda: tmp_path / "p4")
    load_lab(lab)
    os.utime(lab / "mine.p4")
    assert "mine.p4 is newer than mine.json, which was compiled of it; `qbed p4 compile" in refusal(lab)


def test_a_scheme_in_a_user_supplied_folder(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QBED_SCHEMES", str(tmp_path / "schemes"))
    folder = tmp_path / "schemes" / "ecn" / "p4"
    shutil.copytree(ECN, folder)
    assert scheme_program("ecn").scheme == "ecn"
    newest = max(path.stat().st_mtime for path in folder.iterdir())
    os.utime(folder / "ecn.p4", (newest + 9, newest + 9))
    with pytest.raises(ProgramError, match=r"ecn\.p4 is newer than ecn\.json"):
        scheme_program("ecn")


def test_a_program_that_was_compiled_again_is_read_again(lab: Path) -> None:
    (lab / "mine.p4").unlink()
    before = load(lab / "mine.p4")
    assert load(lab / "mine.p4") is before
    (lab / "mine.json").write_text((lab / "mine.json").read_text().replace("marking", "markings"))
    with pytest.raises(ProgramError, match="has a table `marking` that"):
        load(lab / "mine.p4")


def test_the_command_compiles_and_lists_the_written_files(
    lab: Path, calls: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def qbed(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "qbed", "p4", "compile", *arguments]
        done = subprocess.run(command, cwd=lab, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert qbed("mine.p4") == (0, "mine.p4: wrote mine.json, mine.p4info.txtpb, mine.lock.json\n")
    assert calls() == 1
    assert qbed("mine.json") == (1, "error: mine.json: expected a file PROGRAM.p4\n")
    append(lab / "mine.p4", "wrong\n")
    status, text = qbed("mine.p4")
    assert status == 1 and text.startswith("error: mine.p4 does not compile: ") and "wrong is not P4" in text
    monkeypatch.setenv("P4C", "/nowhere/p4c")
    assert qbed("mine.p4") == (1, "error: p4c-bm2-ss is not installed here (P4C says where it is)\n")
