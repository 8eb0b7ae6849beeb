# SPDX-License-Identifier: Apache-2.0
"""Limits on untrusted files: loading and compiling them needs at most 10 s of CPU time and 1 GB.

A file that exceeds a limit is refused with the number and the limit.
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
    """Run a command with limits of CPU time and memory; paths out of the lab's folder are allowed."""
    command = [sys.executable, "-m", "qbed", *map(str, arguments)]
    environment = os.environ | {"QBED_TRUST": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=30 * TIME_S, preexec_fn=_limits, env=environment, check=False
    )


def refused(*arguments: str | Path) -> str:
    """Run a command that refuses its files, and return its error."""
    done = qbed(*arguments)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr[-2000:]
    assert "error: " in done.stderr, done.stderr
    return done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "lab.yml").write_text(LAB)
    return tmp_path


IRREGULAR_FILES = {
    "/dev/zero": "it is no regular file",
    "/dev/tty": "it is no regular file",
    "pipe": "it is no regular file",
    "sparse": "it has 1099511627776 bytes, expected at most",
    ".": "it is a folder",
}


@pytest.mark.parametrize("name", IRREGULAR_FILES)
def test_a_cdf_is_a_regular_file(folder: Path, name: str) -> None:
    (folder / "lab.yml").write_text(LAB.replace("fixed: 10 KB", f"cdf: {name}"))
    assert f"lab.yml:6:28: workload[0].arrivals.size.cdf: cannot read `{name}`: {IRREGULAR_FILES[name]}" in refused(
        "compile", folder
    )


@pytest.mark.parametrize("name", [name for name in IRREGULAR_FILES if name != "."])
def test_a_lab_a_campaign_and_a_topology_are_regular_files(folder: Path, name: str) -> None:
    assert IRREGULAR_FILES[name] in refused("compile", folder / name)
    assert IRREGULAR_FILES[name] in refused("import", folder / name)
    (folder / "campaign.yml").write_text(json.dumps({"question": "Which lab?", "lab": name}))
    assert IRREGULAR_FILES[name] in refused("run", folder, "--out", folder / "run", "--no-images")
    (folder / "campaign.yml").unlink()
    (folder / "campaign.yml").symlink_to(folder / name)
    assert IRREGULAR_FILES[name] in refused("run", folder, "--out", folder / "run", "--no-images")


@pytest.mark.parametrize("name", [name for name in IRREGULAR_FILES if name != "."])
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
def test_yaml_that_expands_too_much_is_refused(folder: Path, name: str) -> None:
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
def test_a_huge_number_is_refused_in_a_short_message(folder: Path, old: str) -> None:
    text = LAB.replace("{star: {hosts: 4}}", "{dumbbell: {left: 2, right: 2}}")
    assert old in text
    (folder / "lab.yml").write_text(text.replace(old, NUMBERS[old]))
    assert len(refused("compile", folder)) < 1000


STAR = "{star: {hosts: 4}}"
NODES = ", ".join(f"h{i}x1..h{i}x9999: host" for i in range(10))
LINKS = ", ".join(["{ends: [h1..h9999, s1]}"] * 1000)
LARGE = {
    "a-million": ("clos: {hosts: 1024, racks: 1024, spines: 1}", "gives 1049601 nodes; expected at most 65536"),
    "chain": ("parking-lot: {switches: 1024, hosts: 1024}", "gives 1049600 nodes; expected at most 65536"),
    "pods": ("clos: {hosts: 1, racks: 256, pods: 256, leaves: 256, spines: 256}", "gives 66304 nodes"),
    "links": ("clos: {hosts: 1, racks: 1024, leaves: 256, spines: 256}", "gives 328704 links; expected at most 131072"),
    "routes": (
        "clos: {hosts: 1, racks: 1024, spines: 16}",
        "are 16777216 next hops of routes; expected at most 2000000",
    ),
    "nodes": (f"explicit: {{nodes: {{{NODES}}}, links: []}}", "gives 99990 nodes"),
    "entries": (f"explicit: {{nodes: {{h1..h9999: host, s1: switch}}, links: [{LINKS}]}}", "gives 9999000 links"),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_topology_is_refused_before_it_is_built(folder: Path, name: str) -> None:
    topology, expected = LARGE[name]
    (folder / "lab.yml").write_text(LAB.replace(STAR, f"{{{topology}}}"))
    assert expected in refused("compile", folder)


WORKLOAD = "  - arrivals: {size: {fixed: 10 KB}, load: 0.1}\n"
PAIRS = ", ".join(["[h1, h2]"] * 20000)
STEPS = "expected at most 10000000"
WIDE = {
    "flows": ("workload", "  - flows: {from: h*, to: h1, count: 100000}\n" * 10, "expected at most 1000000 in a lab"),
    "pairs": ("workload", f"  - flows: {{pairs: [{PAIRS}], count: 100000}}\n", "2000000000 flows"),
    "arrivals": ("workload", "  - arrivals: {size: 1 KB, interval: 1 ns}\n", "5e+09 in all; expected at most 10000000"),
    "seldom": ("workload", f"  - arrivals: {{size: 1 GB, load: 0.{'0' * 300}1}}\n", "one flow in"),
    "workloads": ("workload", "  - arrivals: {size: 1 KB, load: 0.1, limit: 1}\n" * 9999, STEPS),
    "senders": ("workload", "  - incast: {senders: 1, receiver: h1, size: 1 KB}\n" * 9999, STEPS),
    "links": ("links", "".join(f"  'h{'*' * i}': {{mtu: 1 KB}}\n" for i in range(1, 900)), "characters"),
    "ports": ("switches", "".join(f"  's{'*' * i}>*': {{}}\n" for i in range(1, 900)), "characters"),
    "hosts": ("hosts", "".join(f"  '{'*' * i}': {{tcp: reno}}\n" for i in range(1, 900)), "characters"),
    "events": ("events", "  - {at: 1 ms, link: '*', state: down}\n" * 5000, "expected at most 100000"),
    "captures": ("capture", "  - 'h*>*'\n" * 20000, STEPS),
    "mistakes": ("hosts", "".join(f"  no{i}: {{}}\n" for i in range(30000)), "and at least 51 more"),
}


@pytest.mark.parametrize("name", WIDE)
def test_a_short_file_that_expands_on_a_large_network_is_refused(folder: Path, name: str) -> None:
    field, entries, expected = WIDE[name]
    text = LAB.replace(STAR, "{star: {hosts: 9000}}").replace("duration: 5 ms", "duration: 5 s")
    text = text.replace(WORKLOAD, entries) if field == "workload" else f"{text}{field}:\n{entries}"
    text = text.replace("links: {default: {rate: 1 Gbit/s, delay: 5 us}}\n", "") if field == "links" else text
    text = text.replace("switches: {default: {scheme: droptail, buffer: 64 KB}}\n", "") if field == "switches" else text
    (folder / "lab.yml").write_text(text + ("  default: {rate: 1 Gbit/s}\n" if field == "links" else ""))
    assert expected in refused("compile", folder)


MANY = list(range(1, 101))
CAMPAIGNS = {
    "ten-axes": (
        {f"a{i}": {"field": f"hosts.h{i}.sysctls.net/x{i}", "values": MANY} for i in range(10)},
        "100 x 100 x 100 x 100 x 100 x 100 x 100 x 100 x 100 x 100 x 1 = 100000000000000000000 cells",
    ),
    "twenty-axes": (
        {f"a{i}": {"field": f"hosts.h1.sysctls.net/x{i}", "values": MANY} for i in range(20)},
        "2000 values of axes; expected at most 1000 in a campaign",
    ),
    "many-axes": (
        {f"a{i}": {"field": f"hosts.h1.sysctls.net/x{i}", "values": [1]} for i in range(1000)},
        "1000 axes; expected at most 50 in a campaign",
    ),
    "many-values": ({"duration": [f"{i} ns" for i in range(1, 20_000)]}, "19999 values of axes; expected at most 1000"),
    "many-fields": (
        {"a": [{"name": i, "set": {f"hosts.h{j}.tcp": "reno" for j in range(100)}} for i in range(100)]},
        "10001 fields that are set; expected at most 5000",
    ),
    "no-axis": ({f"a{i}": [] for i in range(9999)}, "an axis needs at least one value"),
}


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_matrix_is_counted_before_its_cells_are_built(folder: Path, name: str) -> None:
    axes, expected = CAMPAIGNS[name]
    (folder / "campaign.yml").write_text(json.dumps({"question": "How many?", "axes": axes}))
    assert expected in refused("run", folder, "--out", folder / "run", "--no-images")


SEEDS = ("1..99999999999", "1..1000000,1..2", "9" * 5000, f"1..{'9' * 400}", "5..1", "-5..99999999")


@pytest.mark.parametrize("seeds", SEEDS)
def test_too_many_seeds_are_refused(folder: Path, seeds: str) -> None:
    done = qbed("run", folder, "--out", folder / "run", "--no-images", "--seeds", seeds)
    assert done.returncode == 2 and "Traceback" not in done.stderr and "seed" in done.stderr, done.stderr
