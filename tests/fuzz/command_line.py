# SPDX-License-Identifier: Apache-2.0
"""The command line of a fuzzer: `--seconds` and `--seed`. Findings are kept in runs/fuzz."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
Fuzzer = Callable[[float, int, Path], tuple[Counter[str], list[str]]]
"""A function of seconds, seed and the folder of findings that returns counts of outcomes and the findings."""


def run(name: str, fuzz: Fuzzer) -> int:
    """Run a fuzzer with the options of the command line, and return the exit status."""
    parser = argparse.ArgumentParser(description=f"Fuzzes {name}.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--json", type=Path, help="file for the counts")
    options = parser.parse_args()
    outcomes, findings = fuzz(options.seconds, options.seed, ROOT / "runs" / "fuzz")
    print(f"{name}, seed {options.seed}: " + ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items()))
    if options.json:
        options.json.write_text(json.dumps({name: {**outcomes, "findings": len(findings)}}) + "\n")
    for finding in findings:
        print(f"  {finding[:500]}")
    return bool(findings)
