# SPDX-License-Identifier: Apache-2.0
"""What a run's tables say of a campaign's claims, and of the gap between two substrates."""
