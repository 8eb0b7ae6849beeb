# SPDX-License-Identifier: Apache-2.0
"""The parameters in effect of a cell, compared with numbers computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbed.base.locations import labs_folder, schemes_folder
from qbed.config.source import parse
from qbed.network.load import lab_from_source, load_lab
from qbed.plan.compile import compile_lab
from qbed.report.parameters import Effective, Key, Rows, cell_parameters
from qbed.schemes.declaration import controllers, registry

PACKAGE = Path(__file__).parents[2] / "qbed"
LAB = """
name: small
topology: {dumbbell: {left: 1, right: 1}}
links: {default: {rate: 10 Gbit/s, delay: 5 us}, s1-s2: {rate: 1 Gbit/s}}
workload: [{flows: {pairs: [[h1, h2]], size: 1 MB}}]
duration: 10 ms
"""


def rows_of(text: str) -> Rows:
    lab = lab_from_source(parse(text, "lab.yml"))
    return cell_parameters(lab, compile_lab(lab))


def close(found: Effective, packets: float, size_bytes: float, time_ns: float) -> bool:
    return (found.packets, found.bytes, found.time_ns) == pytest.approx((packets, size_bytes, time_ns), rel=1e-9)


def test_a_length_is_in_three_units_at_the_rate_of_its_port() -> None:
    rows = rows_of(LAB + "switches: {default: {scheme: ecn, buffer: 151400 B, threshold: 20 packets}}")
    # 1514 bytes are 12.112 us at 1 Gbit/s, a tenth at 10 Gbit/s.
    slow, fast = "switch ports at 1 Gbit/s", "switch ports at 10 Gbit/s"
    assert close(rows[Key(slow, "threshold")], 20, 30280, 242240)
    assert close(rows[Key(fast, "threshold")], 20, 30280, 24224)
    assert close(rows[Key(slow, "buffer")], 100, 151400, 1211200)
    assert rows[Key(fast, "buffer")].value == "151.4 KB"
    assert close(rows[Key("host ports", "buffer")], 1000, 1514000, 1211200)


def test_a_target_is_a_waiting_time_and_overhead_takes_part_of_the_rate() -> None:
    text = LAB.replace("delay: 5 us}", "delay: 5 us, overhead: 24 bytes}")
    rows = rows_of(text + "switches: {default: {scheme: codel, target: 1230400 ns, interval: 5 ms}}")
    # A frame takes 1538 bytes of the wire: 12.304 us at 1 Gbit/s.
    assert close(rows[Key("switch ports at 1 Gbit/s", "target")], 100, 151400, 1230400)
    minor = rows[Key("switch ports at 1 Gbit/s", "interval", minor=True)]
    assert (minor.value, minor.packets) == ("5 ms", None), "a time that is no length"


def test_the_bandwidth_delay_product_is_that_of_the_slowest_link() -> None:
    found = rows_of(LAB)[Key("network", "round trip, bandwidth-delay product")]
    # There 2 x 1.2112 + 12.112 us, back (66 bytes) 2 x 0.0528 + 0.528 us, and six times 5 us.
    rtt_ns = 2 * 1212 + 12112 + 2 * 53 + 528 + 30000
    assert close(found, rtt_ns / 8 / 1514, rtt_ns / 8, rtt_ns)
    assert found.value == "at 1 Gbit/s"


def test_thresholds_of_a_controller_are_at_its_rate_and_packet() -> None:
    """labs/quantization said that Timely's thresholds are 25 and 150 packets; its `queue_rate` is the 1 Gbit/s link."""
    lab = load_lab(labs_folder() / "quantization")
    rows = cell_parameters(lab, compile_lab(lab))
    rate = 10**9 * 1500 // 1514
    for name, time_ns in (("q_low", 30_000), ("q_high", 180_000)):
        size_bytes = time_ns * rate / 8e9
        assert close(rows[Key("controller", name)], size_bytes / 1500, size_bytes, time_ns)
    assert rows[Key("controller", "q_low")].packets == pytest.approx(2.5, abs=0.05)
    assert rows[Key("controller", "q_high")].packets == pytest.approx(15, abs=0.2)
    assert rows[Key("controller", "controller")].value == "timely by max of packets in 32 bits"


def test_parameters_of_the_queue_inside_a_scheme() -> None:
    rows = rows_of(LAB + "switches: {default: {scheme: abq, above: codel, target: 121120 ns}}")
    group = "switch ports at 1 Gbit/s"
    assert rows[Key(group, "scheme")].value == "abq, inside: codel"
    assert close(rows[Key(group, "threshold")], 20, 30280, 242240)
    assert close(rows[Key(group, "target")], 10, 15140, 121120)


def test_switches_in_p4_have_the_parameters_of_their_program() -> None:
    rows = rows_of(LAB + "switches: {default: {kind: bmv2, scheme: ecn, threshold: 20 packets}}")
    assert rows[Key("switch ports at 1 Gbit/s", "switch")].value == "P4 program"
    assert close(rows[Key("switch ports at 1 Gbit/s", "threshold")], 20, 30280, 242240)


def test_a_qdisc_of_linux_is_shown_as_tc_has_it() -> None:
    rows = rows_of(LAB + "switches: {default: {qdisc: fq_codel limit 100}}")
    assert rows[Key("switch ports at 1 Gbit/s", "scheme")].value == "fq_codel limit 100"


@pytest.mark.parametrize("module", ["parameters", "parameter_table"])
def test_schemes_are_known_from_their_declarations_alone(module: str) -> None:
    text = (PACKAGE / "report" / f"{module}.py").read_text()
    assert schemes_folder().is_dir() and len(registry()) > 3
    for name in {*registry(), *controllers()} - {"ecn", "fixed"}:  # also words
        assert name not in text, name
    assert '"ecn"' not in text and '"fixed"' not in text
