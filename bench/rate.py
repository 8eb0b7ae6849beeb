# SPDX-License-Identifier: Apache-2.0
"""Cost of a packet of the paced transport (qrate) and of TCP: 1500 bytes, 10 Gbit/s, one switch.

The difference between a cell with many packets and one with few leaves out the start and the end of a cell.
"""

from __future__ import annotations

from bench.harness import Cell, Figure, side_by_side

LAB = """
name: rate
topology: {{star: {{hosts: {hosts}}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
switches: {{default: {{scheme: droptail, buffer: 4 MB}}}}
hosts: {{default: {{tcp: cubic, controller: {{name: fixed, rate: {rate} bit/s}}}}}}
workload:
  - flows: {{pairs: [{pairs}], size: {size} B, transport: {transport}}}
observe: {{queues: summary}}
duration: {duration} us
"""
PAYLOAD = {"rate": 1500 - 20 - 8 - 88, "tcp": 1500 - 20 - 32}
MANY_PACKETS, FEW_PACKETS = 768_000, 1_920
MAX_HOSTS = 60
RATE_BPS = 9_900_000_000
GOAL = 1.2


def cell(transport: str, flows: int, packets: int) -> Cell:
    hosts = min(flows, MAX_HOSTS)
    pairs = ", ".join(f"[h{number % hosts + 1}, h{hosts + 1}]" for number in range(flows))
    size = packets // flows * PAYLOAD[transport]
    return Cell(
        LAB.format(
            hosts=hosts + 1,
            rate=RATE_BPS // flows,
            pairs=pairs,
            size=size,
            transport=transport,
            duration=packets * 3 // 2 + 500_000,
        )
    )


def measure(rounds: int) -> list[Figure]:
    figures = []
    for flows in (1, 192):
        cells = [cell(transport, flows, packets) for transport in PAYLOAD for packets in (MANY_PACKETS, FEW_PACKETS)]
        rate, rate_few, tcp, tcp_few = side_by_side(rounds, *(cell.run for cell in cells))
        for finished in cells:
            complete = (finished.out / "flows.ndjson").read_text().count('"status":"complete"')
            assert complete == flows, f"{complete} of {flows} flows complete"
            finished.close()
        share = 1e6 / (MANY_PACKETS - FEW_PACKETS)
        rate_us, tcp_us = (rate.wall_s - rate_few.wall_s) * share, (tcp.wall_s - tcp_few.wall_s) * share
        cpu = (rate.cpu_s - rate_few.cpu_s) / (tcp.cpu_s - tcp_few.cpu_s)
        figures += [
            Figure(f"{flows} flows: a packet, wall", rate_us, "us"),
            Figure(f"{flows} flows: a packet of TCP, wall", tcp_us, "us"),
            Figure(f"{flows} flows: rate / TCP, wall", rate_us / tcp_us, "", GOAL),
            Figure(f"{flows} flows: rate / TCP, CPU", cpu, "", GOAL),
        ]
    return figures
