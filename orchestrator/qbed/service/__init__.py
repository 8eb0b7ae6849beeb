# SPDX-License-Identifier: Apache-2.0
"""The service (`qbed serve`): campaigns of many, one after the other, over HTTP. docs/service.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qbed.base.errors import QbedError

if TYPE_CHECKING:
    from qbed.service.client import Client

SERVER, TOKEN = "QBED_SERVER", "QBED_TOKEN"
"""Environment variables with a service that runs campaigns instead of this machine, and with its token."""


def connected(url: str | None, token: str | None) -> Client:
    """Connect to a service. Raise `QbedError` if `url` names none, or if the HTTP client is not installed."""
    if not url:
        raise QbedError(f"which service? `qbed --server URL ...`, `qbed.Service(URL)`, or {SERVER}")
    try:
        from qbed.service.client import Client
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("qbed"):
            raise
        raise QbedError(f"there is no Python package {error.name}: `pip install 'qbed[service]'` brings it") from None
    return Client(url, token or None)
