# SPDX-License-Identifier: Apache-2.0
"""An image of a host runs its default command in the host's network namespace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qbed_testing.container_labs import derived_image, docker, leftovers, qbed, wait_until, write_lab

IMAGE = "web-server-of-qbed-tests:1"
LAB = """\
name: NAME
topology: {star: {hosts: 2}}
links: {default: {rate: 10 Mbit/s, delay: 2 ms}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
hosts: {default: {tcp: cubic}, h2: {image: "IMAGE"}}
duration: 100 ms
"""
TOPOLOGY = """\
name: NAME
topology:
  defaults: {kind: linux}
  nodes: {h1: {image: "IMAGE"}, h2: {image: "IMAGE"}, s1: {image: "a-switch:1"}}
  links: [{endpoints: ["h1:eth1", "s1:eth1"]}, {endpoints: ["h2:eth1", "s1:eth2"]}]
"""
REQUEST = "import urllib.request; print(urllib.request.urlopen('http://h2/etc/hostname', timeout=5).status)"


@pytest.fixture
def image() -> Iterator[str]:
    """An image with a web server."""
    with derived_image(IMAGE, "host", 'ENTRYPOINT ["python3", "-m", "http.server", "--directory", "/", "80"]') as name:
        yield name


def answers(name: str, folder: Path) -> bool:
    """Whether h1 gets a page from the web server of h2."""
    return "200" in qbed(folder, "exec", name, "h1", "--", "python3", "-c", REQUEST).stdout


def test_an_image_serves_the_lab(image: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    name = "qbed-t-image"
    lab = str(write_lab(tmp_path, name, LAB.replace("IMAGE", image)))
    done = qbed(tmp_path, "up", lab, "--on", "containerlab")
    assert done.returncode == 2 and "only with --trust is it run" in done.stderr, done.stderr
    done = qbed(tmp_path, "up", lab, "--on", "containerlab", "--trust")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: answers(name, tmp_path), "the web server does not answer")
    assert "has ended" not in qbed(tmp_path, "ps").stdout
    docker("stop", "--time", "0", f"clab-{name}-h2_image")
    assert "h2_image has ended" in qbed(tmp_path, "ps").stdout
    assert qbed(tmp_path, "down", name).returncode == 0
    assert leftovers(name, tmp_path) == []


def test_an_imported_topology_runs_its_images(image: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    name = "qbed-t-import"
    (tmp_path / "topology.clab.yml").write_text(TOPOLOGY.replace("NAME", name).replace("IMAGE", image))
    assert qbed(tmp_path, "import", "topology.clab.yml").returncode == 0
    done = qbed(tmp_path, "up", "lab.yml", "--on", "containerlab", "--trust")
    assert done.returncode == 0, done.stderr
    assert docker("inspect", "--format", "{{.Config.Image}}", f"clab-{name}-h1_image").strip() == image
    wait_until(lambda: answers(name, tmp_path), "the web server does not answer")


def test_a_missing_image_is_named(tmp_path: Path) -> None:
    lab = write_lab(tmp_path, "qbed-t-no-image", LAB.replace("IMAGE", "no-such-image:7"))
    done = qbed(tmp_path, "up", str(lab), "--on", "containerlab", "--trust")
    expected = "Docker has no image no-such-image:7, which host h2 runs: `docker pull no-such-image:7` brings it"
    assert done.returncode == 1 and expected in done.stderr, done.stderr
    assert leftovers("qbed-t-no-image", tmp_path) == []
