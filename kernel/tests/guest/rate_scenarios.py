# SPDX-License-Identifier: GPL-2.0-only
"""What qrate promises, tried in the kernel. Each function is one boot."""

from __future__ import annotations

from fractions import Fraction

from netlab import Node, Tap
from qrate import Rate
from scenarios import chain, settle, traffic

OVERHEAD = 20 + 8 + 88  # IPv4, UDP, congestion header
MS = 1_000_000


def pair(hops: int = 1, rates: tuple[int, ...] = (10**10,), delay_ns: int = 5_000, extra: bytes = b"") -> tuple[list[Node], list[str], Rate, Rate]:
    """A row of nodes, whose last one receives flows."""
    nodes, addresses = chain(hops, list(rates), delay_ns, extra)
    sender, receiver = Rate(nodes[0]), Rate(nodes[-1])
    receiver.listen()
    settle()
    return nodes, addresses, sender, receiver


def paced() -> None:
    """Packet k leaves at t0 + round(k x bits / rate), at rates of all kinds."""
    for number, rate_bps in enumerate((10**10, 9_999_999_937, 10**9, 123_456_789, 7, 10**6)):
        nodes, addresses, sender, receiver = pair(rates=(10**11,))
        tap = Tap()
        start = traffic.now_ns()
        tap.attach(nodes[0], "right", 0, events=True, start_ns=start)
        sender.hear_ended()
        payload, packets = 1500 - OVERHEAD, 20_000 if rate_bps > 10**7 else 3
        size = payload * packets if rate_bps > 1000 else 1
        sender.send(number, *addresses, rate_bps, size=size)
        before = sender.get(number)
        traffic.sleep_until_ns(before["start_time"] + int(Fraction(packets * 1500 * 8 * 10**9, rate_bps)) + 10 * MS if size > 1 else before["start_time"] + 10 * MS)
        assert sender.ended() == number
        found = sender.get(number)
        print(rate_bps, found)
        print(receiver.get(number))
        left = [r["time_ns"] + start for r in tap.flush() if r.kind == "event" and r["op"] == 1]
        tap.detach()
        exact = [found["start_time"] + int(Fraction(k * 1500 * 8 * 10**9, rate_bps) + Fraction(1, 2)) for k in range(len(left))]
        assert left == exact, [(a, b) for a, b in zip(left, exact) if a != b][:5]
        assert found["sent_packets"] == len(left) and found["ended"] and found["acked_bytes"] == size
        assert receiver.get(number)["received_bytes"] == size
