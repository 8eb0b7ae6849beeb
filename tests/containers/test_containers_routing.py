# SPDX-License-Identifier: Apache-2.0
"""FRR in containers, installed in the router's image."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab

from qbed_testing.container_labs import derived_image, leftovers, node_images, qbed

NAME = "qbed-t-frr"
SLOW_ROUTER = "slow-router-of-qbed-tests:1"
SLOW_S = 14
LAB = f"""\
name: {NAME}
topology: {{clos: {{hosts: 1, racks: 2, spines: 2}}}}
links: {{default: {{rate: 100 Mbit/s, delay: 50 us}}}}
switches: {{default: {{scheme: droptail, buffer: 128 KB}}}}
hosts: {{default: {{tcp: cubic}}}}
routing: frr
duration: 100 ms
"""


def test_bgp_installs_both_paths_and_vtysh_shows_its_peers(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab.yml").write_text(LAB)
    done = qbed(tmp_path, "up", "lab", "--on", "containerlab", "--dilate", "1")
    assert done.returncode == 0, done.stderr
    summary = qbed(tmp_path, "exec", NAME, "spine1", "--", "vtysh", "-c", "show bgp summary json")
    assert summary.returncode == 0, summary.stdout + summary.stderr
    peers = json.loads(summary.stdout)["ipv4Unicast"]["peers"].values()
    assert {(peer["desc"], peer["state"]) for peer in peers} == {("rack1", "Established"), ("rack2", "Established")}
    route = qbed(tmp_path, "exec", NAME, "rack1", "--", "ip", "route", "show", "10.0.0.2/31").stdout
    assert route.count("nexthop via 169.254.0.1") == 2, route
    ping = qbed(tmp_path, "exec", NAME, "h1", "--", "ping", "-c", "2", "h2")
    assert ping.returncode == 0 and " 0% packet loss" in ping.stdout, ping.stdout + ping.stderr
    assert qbed(tmp_path, "down", NAME).returncode == 0
    assert leftovers(NAME, tmp_path) == []


@pytest.fixture
def slow_router(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An image of routers in which bgpd starts `SLOW_S` seconds late, as on a machine with a high load."""
    script = f'#!/bin/sh\\nsleep {SLOW_S}\\nexec $0.real "$@"\\n'
    replace = f"cd /usr/lib/frr && mv bgpd bgpd.real && printf '{script}' >bgpd && chmod +x bgpd"
    with derived_image(SLOW_ROUTER, "router", f"RUN {replace}"):
        images = node_images() | {"router": SLOW_ROUTER}
        monkeypatch.setenv("QBED_IMAGES", ",".join(f"{role}={image}" for role, image in images.items()))
        yield


@pytest.mark.usefixtures("slow_router")
def test_a_lab_waits_for_daemons_that_start_late(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "lab").mkdir()
    file = tmp_path / "lab" / "lab.yml"
    file.write_text(LAB)
    assert compile_lab(load_lab(file)).epoch_ns < SLOW_S * 1e9
    request.addfinalizer(lambda: qbed(tmp_path, "down", "--all"))
    done = qbed(tmp_path, "up", "lab", "--on", "containerlab", "--dilate", "1")
    assert done.returncode == 0, done.stderr
    route = qbed(tmp_path, "exec", NAME, "rack1", "--", "ip", "route", "show", "10.0.0.2/31").stdout
    assert route.count("nexthop via 169.254.0.1") == 2, route
