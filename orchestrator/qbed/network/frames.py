# SPDX-License-Identifier: Apache-2.0
"""What every frame on a link begins with."""

ETHERNET_BYTES = 14
"""Of a frame's header; lengths of queues count it, an MTU does not."""
