# SPDX-License-Identifier: Apache-2.0
"""Configuration files: YAML with positions, quantities, names, and one message for each error."""
