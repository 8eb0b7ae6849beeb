# SPDX-License-Identifier: Apache-2.0
"""What a campaign asks: its axes, matrix, claims, figures and bands."""
