# SPDX-License-Identifier: Apache-2.0
"""Accurate ECN (RFC 9768) on kernels that support it; other kernels refuse the sysctl."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qbed.substrates import CellError
from qbed.substrates.toolchain import find_toolchain
from qbed.testing import CellOutput, store_tables

from qbed_testing.pcap import read_pcap

LAB = """
name: accecn
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 50 us}, h2-s1: {rate: 100 Mbit/s}}
switches: {default: {scheme: ecn, buffer: 400 KB, threshold: 4 packets}}
hosts: {default: {tcp: CONTROL, sysctls: {net/ipv4/tcp_ecn: 3}}}
workload: [flow: {from: h1, to: h2, size: 1 MB, start: 1 ms}]
capture: [h2>s1, s1>h2]
duration: 400 ms
"""
SERIES_WITHOUT = {"6.12"}
TCP = 6
SYN, ACK = 0x02, 0x10
AE, CWR, ECE = 0x100, 0x80, 0x40


def flags(frame: bytes) -> int:
    """The flags of a TCP segment over IPv4, including AE of RFC 9768."""
    return int.from_bytes(frame[46:48]) & 0x1FF


@pytest.mark.parametrize("tcp", ["dctcp", "dctcp1", "dctcp_ect1", "cubic"])
def test_hosts_negotiate_accurate_ecn(run_cell: Callable[..., CellOutput], tmp_path: Path, tcp: str) -> None:
    lab = LAB.replace("CONTROL", tcp)
    if find_toolchain().manifest.kernel_series in SERIES_WITHOUT:
        with pytest.raises(CellError, match=r"net/ipv4/tcp_ecn = 3: Invalid argument"):
            run_cell(lab)
        return
    cell = run_cell(lab)
    (tmp_path / "tables").mkdir()
    row, table = store_tables(cell, tmp_path / "tables")
    (flow,) = table("flows")
    assert (row["status"], row["contradictions"], flow["status"]) == ("complete", [], "complete")
    assert flow["ecn"] and flow["ce_marks"] > 0
    segments = [packet.data for packet in read_pcap(cell.out / "h2-eth0.pcap") if packet.data[23] == TCP]
    syn, syn_ack = (flags(segment) for segment in segments[:2])
    assert syn == SYN | AE | CWR | ECE
    assert syn_ack & (SYN | ACK) == SYN | ACK
    assert syn_ack & (AE | CWR | ECE) not in (0, ECE), "the SYN-ACK negotiates classic ECN (RFC 3168)"
