# SPDX-License-Identifier: Apache-2.0
"""End-to-end tests carry the marker `e2e`."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "e2e: boots the real guest; needs `make setup`")
