# SPDX-License-Identifier: Apache-2.0
"""Queueing schemes: what each folder of schemes/ declares, and how the kernel takes and gives it."""
