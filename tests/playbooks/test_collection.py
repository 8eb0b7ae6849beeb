# SPDX-License-Identifier: Apache-2.0
"""The collection qbed.lab: Ansible's own checks, and its archive in a playbook outside of the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from qbed import __version__

from qbed_testing.machines import COLLECTION, NO_COLOUR, ROOT, TOOL

ROLES = {"campaign", "collect", "containerlab", "docker", "lab", "machine", "prepare", "toolchain", "worker"}
# These install packages, in environments of their own (2 minutes).
WITH_REQUIREMENTS = (
    *("ansible-doc", "changelog", "import", "pep8", "pslint", "pylint", "runtime-metadata", "shellcheck"),
    *("validate-modules", "yamllint"),
)
PLAYBOOK = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_subset": ["!all", "!min", "user"],
        "roles": [{"role": "qbed.lab.lab", "lab_folder": "labs/dumbbell", "lab_checkout": str(ROOT)}],
    }
]


def ansible(*command: str | Path, cwd: Path = COLLECTION, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TOOL), *map(str, command)],
        cwd=cwd,
        env={**os.environ, **NO_COLOUR, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_version_is_that_of_qbed() -> None:
    assert yaml.safe_load((COLLECTION / "galaxy.yml").read_text())["version"] == __version__


def test_sanity_checks_pass() -> None:
    skipped = [f"--skip-test={name}" for name in (*WITH_REQUIREMENTS, "compile")]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    done = ansible("ansible-test", "sanity", "--color=no", f"--python={python}", *skipped)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("Running sanity test")]
    assert 'Running sanity test "shebang"' in ran and len(ran) >= 10


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of collections into which the archive was installed."""
    folder = tmp_path_factory.mktemp("collection")
    built = ansible("ansible-galaxy", "collection", "build", "--output-path", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    archive = folder / f"qbed-lab-{__version__}.tar.gz"
    install = ("collection", "install", "--offline", "--force", "--collections-path", folder / "collections", archive)
    done = ansible("ansible-galaxy", *install)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "collections"


def test_the_archive_has_all_roles_and_their_specs(installed: Path) -> None:
    root = installed / "ansible_collections/qbed/lab"
    assert {path.parents[1].name for path in root.glob("roles/*/meta/argument_specs.yml")} == ROLES
    assert {path.parents[1].name for path in root.glob("roles/*/tasks/main.yml")} == ROLES
    assert os.access(root / "roles/containerlab/files/build", os.X_OK)
    assert not list(root.rglob("*.pyc"))


def test_a_playbook_outside_of_the_checkout_uses_a_role_in_check_mode(installed: Path, tmp_path: Path) -> None:
    playbook = tmp_path / "site.yml"
    playbook.write_text(yaml.safe_dump(PLAYBOOK))
    where = {"ANSIBLE_COLLECTIONS_PATH": str(installed)}
    done = ansible("ansible-playbook", "--inventory=localhost,", "--check", playbook, cwd=tmp_path, **where)
    assert done.returncode == 0 and "changed=0" in done.stdout, done.stdout + done.stderr
    assert "TASK [qbed.lab.lab : Check that the lab exists]" in done.stdout

    misspelt = ("--extra-vars", "lab_state=presnt")
    done = ansible("ansible-playbook", "--inventory=localhost,", *misspelt, playbook, cwd=tmp_path, **where)
    assert done.returncode != 0
    assert "value of lab_state must be one of: present, absent, got: presnt" in " ".join(done.stdout.split())
