# SPDX-License-Identifier: Apache-2.0
"""The playbooks on this machine (changing nothing), their lint, their reference, and bad input."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

import reference
from qbed_filters import containerlab_version_of, unknown_variables
from qbed_testing.machines import NO_COLOUR, PLAYBOOKS, ROOT, TOOL, PlaybookResult, play

SPECS = {path.parents[1].name: path for path in PLAYBOOKS.glob("roles/*/meta/argument_specs.yml")}
LOCAL = {"toolchain_folder": str(ROOT)}


def here(playbook: str, *arguments: str, **variables: object) -> PlaybookResult:
    return play(playbook, "localhost,", "--connection", "local", *arguments, **(LOCAL | variables))


def test_ansible_lint_has_nothing_to_say() -> None:
    command = [str(TOOL), "ansible-lint"]
    done = subprocess.run(command, cwd=PLAYBOOKS, env={**os.environ, **NO_COLOUR}, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "0 failure(s), 0 warning(s)" in said and "'production'" in said, said


def test_the_reference_is_of_today() -> None:
    readme = (PLAYBOOKS / "README.md").read_text()
    assert reference.with_tables(readme) == readme, "run make generate"


def test_variables_that_no_role_knows_are_named() -> None:
    given = ["lab_qqqqqqqqq", "lab_state", "ansible_user", "campain_lab", "toolchain_form"]
    lab, form = unknown_variables(given, PLAYBOOKS)
    knows = "the role lab knows lab_checkout, lab_folder, lab_on, lab_settings, lab_state"
    assert lab == f"lab_qqqqqqqqq: no role has this variable; {knows}"
    assert form == "toolchain_form: no role has this variable; is it toolchain_from?"


def test_containerlabs_version_is_read_from_what_it_says() -> None:
    assert containerlab_version_of("  CONTAINERlab\n    version: 0.69.3\n     commit: none") == "0.69.3"
    assert containerlab_version_of("") == "0"


@pytest.mark.parametrize("role", sorted(path.name for path in (PLAYBOOKS / "roles").iterdir()))
def test_specs_and_defaults_say_the_same(role: str) -> None:
    options = yaml.safe_load(SPECS[role].read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((PLAYBOOKS / "roles" / role / "defaults" / "main.yml").read_text())
    assert defaults == {name: option["default"] for name, option in options.items() if not option.get("required")}


def test_the_example_inventory_is_accepted() -> None:
    done = play("prepare.yml", PLAYBOOKS / "inventory.example.yml", "--list-hosts")
    assert done.status == 0 and "localhost" in done.text and "bench1.example.org" in done.text


def test_a_machine_that_has_all_is_left_as_it_is() -> None:
    for program in ("docker", "containerlab"):
        if subprocess.run([program, "version"], capture_output=True).returncode != 0:
            pytest.skip(f"{program} is not on this machine: make machine")
    # A release that nobody serves: what is there must be left alone.
    done = here("prepare.yml", "--tags", "docker,containerlab,toolchain", containerlab_release="http://127.0.0.1:9")
    assert done.succeeded and done.changed == 0, done.text


BAD = {
    "a variable with a slip": (
        ("lab.yml", {"lab_folder": "labs/dumbbell", "lab_stat": "absent"}),
        "lab_stat: no role has this variable; is it lab_state? (all variables: playbooks/README.md)",
    ),
    "a value that is no choice, and no lab": (
        ("lab.yml", {"lab_state": "gone"}),
        "missing required arguments: lab_folder value of lab_state must be one of: present, absent, got: gone",
    ),
    "a lab that is not there": (
        ("lab.yml", {"lab_folder": "labs/dumbell"}),
        f"lab_folder: localhost has no {ROOT}/labs/dumbell/lab.yml; there are: labs/",
    ),
    "a profile that is not there": (
        ("campaign.yml", {"campaign_lab": "labs/dumbbell", "campaign_profile": "quik"}),
        "localhost: error: the campaign has no profile `quik`; did you mean `quick`?",
    ),
    "a file that is not there": (
        ("prepare.yml", {"containerlab_version": "9.9.9", "containerlab_source": "file", "containerlab_file": "/x"}),
        "containerlab_file: /x is no file of this controller; containerlab_source: file needs a binary of Containerlab",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_has_one_clear_message(case: str, tmp_path: Path) -> None:
    (playbook, variables), expected = BAD[case]
    tags = ("--tags", "containerlab") if "containerlab_file" in variables else ()
    results = {"campaign_results": str(tmp_path)} if playbook == "campaign.yml" else {}
    done = here(playbook, *tags, **variables, **results)
    assert done.status != 0 and "Traceback" not in done.text
    assert expected in done.message, done.text
    assert done.changed == 0 and not list(tmp_path.iterdir())
