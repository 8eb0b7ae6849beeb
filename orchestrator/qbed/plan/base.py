# SPDX-License-Identifier: Apache-2.0
"""The base class of the plan's parts."""

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of the plan: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")
