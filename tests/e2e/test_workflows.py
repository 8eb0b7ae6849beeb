# SPDX-License-Identifier: Apache-2.0
"""The commands of the workflow files of docs/ci, in their order and with the variables of the CI system."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
LAB = """\
name: shared
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
workload: [{flows: {pairs: [[h1, h3], [h2, h4]], size: 100 KB}}]
duration: 5 ms
"""
CAMPAIGN = """\
question: Do the shards give the complete campaign?
axes: {seed: [1, 2, 3]}
profiles: {quick: {}}
claims: [{name: all, paper: Two flows a seed., random: no, sql: SELECT count(*) % 2 = 0 AS holds FROM flows}]
"""


class Machine:
    """A checkout after `tools/setup`, where the commands of a workflow run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("labs", ".venv", "tools", "orchestrator"):
            (folder / name).symlink_to(ROOT / name)
        (folder / "lab").mkdir()
        (folder / "lab" / "lab.yml").write_text(LAB)
        (folder / "lab" / "campaign.yml").write_text(CAMPAIGN)
        self.run(f"{sys.executable} -m qbed run lab --profile quick --no-images --out first --lock")

    def run(self, command: str, **variables: str) -> None:
        if command == "tools/setup":
            return  # already set up
        defaults = {"LAB": "lab", "PROFILE": "quick", "QBED_CACHE": str(self.folder / "cache"), "QBED_STORE": "1 GB"}
        done = subprocess.run(
            ["bash", "-euc", command], cwd=self.folder, env=os.environ | defaults | variables,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    def check(self) -> None:
        assert "all |" in (self.folder / "campaign.md").read_text()
        assert 'name="shared quick.cells" tests="3"' in (self.folder / "campaign.xml").read_text()
        assert (self.folder / "campaign" / "report.html").exists()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / "docs" / "ci" / name).read_text())


def test_the_github_workflow(machine: Machine) -> None:
    jobs = read("github.yml")["jobs"]
    shards = jobs["cells"]["strategy"]["matrix"]["shard"]
    for job in ("cells", "campaign"):
        for shard in shards if job == "cells" else [""]:
            for step in jobs[job]["steps"]:
                if "run" in step:
                    command = re.sub(r"\$\{\{ *matrix\.shard *\}\}", str(shard), step["run"])
                    assert "${{" not in command
                    machine.run(command, GITHUB_STEP_SUMMARY=str(machine.folder / "campaign.md"))
    machine.check()


def test_the_gitlab_pipeline(machine: Machine) -> None:
    file = read("gitlab.yml")
    total = file["cells"]["parallel"]
    for number in range(1, total + 1):
        for command in [*file["default"]["before_script"], *file["cells"]["script"]]:
            machine.run(command, CI_NODE_INDEX=str(number), CI_NODE_TOTAL=str(total))
    for command in file["campaign"]["script"]:
        machine.run(command)
    machine.check()
