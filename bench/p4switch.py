# SPDX-License-Identifier: Apache-2.0
"""The P4 engine in user space: packets of each program, large tables, writes by P4Runtime; BMv2 beside it.

QBED_SIMPLE_SWITCH names a simple_switch that reads packets from files (--use-files); without it there is no peer. Both
run the same JSON, in which the entries of the program's test stand as entries of its tables, on the same packets.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import finsy as fy

from bench.harness import Figure, cores, pinned

ROOT = Path(__file__).parents[1]
CARGO, RELEASE = ("tools/cargo",), ("--quiet", "--locked", "--release")
P4SWITCH = ROOT / "tools" / "p4switch"
EVERYTHING = ROOT / "crates" / "p4runtime" / "tests" / "programs" / "everything"
PLAIN = "schemes/droptail/p4/tests/forwarding.stf"
PROGRAMS = {
    "droptail": PLAIN,
    "ecn": PLAIN,
    "codel": PLAIN,
    "stamp": "schemes/stamp/p4/tests/stamp.stf",
    "rpm": PLAIN,
    "qcn": "schemes/qcn/p4/tests/feedback.stf",
    "abq": PLAIN,
}
"""The STF file with the entries and packets of each program; queues are empty."""
PEERS = PROGRAMS | {"qcn": PROGRAMS["stamp"]}
"""The files for the comparison with BMv2: many ports; in BMv2 each queue has 64 packets."""
ALWAYS = {"qcn": "each packet sampled and sent back"}
"""The effect of the parameters that a file sets on the program's packets; without them the defaults apply."""
SIZES = {"64 B": 64, "1500 B": 1514}
SIGNAL = {"130 B": 130}
"""The smallest frame with a congestion header; what is shorter has none, and costs less."""
SECONDS = 1.0
MIN_RATES = {"64 B": 2.0, "1500 B": 1.0, "130 B": 1.0}
"""Goals for stamp."""
MIN_RATIO, MAX_COST, MIN_WRITES = 100, 1.5, 10_000
PEER_PACKETS, PEER_FEW, PEER_QUIET_S = 40_000, 10_000, 1.0
BATCHES, BATCH, SINGLE = 10, 1_000, 500


def program(name: str) -> Path:
    return ROOT / "schemes" / name / "p4" / f"{name}.json"


def bench(form: Path, stf: Path, *options: str) -> dict[str, float]:
    """p4switch's, of CPU: the best 50 ms count."""
    command = [str(P4SWITCH), "bench", str(form), str(stf), "--seconds", str(SECONDS), "--json", *options]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert found["sent"] >= found["packets"], f"{form} forwards them all"
    return found


def files(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield the measurement, the name and the file of each program."""
    for name, path in PROGRAMS.items():
        stf = ROOT / path
        if name in ALWAYS:
            yield f"{name}, {ALWAYS[name]}", name, stf
            lines = [line for line in stf.read_text().splitlines(True) if not line.startswith("setdefault ")]
            stf = folder / f"{name}.stf"
            stf.write_text("".join(lines))
        yield name, name, stf


def packets(rounds: int) -> list[Figure]:
    def rate(name: str, stf: Path, *options: str) -> float:
        return 1e3 / min(bench(program(name), stf, *options)["min_ns"] for _ in range(rounds))

    figures = []
    with tempfile.TemporaryDirectory(prefix="qbed-bench-") as made, pinned(cores()[-1]):
        for title, name, stf in files(Path(made)):
            sizes = SIZES | (SIGNAL if name == "stamp" else {})
            rates = {label: rate(name, stf, "--size", str(size)) for label, size in sizes.items()}
            for label, found in rates.items():
                goal = MIN_RATES[label] if name == "stamp" else None
                figures.append(Figure(f"{title}, {label}: packets a CPU second", found, "M/s", goal, ">="))
            ratio = rates["64 B"] / rate(name, stf, "--size", "64", "--interpret")
            figures.append(Figure(f"{title}, 64 B: machine code / interpreter", ratio, ""))
    return figures


def large_tables(rounds: int) -> list[Figure]:
    """crates/p4engine/examples/throughput.rs: destinations take turns, so each of many routes is cold."""
    command = [*CARGO, "run", *RELEASE, "--package", "qbed-p4engine", "--example", "throughput"]
    found: dict[str, float] = {}
    with pinned(cores()[-1]):
        for _ in range(rounds):
            text = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
            for name, best in re.findall(r"^([^\n]+): (\d+) packets/s$", text, re.MULTILINE):
                found[name] = max(found.get(name, 0), float(best))
    few = next(best for name, best in found.items() if name.endswith("10 routes, 64 bytes"))
    many = found["100,000 routes"]
    masks = found["10,000 ternary entries of 100 masks"]
    return [
        Figure("10 routes: packets a second", few / 1e6, "M/s"),
        Figure("100,000 routes: packets a second", many / 1e6, "M/s"),
        Figure("100,000 routes / 10, time of a packet", few / many, "", MAX_COST),
        Figure("10,000 ternary entries of 100 masks: packets a second", masks / 1e6, "M/s"),
    ]


@contextmanager
def server() -> Iterator[str]:
    """A P4Runtime server over an engine in user space; its address."""
    command = [*CARGO, "build", *RELEASE, "--package", "qbed-p4runtime", "--example", "loopback"]
    built = subprocess.run(
        [*command, "--message-format", "json"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    made = [json.loads(line) for line in built.stdout.splitlines()]
    executable = next(message["executable"] for message in made if message.get("target", {}).get("name") == "loopback")
    with subprocess.Popen([executable], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        try:
            yield running.stdout.readline().strip()
        finally:
            running.kill()


async def writes(address: str) -> tuple[float, float]:
    """Entries a second in batches, and the median seconds of a write of one entry; the client's work included."""
    options = fy.SwitchOptions(p4info=EVERYTHING.with_suffix(".p4info.txtpb"), p4blob=EVERYTHING.with_suffix(".json"))
    async with fy.Switch("switch", address, options) as switch:

        def route(number: int) -> fy.P4TableEntry:
            match = fy.P4TableMatch({"address": f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}/32"})
            return fy.P4TableEntry("routes", match=match, action=fy.P4TableAction("drop"))

        await switch.delete_all()
        rates, number = [], 0
        for _ in range(BATCHES):
            batch = [route(number + index) for index in range(BATCH)]
            number += BATCH
            begin = time.monotonic()
            await switch.insert(batch)
            rates.append(BATCH / (time.monotonic() - begin))
            await switch.delete(batch)
        times = []
        for index in range(SINGLE):
            route_entry = route(index)
            begin = time.monotonic()
            await switch.insert([route_entry])
            times.append(time.monotonic() - begin)
    return max(rates), statistics.median(times)


def control() -> list[Figure]:
    with server() as address:
        in_batches, single = asyncio.run(writes(address))
    return [
        Figure(f"entries written a second, {BATCH:,} a request", in_batches, "/s", MIN_WRITES, ">="),
        Figure("a write of one entry, median", single * 1e3, "ms"),
    ]


def added(stf: Path) -> list[str]:
    return [line.removeprefix("add ").strip() for line in stf.read_text().splitlines() if line.startswith("add ")]


def with_entries(form: dict[str, Any], adds: list[str]) -> dict[str, Any]:
    """BMv2's JSON with what an STF file adds as its tables' entries; other programs' tables are left out."""
    actions = {action["id"]: action for action in form["actions"]}
    types = {kind["name"]: {field[0]: field[1] for field in kind["fields"]} for kind in form["header_types"]}
    widths = {header["name"]: types[header["header_type"]] for header in form["headers"]}
    tables = {table["name"]: table for pipeline in form["pipelines"] for table in pipeline["tables"]}
    for add in adds:
        stated = re.fullmatch(r"(\S+) (.*?)\s*(\w+)\(([^()]*)\)", add)
        assert stated, add
        table, keys, name, given = stated.groups()
        if table not in tables:
            continue
        values = dict(part.split(":", 1) for part in keys.split())
        data = dict(part.strip().split(":") for part in given.split(",") if part.strip())
        action = actions[dict(zip(tables[table]["actions"], tables[table]["action_ids"], strict=True))[name]]
        entry = {
            "match_key": [match(key, values[key["name"]], widths) for key in tables[table]["key"]],
            "action_entry": {
                "action_id": action["id"],
                "action_data": [
                    number(data[parameter["name"]], parameter["bitwidth"]) for parameter in action["runtime_data"]
                ],
            },
            "priority": len(tables[table].setdefault("entries", [])) + 1,
        }
        tables[table]["entries"].append(entry)
    return form


def match(key: dict[str, Any], value: str, widths: dict[str, dict[str, int]]) -> dict[str, Any]:
    header, field = key["target"]
    kind, (start, _, length) = key["match_type"], value.partition("/")
    rest = {"prefix_length": int(length)} if kind == "lpm" else {}
    return {"match_type": kind, "key": number(start, widths[header][field]), **rest}


def number(value: str, bits: int) -> str:
    """Return `value` in hexadecimal with all its bytes, as BMv2 requires."""
    return f"0x{int(value, 0):0{(bits + 7) // 8 * 2}x}"


def capture(frames: list[bytes], path: Path) -> None:
    """The classic format of libpcap: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html"""
    with path.open("wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            file.write(struct.pack("=IIII", 0, 0, len(frame), len(frame)) + frame)


@dataclass(frozen=True)
class Peer:
    """A simple_switch that takes packets by port 1 and sends them by the others."""

    binary: str
    form: Path
    ports: list[int]
    folder: Path

    def seconds(self, frames: list[bytes], count: int) -> float:
        """Seconds of CPU until no more packets are sent."""
        sent = [frames[index % len(frames)] for index in range(count)]
        for port in (1, *self.ports):
            capture(sent if port == 1 else [], self.folder / f"p{port}_in.pcap")
            (self.folder / f"p{port}_out.pcap").unlink(missing_ok=True)
        interfaces = [argument for port in (1, *self.ports) for argument in ("-i", f"{port}@{self.folder}/p{port}")]
        command = [self.binary, "--use-files", "1", "--log-level", "off", *interfaces, str(self.form)]
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL) as running:
            try:
                before, sizes = -1, 0
                while sizes == 0 or sizes != before:
                    assert running.poll() is None, "simple_switch runs"
                    time.sleep(PEER_QUIET_S)
                    before, sizes = sizes, sum(path.stat().st_size for path in self.folder.glob("p*_out.pcap"))
                stat = Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()
            finally:
                running.kill()
        # Some of it stays in its buffers; what it dropped between ingress and egress would have cost it less.
        share = sizes / sum(16 + len(frame) for frame in sent)
        assert share > 0.9, f"simple_switch lost {1 - share:.0%} of the packets: is a port's queue too short?"
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def peer(rounds: int) -> list[Figure]:
    binary = os.environ.get("QBED_SIMPLE_SWITCH")
    if not binary:
        return []
    figures = []
    for name, path in PEERS.items():
        stf = ROOT / path
        with tempfile.TemporaryDirectory(prefix="qbed-bench-") as made, pinned(cores()[-1]):
            folder = Path(made)
            form = folder / "program.json"
            form.write_text(json.dumps(with_entries(json.loads(program(name).read_text()), added(stf))))
            frames = forwarded(stf)
            (folder / "packets.stf").write_text("".join(f"packet 1 {frame.hex()}\n" for frame in frames))
            ports = sorted({int(port) for add in added(stf) for port in re.findall(r"send\(port:(\d+)", add)} - {1})
            bmv2 = Peer(binary, form, ports, folder)
            many = min(bmv2.seconds(frames, PEER_PACKETS) for _ in range(rounds))
            few = min(bmv2.seconds(frames, PEER_FEW) for _ in range(rounds))
            bmv2_rate = (PEER_PACKETS - PEER_FEW) / (many - few)
            p4switch_rate = 1e9 / min(bench(form, folder / "packets.stf")["min_ns"] for _ in range(rounds))
        figures += [
            Figure(f"{name}, packets of its test: packets a CPU second", p4switch_rate / 1e6, "M/s"),
            Figure(f"{name}, BMv2: packets a CPU second", bmv2_rate / 1e6, "M/s"),
            Figure(f"{name}, p4switch / BMv2", p4switch_rate / bmv2_rate, "", MIN_RATIO, ">="),
        ]
    return figures


def forwarded(stf: Path) -> list[bytes]:
    """The packets of which the file expects one to come out."""
    lines = [line.split() for line in stf.read_text().splitlines() if line.startswith(("packet ", "expect "))]
    pairs = pairwise(lines)
    return [bytes.fromhex(line[2]) for line, behind in pairs if line[0] == "packet" and behind[0] == "expect"]


def measure(rounds: int) -> list[Figure]:
    return packets(rounds) + peer(rounds) + large_tables(rounds) + control()
