# SPDX-License-Identifier: Apache-2.0
"""The plan: what a lab compiles to and a substrate carries out."""
