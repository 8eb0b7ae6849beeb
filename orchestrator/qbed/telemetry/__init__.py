# SPDX-License-Identifier: Apache-2.0
"""Readers of the files that a cell writes while it runs."""
