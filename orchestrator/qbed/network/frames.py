# SPDX-License-Identifier: Apache-2.0
"""Headers of frames and packets."""

ETHERNET_BYTES = 14
"""An Ethernet header; queue lengths include it, an MTU does not."""
IP_BYTES = {4: 20, 6: 40}
UDP_BYTES = 8
CONGESTION_BYTES = 88
"""The congestion header after UDP (kernel/include/uapi/qbed/signal.h), in packets of the transport `rate`."""


def rate_of_packets(rate_bps: int, overhead_bytes: int, packet_bytes: int) -> int:
    """Return the rate of IP packets of this length that fills a link of this rate."""
    return rate_bps * packet_bytes // (packet_bytes + ETHERNET_BYTES + overhead_bytes)


def rate_headers(family: int) -> int:
    """Return the header bytes of an IP packet of the transport `rate`."""
    return IP_BYTES[family] + UDP_BYTES + CONGESTION_BYTES
