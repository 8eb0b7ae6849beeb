# SPDX-License-Identifier: Apache-2.0
"""The machine that qbed runs on."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def processor_model() -> str:
    """The processor's name; `unknown` where the kernel gives none."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"
