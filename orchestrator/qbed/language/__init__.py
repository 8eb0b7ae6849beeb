# SPDX-License-Identifier: Apache-2.0
"""How files are read and refused: YAML with positions, quantities, names, one clear message for each mistake."""
