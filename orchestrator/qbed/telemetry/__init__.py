# SPDX-License-Identifier: Apache-2.0
"""The formats of what a cell writes while it runs; no judgement."""
