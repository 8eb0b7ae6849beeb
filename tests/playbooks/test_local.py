# SPDX-License-Identifier: Apache-2.0
"""The playbooks on this machine without changes, their lint, their reference, and invalid input."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

import reference
from qbed_filters import containerlab_version_of, unknown_variables
from qbed_testing.machines import COLLECTION, NO_COLOUR, PLAYBOOKS, ROOT, TOOL, PlaybookResult, play

SPECS = {path.parents[1].name: path for path in COLLECTION.glob("roles/*/meta/argument_specs.yml")}
LOCAL = {"toolchain_folder": str(ROOT)}


def play_locally(playbook: str, *arguments: str, **variables: object) -> PlaybookResult:
    return play(playbook, "localhost,", "--connection", "local", *arguments, **(LOCAL | variables))


def test_ansible_lint_passes() -> None:
    command = [str(TOOL), "ansible-lint"]
    done = subprocess.run(command, cwd=PLAYBOOKS, env={**os.environ, **NO_COLOUR}, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "0 failure(s), 0 warning(s)" in output and "'production'" in output, output


def test_the_reference_is_up_to_date() -> None:
    readme = (PLAYBOOKS / "README.md").read_text()
    assert reference.with_tables(readme) == readme, "run make generate"


def test_unknown_variables_are_reported() -> None:
    variables = ["lab_qqqqqqqqq", "lab_state", "ansible_user", "campain_lab", "toolchain_form"]
    lab, form = unknown_variables(variables)
    known = "the role lab knows lab_checkout, lab_folder, lab_on, lab_settings, lab_state"
    assert lab == f"lab_qqqqqqqqq: no role has this variable; {known}"
    assert form == "toolchain_form: no role has this variable; is it toolchain_from?"


def test_containerlabs_version_is_parsed() -> None:
    assert containerlab_version_of("  CONTAINERlab\n    version: 0.69.3\n     commit: none") == "0.69.3"
    assert containerlab_version_of("") == "0"


@pytest.mark.parametrize("role", sorted(path.name for path in (COLLECTION / "roles").iterdir()))
def test_specs_and_defaults_agree(role: str) -> None:
    options = yaml.safe_load(SPECS[role].read_text())["argument_specs"]["main"]["options"]
    defaults = yaml.safe_load((COLLECTION / "roles" / role / "defaults" / "main.yml").read_text())
    assert defaults == {name: option["default"] for name, option in options.items() if not option.get("required")}


def test_the_example_inventory_is_accepted() -> None:
    done = play("prepare.yml", PLAYBOOKS / "inventory.example.yml", "--list-hosts")
    assert done.status == 0 and "localhost" in done.text and "bench1.example.org" in done.text


def test_a_complete_machine_is_not_changed() -> None:
    for program in ("docker", "containerlab"):
        if subprocess.run([program, "version"], capture_output=True).returncode != 0:
            pytest.skip(f"{program} is not on this machine: make machine")
    # The release has no server, so installed programs must not be replaced.
    done = play_locally(
        "prepare.yml", "--tags", "docker,containerlab,toolchain", containerlab_release="http://127.0.0.1:9"
    )
    assert done.succeeded and done.changed == 0, done.text


def test_a_missing_containerlab_without_a_source_is_reported_before_any_change() -> None:
    unreachable = {"containerlab_version": "9.9.9", "containerlab_release": "http://127.0.0.1:9"}
    done = play_locally("prepare.yml", **unreachable)
    assert done.status != 0 and done.changed == 0
    assert "TASK [qbed.lab.machine" not in done.text, "the sources are checked first"
    package = "http://127.0.0.1:9/containerlab_9.9.9_linux_amd64.deb"
    assert f"Containerlab 9.9.9 is not on localhost and cannot be installed. The release: {package}: " in done.message
    assert "A build on the controller: " in done.message and "Connection refused" in done.message
    assert "Remedies: containerlab_release=URL of a mirror; containerlab_source=file" in done.message


INVALID = {
    "a misspelt variable": (
        ("lab.yml", {"lab_folder": "labs/dumbbell", "lab_stat": "absent"}),
        "lab_stat: no role has this variable; is it lab_state? (all variables: playbooks/README.md)",
    ),
    "an invalid choice and a missing lab": (
        ("lab.yml", {"lab_state": "gone"}),
        "missing required arguments: lab_folder value of lab_state must be one of: present, absent, got: gone",
    ),
    "an unknown lab": (
        ("lab.yml", {"lab_folder": "labs/dumbell"}),
        f"lab_folder: localhost has no {ROOT}/labs/dumbell/lab.yml; there are: labs/",
    ),
    "an unknown profile": (
        ("campaign.yml", {"campaign_lab": "labs/dumbbell", "campaign_profile": "quik"}),
        "localhost: error: the campaign has no profile `quik`; did you mean `quick`?",
    ),
    "a missing file": (
        ("prepare.yml", {"containerlab_version": "9.9.9", "containerlab_source": "file", "containerlab_file": "/x"}),
        "containerlab_file: /x is no file of this controller; containerlab_source: file needs a binary of Containerlab",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_input_gives_one_message(case: str, tmp_path: Path) -> None:
    (playbook, variables), expected = INVALID[case]
    tags = ("--tags", "containerlab") if "containerlab_file" in variables else ()
    results = {"campaign_results": str(tmp_path)} if playbook == "campaign.yml" else {}
    done = play_locally(playbook, *tags, **variables, **results)
    assert done.status != 0 and "Traceback" not in done.text
    assert expected in done.message, done.text
    assert done.changed == 0 and not list(tmp_path.iterdir())
