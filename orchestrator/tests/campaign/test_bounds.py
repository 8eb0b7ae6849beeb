# SPDX-License-Identifier: Apache-2.0
"""Bounds of claims: what they allow, and how an interval is judged by them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbed.campaign.bounds import EXAMPLES, parse_bound


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("> 1.5", [1.51, 1e9], [1.5, 0]),
        (">= 0.9", [0.9, 2], [0.899]),
        ("< -2", [-2.1], [-2, 0]),
        ("<= 10 %", [0.1, -1], [0.11]),
        ("0.9 to 1.1", [0.9, 1.1], [0.89, 1.11]),
        ("5 to 10 %", [0.05, 0.1], [0.04, 0.11]),
        ("1.29 +- 15 %", [1.10, 1.48], [1.09, 1.49]),
        ("100 +- 5", [95, 105], [94.9, 105.1]),
        ("= 0", [0], [1e-9, -1]),
        (">2e3", [2001], [2000]),
    ],
)
def test_the_ends_belong_to_a_bound_as_its_sign_says(text: str, inside: list[float], outside: list[float]) -> None:
    bound = parse_bound(text)
    assert str(bound) == text
    for value in inside:
        assert bound.contains(value) and bound.judge(value, value) == "holds"
    for value in outside:
        assert not bound.contains(value) and bound.judge(value, value) == "refuted"


def test_an_interval_on_both_sides_is_undecided() -> None:
    assert parse_bound("> 1").judge(0.9, 1.1) == "undecided"
    assert parse_bound("> 1").judge(1.0, 1.1) == "undecided", "the end does not belong to it"
    assert parse_bound(">= 1").judge(1.0, 1.1) == "holds"
    assert parse_bound("> 1").judge(0.5, 1.0) == "refuted"
    assert parse_bound(">= 1").judge(0.5, 1.0) == "undecided"
    assert parse_bound("1 to 2").judge(0.5, 2.5) == "undecided"
    assert parse_bound("> 1").judge(-math.inf, math.inf) == "undecided"


@pytest.mark.parametrize("value", ["1.5", "> ", "=> 2", "2 to 1", "1 to", "> 1.5 ms", "1 +-", "", None, 3, ["> 1"]])
def test_other_texts_are_refused_with_examples(value: object) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_bound(value)


@given(st.sampled_from(EXAMPLES), st.floats(-10, 10), st.floats(0, 10), st.floats(0, 5))
def test_a_narrower_interval_never_turns_a_verdict(text: str, low: float, width: float, cut: float) -> None:
    bound, high = parse_bound(text), low + width
    wide = bound.judge(low, high)
    narrow = bound.judge(low + min(cut, width) / 2, high - min(cut, width) / 2)
    assert wide in ("undecided", narrow)


@given(st.text(max_size=20))
def test_any_text_is_a_bound_or_a_value_error(text: str) -> None:
    try:
        bound = parse_bound(text)
    except ValueError as error:
        assert "expected" in str(error)
    else:
        assert bound.low <= bound.high
