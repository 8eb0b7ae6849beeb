# SPDX-License-Identifier: Apache-2.0
"""The plan: a compiled lab, which a substrate runs."""
