# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzzers: `python tests/fuzz/run.py [labs campaigns sql ...] [--seconds 60] [--examples 1000] [--seed 1]`.

First the corpus, whatever a fuzzer has found before, then new cases in pieces, each in a child of its own. What is
found goes to `runs/fuzz/`; a case that has been mended goes from there to the corpus. Status 1 if anything was found.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from cases import Case, campaigns, labs, sqls
from children import Books, Tries, each, head, say, try_all
from targets import targets

CORPUS = Path(__file__).parent / "corpus"
STRATEGIES = {
    "labs": labs(),
    "campaigns": campaigns(),
    "sql": sqls(),
    "inspect": labs(),
    "service": st.one_of(campaigns(), labs()),
}
PIECE = 1000


def corpus(name: str) -> list[Case]:
    """The cases of a fuzzer in the tree: a folder each, or a single file `lab.yml`, `campaign.yml` or `sql.json`."""
    folder = CORPUS / {"inspect": "labs", "service": "campaigns"}.get(name, name)
    return [
        {file.name: file.read_bytes().decode("utf-8", "surrogatepass") for file in sorted(case.iterdir())}
        for case in sorted(folder.iterdir())
    ]


def new(name: str, number: int, examples: int, until: float) -> Tries:
    """New cases: those of one seed."""

    def tries(one: Callable[[Case], None]) -> None:
        @seed(number)
        @settings(
            max_examples=examples, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(STRATEGIES[name])
        def fuzz(case: Case) -> None:
            if time.monotonic() < until:
                one(case)

        fuzz()

    return tries


def fuzz(name: str, seconds: float, examples: int, first_seed: int) -> Books:
    """The corpus and then new cases, until the time or the number is reached."""
    books, begun = Books(), time.monotonic()
    until = begun + seconds
    for case in corpus(name):  # one ends, or the next one would never be tried
        try_all(each([case]), targets()[name], books, time.monotonic() + 60)
    number, tried = first_seed, books.tried
    while books.tried - tried < examples and time.monotonic() < until:
        piece = min(PIECE, examples - (books.tried - tried))
        try_all(new(name, number, piece, until), targets()[name], books, until)
        number += 1
    say(name, books, time.monotonic() - begun)
    return books


def keep(name: str, books: Books, place: Path) -> None:
    """Write down what was found."""
    for text, (case, said) in books.found.items():
        folder = place / name / hashlib.sha256(text.encode()).hexdigest()[:12]
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in case.items():
            (folder / file).write_text(content, encoding="utf-8", errors="surrogatepass")
        (folder.parent / f"{folder.name}.txt").write_text(f"{text}\n\n{said}\n", errors="replace")
        print(f"{name}: {text}: {folder}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(STRATEGIES))
    parser.add_argument("--seconds", type=float, default=60.0, help="for each fuzzer")
    parser.add_argument("--examples", type=int, default=1 << 40, help="of each fuzzer, beyond the corpus")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    wanted = parser.parse_args()
    head()
    bad = 0
    for name in wanted.names or STRATEGIES:
        books = fuzz(name, wanted.seconds, wanted.examples, wanted.seed * 1_000_000)
        keep(name, books, wanted.out)
        bad += books.bad
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
