# SPDX-License-Identifier: Apache-2.0
"""A fuzzer as a program: `--seconds`, `--seed`, and what came of it; findings are kept in runs/fuzz."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
Fuzzer = Callable[[float, int, Path], tuple[Counter[str], list[str]]]
"""(seconds, seed, folder of findings) to how its cases went, and what was found."""


def run(name: str, fuzz: Fuzzer) -> int:
    """Fuzz as the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(description=f"Fuzzes {name}.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    books, found = fuzz(asked.seconds, asked.seed, ROOT / "runs" / "fuzz")
    print(f"{name}, seed {asked.seed}: " + ", ".join(f"{number} {what}" for what, number in books.items()))
    for line in found:
        print(f"  {line[:500]}")
    return bool(found)
