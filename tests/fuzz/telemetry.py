# SPDX-License-Identifier: Apache-2.0
"""Fuzzes what a guest leaves behind: `python tests/fuzz/telemetry.py [--seconds 60] [--seed 1]`.

The files of `out/` (the tap stream, counters, flows and their samples, routes) are changed, and each time the cell is
stored as after a run: it becomes tables, or is refused by a sentence. First the corpus, whatever was found before; what
is found goes to `runs/fuzz/`. Status 1 if anything was.
"""

from __future__ import annotations

import io
import json
import math
import random
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "orchestrator" / "tests")]

import alone  # noqa: E402
from synthetic import flow_sample, sojourn, sojourn_sample, write_out  # noqa: E402

from qbed.base.errors import QbedError  # noqa: E402
from qbed.cells.store_cell import store_cell  # noqa: E402
from qbed.network.load import load_lab  # noqa: E402
from qbed.plan.compile import compile_lab  # noqa: E402
from qbed.plan.model import Plan  # noqa: E402
from qbed.telemetry.flow_samples import FlowSampleTail  # noqa: E402
from qbed.telemetry.taps import TapTail  # noqa: E402

CORPUS = Path(__file__).parent / "corpus" / "telemetry"
LAB = """\
name: fuzzed
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
workload:
  - flows: {pairs: [[h1, h3], [h2, h4]], size: 100 KB, label: bulk}
  - udp: {from: h1, to: h4, rate: 1 Mbit/s, size: 10 KB}
  - requests: {clients: h1, servers: h3, request: 100 B, response: 1 KB, label: asks}
observe: {queues: 1 ms, flows: 1 ms, sojourn: true, windows: {late: {from: 10 ms}}}
events: [{at: 5 ms, link: s1-s2, state: down}]
duration: 20 ms
"""
ROUTES = (
    {"time_ns": 1, "node": "s1", "change": "set", "to": "10.0.0.4/30", "protocol": "bgp",
     "via": [{"interface": "eth0", "gateway": None}]},
    {"time_ns": 5, "node": "s1", "change": "down", "link": "s1-s2"},
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**32, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, 1e308, "", "x",
    "h1", "\0", "\ud800", "é", "1", [], {}, [None], [[]], {"": None}, "tcp", "complete", "running", "failed", "::1",
)  # fmt: skip
Files = dict[str, bytes]


class Cell:
    """A cell that has ended, whose files are as they should be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "lab.yml").write_text(LAB)
        self.plan: Plan = compile_lab(load_lab(folder / "lab.yml"), 1)
        (folder / "plan.json").write_text(self.plan.dumps())
        write_out(self.plan, folder)
        (folder / "out" / "routes.ndjson").write_text("".join(json.dumps(row) + "\n" for row in ROUTES))
        # The last flow is one of probes, two of which are back.
        *flows, last = (folder / "out" / "flows.ndjson").read_text().splitlines()
        probed = json.loads(last) | {"transport": "probe", "dscp": 46}
        (folder / "out" / "flows.ndjson").write_text("\n".join([*flows, json.dumps(probed)]) + "\n")
        probes = [(0, 5, 9, 9, 13), (1, 1005, 1010, 1010, 1013), (2, 2005, *[-(2**63)] * 3)]
        packed = (struct.pack("<IIqqqq", probed["flow"], *probe) for probe in probes)
        (folder / "out" / "probes.bin").write_bytes(b"".join(packed))
        asks = self.plan.workloads[-1].id
        ends = ((1, 5, 9, 2000, 5000, 100, 1000), (0, 6000, *[-(2**63)] * 3, 100, 1000))
        records = (
            struct.pack("<6I2BHI4q2Q", asks, 0, k, 0, 0, 2, last, 0, 0, 0, *rest)
            for k, (last, *rest) in enumerate(ends)
        )
        (folder / "out" / "exchanges.bin").write_bytes(b"".join(records))
        told = b"".join(
            sojourn(queue, at, 2, {5: 1, 200: at // 10**7}, at_bound=at_bound, sum_ns=at, max_ns=900)
            for queue in range(len(self.plan.queues))
            for at, at_bound in ((10**7, True), (2 * 10**7, True), (2 * 10**7, False))
        )
        with (folder / "out" / "taps.bin").open("ab") as taps:
            taps.write(sojourn_sample(1, 10**6, 2, 3, sum_ns=9, max_ns=4, p50_ns=3, p99_ns=4) + told)
        samples = (flow_sample("tcp_info", at % 3, at * 10**6, ssthresh=None, state=at % 5) for at in range(20))
        (folder / "out" / "flow_samples.bin").write_bytes(b"".join(samples))
        self.files: Files = {path.name: path.read_bytes() for path in sorted((folder / "out").iterdir())}

    def store(self, changed: Files) -> str:
        """How it goes with other files: `stored` or `refused`; whatever else is raised is a finding."""
        into = self.folder / "tables"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        for name, content in (self.files | changed).items():
            (self.folder / "out" / name).write_bytes(content)
        try:
            store_cell(self.folder, self.plan, into)
            return "stored"
        except (QbedError, pa.ArrowException) as error:  # what a worker makes the cell's error
            assert str(error)
            return "refused"
        finally:
            self._tail(TapTail(len(self.plan.queues), self.plan.most_samples), changed.get("taps.bin", b""))
            self._tail(FlowSampleTail(), changed.get("flow_samples.bin", b""))

    def _tail(self, tail: TapTail | FlowSampleTail, content: bytes) -> None:
        """The same file in pieces, as `qbed samples` reads it."""
        stream = io.BytesIO(content)
        try:
            while piece := stream.read(1000):
                for _ in tail.feed(piece):
                    pass
        except QbedError as error:
            assert str(error)


def mutate(files: Files, chance: random.Random) -> Files:
    """One to three changes of one file."""
    name = chance.choice(sorted(files))
    content = files[name]
    for _ in range(chance.randint(1, 3)):
        if name.endswith("json") and chance.random() < 0.7:
            content = other_value(content, chance)
        else:
            content = other_bytes(content, chance)
    return {name: content}


def other_bytes(content: bytes, chance: random.Random) -> bytes:
    at, to = sorted((chance.randrange(len(content) + 1), chance.randrange(len(content) + 1)))
    kind = chance.randrange(6)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + content[to:]
    if kind == 2:
        return content[:to] + content[at:]
    word = struct.pack("<Q", chance.choice((0, 1, 2, 3, 4, 5, 255, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)))
    size = chance.choice((1, 2, 4, 8))
    at -= at % size if kind > 3 else 0
    return content[:at] + word[:size] + content[at + size :]


def other_value(content: bytes, chance: random.Random) -> bytes:
    """Another value somewhere in a line of JSON."""
    lines = content.split(b"\n")
    number = chance.randrange(len(lines))
    try:
        tree = json.loads(lines[number])
    except ValueError:
        return other_bytes(content, chance)
    places: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        value = todo.pop()
        if isinstance(value, dict | list):
            inside = list(value) if isinstance(value, dict) else list(range(len(value)))
            places += [(value, key) for key in inside]
            todo += [value[key] for key in inside]
    if places:
        parent, key = chance.choice(places)
        if chance.random() < 0.2:
            del parent[key]
        else:
            parent[key] = chance.choice(ODD)
    lines[number] = json.dumps(tree).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def corpus() -> list[Files]:
    """What was found before: a folder each, with the files that were changed."""
    cases = sorted(CORPUS.iterdir()) if CORPUS.is_dir() else []
    return [{file.name: file.read_bytes() for file in sorted(case.iterdir())} for case in cases]


def fuzz(seconds: float, seed: int, findings: Path, most: float = math.inf) -> tuple[Counter[str], list[str]]:
    """The corpus, then new cases for so long, or so many: how they went, and what was found."""
    books: Counter[str] = Counter()
    found: dict[str, str] = {}
    chance, until = random.Random(seed), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        cell = Cell(Path(folder))
        assert cell.store({}) == "stored"
        todo = corpus()
        while todo or (time.monotonic() < until and books.total() < most):
            case = todo.pop() if todo else mutate(cell.files, chance)
            begun = time.monotonic()
            try:
                books[cell.store(case)] += 1
                assert time.monotonic() - begun < 10, "it takes longer than 10 s"
            except Exception as error:
                where = error.__traceback__
                while where is not None and where.tb_next is not None:
                    where = where.tb_next
                place = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where else "?"
                what = f"{place}: {type(error).__name__}"
                books["found"] += 1
                if what not in found:
                    found[what] = f"{what}: {error}"
                    for name, content in case.items():
                        into = findings / f"telemetry-{len(found)}"
                        into.mkdir(parents=True, exist_ok=True)
                        (into / name).write_bytes(content)
    return books, list(found.values())


if __name__ == "__main__":
    sys.exit(alone.run("what a guest leaves behind", fuzz))
