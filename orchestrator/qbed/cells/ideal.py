# SPDX-License-Identifier: Apache-2.0
"""The ideal flow completion time (FCT) of a flow that is alone on its path, by store-and-forward arithmetic.

A flow is a train of frames. Every hop receives a frame completely, serialises it at the rate of its link end (frame +
`overhead_bytes`) and the frame arrives `delay_ns` later; frames keep their order and nothing else is on the path. The
train of a TCP flow of `size_bytes` is full segments and a remainder. With `connect: at start` a handshake comes
first: a SYN one way, a SYN-ACK back, and then a pure ACK ahead of the first segment. The ideal flow is not limited by
windows and has no losses and no queueing delay: `slowdown` = FCT / ideal FCT is the cost of the network *and* the
transport, the usual definition.

Of equal-cost paths the first next hop is used; in symmetric topologies they are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np

from qbed.network.frames import ETHERNET_BYTES, IP_BYTES, UDP_BYTES, rate_headers
from qbed.plan.model import Path

TCP_HEADER = 20
TIMESTAMP_OPTION = 12

Hops = tuple[tuple[int, int, int], ...]
"""Rate in bit/s, propagation delay in ns and overhead in bytes of each transmitter on a path."""


def _hops(path: Path) -> Hops:
    return tuple((end.rate_bps, end.delay_ns, end.overhead_bytes) for end in path.ends)


@dataclass(frozen=True)
class Options:
    """The TCP options that a host offers by its sysctls, or that two hosts negotiated."""

    timestamps: bool = True
    sack: bool = True
    window_scaling: bool = True

    @classmethod
    def of(cls, sysctls: Mapping[str, str]) -> Options:
        return cls(**{field.name: sysctls.get(f"net/ipv4/tcp_{field.name}", "1") != "0" for field in fields(cls)})

    def __and__(self, options: Options) -> Options:
        return Options(**{f.name: getattr(self, f.name) and getattr(options, f.name) for f in fields(self)})

    @property
    def syn_bytes(self) -> int:
        """Option bytes of a SYN or SYN-ACK: MSS 4, timestamp 10 and SACK-permitted 2 (padded if alone), window scale 3,
        padded.
        """
        return 4 + (TIMESTAMP_OPTION if self.timestamps else 4 * self.sack) + 4 * self.window_scaling


FRAMES_MAX = 1 << 22
"""Longer trains are computed to this length. Each further frame takes the time of the slowest hop."""


@lru_cache(maxsize=4096)
def train_ns(hops: Hops, lead: int, full: int, count: int, last: int, gap_ns: float = 0.0) -> float:
    """Arrival time of the end of a train that is offered at time 0, or with one frame each `gap_ns`.

    The train is a `lead` frame (0: none), `count` frames of `full` bytes and one of `last` bytes (0: none). Sizes are
    frame bytes.
    """
    further = max(0, count - FRAMES_MAX)
    sizes = np.array([lead] * (lead > 0) + [full] * (count - further) + [last] * (last > 0), dtype=np.float64)
    arrivals = np.arange(len(sizes), dtype=np.float64) * gap_ns
    for rate_bps, delay_ns, overhead_bytes in hops:
        # A FIFO server: D_k = max(A_k, D_(k-1)) + s_k, that is D_k = S_k + max over j <= k of (A_j - S_(j-1)).
        service = (sizes + overhead_bytes) * (8e9 / rate_bps)
        done = np.cumsum(service)
        arrivals = done + np.maximum.accumulate(arrivals - (done - service)) + delay_ns
    slowest_ns = max((full + overhead_bytes) * (8e9 / rate_bps) for rate_bps, _, overhead_bytes in hops)
    return float(arrivals[-1]) + further * max(gap_ns, slowest_ns)


def ideal_tcp_ns(
    forward: Path, reverse: Path, size: int, *, family: int, handshake: bool, ends: tuple[Options, Options]
) -> int:
    """The ideal FCT of a TCP flow in ns (rounded to nearest). `ends`: the options that sender and receiver offer."""
    headers = ETHERNET_BYTES + IP_BYTES[family] + TCP_HEADER
    agreed = ends[0] & ends[1]
    pure = headers + agreed.timestamps * TIMESTAMP_OPTION
    mss = forward.mtu - (pure - ETHERNET_BYTES)
    count, last = divmod(size, mss)
    total = train_ns(_hops(forward), pure * handshake, pure + mss, count, last and pure + last)
    if handshake:
        total += train_ns(_hops(forward), 0, headers + ends[0].syn_bytes, 1, 0)
        total += train_ns(_hops(reverse), 0, headers + agreed.syn_bytes, 1, 0)
    return round(total)


def ideal_udp_ns(forward: Path, size: int, *, family: int, packet_bytes: int, rate_bps: int) -> int:
    """The ideal FCT of a constant-bit-rate UDP flow in ns: the packet spacing of its rate, then the path."""
    headers = ETHERNET_BYTES + IP_BYTES[family] + UDP_BYTES
    count, last = divmod(size, packet_bytes)
    return round(
        train_ns(
            _hops(forward), 0, headers + packet_bytes, count, last and headers + last, packet_bytes * 8e9 / rate_bps
        )
    )


def ideal_rate_ns(forward: Path, size: int, *, family: int, payload_bytes: int, congestion_bytes: int) -> int:
    """The ideal FCT of a flow of the transport `rate` in ns, at the rate of its path and without its controller."""
    headers = ETHERNET_BYTES + rate_headers(family, congestion_bytes)
    count, last = divmod(size, payload_bytes)
    return round(train_ns(_hops(forward), 0, headers + payload_bytes, count, last and headers + last))
