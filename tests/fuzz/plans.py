# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the guest by its plan: `python tests/fuzz/plans.py [--seconds 60] [--seed 1]`.

Plans are changed and carried out by a real guest: it comes to its end, is stopped because its lab lasts too long, or
says in a sentence what it refuses. It does not panic, hang or make its kernel complain. (What the agent alone makes of
many more plans: crates/agent/src/fuzz.rs.) What is found goes to `runs/fuzz/`. Status 1 if anything was.
"""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

import alone  # noqa: E402

from qbed.substrates import CellError, Limits  # noqa: E402
from qbed.substrates.virtual.substrate import VirtualSubstrate  # noqa: E402
from qbed.telemetry.console import kernel_warnings  # noqa: E402

from cells import plan_of  # noqa: E402

CORPUS = Path(__file__).parent / "corpus" / "plans"
LIMITS = Limits(cell_s=20, stall_s=10)
LAB = """\
name: fuzzed
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches:
  default: {scheme: ecn, buffer: 64 KB, threshold: 20 packets}
  s1>h2: {qdisc: fq_codel limit 100}
  s1>h3: {scheme: rpm, buffer: 64 KB}
hosts: {default: {tcp: dctcp, rto_min: 10 ms}}
workload:
  - flow: {from: h1, to: h2, size: 100 KB}
  - udp: {from: h2, to: h3, rate: 10 Mbit/s, size: 10 KB}
  - arrivals: {from: h1..h2, to: h3, size: 5 KB, interval: 300 us}
  - arrivals: {from: h1..h2, to: h3, size: {pareto: {mean: 5 KB, shape: 1.2, most: 9 KB}}, interval: 3 ms, together: on}
observe: {queues: 100 us, flows: 1 ms}
capture: [h1>s1]
events: [{at: 2 ms, link: h3-s1, state: down}, {at: 3 ms, link: h3-s1, state: up}]
duration: 5 ms
"""
FOUND = "the agent says: the agent: |panicked(?!.*memory)|was killed by|without a result|stands still|not become ready"


def change(tree: Any, chance: random.Random) -> None:
    """Another value of the same type in one place of a plan: what is of another is refused before anything is done."""
    places: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        value = todo.pop()
        inside = list(value) if isinstance(value, dict) else list(range(len(value)))
        places += [(value, key) for key in inside]
        todo += [value[key] for key in inside if isinstance(value[key], dict | list)]
    parent, key = chance.choice(places)
    value = parent[key]
    if isinstance(value, bool) or value is None:
        parent[key] = not value if value is not None else chance.choice((0, 1, 10**6))
    elif isinstance(value, int):
        other = (0, 1, 2, 3, value + 1, value * 2, value // 2, 255, 65_535, 2**16, 2**31, 2**32, 2**55)
        parent[key] = chance.choice(other)
    elif isinstance(value, float):
        parent[key] = chance.choice((0.0, 0.5, 0.999999, 1e-9, 1e9, 1e300, value * 2))
    elif isinstance(value, str):
        same = [place[key] for place, key in places if isinstance(place[key], str)]
        parent[key] = chance.choice((chance.choice(same), value[:-1], value + value[-1:], "", "x", ".", "a/b", "é"))
    elif isinstance(value, list) and value and chance.random() < 0.5:
        value.append(value[0])
    elif isinstance(value, list) and value:
        value.pop()
    else:
        del parent[key]


def one_guest(folder: Path, text: bytes | None, chance: random.Random) -> tuple[str, str | None]:
    """How it went with one plan (None: a new one), and what was found."""
    plan = plan_of(folder, LAB)
    if text is None:
        tree = json.loads(plan.dumps())
        for _ in range(chance.randint(1, 3)):
            change(tree, chance)
        text = json.dumps(tree).encode()
    cell = VirtualSubstrate().cell(folder, plan)
    (folder / "plan.json").write_bytes(text)
    try:
        cell.run(LIMITS, lambda _: None)
        went, said = "complete", ""
    except CellError as error:
        said = str(error)
        went = "too long" if "was stopped after" in said else "refused"
    if re.search(FOUND, said):
        return "found", said
    found = kernel_warnings(folder)
    return ("found", found[0]) if found else (went, None)


def fuzz(seconds: float, seed: int, findings: Path, most: float = math.inf) -> tuple[Counter[str], list[str]]:
    """The corpus, then new plans for so long, or so many: how they went, and what was found."""
    books: Counter[str] = Counter()
    found: list[str] = []
    chance, until = random.Random(seed), time.monotonic() + seconds
    todo: list[bytes | None] = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    while todo or (time.monotonic() < until and books.total() < most):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            folder = Path(name)
            went, what = one_guest(folder, todo.pop() if todo else None, chance)
            books[went] += 1
            if what is not None:
                found.append(what)
                findings.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / "plan.json", findings / f"plan-{seed}-{len(found)}.json")
    return books, found


if __name__ == "__main__":
    sys.exit(alone.run("plans in guests", fuzz))
