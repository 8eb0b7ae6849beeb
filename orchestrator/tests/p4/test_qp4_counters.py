# SPDX-License-Identifier: Apache-2.0
"""The names of qp4's counters are those of `struct qp4_counters`, in its order, in Rust and in the guest's tests."""

import re

import pytest

from qbed.base.locations import checkout

ROOT = checkout()
assert ROOT is not None


def section(path: str, begin: str, end: str) -> str:
    assert ROOT is not None
    text = (ROOT / path).read_text()
    return text[text.index(begin) : text.index(end, text.index(begin))]


@pytest.mark.parametrize(
    ("path", "begin", "end"),
    [
        ("crates/agent/src/pipeline/mod.rs", "const SHELL", "];"),
        ("kernel/tests/guest/p4_switch.py", "COUNTER_NAMES = (", ")\n"),
    ],
)
def test_names_are_the_fields_of_the_kernel(path: str, begin: str, end: str) -> None:
    fields = re.findall(r"__u64 (\w+);", section("kernel/include/uapi/qbed/qp4.h", "struct qp4_counters {", "};"))
    assert re.findall(r'"(\w+)"', section(path, begin, end)) == fields
