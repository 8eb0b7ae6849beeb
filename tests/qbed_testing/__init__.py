# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests that boot guests, in tests/ and in schemes/NAME/tests (tests/README.md)."""
