# SPDX-License-Identifier: Apache-2.0
"""Judge a campaign's claims by a run's tables, and compare two substrates."""
