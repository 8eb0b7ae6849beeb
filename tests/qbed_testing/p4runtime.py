# SPDX-License-Identifier: Apache-2.0
"""Read the entities of a P4Runtime server with finsy."""

from __future__ import annotations

from typing import Any

import finsy as fy


async def read_entities(switch: fy.Switch, *wanted: Any) -> list[Any]:
    """Read the entities that match the wildcards `wanted`."""
    read: Any = switch.read  # mypy takes its overloads for coroutines
    return [entity async for entity in read(list(wanted))]
