# SPDX-License-Identifier: Apache-2.0
"""Base class of the plan's parts, and the types of text that several parts have."""

import json
from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from qbed.base.json_files import Json


class Part(BaseModel):
    """A part of the plan; unknown fields are refused.

    A field with a default is written only if it has another value, so that a new field does not change the keys of
    existing cells. A field without a default is always written.
    """

    model_config = ConfigDict(defer_build=True, extra="forbid")

    def plain(self) -> dict[str, Json]:
        """The part as JSON."""
        return self.model_dump(mode="json", exclude_defaults=True)


def lines(entries: Iterable[object]) -> list[str]:
    """The lines of a list in plan.json: an entry each."""
    plain = (entry.plain() if isinstance(entry, Part) else entry for entry in entries)
    return [f"  {json.dumps(entry, ensure_ascii=False)}" for entry in plain]


Address = Annotated[str, Field(examples=["10.0.0.1", "fd00::1"])]
Prefix = Annotated[str, Field(examples=["10.0.0.0/31", "::/0"])]
Mac = Annotated[str, Field(examples=["02:00:00:00:00:00"])]
Hex = Annotated[str, Field(examples=["e8030000"])]
"""Bytes as hexadecimal digits."""
AbsolutePath = Annotated[str, Field(examples=["/run/frr"])]
