# SPDX-License-Identifier: Apache-2.0
"""Fuzz the output of a guest: `python tests/fuzz/telemetry.py [--seconds 60] [--seed 1]`.

Each case changes a file of `out/` (the tap stream, counters, flows, samples of flows, routes) and stores the cell as
after a run. The cell is stored in tables or refused with a message. First the corpus of earlier findings, then new
cases. Findings are written to `runs/fuzz/`. Status 1 if there are findings.
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
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "orchestrator" / "tests")]

from synthetic import flow_sample, sojourn, sojourn_sample, write_out  # noqa: E402

from qbed.base.errors import QbedError  # noqa: E402
from qbed.cells.store_cell import store_cell  # noqa: E402
from qbed.network.load import load_lab  # noqa: E402
from qbed.plan.compile import compile_lab  # noqa: E402
from qbed.plan.model import Plan  # noqa: E402
from qbed.telemetry.flow_samples import FlowSampleTail  # noqa: E402
from qbed.telemetry.taps import TapTail  # noqa: E402

from fuzz import command_line  # noqa: E402

CORPUS = Path(__file__).parent / "corpus" / "telemetry"
LAB = """\
name: fuzzed
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 128 KB}}
workload:
  - flows: {pairs: [[h1, h3], [h2, h4]], size: 100 KB, label: bulk}
  - udp: {from: h1, to: h4, rate: 1 Mbit/s, size: 10 KB}
  - requests: {clients: h1, servers: h3, request: 100 B, response: 1 KB, label: requests}
observe: {queues: 1 ms, flows: 1 ms, sojourn: true, windows: {late: {from: 10 ms}}}
events: [{at: 5 ms, link: s1-s2, state: down}]
duration: 20 ms
"""
ROUTES = (
    {"time_ns": 1, "node": "s1", "change": "set", "to": "10.0.0.4/30", "protocol": "bgp",
     "via": [{"interface": "eth0", "gateway": None}]},
    {"time_ns": 5, "node": "s1", "change": "down", "link": "s1-s2"},
)  # fmt: skip
UNUSUAL: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**32, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, 1e308, "", "x",
    "h1", "\0", "\ud800", "é", "1", [], {}, [None], [[]], {"": None}, "tcp", "complete", "running", "failed", "::1",
)  # fmt: skip
Files = dict[str, bytes]


class Cell:
    """A finished cell with valid output files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "lab.yml").write_text(LAB)
        self.plan: Plan = compile_lab(load_lab(folder / "lab.yml"), 1)
        (folder / "plan.json").write_text(self.plan.dumps())
        write_out(self.plan, folder)
        (folder / "out" / "routes.ndjson").write_text("".join(json.dumps(row) + "\n" for row in ROUTES))
        # The last flow is a series of three probes, of which two have returned.
        *flows, last = (folder / "out" / "flows.ndjson").read_text().splitlines()
        probed = json.loads(last) | {"transport": "probe", "dscp": 46}
        (folder / "out" / "flows.ndjson").write_text("\n".join([*flows, json.dumps(probed)]) + "\n")
        probes = [(0, 5, 9, 9, 13), (1, 1005, 1010, 1010, 1013), (2, 2005, *[-(2**63)] * 3)]
        packed = (struct.pack("<IIqqqq", probed["flow"], *probe) for probe in probes)
        (folder / "out" / "probes.bin").write_bytes(b"".join(packed))
        requests = self.plan.workloads[-1].id
        ends = ((1, 5, 9, 2000, 5000, 100, 1000), (0, 6000, *[-(2**63)] * 3, 100, 1000))
        records = (
            struct.pack("<6I2BHI4q2Q", requests, 0, k, 0, 0, 2, last, 0, 0, 0, *rest)
            for k, (last, *rest) in enumerate(ends)
        )
        (folder / "out" / "exchanges.bin").write_bytes(b"".join(records))
        sojourns = b"".join(
            sojourn(queue, at, 2, {5: 1, 200: at // 10**7}, at_bound=at_bound, sum_ns=at, max_ns=900)
            for queue in range(len(self.plan.queues))
            for at, at_bound in ((10**7, True), (2 * 10**7, True), (2 * 10**7, False))
        )
        with (folder / "out" / "taps.bin").open("ab") as taps:
            taps.write(sojourn_sample(1, 10**6, 2, 3, sum_ns=9, max_ns=4, p50_ns=3, p99_ns=4) + sojourns)
        samples = (flow_sample("tcp_info", at % 3, at * 10**6, ssthresh=None, state=at % 5) for at in range(20))
        (folder / "out" / "flow_samples.bin").write_bytes(b"".join(samples))
        self.files: Files = {path.name: path.read_bytes() for path in sorted((folder / "out").iterdir())}

    def store(self, changed: Files) -> str:
        """Store the cell with changed files, and return `stored` or `refused`. Any other exception is a finding."""
        into = self.folder / "tables"
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir()
        for name, content in (self.files | changed).items():
            (self.folder / "out" / name).write_bytes(content)
        try:
            store_cell(self.folder, self.plan, into)
            return "stored"
        except (QbedError, pa.ArrowException) as error:  # errors that a worker records for a cell
            assert str(error)
            return "refused"
        finally:
            self._read_in_pieces(TapTail(len(self.plan.queues), self.plan.max_samples()), changed.get("taps.bin", b""))
            self._read_in_pieces(FlowSampleTail(), changed.get("flow_samples.bin", b""))

    def _read_in_pieces(self, tail: TapTail | FlowSampleTail, content: bytes) -> None:
        """Read the file in pieces, as `qbed samples` does."""
        stream = io.BytesIO(content)
        try:
            while piece := stream.read(1000):
                for _ in tail.feed(piece):
                    pass
        except QbedError as error:
            assert str(error)


def mutate(files: Files, rng: random.Random) -> Files:
    """Change one file one to three times."""
    name = rng.choice(sorted(files))
    content = files[name]
    for _ in range(rng.randint(1, 3)):
        if name.endswith("json") and rng.random() < 0.7:
            content = other_value(content, rng)
        else:
            content = other_bytes(content, rng)
    return {name: content}


def other_bytes(content: bytes, rng: random.Random) -> bytes:
    """Truncate the content, remove or repeat a part of it, or overwrite a word."""
    at, to = sorted((rng.randrange(len(content) + 1), rng.randrange(len(content) + 1)))
    kind = rng.randrange(6)
    if kind == 0:
        return content[:at]
    if kind == 1:
        return content[:at] + content[to:]
    if kind == 2:
        return content[:to] + content[at:]
    word = struct.pack("<Q", rng.choice((0, 1, 2, 3, 4, 5, 255, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)))
    size = rng.choice((1, 2, 4, 8))
    at -= at % size if kind > 3 else 0
    return content[:at] + word[:size] + content[at + size :]


def other_value(content: bytes, rng: random.Random) -> bytes:
    """Replace or remove a value in a line of JSON."""
    lines = content.split(b"\n")
    number = rng.randrange(len(lines))
    try:
        tree = json.loads(lines[number])
    except ValueError:
        return other_bytes(content, rng)
    places: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        value = todo.pop()
        if isinstance(value, dict | list):
            inside = list(value) if isinstance(value, dict) else list(range(len(value)))
            places += [(value, key) for key in inside]
            todo += [value[key] for key in inside]
    if places:
        parent, key = rng.choice(places)
        if rng.random() < 0.2:
            del parent[key]
        else:
            parent[key] = rng.choice(UNUSUAL)
    lines[number] = json.dumps(tree).encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def corpus() -> list[Files]:
    """Earlier findings: the changed files of each case."""
    cases = sorted(CORPUS.iterdir()) if CORPUS.is_dir() else []
    return [{file.name: file.read_bytes() for file in sorted(case.iterdir())} for case in cases]


def fuzz(seconds: float, seed: int, findings: Path, limit: float = math.inf) -> tuple[Counter[str], list[str]]:
    """Run the corpus, then new cases until the time or the limit is reached; return the outcomes and the findings."""
    outcomes: Counter[str] = Counter()
    found: dict[str, str] = {}
    rng, deadline = random.Random(seed), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        cell = Cell(Path(folder))
        assert cell.store({}) == "stored"
        todo = corpus()
        while todo or (time.monotonic() < deadline and outcomes.total() < limit):
            case = todo.pop() if todo else mutate(cell.files, rng)
            begun = time.monotonic()
            try:
                outcomes[cell.store(case)] += 1
                assert time.monotonic() - begun < 10, "longer than 10 s"
            except Exception as error:
                where = error.__traceback__
                while where is not None and where.tb_next is not None:
                    where = where.tb_next
                place = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where else "?"
                what = f"{place}: {type(error).__name__}"
                outcomes["found"] += 1
                if what not in found:
                    found[what] = f"{what}: {error}"
                    for name, content in case.items():
                        into = findings / f"telemetry-{len(found)}"
                        into.mkdir(parents=True, exist_ok=True)
                        (into / name).write_bytes(content)
    return outcomes, list(found.values())


if __name__ == "__main__":
    sys.exit(command_line.run("output of guests", fuzz))
