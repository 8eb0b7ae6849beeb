# SPDX-License-Identifier: Apache-2.0
"""The result of a run on the terminal and in the summary for CI."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console

from qbed.claims.verdict import Verdict, caveats_of
from qbed.cli.screen import print_result
from qbed.runs.executor import Totals
from qbed.runs.experiment import RunResult


def verdict(name: str, *caveats: str) -> Verdict:
    fields = {"name": name, "paper": "", "source": "", "sql": "", "expect": "holds", "why": None, "verdict": "holds"}
    return Verdict.model_validate(fields | {"caveats": caveats})


def printed(*verdicts: Verdict, warnings: Sequence[str] = ()) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_result(RunResult(Totals(3, 0, complete=3), list(verdicts), None, 1.0), console, warnings)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_caveats_are_printed_once_with_their_claims() -> None:
    text = printed(
        verdict("one", "a mean of idle time"), verdict("two"), verdict("three", "a mean of idle time", "other")
    )
    assert "caution: a mean of idle time: claims one, three\ncaution: other: claim three\n" in text
    assert "caution: a host's queue: all claims\n" in printed(
        verdict("one", "a host's queue"), verdict("two", "a host's queue")
    )
    assert "caution" not in printed(verdict("one"))


def test_caveats_by_claim() -> None:
    assert caveats_of([verdict("one", "a", "b"), verdict("two", "b")]) == {"a": ["one"], "b": ["one", "two"]}


def test_warnings_are_printed_again_before_the_totals() -> None:
    text = printed(verdict("one"), warnings=[f"warning {number}" for number in range(7)])
    assert text.splitlines()[1:] == [
        *(f"warning: warning {number}" for number in range(5)),
        "... and 2 warnings more, at the start of the run",
        "3 of 3 cells complete, in 1.0 s",
    ]
