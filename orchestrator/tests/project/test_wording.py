# SPDX-License-Identifier: Apache-2.0
"""tools/wording refuses a planted violation of each rule in each language, and nothing that only looks like one."""

import os
import subprocess
from pathlib import Path

import pytest

from qbed.base.locations import checkout

ROOT = checkout()
assert ROOT is not None
WORDING = ROOT / "tools" / "wording"

PLANTED = {
    ("a.py", "x = 1\ntold_entries = x\n"): "a.py:2: identifier told_entries: `told` is no name",
    ("a.py", "class CrewMember: ...\n"): "a.py:1: identifier CrewMember: `crew` is no name",
    ("a.py", "x = 1  # which nobody reads\n"): "a.py:1: prose: `nobody` has a technical word",
    ("a.py", 'def f():\n    """Of a host."""\n'): "a.py:2: opening: `Of ...` is a fragment",
    ("a.py", "# The same for links.\nx = 1\n"): "a.py:1: opening: `The same ...` is a fragment",
    ("a.rs", "fn is_parked() {}\n"): "a.rs:1: identifier is_parked: `parked` is no name",
    ("a.rs", "/// Who wakes the supervisor.\nstruct Waker;\n"): "a.rs:1: opening: `Who ...` is a fragment",
    ("a.rs", "fn f() {} // it hears\n"): "a.rs:1: prose: `hears` has a technical word",
    ("a.c", "int own;\n"): "a.c:1: identifier own: `own` is no name",
    ("a.c", "/*\n * What a queue holds.\n */\n"): "a.c:2: opening: `What ...` is a fragment",
    ("a.h", "int x; /* told once */\n"): "a.h:1: prose: `told` has a technical word",
    ("a.p4", "bit<8> parking_port;\n"): "a.p4:1: identifier parking_port: `parking` is no name",
    ("a.js", "const text = `x`; let said = 1;\n"): "a.js:1: identifier said: `said` is no name",
    ("a.sh", "run  # Where the cache is.\n"): "a.sh:1: opening: `Where the ...` is a fragment",
    ("a.yml", "x: 1  # for somebody\n"): "a.yml:1: prose: `somebody` has a technical word",
    ("a.md", "The queue is told.\n"): "a.md:1: prose: `told` has a technical word",
    ("tool", "#!/usr/bin/env python3\nfar = 1\n"): "tool:2: identifier far: `far` is no name",
    ("tool", "#!/bin/sh\n# amiss\n"): "tool:2: prose: `amiss` has a technical word",
}
LEGITIMATE = {
    "words.py": "words = (\n    'told'\n    'nobody'\n)\n",
    "a.py": "# parking lot\nparking_lot = to_owned = 'told'\n# A line that continues\n# What follows it.\n",
    "a.rs": "/// A parking-lot topology.\nfn to_owned<'a>(x: &'a str) { let c = '\"'; let s = r#\"told\"#; }\n",
    "a.c": 'char *text = "told /* nobody */";\nint owner; /* Offset of it. */\n',
    "a.js": "x = 'No flow was told.' + `own ${y}`;\n",
    "a.sh": "echo '# told' \"$#\"\n",
    "a.txt": "told\n",
}


def refused(path: Path) -> str:
    """The output of tools/wording about one file."""
    done = subprocess.run([WORDING, path.name], cwd=path.parent, capture_output=True, text=True)
    assert not done.stderr
    assert bool(done.returncode) == bool(done.stdout)
    return done.stdout.rstrip()


@pytest.mark.parametrize("name, text", PLANTED, ids=lambda value: value.splitlines()[-1])
def test_a_planted_violation_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert refused(tmp_path / name) == PLANTED[name, text]


@pytest.mark.parametrize("name", LEGITIMATE)
def test_what_only_looks_like_a_violation_passes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LEGITIMATE[name])
    assert refused(tmp_path / name) == ""


def test_a_subject_is_at_most_72_characters_since_the_last_tag(tmp_path: Path) -> None:
    environment = os.environ | {
        f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=tmp_path, env=environment, check=True, capture_output=True)

    git("init", "-q")
    for subject in ("area: " + "b" * 70, "area: " + "c" * 66, "area: " + "d" * 67):
        git("commit", "-q", "--allow-empty", "-m", subject)
        if "b" in subject:
            git("tag", "v1")
    done = subprocess.run([WORDING], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert "a subject of 73 characters" in line and "ddd" in line
