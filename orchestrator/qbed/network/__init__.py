# SPDX-License-Identifier: Apache-2.0
"""What a lab file means: its network, and which settings hold at every link end, queue and host."""
