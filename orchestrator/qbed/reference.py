# SPDX-License-Identifier: Apache-2.0
"""Generated documentation: the lab file's JSON Schema and its reference page, both read off the model and scheme.yml."""

from functools import cache
from typing import Any


@cache
def _model_schema() -> dict[str, Any]:
    from qbed.lab import Lab

    return Lab.model_json_schema(by_alias=True)


def schema() -> dict[str, Any]:
    """The lab file's JSON Schema (draft 2020-12)."""
    return _model_schema()
