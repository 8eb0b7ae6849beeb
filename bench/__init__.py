# SPDX-License-Identifier: Apache-2.0
"""Measurements against peers and limits. `make bench` runs them all; none of them is a test."""
