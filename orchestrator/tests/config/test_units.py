# SPDX-License-Identifier: Apache-2.0
"""Quantities with units."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbed.config import units


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_duration, "5 us", 5_000),
        (units.parse_duration, "5us", 5_000),
        (units.parse_duration, "1.5 ms", 1_500_000),
        (units.parse_duration, "0 s", 0),
        (units.parse_duration, "2 min", 120_000_000_000),
        (units.parse_rate, "10 Gbit/s", 10_000_000_000),
        (units.parse_rate, "2.5 Mbps", 2_500_000),
        (units.parse_rate, "1_000 bit/s", 1_000),
        (units.parse_size, "128 KB", 128_000),
        (units.parse_size, "128 KiB", 131_072),
        (units.parse_size, "1e6 B", 1_000_000),
        (units.parse_packets, "1 packet", 1),
        (units.parse_amount, "20 packets", units.Amount(20, "packets")),
        (units.parse_amount, "2.5 MB", units.Amount(2_500_000, "bytes")),
        (units.parse_fraction, "1 %", 0.01),
        (units.parse_fraction, 0.5, 0.5),
    ],
)
def test_reads(parse: Callable[[object], Any], text: object, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (units.parse_duration, 5, "expected a duration such as `5 us`, got `5`"),
        (units.parse_duration, "5", "expected a duration such as `5 us`, got `5`"),
        (units.parse_duration, "5 packets", "expected a duration such as `5 us`, got `5 packets`"),
        (units.parse_duration, None, "expected a duration such as `5 us`, got nothing"),
        (units.parse_duration, "0.5 ns", "expected a whole number of ns, got `0.5 ns`"),
        (units.parse_duration, "-1 s", "expected a duration such as `5 us`, got `-1 s`"),
        (units.parse_rate, "10 GB", "expected a rate such as `10 Gbit/s`, got `10 GB`; write `80 Gbit/s`"),
        (units.parse_rate, "100 MB/s", "expected a rate such as `10 Gbit/s`, got `100 MB/s`; write `800 Mbit/s`"),
        (units.parse_rate, "20mbit", "expected a rate such as `10 Gbit/s`, got `20mbit`; write `20 Mbit/s`"),
        (units.parse_rate, "0.01b/sec", "expected a rate such as `10 Gbit/s`, got `0.01b/sec`"),
        (units.parse_rate, "0.5 bit/s", "expected a whole number of bit/s, got `0.5 bit/s`"),
        (units.parse_rate, True, "expected a rate such as `10 Gbit/s`, got `true`"),
        (units.parse_duration, [1, "a"], "expected a duration such as `5 us`, got a list"),
        (units.parse_duration, {"a": 1}, "expected a duration such as `5 us`, got fields"),
        (units.parse_size, "32 Kb", "expected a size such as `32 KB`, got `32 Kb`"),
        (units.parse_size, "1e99 GB", "expected a size such as `32 KB`, got `1e99 GB`, which is too large"),
        (units.parse_packets, "20 KB", "expected a number of packets such as `10 packets`, got `20 KB`"),
        (units.parse_amount, "20", "expected an amount such as `128 KB` or `20 packets`, got `20`"),
        (units.parse_fraction, 1.5, "expected a fraction from 0 to 1 or a percentage such as `1 %`, got `1.5`"),
    ],
)
def test_a_message_names_the_expected_value(parse: Callable[[object], Any], text: object, message: str) -> None:
    with pytest.raises(ValueError) as error:
        parse(text)
    assert str(error.value) == message


@given(st.integers(0, 2**62))
def test_what_is_written_reads_back(value: int) -> None:
    assert units.parse_duration(units.format_duration(value)) == value
    assert units.parse_size(units.format_size(value)) == value
    assert units.parse_rate(units.format_rate(value)) == value
    assert units.parse_packets(units.format_packets(value)) == value


@given(st.text() | st.integers() | st.floats() | st.none() | st.lists(st.integers()))
def test_anything_else_is_a_value_error(value: object) -> None:
    for parse in (units.parse_duration, units.parse_rate, units.parse_size, units.parse_amount, units.parse_fraction):
        try:
            parse(value)
        except ValueError as error:
            assert "expected" in str(error)


@pytest.mark.parametrize(
    ("value", "text"), [(1_500, "1.5 us"), (2_000_336_360, "2000336.36 us"), (0, "0 ns"), (10**9, "1 s")]
)
def test_writes_the_largest_unit_that_is_exact(value: int, text: str) -> None:
    assert units.format_duration(value) == text
