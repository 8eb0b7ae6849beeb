# SPDX-License-Identifier: Apache-2.0
"""`tc` and `ip` with the plugins of kernel/tc-plugins.sh set and show the options of schemes and links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LAB = """
name: tc
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: SCHEME, buffer: 100 packets}}
workload: [flow: {from: h1, to: h2, size: 1 KB}]
duration: 10 ms
"""
TC = ("env", "TC_LIB_DIR=/mnt/tc", "tc")

SHOWN = {
    "rpm": (
        "rpm limit 20000 target 50us interval 1ms per_port on registers 256 reverse_timeout 10ms",
        "limit 20000b target 49.2us interval 999us per_port on registers 256 reverse_timeout 10ms",
        "marked 0 reverse_marks 0 forward_marks 0 ce_arrived 0",
    ),
    "codel": (
        "qcodel limit 30p target 1ms interval 20ms ecn off mtu 9000",
        "limit 30p target 999us interval 20ms ecn off mtu 9000",
        "marked 0 dropped 0 overlimit 0",
    ),
    "abq": (
        "abq limit 60kb threshold 20p x peak answer both coalesce on pause 20us mtu 1000",
        "limit 60Kb threshold 20p hold_limit 1000 x peak release all release_count 10 answer both coalesce on "
        "last short pause 20us",
        "holds 0 releases 0 released 0 released_with_ece 0 corrected 0 overflow 0 held_packet_ns 0 entries_us 0",
    ),
    "stamp": (
        "stamp limit 128kb threshold 20p at_enqueue on exponent 2 middle on reverse off rate 10gbit",
        "limit 128Kb threshold 20p at_enqueue on count_itself off exponent 2 fine_at_full off middle on reverse off "
        "rate",
        "stamped 0 left_out 0 unknown_version 0 too_short 0 malformed 0 no_rate 0 no_memory 0 dropped 0 largest 0",
    ),
    "qcn": (
        "qcn limit 150p equilibrium 30 weight 4 bits 8 max_sampling 50% reflect 25%",
        "limit 150p equilibrium 30 weight 4 full_scale 0 bits 8 min_sampling 0.01 max_sampling 0.5 between_samples on",
        "sampled 0 congested 0 written 0 reflected 0 unroutable 0 unknown_version 0 too_short 0 malformed 0",
    ),
    "dualpi2": (
        "qdualpi2 limit 150p target 5ms coupling 3 min_threshold 1ms max_threshold 1ms protection 25%",
        "limit 150p target 5ms rtt_max 100ms coupling 3 min_threshold 1ms max_threshold 1ms protection 0.25",
        "enqueued_classic 0 enqueued_l4s 0 marked_classic 0 dropped_classic 0 marked_by_ramp 0 marked_by_coupling 0",
    ),
    "ecn": ("ecn limit 30p threshold 10p", "limit 30p threshold 10p", "marked 0 unmarked 0 dropped 0"),
}


@pytest.mark.parametrize("scheme", SHOWN)
def test_tc_shows_what_it_sets(tc_plugins: None, running_lab: Callable[[str], Any], scheme: str) -> None:
    options, shown, statistics = SHOWN[scheme]
    with running_lab(LAB.replace("SCHEME", scheme)) as lab:
        status, output = lab.run("s1", *TC, "qdisc", "replace", "dev", "eth1", "root", "pfifo")
        assert status == 0, output
        # ports share a register array, so the lab's qdisc must be removed first
        status, output = lab.run("s1", *TC, "qdisc", "replace", "dev", "eth0", "root", "pfifo")
        assert status == 0, output
        status, output = lab.run("s1", *TC, "qdisc", "replace", "dev", "eth0", "root", *options.split())
        assert status == 0, output
        status, output = lab.run("s1", *TC, "-s", "qdisc", "show", "dev", "eth0")
        assert status == 0, output
        assert shown in " ".join(output.split()), output
        assert statistics in " ".join(output.split()), output
        status, output = lab.run("s1", *TC, "qdisc", "replace", "dev", "eth0", "root", options.split()[0], "nonsense")
        assert status != 0
        assert "Usage" in output


def test_the_kernels_error_is_shown(tc_plugins: None, running_lab: Callable[[str], Any]) -> None:
    with running_lab(LAB.replace("SCHEME", "rpm")) as lab:
        for options, message in {
            "limit 10p registers 3": "power of two",
            "limit 10p registers 128": "chosen at creation",
            "limit 10p per_port on": "chosen at creation",
            "target 1ms": "needs a limit",
        }.items():
            status, output = lab.run("s1", *TC, "qdisc", "replace", "dev", "eth0", "root", "rpm", *options.split())
            assert status != 0, options
            assert message in output, output
        status, output = lab.run("s1", *TC, "qdisc", "replace", "dev", "eth0", "root", "pfifo")
        status, output = lab.run(
            "s1", *TC, "qdisc", "add", "dev", "eth0", "root", "rpm", "limit", "1p", "registers", "8"
        )
        assert status != 0
        assert "share their registers" in output


def test_a_minimum_probability_above_the_maximum_is_refused(
    tc_plugins: None, running_lab: Callable[[str], Any]
) -> None:
    with running_lab(LAB.replace("SCHEME", "qcn")) as lab:
        options = "qcn limit 10p min_sampling 10% max_sampling 5%"
        status, output = lab.run("s1", *TC, "qdisc", "replace", "dev", "eth0", "root", *options.split())
        assert status != 0
        assert "min_sampling is more than max_sampling" in output


def test_a_ramp_with_its_start_above_its_end_is_refused(tc_plugins: None, running_lab: Callable[[str], Any]) -> None:
    with running_lab(LAB.replace("SCHEME", "dualpi2")) as lab:
        options = "qdualpi2 limit 10p min_threshold 2ms max_threshold 1ms"
        status, output = lab.run("s1", *TC, "qdisc", "replace", "dev", "eth0", "root", *options.split())
        assert status != 0
        assert "min_threshold is more than max_threshold" in output


def test_ip_makes_links_in_a_running_lab(tc_plugins: None, running_lab: Callable[[str], Any]) -> None:
    with running_lab(LAB.replace("SCHEME", "droptail")) as lab:
        ip = ("env", "IP_LIB_DIR=/mnt/tc", "ip")
        options = "rate 2.5gbit delay 7us overhead 24 peer qb peer-rate 40mbit peer-delay 1ms peer-loss 50%"
        status, output = lab.run("h1", *ip, "link", "add", "qa", "type", "qlink", *options.split())
        assert status == 0, output
        status, output = lab.run("h1", *ip, "-d", "link", "show", "qa")
        assert status == 0, output
        shown = "qlink rate 2500mbit delay 7us overhead 24 peer-rate 40mbit peer-delay 1ms overhead 24 loss 50% sent 0"
        assert shown in " ".join(output.split()), output
        status, output = lab.run("h1", *ip, "link", "add", "qc", "type", "qlink", "rate", "fast", "peer", "qd")
        assert status != 0
        assert "a rate such as 10gbit" in output
