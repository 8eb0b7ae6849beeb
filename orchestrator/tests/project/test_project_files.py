# SPDX-License-Identifier: Apache-2.0
"""Files for forges, editors and citations name commands, files and versions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from qbed import __version__
from qbed.base.locations import checkout

_ROOT = checkout()
assert _ROOT is not None
ROOT: Path = _ROOT


def test_the_workflow_runs_the_ci_of_the_project_on_both_releases_of_debian() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["test"]
    assert job["strategy"]["matrix"]["debian"] == ["12", "13"]
    assert job["steps"][-1]["run"].endswith(".ci/run") and (ROOT / ".ci/run").is_file()


def test_the_citation_has_the_version_of_the_package() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def test_hooks_run_programs_that_set_up_leaves() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]:
        assert (ROOT / hook["entry"].split()[0]).is_file(), hook["id"]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_a_page_names_targets_and_files_that_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    targets = set(re.findall(r"^([a-z0-9-]+)(?: [a-z0-9-]+)*:", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|    )make ([a-z][a-z0-9-]*)", text)) <= targets
    for name in re.findall(r"`((?:tools|tests|crates|orchestrator|labs|schemes)/[\w./-]+)`", text):
        if not re.search("[A-Z]{4}", name):  # NAME stands for a name
            assert (ROOT / name).exists(), name
