# SPDX-License-Identifier: Apache-2.0
"""Base class of the models of files that users write."""

from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticKnownError


class Strict(BaseModel):
    """A part of a file; unknown fields are refused, and `true` is no whole number."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, bool) and info.field_name is not None and _takes_only_numbers(cls, info.field_name):
            raise PydanticKnownError("int_type")
        return value


@cache
def _takes_only_numbers(model: type[BaseModel], field: str) -> bool:
    """Whether a field takes whole numbers and no truth values."""
    types = _alternatives(model.model_fields[field].annotation)
    return int in types and bool not in types


def _alternatives(annotation: Any) -> set[Any]:
    """The types that an annotation allows."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    return set().union(*map(_alternatives, get_args(annotation))) if origin in (Union, UnionType) else {annotation}
