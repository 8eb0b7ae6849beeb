# SPDX-License-Identifier: Apache-2.0
"""Fuzz the guest by its plan: `python tests/fuzz/plans.py [--seconds 60] [--seed 1]`.

A guest runs changed plans: it completes, is stopped because its lab lasts too long, or refuses the plan with a message.
It does not panic, hang or cause a kernel warning. (crates/agent/src/fuzz.rs runs many more plans in the agent alone.)
Findings are written to `runs/fuzz/`. Status 1 if there are findings.
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

from qbed.substrates import CellError, Limits  # noqa: E402
from qbed.substrates.virtual.substrate import VirtualSubstrate  # noqa: E402
from qbed.telemetry.console import kernel_warnings  # noqa: E402
from qbed.testing import write_plan  # noqa: E402

from fuzz import command_line  # noqa: E402

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
  - arrivals: {from: h1..h2, to: h3, size: {pareto: {mean: 5 KB, shape: 1.2, max: 9 KB}}, interval: 3 ms, together: on}
observe: {queues: 100 us, flows: 1 ms}
capture: [h1>s1]
events: [{at: 2 ms, link: h3-s1, state: down}, {at: 3 ms, link: h3-s1, state: up}]
duration: 5 ms
"""
FOUND = "the agent says: the agent: |panicked(?!.*memory)|was killed by|without a result|stands still|not become ready"


def change(tree: Any, rng: random.Random) -> None:
    """Replace a value of a plan by another of its type; the parser would refuse another type."""
    places: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        value = todo.pop()
        inside = list(value) if isinstance(value, dict) else list(range(len(value)))
        places += [(value, key) for key in inside]
        todo += [value[key] for key in inside if isinstance(value[key], dict | list)]
    parent, key = rng.choice(places)
    value = parent[key]
    if isinstance(value, bool) or value is None:
        parent[key] = not value if value is not None else rng.choice((0, 1, 10**6))
    elif isinstance(value, int):
        other = (0, 1, 2, 3, value + 1, value * 2, value // 2, 255, 65_535, 2**16, 2**31, 2**32, 2**55)
        parent[key] = rng.choice(other)
    elif isinstance(value, float):
        parent[key] = rng.choice((0.0, 0.5, 0.999999, 1e-9, 1e9, 1e300, value * 2))
    elif isinstance(value, str):
        strings = [place[key] for place, key in places if isinstance(place[key], str)]
        parent[key] = rng.choice((rng.choice(strings), value[:-1], value + value[-1:], "", "x", ".", "a/b", "é"))
    elif isinstance(value, list) and value and rng.random() < 0.5:
        value.append(value[0])
    elif isinstance(value, list) and value:
        value.pop()
    else:
        del parent[key]


def run_guest(folder: Path, text: bytes | None, rng: random.Random) -> tuple[str, str | None]:
    """Run a plan (None: a new one) in a guest; return the outcome and the finding."""
    plan = write_plan(folder, LAB)
    if text is None:
        tree = json.loads(plan.dumps())
        for _ in range(rng.randint(1, 3)):
            change(tree, rng)
        text = json.dumps(tree).encode()
    cell = VirtualSubstrate().cell(folder, plan)
    (folder / "plan.json").write_bytes(text)
    try:
        cell.run(LIMITS, lambda _: None)
        outcome, message = "complete", ""
    except CellError as error:
        message = str(error)
        outcome = "too long" if "was stopped after" in message else "refused"
    if re.search(FOUND, message):
        return "found", message
    found = kernel_warnings(folder)
    return ("found", found[0]) if found else (outcome, None)


def fuzz(seconds: float, seed: int, findings: Path, limit: float = math.inf) -> tuple[Counter[str], list[str]]:
    """Run the corpus, then new plans until the time or the limit is reached; return the outcomes and the findings."""
    outcomes: Counter[str] = Counter()
    found: list[str] = []
    rng, deadline = random.Random(seed), time.monotonic() + seconds
    todo: list[bytes | None] = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    while todo or (time.monotonic() < deadline and outcomes.total() < limit):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            folder = Path(name)
            outcome, finding = run_guest(folder, todo.pop() if todo else None, rng)
            outcomes[outcome] += 1
            if finding is not None:
                found.append(finding)
                findings.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / "plan.json", findings / f"plan-{seed}-{len(found)}.json")
    return outcomes, found


if __name__ == "__main__":
    sys.exit(command_line.run("plans in guests", fuzz))
