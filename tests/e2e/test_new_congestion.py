# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/congestion.md add a congestion control to a copy of the checkout, and run it in a lab.

A rate controller of `qbed controller new` does the same (docs/schemes.md).
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import duckdb
import pytest

from qbed_testing.checkouts import make_checkout, qbed

FLOOR = """\
  - name: floor
    type: number
    default: 2
    min: 1
    help: Minimum window after a reduction, in segments.
"""


def blocks(language: str, page: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.S)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with the congestion control of docs/congestion.md, after a run of the page's campaign."""
    root = make_checkout(tmp_path_factory.mktemp("new") / "checkout")
    page = (root / "docs" / "congestion.md").read_text()
    command, script = f'qbed() {{ {root}/.venv/bin/python -m qbed "$@"; }}\n', blocks("sh", page)[0]
    subprocess.run(["bash", "-ec", command + script], cwd=root, check=True)
    (root / "runs" / "lab").mkdir(parents=True)
    for name, text in zip(("lab.yml", "campaign.yml"), blocks("yaml", page)[:2], strict=True):
        (root / "runs" / "lab" / name).write_text(text)
    done = qbed(root, "run", "runs/lab", "--out", "runs/mine", "--no-images")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed after the set-up: building again" in done.stderr
    return root


def completion_times(root: Path, run: str) -> dict[str, list[tuple[int, str]]]:
    """Completion times and congestion controls of the flows of each cell, by the axis `control`."""
    where = f"'{root}/runs/{run}/flows.parquet' JOIN '{root}/runs/{run}/cells.parquet' USING (cell)"
    rows = duckdb.sql(f"SELECT control, list((fct_ns, congestion_control) ORDER BY flow) FROM {where} GROUP BY ALL")
    return dict(rows.fetchall())


def test_it_runs_and_its_parameter_is_an_axis(checkout: Path) -> None:
    found = completion_times(checkout, "mine")
    assert set(found) == {"aimd", "half", "tenth"}
    (aimd, name), (half, other_name), (tenth, _) = (found[control][0] for control in ("aimd", "half", "tenth"))
    assert (name, other_name) == ("aimd", "mine") and aimd == half != tenth


def test_its_tests_run_with_the_others(checkout: Path) -> None:
    command: list[str | Path] = ["make", "-s", "-C", checkout / "kernel" / "tests", "run-test_mine_algorithm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "congestion/mine/tests/test_mine_algorithm.c: pass" in done.stdout, done.stderr


def test_a_changed_parameter_is_checked_and_reaches_the_module(checkout: Path) -> None:
    """A new parameter is a line of the declaration and a use in C."""
    declaration = checkout / "congestion" / "mine" / "congestion.yml"
    declaration.write_text(declaration.read_text() + FLOOR)
    module = checkout / "congestion" / "mine" / "kernel" / "tcp_mine.c"
    text = module.read_text()
    cut = "return mine_cut(inet_csk_ca(sk), tcp_snd_cwnd(tcp_sk(sk)), mine_decrease);"
    assert cut in text
    module.write_text(text.replace(cut, cut.replace("mine_cut(", "max(mine_floor, mine_cut(").replace(");", "));")))
    refused = qbed(checkout, "compile", "runs/lab", "--set", "congestion.mine.flor=40")
    assert refused.returncode != 0 and "did you mean `floor`?" in refused.stderr
    arguments = ("--set", "hosts.default.tcp=mine", "--set", "congestion.mine.floor=40")
    done = qbed(checkout, "run", "runs/lab/lab.yml", *arguments, "--out", "runs/floor", "--no-images")
    assert done.returncode == 0, done.stdout + done.stderr
    (floor,) = duckdb.sql(f"SELECT fct_ns FROM '{checkout}/runs/floor/flows.parquet'").fetchall()
    assert floor[0] != completion_times(checkout, "mine")["half"][0][0]


RATES = """
name: rates
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
hosts: {default: {controller: {name: aimd, step: 20 Mbit/s}}}
workload: [flow: {from: h1, to: h3, size: 2 MB, transport: rate}]
duration: 1 s
"""


def test_a_new_rate_controller_runs_and_its_rule_can_be_changed(checkout: Path) -> None:
    done = qbed(checkout, "controller", "new", "paced")
    assert done.returncode == 0 and "`controller: {name: paced}`" in done.stdout, done.stderr
    (checkout / "runs" / "rates").mkdir()
    (checkout / "runs" / "rates" / "lab.yml").write_text(RATES)

    def completion_ns(controller: str, out: str) -> int:
        ran = qbed(
            checkout,
            *("run", "runs/rates/lab.yml", "--set", f"hosts.default.controller.name={controller}"),
            *("--out", f"runs/{out}", "--no-images"),
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        (found,) = duckdb.sql(f"SELECT fct_ns FROM '{checkout}/runs/{out}/flows.parquet'").fetchall()
        return int(found[0])

    aimd = completion_ns("aimd", "rates-aimd")
    assert completion_ns("paced", "rates-copy") == aimd
    rule = checkout / "schemes" / "paced" / "host" / "paced.h"
    text = rule.read_text()
    assert "vars->rate_bps += p->step_bps;" in text
    rule.write_text(text.replace("vars->rate_bps += p->step_bps;", "vars->rate_bps += 2 * p->step_bps;"))
    assert completion_ns("paced", "rates-twice") < aimd
