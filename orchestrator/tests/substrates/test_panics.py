# SPDX-License-Identifier: Apache-2.0
"""What a guest's last words say of its panic. tests/e2e/test_new_scheme.py has a real one, with lines."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from qbed.substrates.panics import panic

LAST = """\
[-0.000100000] qlink: loading out-of-tree module taints kernel.
[0.001294952] Kernel panic - not syncing: Segfault with no mm
[0.001294952]   at mine_enqueue+0x40/0x276 [sch_mine]
[0.001294952]   from qtap_enqueue+0xee/0x660 [qtap]
[0.001294952]   from unblock_signals.part.0+0x10/0xb0"""


def test_a_panic_is_a_sentence_and_a_line_for_each_caller(tmp_path: Path) -> None:
    assert panic(LAST.splitlines(), tmp_path) == (
        "the guest's kernel panicked at 0.001294952 s: Segfault with no mm\n"
        "    at mine_enqueue [sch_mine]\n    from qtap_enqueue [qtap]\n    from unblock_signals.part.0"
    )
    assert panic(["Kernel panic - not syncing: no init"], tmp_path) == "the guest's kernel panicked: no init"
    assert panic(LAST.splitlines()[:1], tmp_path) is None


def test_lines_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "sch_mine.lines").write_text("no module")
    message = panic(LAST.splitlines(), tmp_path)
    assert message is not None and "\n    at mine_enqueue [sch_mine]\n" in message


WORDS = st.sampled_from(
    ["[0.001]", "at", "from", "+0x1/0x2", "[x]", "a", "Kernel panic - not syncing:", " ", "]", "0x"]
)


@given(st.lists(st.lists(WORDS).map("".join) | st.text(), max_size=12))
def test_any_last_output_of_a_guest_is_accepted(lines: list[str]) -> None:
    message = panic(lines, Path("/nowhere"))
    assert (message is not None) == any(
        re.match(r"(\[-?\d+\.\d+\] )?Kernel panic - not syncing:", line) for line in lines
    )
