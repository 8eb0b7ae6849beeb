# SPDX-License-Identifier: Apache-2.0
"""Run folders on disk, and the store of cells that runs share."""
