# SPDX-License-Identifier: Apache-2.0
"""A campaign from its files to its report, on this machine."""
