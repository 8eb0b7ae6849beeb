# SPDX-License-Identifier: Apache-2.0
"""qbed: a lab bench for in-network congestion signals."""

__version__ = "0.1.0"
