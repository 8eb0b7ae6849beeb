# SPDX-License-Identifier: Apache-2.0
"""The marker `e2e` of end-to-end tests."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "e2e: boots a guest; needs `make setup`")
