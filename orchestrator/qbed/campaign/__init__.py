# SPDX-License-Identifier: Apache-2.0
"""Campaigns: axes, matrix, claims, figures and bands."""
