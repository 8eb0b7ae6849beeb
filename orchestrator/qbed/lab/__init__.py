# SPDX-License-Identifier: Apache-2.0
"""The lab file: what a user writes."""
