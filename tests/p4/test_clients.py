# SPDX-License-Identifier: Apache-2.0
"""Clients of others, unmodified, before the P4Runtime server: p4runtime-shell and p4net.

Each has a Python environment of its own, as its lock says (clients/*.lock), outside the clone: they need versions of
protobuf that finsy does not go with.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = Path(__file__).parent / "clients"
PROGRAMS = ROOT / "crates" / "p4runtime" / "tests" / "programs"
LIMIT_S = 120


def environment(name: str) -> Path:
    """The client's Python, made once a machine."""
    lock = CLIENTS / f"{name}.lock"
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(os.environ.get("QBED_CACHE") or caches / "qbed") / "clients" / f"{name}-{key}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=place.parent))
        try:
            subprocess.run([sys.executable, "-m", "venv", made], check=True)
            install = "pip install --quiet --disable-pip-version-check --require-hashes -r"
            subprocess.run([made / "bin" / "python", "-m", *install.split(), lock], check=True)
            made.rename(place)
        except OSError:
            assert place.exists(), "another test has made it meanwhile"
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return place / "bin" / "python"


@pytest.fixture
def probes(tmp_path: Path) -> Path:
    """A WriteRequest: packets of the kind 0x0101 are parsed."""
    p4info = (PROGRAMS / "everything.p4info.txtpb").read_text()
    preamble = p4info.split("value_sets {", 1)[1]
    number = preamble.split("id:", 1)[1].split(None, 1)[0]
    file = tmp_path / "probes.txt"
    member = r'members { match { field_id: 1 exact { value: "\001\001" } } }'
    file.write_text(f"updates {{ type: MODIFY entity {{ value_set_entry {{ value_set_id: {number} {member} }} }} }}")
    return file


def run(name: str, *arguments: str | Path) -> str:
    command = [environment(name), CLIENTS / f"{name}_client.py", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PIPELINE = (PROGRAMS / "everything.p4info.txtpb", PROGRAMS / "everything.json")


def test_p4runtime_shell(address: str, probes: Path) -> None:
    assert "all done" in run("shell", address, *PIPELINE, probes)


def test_p4net(address: str, tmp_path: Path) -> None:
    p4info = tmp_path / "p4info.txtpb"
    # Its protobuf, made to read messages in Python, cannot read a map: the types of digests, which it cannot use.
    p4info.write_text(PIPELINE[0].read_text().split("digests {")[0])
    assert "all done" in run("p4net", address, p4info, PIPELINE[1])
