# SPDX-License-Identifier: Apache-2.0
"""Fuzz the kernel modules by netlink: `python tests/fuzz/netlink.py [--seconds 60] [--seed 1]`.

In a node of a running lab, `netlink_guest.py` sends valid and damaged messages to qlink, every scheme and qtap. The
guest must survive without a kernel warning. Each seed has a new guest, so findings are reproducible; a finding's
console log is written to `runs/fuzz/`. Status 1 if there are findings.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from qbed.substrates.toolchain import find_toolchain  # noqa: E402
from qbed.substrates.virtual.guest import boot  # noqa: E402
from qbed.telemetry.console import console_tail, kernel_warnings  # noqa: E402
from qbed.testing import write_plan  # noqa: E402

from fuzz import command_line  # noqa: E402
from qbed_testing.running import RunningLab  # noqa: E402

MESSAGES = 5_000
PYTHON = "/usr/bin/python3"
"""The system's Python: a guest may not read a virtual environment."""
CORPUS = Path(__file__).parent / "corpus" / "netlink.json"
"""Seeds and message counts of earlier findings."""
LAB = """\
name: fuzzed
topology: {star: {hosts: 6}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches:
  default: {scheme: droptail, buffer: 64 KB}
  s1>h2: {scheme: ecn, buffer: 64 KB, threshold: 20 packets}
  s1>h3: {scheme: codel, buffer: 64 KB}
  s1>h4: {scheme: rpm, buffer: 64 KB}
  s1>h5: {scheme: abq, buffer: 64 KB}
duration: 1 ms
"""


def run_guest(folder: Path, seed: int, messages: int) -> tuple[Counter[str], str | None]:
    """Send messages in a new guest; return the outcomes and the finding."""
    plan = write_plan(folder, LAB)
    qdiscs = [queue["qdisc"] for queue in json.loads(plan.dumps())["queues"]]
    valid = sorted({(qdisc["kind"], qdisc["options"]) for qdisc in qdiscs})
    shutil.copy(Path(__file__).with_name("netlink_guest.py"), folder)
    command = [PYTHON, "-I", "/mnt/netlink_guest.py", str(seed), str(messages)]
    try:
        with boot(find_toolchain(), folder, plan, "lab") as guest:
            lab = RunningLab(guest)
            lab.wait_until_ready()
            status, text = lab.run("h1", *command, json.dumps(valid))
            assert status == 0, text[-300:]
            status, _ = lab.run("h2", "true")
            assert status == 0
    except (AssertionError, OSError) as error:
        return Counter(), f"seed {seed}: {error}; the end of its console: {console_tail(folder / 'console.log')[-5:]}"
    found = kernel_warnings(folder)
    return Counter(json.loads(text.splitlines()[-1])), f"seed {seed}: {found}" if found else None


def fuzz(seconds: float, seed: int, findings: Path, messages: int = MESSAGES) -> tuple[Counter[str], list[str]]:
    """Run the corpus, then one seed after the other for a time; return the outcomes and the findings."""
    outcomes: Counter[str] = Counter()
    found: list[str] = []
    todo: list[tuple[int, int]] = [tuple(item) for item in json.loads(CORPUS.read_bytes())]
    deadline = time.monotonic() + seconds
    while todo or time.monotonic() < deadline:
        (number, count), seed = (todo.pop(), seed) if todo else ((seed, messages), seed + 1)
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            counts, finding = run_guest(Path(folder), number, count)
            outcomes += counts
            if finding is not None:
                found.append(finding)
                findings.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(folder) / "console.log", findings / f"netlink-{number}.log")
    return outcomes, found


if __name__ == "__main__":
    sys.exit(command_line.run("netlink messages", fuzz))
