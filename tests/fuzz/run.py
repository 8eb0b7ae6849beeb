# SPDX-License-Identifier: Apache-2.0
"""Run the fuzzers: `python tests/fuzz/run.py [labs campaigns sql ...] [--seconds 60] [--examples 1000] [--seed 1]`.

First the corpus of earlier findings, then new cases in batches, each in a child process. Findings are written to
`runs/fuzz/`; the case of a fixed finding belongs in the corpus. Status 1 if there are findings.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

sys.path[:0] = [str(Path(__file__).parents[1])]

from fuzz.cases import Case, campaigns, containerlab, labs, sqls  # noqa: E402
from fuzz.child_processes import Outcomes, Tries, each, print_header, print_row, try_all  # noqa: E402
from fuzz.targets import targets  # noqa: E402

CORPUS = Path(__file__).parent / "corpus"
STRATEGIES = {
    "labs": labs(),
    "campaigns": campaigns(),
    "sql": sqls(),
    "inspect": labs(),
    "import": containerlab(),
    "service": st.one_of(campaigns(), labs()),
}
BATCH = 1000


def corpus(name: str) -> list[Case]:
    """The cases of a fuzzer's corpus, one folder each."""
    folder = CORPUS / {"inspect": "labs", "service": "campaigns"}.get(name, name)
    return [
        {file.name: file.read_bytes().decode("utf-8", "surrogatepass") for file in sorted(case.iterdir())}
        for case in sorted(folder.iterdir())
    ]


def generate(name: str, number: int, examples: int, deadline: float) -> Tries:
    """Generate the cases of one seed."""

    def tries(run_case: Callable[[Case], None]) -> None:
        @seed(number)
        @settings(
            max_examples=examples, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(STRATEGIES[name])
        def fuzz(case: Case) -> None:
            if time.monotonic() < deadline:
                run_case(case)

        fuzz()

    return tries


def fuzz(name: str, seconds: float, examples: int, first_seed: int) -> Outcomes:
    """Run the corpus and then new cases, until the time or the number of examples is reached."""
    outcomes, begun = Outcomes(), time.monotonic()
    deadline = begun + seconds
    for case in corpus(name):  # each in a child, so that one that dies does not stop the others
        try_all(each([case]), targets()[name], outcomes, time.monotonic() + 60)
    number, from_corpus = first_seed, outcomes.total
    while outcomes.total - from_corpus < examples and time.monotonic() < deadline:
        batch = min(BATCH, examples - (outcomes.total - from_corpus))
        try_all(generate(name, number, batch, deadline), targets()[name], outcomes, deadline)
        number += 1
    print_row(name, outcomes, time.monotonic() - begun)
    return outcomes


def keep(name: str, outcomes: Outcomes, folder: Path) -> None:
    """Write the findings to a folder."""
    for text, (case, output) in outcomes.found.items():
        case_folder = folder / name / hashlib.sha256(text.encode()).hexdigest()[:12]
        case_folder.mkdir(parents=True, exist_ok=True)
        for file, content in case.items():
            (case_folder / file).write_text(content, encoding="utf-8", errors="surrogatepass")
        (case_folder.parent / f"{case_folder.name}.txt").write_text(f"{text}\n\n{output}\n", errors="replace")
        print(f"{name}: {text}: {case_folder}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(STRATEGIES))
    parser.add_argument("--seconds", type=float, default=60.0, help="for each fuzzer")
    parser.add_argument("--examples", type=int, default=1 << 40, help="of each fuzzer, beyond the corpus")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    parser.add_argument("--json", type=Path, help="file for the counts")
    options = parser.parse_args()
    print_header()
    failures, counts = 0, dict[str, dict[str, int]]()
    for name in options.names or STRATEGIES:
        outcomes = fuzz(name, options.seconds, options.examples, options.seed * 1_000_000)
        keep(name, outcomes, options.out)
        failures += outcomes.failures
        counts[name] = dict(outcomes.counted)
    if options.json:
        options.json.write_text(json.dumps(counts) + "\n")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
