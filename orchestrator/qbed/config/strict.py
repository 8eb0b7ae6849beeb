# SPDX-License-Identifier: Apache-2.0
"""Base class of the models of files that users write."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A part of a file; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)
