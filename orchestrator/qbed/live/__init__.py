# SPDX-License-Identifier: Apache-2.0
"""Samples of a lab while it runs, and their export to sinks."""
