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

IDENTIFIERS = {
    "a.py": "{} = 1\n",
    "a.rs": "fn {}() {{}}\n",
    "a.c": "int {};\n",
    "a.h": "extern int {};\n",
    "a.p4": "bit<8> {};\n",
    "a.js": "const text = `x`; let {} = 1;\n",
    "tool": "#!/usr/bin/env python3\n{} = 1\n",
}
COMMENTS = {
    "a.py": "x = 1  # {}\n",
    "docstring.py": 'def f():\n    """{}"""\n',
    "a.rs": "/// {}\nstruct Waker;\n",
    "inner.rs": "fn f() {{}} // {}\n",
    "a.c": "/*\n * {}\n */\n",
    "a.h": "int x; /* {} */\n",
    "a.p4": "// {}\n",
    "a.js": "/** {} */\n",
    "a.sh": "run  # {}\n",
    "licensed.sh": "# SPDX-License-Identifier: Apache-2.0\n# {}\n",
    "licensed.c": "// SPDX-License-Identifier: GPL-2.0\n/* {} */\n",
    "a.yml": "x: 1  # {}\n",
    "Makefile": "# {}\n",
    "tool": "#!/bin/sh\n# {}\n",
}
NAMES = {
    "told_entries": "told",
    "is_parked": "parked",
    "parking_port": "parking",
    "CrewMember": "crew",
    "own": "own",
    "said": "said",
    "far": "far",
}
WORDS = ("told", "hears", "nobody", "somebody", "amiss")
OPENINGS = {
    "Of a host.": "Of",
    "The same for links.": "The same",
    "Who wakes the supervisor.": "Who",
    "Whose queue it is.": "Whose",
    "What a queue holds.": "What",
    "Where the cache is.": "Where the",
}
PLANTED = [
    *(
        (name, text, planted, f"identifier {planted}: `{word}` is no name")
        for name, text in IDENTIFIERS.items()
        for planted, word in NAMES.items()
    ),
    *(
        (name, text, f"A flow that {word} x.", f"prose: `{word}` has a technical word")
        for name, text in {**COMMENTS, "a.md": "{}\n"}.items()
        for word in WORDS
    ),
    *(
        (name, text, sentence, f"opening: `{opening} ...` is a fragment")
        for name, text in COMMENTS.items()
        for sentence, opening in OPENINGS.items()
    ),
]
LEGITIMATE = {
    "words.py": "words = (\n    'told'\n    'nobody'\n)\n",
    "a.py": "# parking lot\nparking_lot = to_owned = 'told'\n# A line that continues\n# What follows it.\n",
    "a.rs": "/// A parking-lot topology.\nfn to_owned<'a>(x: &'a str) { let c = '\"'; let s = r#\"told\"#; }\n",
    "a.c": 'char *text = "told /* nobody */";\nint owner; /* Offset of it. */\n',
    "a.js": "x = 'No flow was told.' + `own ${y}`;\n",
    "a.sh": "echo '# told' \"$#\"\n",
    "a.txt": "told\n",
}


def refused(folder: Path, *names: str) -> list[str]:
    """The lines that tools/wording prints about these files."""
    done = subprocess.run([WORDING, *names], cwd=folder, capture_output=True, text=True)
    assert not done.stderr
    assert bool(done.returncode) == bool(done.stdout)
    return done.stdout.splitlines()


def test_a_violation_of_each_rule_is_refused_in_each_language(tmp_path: Path) -> None:
    """Each planted violation is a file in a folder of its own."""
    names, expected = [], []
    for number, (name, text, planted, message) in enumerate(PLANTED):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        path.write_text(text.format(planted))
        line = text.partition("{}")[0].count("\n") + 1
        names.append(f"{number}/{name}")
        expected.append(f"{names[-1]}:{line}: {message}")
    assert refused(tmp_path, *names) == expected


def test_each_violation_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ntold = 2  # nobody\n\n# Of a host.\n")
    assert refused(tmp_path, "a.py") == [
        "a.py:2: identifier told: `told` is no name",
        "a.py:2: prose: `nobody` has a technical word",
        "a.py:4: opening: `Of ...` is a fragment",
    ]


@pytest.mark.parametrize("name", LEGITIMATE)
def test_what_only_looks_like_a_violation_passes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(LEGITIMATE[name])
    assert refused(tmp_path, name) == []


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
