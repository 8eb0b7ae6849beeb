# SPDX-License-Identifier: Apache-2.0
"""Which parameters are a length of a queue."""

import re
from typing import Any

import pytest

from qbed.schemes.declaration import Scheme, registry


@pytest.mark.parametrize(
    ("occupancy", "message"),
    [
        ({"thresholds": ["bufer"]}, "`occupancy` names no parameter `bufer`; did you mean `buffer`"),
        ({"thresholds": ["ecn"]}, "expected the type `amount` or `bytes` or `packets` or `duration` of the parameter"),
        ({"thresholds": ["buffer"], "rate": "interval"}, "expected the type `rate` of the parameter `interval`"),
        ({"thresholds": ["buffer"], "packet": "buffer"}, "expected the type `bytes` of the parameter `buffer`"),
    ],
)
def test_lengths_of_a_queue_are_parameters_with_such_a_quantity(occupancy: dict[str, Any], message: str) -> None:
    values = registry()["codel"].model_dump(mode="json") | {"occupancy": occupancy}
    with pytest.raises(ValueError, match=re.escape(message)):
        Scheme.model_validate(values)


def test_without_a_declaration_all_amounts_are_lengths_of_the_queue() -> None:
    values = registry()["abq"].model_dump(mode="json") | {"occupancy": None}
    assert Scheme.model_validate(values).lengths.thresholds == ("buffer", "threshold", "ecn_threshold")
    assert registry()["codel"].lengths.thresholds == ("buffer", "target")
