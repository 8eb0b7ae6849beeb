# SPDX-License-Identifier: Apache-2.0
"""From 3 to 1,000 nodes on one core: packet-hops a second, time to set up, memory a node."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from bench.harness import Cell, Figure, cores, pinned, side_by_side
from qbed.substrates.toolchain import find_toolchain
from qbed.substrates.virtual.guest import boot

REST = """
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
switches: {{default: {{scheme: droptail, buffer: 256 KB}}}}
hosts: {{default: {{tcp: cubic}}}}
workload:
{workload}
observe: {{queues: summary}}
duration: {duration}
"""
STAR = "\nname: star\ntopology: {{star: {{hosts: {hosts}}}}}" + REST
CLOS = "\nname: clos\ntopology: {{clos: {{hosts: {hosts}, racks: {racks}, spines: {spines}}}}}" + REST
NOTHING = "  - flow: {from: h1, to: h2, size: 1 KB}"
CLOSES = {46: (10, 4, 2, "10 MB"), 200: (22, 8, 4, "3 MB"), 1000: (16, 58, 14, "1 MB")}
"""By number of nodes: hosts a rack, racks, spines, and the size of a flow."""


def pairs(hosts: int, size: str, groups: int = 1) -> str:
    """Every host sends to the one half-way round, in its group of hosts: all flows leave their racks."""
    each = hosts // groups
    ends = (
        (first + number, first + (number + each // 2) % each)
        for first in range(0, hosts, each)
        for number in range(each)
    )
    shown = ", ".join(f"[h{sender + 1}, h{receiver + 1}]" for sender, receiver in ends)
    return f"  - flows: {{pairs: [{shown}], size: {size}, spread: 100 us}}"


def labs() -> dict[int, tuple[str, str]]:
    """By number of nodes: the lab under load, and the same lab with next to nothing to do."""
    found = {}
    bulk = "  - flow: {from: h1, to: h2, size: 1 GB}"
    found[3] = tuple(
        STAR.format(hosts=2, workload=load, duration=time) for load, time in ((bulk, "900 ms"), (NOTHING, "1 ms"))
    )
    for nodes, (hosts, racks, spines, size) in CLOSES.items():
        found[nodes] = tuple(
            CLOS.format(hosts=hosts, racks=racks, spines=spines, workload=load, duration=time)
            for load, time in ((pairs(hosts * racks, size), "200 ms"), (NOTHING, "1 ms"))
        )
    return found  # type: ignore[return-value]


def memory_when_up_bytes(cell: Cell) -> int:
    """Guest memory in use in a lab that is up, by its kernel's counters."""
    with boot(find_toolchain(), cell.folder, cell.plan, "lab") as guest:
        while not any(message["event"] == "ready" for message in guest.wait(120) or []):
            pass
        guest.send(
            {
                "command": "exec",
                "id": 1,
                "node": cell.plan.nodes[0].name,
                "argv": ["cat", "/proc/meminfo"],
                "env": {},
                "cwd": "/",
            }
        )
        text, ended = b"", False
        while not ended:
            for message in guest.wait(60) or []:
                if message["event"] == "stdout":
                    import base64

                    text += base64.b64decode(message["data"])
                ended |= message["event"] == "exit"
    values = {key: int(kb) * 1024 for key, kb in re.findall(r"(\w+):\s+(\d+) kB", text.decode())}
    return values["MemTotal"] - values["MemFree"] - values["Cached"] - values.get("Buffers", 0)


def until_ready(cell: Cell) -> tuple[float, int]:
    """Seconds from starting a cell's process to its word that the lab is built; the machine's memory it has then."""
    begun = time.monotonic()
    with boot(find_toolchain(), cell.folder, cell.plan, "cell") as guest:
        while not any(message["event"] == "ready" for message in guest.wait(120) or []):
            pass
        taken = time.monotonic() - begun
        status = Path(f"/proc/{guest.pid}/status").read_text()
    return taken, int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def measure(rounds: int) -> list[Figure]:
    figures, rates, used, up = [], {}, {}, {}
    goals = {3: 0.4, 200: 0.5, 1000: 1.0}
    for nodes, (busy, idle) in labs().items():
        load, rest = Cell(busy), Cell(idle)
        turns = rounds if nodes < 1000 else max(1, rounds // 2)
        full, empty = side_by_side(turns, load.run, rest.run)
        load.run()
        hops = load.packet_hops()
        rates[nodes] = hops / (full.cpu_s - empty.cpu_s) / 1e6
        figures.append(Figure(f"{nodes} nodes: packet-hops", hops / 1e6, "M"))
        figures.append(
            Figure(f"{nodes} nodes: packet-hops a CPU second", rates[nodes], "M/s", 1.5 if nodes == 3 else None, ">=")
        )
        with pinned(cores()[-1]):
            ready, used[nodes] = min(until_ready(rest) for _ in range(rounds + 1))
            up[nodes] = memory_when_up_bytes(rest)
        figures.append(Figure(f"{nodes} nodes: from nothing to ready, wall", ready, "s", goals.get(nodes)))
        load.close()
        rest.close()
    figures.append(Figure("rate at 1,000 nodes / rate at 3", rates[1000] / rates[3], "", 0.5, ">="))
    figures.append(Figure("memory a node (1,000 less 3), of a cell", (used[1000] - used[3]) / 997 / 1e6, "MB", 0.3))
    figures.append(Figure("memory a node, of a lab that is up", (up[1000] - up[3]) / 997 / 1e6, "MB"))
    return figures


if __name__ == "__main__":
    subprocess.run(["make", "bench"], check=True)
