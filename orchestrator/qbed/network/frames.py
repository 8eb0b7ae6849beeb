# SPDX-License-Identifier: Apache-2.0
"""Headers of frames and packets."""

ETHERNET_BYTES = 14
"""An Ethernet header; queue lengths include it, an MTU does not."""
IP_BYTES = {4: 20, 6: 40}
UDP_BYTES = 8
CONGESTION_BYTES = 88
"""The congestion header after UDP (kernel/include/uapi/qbed/signal.h), in packets of the transport `rate`."""
COMPACT_BYTES = 20
"""The compact header without its signal."""
COMPACT_SIGNALS = ("rtt", "sum", "max", "ind")
"""Signals that a compact header can carry."""


def rate_of_packets(rate_bps: int, overhead_bytes: int, packet_bytes: int) -> int:
    """Return the rate of IP packets of this length that fills a link of this rate."""
    return rate_bps * packet_bytes // (packet_bytes + ETHERNET_BYTES + overhead_bytes)


def compact_bytes(signal: str, bits: int) -> int:
    """Return the length of a compact header: its signal has 0, 1, 2, 4 or 8 bytes (qbed/signal_compact.h)."""
    needed = {"sum": bits + 4, "max": bits, "ind": 1}.get(signal, 0)
    return COMPACT_BYTES + next(size for size in (0, 1, 2, 4, 8) if 8 * size >= needed)


def rate_headers(family: int, congestion_bytes: int) -> int:
    """Return the header bytes of an IP packet of the transport `rate`."""
    return IP_BYTES[family] + UDP_BYTES + congestion_bytes
