# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/schemes.md add a scheme to a copy of the checkout, and change no file outside its folder.

The example marks one of `every` packets above the threshold, so the expected counts are computed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import duckdb
import pytest

from qbed_testing.checkouts import make_checkout, qbed

LAB = """\
name: mine
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: mine, buffer: 128 KB, threshold: 10 packets}}
hosts: {default: {tcp: dctcp}}
workload:
  - flows: {pairs: [[h1, h3], [h2, h3]], size: 2 MB}
duration: 50 ms
"""
CAMPAIGN = """\
question: How many marks are necessary?
axes:
  scheme:
    - {name: ecn, set: {switches.default.scheme: ecn}}
    - {name: all, set: {switches.default.every: 1}}
    - {name: half, set: {}}
    - {name: third, set: {switches.default.every: 3}}
claims:
  - name: spared
    random: no
    sql: |
      SELECT min(xstats['spared']) > 100 AS holds, max(xstats['spared']) AS max_spared
      FROM queues WHERE scheme IN ('half', 'third') AND port = 's1>h3'
figures:
  - {kind: queue, queue: s1>h3, title: The queue}
"""


def block(language: str, page: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", page, re.S)
    assert len(found) == 1, f"expected one block of {language} in docs/schemes.md"
    return str(found[0])


def state(root: Path) -> dict[str, str]:
    """Hashes of all files except the new scheme and build results."""
    built = (root / ".venv", root / "runs", root / "schemes" / "mine")
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and not any(path.is_relative_to(folder) for folder in built)
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the scheme of docs/schemes.md, after a run of a campaign with it."""
    root = make_checkout(tmp_path_factory.mktemp("new") / "checkout")
    page = (root / "docs" / "schemes.md").read_text()
    before = state(root)
    script = f'qbed() {{ .venv/bin/python -m qbed "$@"; }}\n{block("sh", page)}'
    subprocess.run(["bash", "-ec", script], cwd=root, check=True)
    subprocess.run(["patch", "--strip=1", "--fuzz=0"], cwd=root, input=block("diff", page), text=True, check=True)
    (root / "runs" / "lab").mkdir(parents=True)
    (root / "runs" / "lab" / "lab.yml").write_text(LAB)
    (root / "runs" / "lab" / "campaign.yml").write_text(CAMPAIGN)
    done = qbed(root, "run", "runs/lab", "--out", "runs/mine", "--no-images")
    assert done.returncode == 0, done.stderr
    assert "changed after the set-up: building again" in done.stderr
    assert state(root) == before
    return root


def test_the_scheme_marks_packets_and_reports_statistics(checkout: Path) -> None:
    where = f"'{checkout}/runs/mine/queues.parquet' JOIN '{checkout}/runs/mine/cells.parquet' USING (cell)"
    rows = duckdb.sql(f"SELECT scheme, xstats FROM {where} WHERE port = 's1>h3'")
    found = {
        name: (json.loads(xstats) if isinstance(xstats, str) else dict(xstats)) for name, xstats in rows.fetchall()
    }
    assert set(found) == {"ecn", "all", "half", "third"} and "spared" not in found["ecn"]
    for name, every in {"all": 1, "half": 2, "third": 3}.items():
        above = found[name]["marked"] + found[name]["spared"]
        assert found[name]["unmarked"] == 0 and found[name]["marked"] > 50
        assert found[name]["marked"] == -(-above // every), name
    # With `every: 1` the copy equals the original.
    assert found["all"]["marked"] == found["ecn"]["marked"]
    ends = f"SELECT scheme, list(fct_ns ORDER BY flow) FROM '{checkout}/runs/mine/flows.parquet' JOIN "
    ends += f"'{checkout}/runs/mine/cells.parquet' USING (cell) GROUP BY scheme"
    times = dict(duckdb.sql(ends).fetchall())
    assert times["all"] == times["ecn"] != times["half"]


def test_the_scheme_is_in_the_report_and_the_reference(checkout: Path) -> None:
    report = (checkout / "runs" / "mine" / "report.html").read_text()
    assert "max_spared" in report and "<blockquote>" not in report  # the claim has no sentence of a paper
    page = qbed(checkout, "reference").stdout
    section = page.partition("\n### mine\n")[2].partition("\n### ")[0]
    assert "| `every` | a whole number | `2` | from `1` |" in section and "| `spared` | packets |" in section
    schema = json.loads(qbed(checkout, "schema").stdout)
    settings = schema["$defs"]["SwitchSettings"]["properties"]
    assert "mine" in settings["scheme"]["enum"] and settings["every"]["type"] == "integer"


def test_the_parameters_are_checked(checkout: Path) -> None:
    refused = qbed(checkout, "compile", "runs/lab", "--set", "switches.default.every=0")
    assert refused.returncode != 0 and "expected at least `1`, got `0`" in refused.stderr


def test_tc_shows_the_schemes_usage(checkout: Path) -> None:
    built = subprocess.run([checkout / "kernel" / "tc-plugins.sh"], capture_output=True, text=True, check=True)
    folder = built.stdout.strip()
    command = ["tc", "qdisc", "add", "dev", "lo", "root", "mine", "help"]
    environment = os.environ | {"TC_LIB_DIR": folder, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    usage = "Usage: ... mine limit { BYTES | PACKETSp } [ threshold { BYTES | PACKETSp } ] [ every NUMBER ]"
    assert usage in done.stderr, done.stderr


def test_the_schemes_tests_run_with_the_others(checkout: Path) -> None:
    done = subprocess.run(
        ["make", "-s", "-C", checkout / "kernel" / "tests", "check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "schemes/mine/tests/test_mine_algorithm.c: pass" in done.stdout, done.stderr


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_an_error_in_a_scheme_is_reported_with_file_and_line(checkout: Path) -> None:
    assert qbed(checkout, "scheme", "new", "broken").returncode == 0
    lab = checkout / "runs" / "broken" / "lab.yml"
    lab.parent.mkdir()
    lab.write_text(LAB.replace("mine", "broken"))
    queue = checkout / "schemes" / "broken" / "kernel" / "sch_broken.c"
    change(queue, "stats->marked++;", "stats->markde++;")
    command = ("run", "runs/broken", "--out", "runs/fails", "--no-images")
    refused = qbed(checkout, *command)
    assert refused.returncode != 0 and "schemes/broken/kernel/sch_broken.c:22:24: error:" in refused.stderr
    assert "modules.new" not in refused.stderr and "make[" not in refused.stderr
    change(queue, "stats->markde++;", "stats->marked++;")
    # With more than ten packets it writes to a null pointer.
    fault = "((volatile struct broken_stats *)missing)->marked++;"
    change(
        queue,
        "\tswitch (",
        f'\tstruct broken_stats *missing = NULL;\n\n\tpr_warn("%u wait\\n", vars.queue_packets);\n'
        f"\tif (vars.queue_packets > 10)\n\t\t{fault}\n\tswitch (",
    )
    failed = qbed(checkout, *command)
    line = 1 + queue.read_text().splitlines().index(f"\t\t{fault}")
    at = f"\n    at broken_enqueue [sch_broken], schemes/broken/kernel/sch_broken.c:{line}\n"
    assert at in failed.stderr and "the guest's kernel panicked at 0." in failed.stderr, failed.stderr
    console = (checkout / "runs" / "fails" / "cells" / "000000.failed" / "work" / "console.log").read_text()
    messages = re.findall(r"^\[(.*)\] (\d+) wait$", console, re.M)
    assert messages[-1][1] == "11" and re.search(r"^\[.*\]   at broken_enqueue\+0x[0-9a-f]+/0x", console, re.M)
    # Lab time in nanoseconds: a packet takes 0.592 us or 12.112 us at 1 Gbit/s.
    assert re.fullmatch(r"0\.\d{9}", messages[0][0]) and len({time[-6:] for time, _ in messages}) > 20
