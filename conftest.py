# SPDX-License-Identifier: Apache-2.0
"""Load the fixtures of tests that boot guests, for tests/, schemes/*/tests and congestion/*/tests."""

pytest_plugins = ["qbed.testing.fixtures", "qbed_testing.fixtures"]
