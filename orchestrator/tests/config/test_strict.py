# SPDX-License-Identifier: Apache-2.0
"""Truth values where a file needs numbers, and numbers where it may have either."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from qbed.base.errors import LabError
from qbed.config.source import parse
from qbed.config.strict import Strict
from qbed.network.load import lab_from_source

LAB = """\
name: x
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 10 us}}
switches: {default: {scheme: droptail, buffer: 100 KB}}
workload: [flows: {from: h1, to: h2, count: 2, size: 1 KB}]
duration: 10 ms
"""


class Part(Strict):
    whole: int = 1
    optional: int | None = None
    either: Annotated[int, Field(ge=1)] | Literal["all"] = 1
    flag: bool = False
    both: int | bool = 1


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("field", ["whole", "optional", "either"])
def test_a_truth_value_is_no_number(field: str, value: bool) -> None:
    with pytest.raises(ValidationError) as refused:
        Part.model_validate({field: value})
    (error,) = (error for error in refused.value.errors() if error["type"] == "int_type")
    assert error["loc"] == (field,)


@pytest.mark.parametrize(("field", "value"), [("flag", True), ("both", True), ("whole", 5), ("either", "all")])
def test_other_values_are_kept(field: str, value: Any) -> None:
    assert getattr(Part.model_validate({field: value}), field) is value


@pytest.mark.parametrize("field", ["hosts: 3", "count: 2"])
def test_the_message_names_the_field(field: str) -> None:
    name = field.partition(":")[0]
    with pytest.raises(LabError, match=rf"{name}: expected a whole number, got `true`"):
        lab_from_source(parse(LAB.replace(field, f"{name}: true"), "lab.yml"))
