# SPDX-License-Identifier: Apache-2.0
"""qbed: a test bench for congestion control and in-network congestion signals."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

API = (
    *("CommandResult", "Job", "Lab", "Live", "Run", "Service"),
    *("cell", "labs", "load", "merge", "new", "open", "queue", "run", "store", "up"),
)
"""Names of `qbed.api` that this package exports; the module is imported at the first use."""


def __getattr__(name: str) -> Any:
    if name not in API:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("qbed.api"), name)


def __dir__() -> list[str]:
    return [*globals(), *API]
