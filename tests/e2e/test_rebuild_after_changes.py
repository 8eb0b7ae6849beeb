# SPDX-License-Identifier: Apache-2.0
"""A scheme is built again before a run if its source changed after the set-up, in a copy of the checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbed_testing.checkouts import make_checkout, qbed

LAB = """\
name: stale
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: ecn, buffer: 64 KB, threshold: 10 packets}}
hosts: {default: {tcp: dctcp}}
workload:
  - flow: {from: h1, to: h2, size: 100 KB}
duration: 10 ms
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout after its set-up, with builds from the cache."""
    root = make_checkout(tmp_path_factory.mktemp("stale") / "checkout")
    (root / "lab.yml").write_text(LAB)
    return root


def test_a_changed_scheme_is_built_before_it_runs(checkout: Path) -> None:
    first = qbed(checkout, "run", "lab.yml", "--out", "runs/first", "--no-images")
    assert first.returncode == 0 and "changed" not in first.stderr, first.stderr
    source = checkout / "schemes" / "ecn" / "kernel" / "sch_ecn.c"
    original = source.read_text()

    # The module contains its description.
    changed = original.replace('MODULE_DESCRIPTION("', 'MODULE_DESCRIPTION("changed: ')
    assert changed != original
    source.write_text(changed)
    assert "schemes/ecn/kernel/sch_ecn.c changed after the set-up" in qbed(checkout, "doctor").stdout
    second = qbed(checkout, "run", "lab.yml", "--out", "runs/second", "--no-images")
    assert second.returncode == 0, second.stderr
    assert "schemes/ecn/kernel/sch_ecn.c changed after the set-up: building again" in second.stderr
    module = checkout / ".venv" / "share" / "qbed" / "toolchain" / "modules" / "sch_ecn.ko"
    assert b"description=changed: " in module.read_bytes()
    identities = [json.loads((checkout / "runs" / run / "campaign.json").read_bytes()) for run in ("first", "second")]
    assert identities[0]["toolchain"]["modules_hash"] != identities[1]["toolchain"]["modules_hash"]
    assert "changed after the set-up" not in qbed(checkout, "doctor").stdout

    # Source that does not compile is refused, and so is a machine without a compiler.
    source.write_text(original + "\nthis is no C\n")
    for environment in ({}, {"CC": "no-such-compiler"}):
        refused = qbed(checkout, "run", "lab.yml", "--out", "runs/third", **environment)
        assert refused.returncode == 1 and not (checkout / "runs" / "third").exists(), refused.stderr
        assert "building it again failed" in refused.stderr and "Traceback" not in refused.stderr
    assert "changed after the set-up" in qbed(checkout, "up", "lab.yml").stderr

    # The build of the original source is in the cache.
    source.write_text(original)
    assert qbed(checkout, "run", "lab.yml", "--out", "runs/first", "--no-images").returncode == 0
