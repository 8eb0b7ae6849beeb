# SPDX-License-Identifier: Apache-2.0
"""Loading and compiling a file of somebody else takes no more time and memory than the file is worth: what is too large
is refused, at once, with the number that is too large.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

LAB = """\
name: received
topology: {star: {hosts: 4}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
workload:
  - arrivals: {size: {fixed: 10 KB}, load: 0.1}
duration: 5 ms
"""
TIME_S, MEMORY = 10, 1 << 30


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (TIME_S, TIME_S))


def qbed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command within 10 s and 1 GB."""
    command = [sys.executable, "-m", "qbed", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIME_S, preexec_fn=_limits)


def refused(*arguments: str | Path) -> str:
    """What a command says that refuses its files."""
    done = qbed(*arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert done.stderr.startswith("error: "), done.stderr
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "lab.yml").write_text(LAB)
    return tmp_path


NO_FILES = {
    "/dev/zero": "it is no regular file",
    "/dev/tty": "it is no regular file",
    "pipe": "it is no regular file",
    "sparse": "it has 1099511627776 bytes, expected at most",
    ".": "it is a folder",
}


@pytest.mark.parametrize("name", NO_FILES)
def test_a_cdf_is_a_regular_file(folder: Path, name: str) -> None:
    (folder / "lab.yml").write_text(LAB.replace("fixed: 10 KB", f"cdf: {name}"))
    assert f"lab.yml:6:28: workload[0].arrivals.size.cdf: cannot read `{name}`: {NO_FILES[name]}" in refused(
        "compile", folder
    )


@pytest.mark.parametrize("name", [name for name in NO_FILES if name != "."])
def test_a_lab_a_campaign_and_a_topology_are_regular_files(folder: Path, name: str) -> None:
    assert NO_FILES[name] in refused("compile", folder / name)
    assert NO_FILES[name] in refused("import", folder / name)
    (folder / "campaign.yml").write_text(json.dumps({"question": "Which lab?", "lab": name}))
    assert NO_FILES[name] in refused("run", folder, "--out", folder / "run", "--no-images")
    (folder / "campaign.yml").unlink()
    (folder / "campaign.yml").symlink_to(folder / name)
    assert NO_FILES[name] in refused("run", folder, "--out", folder / "run", "--no-images")


@pytest.mark.parametrize("name", [name for name in NO_FILES if name != "."])
def test_a_run_folder_has_regular_files(folder: Path, name: str) -> None:
    run = folder / "run"
    run.mkdir()
    (run / "campaign.json").symlink_to(folder / name)
    for command in ("cells", "report"):
        done = qbed(command, run)
        assert done.returncode in (1, 2) and "is no run folder" in done.stderr, done.stderr


MERGES = "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 20))
BOMBS = {
    "merges": ("a0: &a0 {}\n" + MERGES, "more than 200000 values"),
    "merges-of-much": ("a0: &a0 {x: 1}\n" + MERGES, "more than 200000 values"),
    "merges-of-itself": ("a: {<<: &m {x: {<<: *m}}}", "the anchor contains itself"),
    "aliases": ("a: &a x\nb: [" + "*a, " * 300_000 + "]", "more than 200000 values"),
    "long-aliases": (f"a: &a {'x' * 100_000}\nb: [" + "*a, " * 10_000 + "]", "more than 16777216 characters"),
    "deep-lists": ("[" * 3000, "nested too deeply"),
    "deep-maps": ("{a: " * 3000, "nested too deeply"),
    "deep-blocks": ("".join(" " * i + "a:\n" for i in range(2000)), "nested too deeply"),
    "deeper": ("- " * 2_000_000, "nested too deeply"),
    "long": ("a: 1\n" * 1_000_000, "bytes, expected at most 4194304"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_yaml_is_not_larger_than_it_looks(folder: Path, name: str) -> None:
    text, expected = BOMBS[name]
    (folder / "lab.yml").write_text(text)
    assert expected in refused("compile", folder)


DIGITS = "9" * 400
NUMBERS = {
    "left: 2": f"left: {DIGITS}",
    "rate: 1 Gbit/s": f"rate: {DIGITS} Gbit/s",
    "delay: 5 us": f"delay: {DIGITS} us, loss: {DIGITS} %",
    "64 KB": f"{DIGITS} packets",
    "load: 0.1": f"load: {DIGITS}",
    "10 KB": "1" + "_" * 1_000_000 + " 9",
    "duration: 5 ms": f"duration: {DIGITS} s",
    "name: received": f"name: {'x' * 1_000_000}",
}


@pytest.mark.parametrize("old", NUMBERS)
def test_numbers_without_end(folder: Path, old: str) -> None:
    text = LAB.replace("{star: {hosts: 4}}", "{dumbbell: {left: 2, right: 2}}")
    assert old in text
    (folder / "lab.yml").write_text(text.replace(old, NUMBERS[old]))
    assert len(refused("compile", folder)) < 1000
