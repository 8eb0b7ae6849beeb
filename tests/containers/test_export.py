# SPDX-License-Identifier: Apache-2.0
"""Containerlab deploys and draws the topologies that `qbed export` writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab

ROOT = Path(__file__).parents[2]
LABS = sorted(path.parent.name for path in ROOT.glob("labs/*/lab.yml"))
VIRTUAL_ONLY = {"controller": {"switches.s1.controller": "off"}}
"""Settings that replace parts of a lab which run in virtual time only."""
IMAGES = "host=debian:bookworm-slim,linux-switch=debian:bookworm-slim,router=debian:bookworm-slim"


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


def qbed(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "qbed", *arguments, cwd=cwd, QBED_IMAGES=IMAGES)


@pytest.mark.parametrize("lab", LABS)
def test_containerlab_reads_every_lab(lab: str, tmp_path: Path) -> None:
    without = VIRTUAL_ONLY.get(lab, {})
    settings = [f"--set={field}={value}" for field, value in without.items()]
    # Programs of a lab need trust.
    done = qbed(tmp_path, "export", str(ROOT / "labs" / lab), "-o", "x", "--dilate", "50", "--trust", *settings)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "x").glob("*.clab.yml")
    drawing = run("containerlab", "graph", "--offline", "--mermaid", "-t", str(file), cwd=tmp_path / "x")
    assert drawing.returncode == 0, drawing.stderr
    (graph,) = (tmp_path / "x").glob("clab-*/graph/*.mermaid")
    plan = compile_lab(load_lab(ROOT / "labs" / lab, without))
    assert graph.read_text().count("---") - 2 == len(plan.links)  # two more are the graph's frame


def test_an_exported_lab_is_deployed_with_the_plans_interfaces(tmp_path: Path) -> None:
    (tmp_path / "lab.yml").write_text("""\
name: qbed-test-export
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 1 ms, mtu: 1400 B}}
switches: {default: {buffer: 100 KB}}
duration: 1 s
""")
    assert qbed(tmp_path, "export", "lab.yml", "-o", "x").returncode == 0
    file = tmp_path / "x/qbed-test-export.clab.yml"
    topology = yaml.safe_load(file.read_text())
    topology["topology"]["kinds"]["linux"]["cmd"] = "sleep 60"  # the image has no agent
    file.write_text(yaml.safe_dump(topology))
    try:
        deployed = run("containerlab", "deploy", "-t", file.name, cwd=file.parent)
        assert deployed.returncode == 0, deployed.stderr
        script = "cd /sys/class/net && for i in eth*; do echo $i $(cat $i/mtu); done; ls /qbed"
        shown = run("docker", "exec", "clab-qbed-test-export-s1", "sh", "-c", script, cwd=tmp_path)
        assert shown.stdout.split() == ["eth0", "1400", "eth1", "1400", "out", "place.json", "plan.json"]
        assert json.loads((tmp_path / "x/nodes/s1/place.json").read_text())["start"] == "at once"
        networks = run("docker", "network", "ls", "--format", "{{.Name}}", cwd=tmp_path).stdout.split()
        assert "clab" not in networks
    finally:
        destroyed = run("containerlab", "destroy", "-t", file.name, "--cleanup", cwd=file.parent)
    assert destroyed.returncode == 0, destroyed.stderr
    assert "qbed-test-export" not in run("docker", "ps", "-a", cwd=tmp_path).stdout
