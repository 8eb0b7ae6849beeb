# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the kernel modules by netlink: `python tests/fuzz/netlink.py [--seconds 60] [--seed 1]`.

A lab is up; in one of its nodes `netlink_guest.py` sends messages, right and damaged, to qlink, every scheme and qtap.
The guest has to go on, and its kernel has to have nothing to complain of. A seed is a guest of its own, so that a
finding can be had again: its console goes to `runs/fuzz/`. Status 1 if there was any.
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

import alone  # noqa: E402

from qbed.substrates.toolchain import find_toolchain  # noqa: E402
from qbed.substrates.virtual.guest import boot  # noqa: E402
from qbed.telemetry.console import console_tail, kernel_warnings  # noqa: E402

from cells import Live, plan_of  # noqa: E402

MESSAGES = 5_000
PYTHON = "/usr/bin/python3"
"""The machine's own: a guest may not read everybody's."""
CORPUS = Path(__file__).parent / "corpus" / "netlink.json"
"""Seeds, with the messages of each, that once found something."""
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


def one_guest(folder: Path, seed: int, messages: int) -> tuple[Counter[str], str | None]:
    """How it went in one guest, and what was found."""
    plan = plan_of(folder, LAB)
    qdiscs = [queue["qdisc"] for queue in json.loads(plan.dumps())["queues"]]
    right = sorted({(qdisc["kind"], qdisc["options"]) for qdisc in qdiscs})
    shutil.copy(Path(__file__).with_name("netlink_guest.py"), folder)
    words = [PYTHON, "-I", "/mnt/netlink_guest.py", str(seed), str(messages)]
    try:
        with boot(find_toolchain(), folder, plan, "lab") as guest:
            live = Live(guest)
            live.ready()
            status, text = live.run("h1", *words, json.dumps(right))
            assert status == 0, text[-300:]
            status, _ = live.run("h2", "true")
            assert status == 0
    except (AssertionError, OSError) as error:
        return Counter(), f"seed {seed}: {error}; its console said last: {console_tail(folder / 'console.log')[-5:]}"
    found = kernel_warnings(folder)
    return Counter(json.loads(text.splitlines()[-1])), f"seed {seed}: {found}" if found else None


def fuzz(seconds: float, seed: int, findings: Path, messages: int = MESSAGES) -> tuple[Counter[str], list[str]]:
    """The corpus, then a seed after the other for so long: how it went, and what was found."""
    books: Counter[str] = Counter()
    found: list[str] = []
    todo: list[tuple[int, int]] = [tuple(one) for one in json.loads(CORPUS.read_bytes())]
    until = time.monotonic() + seconds
    while todo or time.monotonic() < until:
        (number, count), seed = (todo.pop(), seed) if todo else ((seed, messages), seed + 1)
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            went, what = one_guest(Path(folder), number, count)
            books += went
            if what is not None:
                found.append(what)
                findings.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(folder) / "console.log", findings / f"netlink-{number}.log")
    return books, found


if __name__ == "__main__":
    sys.exit(alone.run("netlink messages", fuzz))
