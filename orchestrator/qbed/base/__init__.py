# SPDX-License-Identifier: Apache-2.0
"""Helpers that every package uses: errors, files, processes, the terminal."""
