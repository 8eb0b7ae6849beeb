# SPDX-License-Identifier: Apache-2.0
"""FRR in containers, installed in the router's image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qbed_testing.container_labs import leftovers, qbed

NAME = "qbed-t-frr"
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
