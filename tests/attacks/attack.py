# SPDX-License-Identifier: Apache-2.0
"""Run every fuzzer and attack: `python tests/attacks/attack.py [--minutes 5] [--long] [--out runs/attack]`.

Two run at a time, and each gets a share of the time. The counts are printed and written to counts.json; findings are
kept beside it. Status 1 if anything was found. `--long` adds the fuzzers of the Rust crates and tries 100,000 lab and
campaign files, if they fit into the time. failing_calls.py alone runs all of its cases.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARES = {
    "labs": 0.9, "campaigns": 0.9, "sql": 0.1, "inspect": 0.05, "import": 0.05, "service": 0.05, "telemetry": 0.03,
    "plans": 0.04, "netlink": 0.03, "failing calls": 0.15,
}  # fmt: skip
"""Parts of the time. A fuzzer ends by itself; failing calls are as many as fit into their part."""
EXAMPLES = {False: {"labs": 4_000, "campaigns": 300}, True: {"labs": 92_000, "campaigns": 8_000}}
"""The cases after which a fuzzer ends, in short and long runs."""
LANES = 2
CALL_S = 5.0
"""Approximate time of a failing call's case."""
KILL_S = 4.0


@dataclass(frozen=True)
class Step:
    """A fuzzer or attack. `counts`: the file that it writes its counts to."""

    name: str
    command: list[str]
    counts: Path | None = None
    environment: tuple[tuple[str, str], ...] = ()


def steps(seconds: float, out: Path, seed: int, *, long: bool) -> Iterator[Step]:
    """The steps for so many seconds, beyond the tests and the kills."""
    for name, share in SHARES.items():
        counts = out / f"{name.replace(' ', '-')}.json"
        written = ["--json", str(counts), "--seed", str(seed)]
        limit = ["--seconds", f"{seconds * share:.0f}"]
        if name == "failing calls":
            cases = ["--cases", str(max(4, round(seconds * share / CALL_S)))]
            yield Step(name, [sys.executable, "tests/attacks/failing_calls.py", *cases, *written], counts)
        elif name in ("telemetry", "plans", "netlink"):
            yield Step(name, [sys.executable, f"tests/fuzz/{name}.py", *limit, *written], counts)
        else:
            examples = ["--examples", str(EXAMPLES[long][name])] if name in EXAMPLES[long] else []
            command = [sys.executable, "tests/fuzz/run.py", name, *limit, *examples, *written]
            command += ["--out", str(out / "fuzz")]
            yield Step(name, command, counts)
    kills = max(5, round(seconds * 0.1 / KILL_S))
    yield Step("kills", [sys.executable, "tests/e2e/kill_campaign.py", "--kills", str(kills)])
    tests = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests" / "attacks").glob("test_*.py"))]
    junit = out / "tests.xml"
    yield Step("tests", [sys.executable, "-m", "pytest", "-q", "-n2", f"--junit-xml={junit}", *tests], junit)
    if long:
        variables = (("PROPTEST_CASES", str(round(seconds * 20))),)
        yield Step("crates", ["tools/cargo", "test", "--quiet", "--workspace", "fuzz"], None, variables)


def counts(step: Step) -> dict[str, object]:
    """The counts that a step has written."""
    if step.counts is None or not step.counts.exists():
        return {}
    if step.counts.suffix == ".xml":
        from xml.etree import ElementTree

        suite = next(ElementTree.parse(step.counts).iter("testsuite"))
        return {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    found: dict[str, object] = json.loads(step.counts.read_text())
    inner = list(found.values())
    return inner[0] if len(inner) == 1 and isinstance(inner[0], dict) else found


def run(step: Step, out: Path) -> tuple[str, dict[str, object]]:
    """Run a step and print its counts. Returns its name and its part of the report."""
    if step.counts is not None:
        step.counts.unlink(missing_ok=True)
    begun = time.monotonic()
    log = out / f"{step.name.replace(' ', '-')}.log"
    with log.open("w") as file:
        status = subprocess.run(
            step.command,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(step.environment),
            check=False,
        ).returncode
    shown = ", ".join(f"{number} {what}" for what, number in counts(step).items())
    print(f"{step.name:<14} {'ok' if status == 0 else f'FOUND: {log}':<8} {shown}", flush=True)
    return step.name, {"status": status, "seconds": round(time.monotonic() - begun), "counts": counts(step)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/attack"))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", action="append", help="a step's name; may be repeated")
    options = parser.parse_args()
    os.chdir(ROOT)
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    report: dict[str, dict[str, object]] = {}
    chosen = [
        step
        for step in steps(options.minutes * 60, out, options.seed, long=options.long)
        if not options.only or step.name in options.only
    ]
    with ThreadPoolExecutor(LANES) as pool:
        for done in as_completed(pool.submit(run, step, out) for step in chosen):
            name, report[name] = done.result()
            whole = {"seed": options.seed, "steps": report}
            (out / "counts.json").write_text(json.dumps(whole, indent=1) + "\n")
    return int(any(step["status"] for step in report.values()))


if __name__ == "__main__":
    sys.exit(main())
