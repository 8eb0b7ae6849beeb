# SPDX-License-Identifier: Apache-2.0
"""The preset `published`: few acknowledgements at a time, one per connection, and the windows that they advertise."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pytest
from test_abq import arrivals, departures, events, parse

from qbed.base.errors import QbedError
from qbed.schemes.declaration import registry
from qbed.testing import CellOutput

from qbed_testing.pcap import has_valid_checksum, read_pcap

LAB = """
name: published
addressing: {addressing}
topology: {{star: {{hosts: 41}}}}
links: {{default: {{rate: 1 Gbit/s, delay: 40 us, mtu: 1486 B}}}}
switches: {{default: {{scheme: abq, preset: published}}}}
hosts:
  default:
    tcp: dctcp
    rto_min: 10 ms
    initial_window: 1 packets
    delayed_ack: off
    sysctls: {{net/ipv4/tcp_timestamps: 0, net/ipv4/tcp_window_scaling: 0, net/ipv4/tcp_sack: 0}}
workload: [{{incast: {{senders: 40, receiver: h1, size: 32768 B, start: 1 ms}}}}]
observe: {{queues: every packet}}
capture: [s1>h1, s1>h2]
duration: 200 ms
"""
K, SEGMENT = 15_000, 1446


@pytest.mark.parametrize("addressing", ["ipv4", "ipv6"])
def test_a_release_has_windows_of_at_most_k(run_cell: Callable[..., CellOutput], addressing: str) -> None:
    cell = run_cell(LAB.format(addressing=addressing))
    flows = cell.flows()
    assert all(flow["status"] == "complete" and not flow["retransmits"] for flow in flows)
    receiver = flows[0]["dst_address"]
    received, forwarded = arrivals(cell, receiver), departures(cell, events(cell), receiver, 41)
    acks = [segment for _, segment, _ in received if segment.is_pure_ack]
    counters = cell.counters().queues[cell.queue("s1>h1")]
    found = registry()["abq"].decode(bytes.fromhex(counters.xstats))
    coalesced = found[f"coalesced_{addressing}"]
    assert counters.drops == 0
    assert found["holds"] == found["released"] + found["overtaken"] + coalesced
    assert len(acks) - coalesced == sum(segment.is_pure_ack for _, segment in forwarded)
    assert found["windowed"] > 100 and found["corrected"] == found["released_with_ece"] == 0
    # A release has at most 11 ACKs: ten windows of one segment do not fill K.
    arrived = {segment for _, segment, _ in received}
    instants = {time for time, _, _ in received}
    releases = [
        len(list(group))
        for time, group in groupby(sorted(time for time, segment in forwarded if segment in arrived))
        if time not in instants
    ]
    assert releases and max(releases) <= K // SEGMENT + 1


def test_remaining_acks_are_released_without_further_events(run_cell: Callable[..., CellOutput]) -> None:
    """The last ACKs allow no further data, so no arrival would release the next batch."""
    cell = run_cell(LAB.format(addressing="ipv4").replace("size: 32768 B", "size: 1446 B"))
    found = registry()["abq"].decode(bytes.fromhex(cell.counters().queues[cell.queue("s1>h1")].xstats))
    assert found["holds"] > 11 and (found["state"], found["held_ipv4"]) == (0, 0)


def test_checksums_are_valid_after_the_window_is_written(run_cell: Callable[..., CellOutput]) -> None:
    cell = run_cell(LAB.format(addressing="ipv4"))
    receiver = cell.flows()[0]["dst_address"]
    name = cell.plan.queues[cell.queue("s1>h2")].name.replace(":", "-")
    windows = []
    for packet in read_pcap(cell.out / f"{name}.pcap"):
        source, segment, _ = parse(packet.data)
        if source == receiver and segment.is_pure_ack:
            assert has_valid_checksum(packet.data), segment
            windows.append(int.from_bytes(packet.data[14 + 20 + 14 : 14 + 20 + 16], "big"))
    assert min(windows) == SEGMENT and len(set(windows)) > 1


def test_presets_belong_to_the_scheme(run_cell: Callable[..., CellOutput]) -> None:
    text = LAB.format(addressing="ipv4")
    values = registry()["abq"].preset("published")
    assert (values["x"], values["release"], values["answer"], values["last"]) == ("peak", "window", "window", "empty")
    for invalid, message in {
        "preset: publisht": "`published`",
        "preset: published, x: peek": "`buffer`, `peak`",
    }.items():
        with pytest.raises(QbedError, match=message):
            run_cell(text.replace("preset: published", invalid))
    with pytest.raises(QbedError, match="the scheme `ecn` has no preset"):
        run_cell(text.replace("scheme: abq", "scheme: ecn"))
