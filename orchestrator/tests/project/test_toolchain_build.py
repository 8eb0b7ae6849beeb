# SPDX-License-Identifier: Apache-2.0
"""tools/built and tools/p4switch: a checkout runs what its own sources say, in a cache that others build in, too."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from qbed.substrates import toolchain_files

ROOT = Path(__file__).parents[3]
CARGO = """\
#!/bin/sh
[ "$1" != --version ] || { echo "cargo 1.99.0"; exit; }
echo build >> "$QBED_CACHE/builds"
of=$QBED_SOURCES
[ "$(wc -l < "$QBED_CACHE/builds")" -gt "$OTHERS" ] || of=0123456789abcdef
mkdir -p "$CARGO_TARGET_DIR/release"
printf '#!/bin/sh\\necho "$@" %s\\n' "$of" > "$CARGO_TARGET_DIR/release/p4switch"
chmod +x "$CARGO_TARGET_DIR/release/p4switch"
"""
"""Build a program that prints its sources; the first OTHERS times, another process built last."""


def run(cache: Path, *command: str, others: int = 0) -> subprocess.CompletedProcess[str]:
    bin = cache / "bin"
    bin.mkdir(exist_ok=True)
    (bin / "cargo").write_text(CARGO)
    (bin / "cargo").chmod(0o755)
    environment = os.environ | {
        "PATH": f"{bin}:{os.environ['PATH']}",
        "QBED_CACHE": str(cache),
        "OTHERS": str(others),
    }
    return subprocess.run(
        [ROOT / "tools" / command[0], *command[1:]], cwd=cache, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("others", [0, 2])
def test_a_checkout_runs_its_build_after_builds_of_others(tmp_path: Path, others: int) -> None:
    done = run(tmp_path, "built", "p4switch", others=others)
    assert done.returncode == 0, done.stderr
    place = Path(done.stdout.strip())
    assert place.parts[-3:-1] == ("p4switch", place.parent.name) and place.is_relative_to(tmp_path)
    (tmp_path / "cargo-target" / "release" / "p4switch").write_text("#!/bin/sh\necho another checkout's\n")
    assert run(tmp_path, "p4switch", "check", "x.json").stdout == f"check x.json {place.parent.name}\n"
    assert len((tmp_path / "builds").read_text().splitlines()) == others + 1, "it was there"


def test_what_is_always_anothers_is_not_run(tmp_path: Path) -> None:
    done = run(tmp_path, "p4switch", "check", others=9)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.endswith("is always another checkout's: is one being built? Run it again.\n")
    assert not list(tmp_path.glob("p4switch/*/*"))


def test_only_programs_of_ours_are_built(tmp_path: Path) -> None:
    done = run(tmp_path, "built", "kernel")
    assert done.returncode == 2 and "tools/built agent|p4image|p4switch" in done.stderr


def test_a_toolchain_gets_what_only_few_labs_run_when_it_is_asked_for(tmp_path: Path) -> None:
    toolchain = tmp_path / "toolchain"
    (toolchain / "programs").mkdir(parents=True)
    hash = Path(run(tmp_path, "built", "p4switch", "--place").stdout.strip()).parent.name
    assert not (tmp_path / "builds").exists(), "`--place` builds nothing"
    (toolchain / "manifest.json").write_text(f'{{"agent_hash": "1", "p4switch_hash": "{hash}", "frr_version": ""}}\n')
    toolchain_files.record(toolchain)
    for _ in range(2):
        done = run(tmp_path, "programs", str(toolchain))
        assert done.returncode == 0, done.stderr
        assert [path.name for path in (toolchain / "programs").iterdir()] == ["p4switch"]
    assert (tmp_path / "builds").read_text() == "build\n"


def test_a_toolchain_of_other_sources_gets_none_of_these(tmp_path: Path) -> None:
    toolchain = tmp_path / "toolchain"
    (toolchain / "programs").mkdir(parents=True)
    (toolchain / "manifest.json").write_text('{"p4switch_hash": "0123456789abcdef"}\n')
    done = run(tmp_path, "programs", str(toolchain))
    assert done.returncode == 1 and not list((toolchain / "programs").iterdir())
    assert done.stderr == f"programs: {toolchain} is of other sources than this checkout: run make setup\n"
