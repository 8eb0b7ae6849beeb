# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime server with unmodified third-party clients: p4runtime-shell and p4net.

Each client has a virtual environment in the cache with the versions of clients/*.lock, as it needs a version of
protobuf that is incompatible with finsy.
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
    """Create the client's virtual environment once a machine, and return its Python."""
    lock = CLIENTS / f"{name}.lock"
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(os.environ.get("QBED_CACHE") or caches / "qbed") / "clients" / f"{name}-{key}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        created = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=place.parent))
        try:
            subprocess.run([sys.executable, "-m", "venv", created], check=True)
            install = "pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r"
            subprocess.run([created / "bin" / "python", "-m", *install.split(), lock], check=True)
            created.rename(place)
        except OSError:
            assert place.exists(), "another test has created it meanwhile"
        finally:
            shutil.rmtree(created, ignore_errors=True)
    return place / "bin" / "python"


@pytest.fixture
def probes(tmp_path: Path) -> Path:
    """A file with a WriteRequest that adds the kind 0x0101 to the parser's value set."""
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


def test_p4runtime_shell_works(address: str, probes: Path) -> None:
    assert "all done" in run("shell", address, *PIPELINE, probes)


def test_p4net_works(address: str, tmp_path: Path) -> None:
    p4info = tmp_path / "p4info.txtpb"
    # p4net's protobuf cannot parse maps, such as the types of digests, which p4net does not use.
    p4info.write_text(PIPELINE[0].read_text().split("digests {")[0])
    assert "all done" in run("p4net", address, p4info, PIPELINE[1])
