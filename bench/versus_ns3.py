# SPDX-License-Identifier: Apache-2.0
"""TCP Cubic over 10 Gbit/s with 3 and 1,000 nodes: total time (boot, set-up, results) of qbed and of ns-3.

The peer is Debian's ns-3. If $NS3_DEV is a folder with `include` and `lib` of another build (an install prefix or the
`build` of a checkout), that build is measured too, with nix-vector routes, compiled with -O3 -march=native.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.harness import RESULTS, Cell, Cost, Figure, allowed, build, measured, side_by_side
from bench.scale import pairs
from qbed.base.errors import QbedError

LAB = """
name: versus-ns3
topology: {{star: {{hosts: {hosts}}}}}
links: {{default: {{rate: 10 Gbit/s, delay: 5 us}}}}
switches: {{default: {{scheme: droptail, buffer: {buffer_kb} KB}}}}
hosts: {{default: {{tcp: cubic}}}}
workload:
{workload}
observe: {{queues: summary}}
duration: 100 ms
"""
MODULES = ("applications", "core", "internet", "network", "nix-vector-routing", "point-to-point", "traffic-control")
SOURCE = Path(__file__).parent / "ns3" / "star.cc"
PREFIX = "NS3_DEV"


@dataclass(frozen=True)
class Scenario:
    """Hosts around a switch; the first `flows` of them send `megabytes` each."""

    name: str
    hosts: int
    flows: int
    megabytes: int
    buffer_kb: int
    spread_us: int
    goals: tuple[float | None, float]
    """Goals for qbed's time over that of ns-3: Debian's build, and an optimised build."""
    long: bool
    """The scenario is measured once, without a warm-up."""
    divided: tuple[int, float] | None = None
    """Parts for a second run of qbed, with a core each, and the goal for its time over that of an optimised ns-3."""

    def lab(self) -> str:
        bulk = f"  - flow: {{from: h1, to: h2, size: {self.megabytes} MB}}"
        workload = bulk if self.flows == 1 else pairs(self.hosts, f"{self.megabytes} MB")
        return LAB.format(hosts=self.hosts, buffer_kb=self.buffer_kb, workload=workload)

    def options(self) -> list[str]:
        return [
            f"--hosts={self.hosts}",
            f"--flows={self.flows}",
            f"--bytes={self.megabytes * 1_000_000}",
            f"--buffer={self.buffer_kb * 1000}B",
            f"--spread={self.spread_us}",
        ]


SCENARIOS = (
    Scenario("3 nodes, 100 MB", 2, 1, 100, 128, 0, goals=(0.3, 0.085), long=False),
    Scenario("1,000 nodes, 999 x 1 MB", 999, 999, 1, 256, 100, goals=(None, 0.1), long=True, divided=(2, 0.05)),
)


@dataclass(frozen=True)
class Peer:
    """A build of ns-3 with the program of the benchmark."""

    name: str
    program: Path
    optimised: bool

    def simulation(self, scenario: Scenario, output: Path) -> Callable[[], None]:
        # Tables of a thousand nodes would take longer than their packets.
        nix = self.optimised or scenario.hosts > 100

        def simulate() -> None:
            with output.open("w") as stream:
                subprocess.run([self.program, *scenario.options(), f"--nix={int(nix)}"], stdout=stream, check=True)

        return simulate


def measure(rounds: int) -> list[Figure]:
    peers = [debian()]
    if prefix := os.environ.get(PREFIX):
        peers.append(optimised(Path(prefix)))
    return [figure for scenario in SCENARIOS for figure in compare(scenario, peers, rounds)]


def debian() -> Peer:
    if not Path("/usr/include/ns3").is_dir():
        subprocess.run(["tools/apt", "libns3-dev"], check=True)
    flags = ["-std=c++17", *(f"-lns3-{module}" for module in MODULES)]
    return Peer("ns-3 3.37", build(SOURCE, RESULTS / "ns3-star", *flags), optimised=False)


def optimised(prefix: Path) -> Peer:
    """Names of libraries have version and profile: libns3-dev-core-optimized.so, libns3.48-core.so."""
    found = sorted(path for path in prefix.glob("lib*/libns3*-core*.so"))
    if not found or not (prefix / "include/ns3").is_dir():
        raise QbedError(
            f"{PREFIX}={prefix}: expected include/ns3 and lib/libns3*-core*.so there: an install prefix of ns-3,"
            " or the folder `build` of a checkout"
        )
    before, after = re.fullmatch(r"lib(ns3.*-)core(.*)\.so", found[0].name).groups()  # type: ignore[union-attr]
    profile = f" ({after.removeprefix('-')})" if after else ""
    target = RESULTS / "ns3-star-optimised"
    target.unlink(missing_ok=True)  # it may be of another prefix
    build(
        SOURCE,
        target,
        *("-std=c++23", "-O3", "-march=native", f"-I{prefix / 'include'}"),
        *(f"-L{found[0].parent}", f"-Wl,-rpath,{found[0].parent.resolve()}"),
        *(f"-l{before}{module}{after}" for module in MODULES),
    )
    return Peer(before.rstrip("-").replace("ns3", "ns-3") + profile, target, optimised=True)


def check(cell: Cell, scenario: Scenario) -> int:
    """Return the end of the last flow in virtual nanoseconds; all flows are complete."""
    flows = [json.loads(line) for line in (cell.out / "flows.ndjson").read_text().splitlines()]
    complete = [flow for flow in flows if flow["received_bytes"] == scenario.megabytes * 1_000_000]
    assert len(complete) == scenario.flows and all(flow["status"] == "complete" for flow in complete), flows[0]
    return int(max(flow["end_ns"] for flow in flows))


def divided_cost(scenario: Scenario, parts: int) -> Cost:
    """The cost of a run in parts, with a core each."""
    cell = Cell(f"{scenario.lab()}parts: {parts}\n")
    with allowed(parts):
        cost = measured(cell.run)
    check(cell, scenario)
    cell.close()
    return cost


def compare(scenario: Scenario, peers: list[Peer], rounds: int) -> list[Figure]:
    """Measure qbed and the peers alternately; a long scenario once, without a warm-up."""
    cell = Cell(scenario.lab())
    outputs = [RESULTS / f"{peer.program.name}.out" for peer in peers]
    simulations = [peer.simulation(scenario, output) for peer, output in zip(peers, outputs, strict=True)]
    qbed_cost, *peer_costs = side_by_side(
        1 if scenario.long else rounds, cell.run, *simulations, warm=not scenario.long
    )
    last_ns = check(cell, scenario)
    divided_s = None
    if scenario.divided:
        divided_s = divided_cost(scenario, scenario.divided[0]).wall_s
    cell.close()
    figures = [Figure(f"{scenario.name}: qbed, wall", qbed_cost.wall_s, "s")]
    for peer, cost, goal in zip(peers, peer_costs, scenario.goals, strict=False):
        figures += [
            Figure(f"{scenario.name}: {peer.name}, wall", cost.wall_s, "s"),
            Figure(f"{scenario.name}: qbed / {peer.name}, wall", qbed_cost.wall_s / cost.wall_s, "", goal),
            Figure(f"{scenario.name}: qbed / {peer.name}, CPU", qbed_cost.cpu_s / cost.cpu_s, ""),
        ]
        if scenario.divided and divided_s:
            parts, most = scenario.divided
            name = f"{scenario.name}: qbed in {parts} parts / {peer.name}, wall"
            figures.append(Figure(name, divided_s / cost.wall_s, "", most if peer.optimised else None))
    figures.append(Figure(f"{scenario.name}: virtual time, qbed", last_ns / 1e6, "ms"))
    for peer, output in zip(peers, outputs, strict=True):
        end_ns = json.loads(output.read_text())["end_ns"]
        figures.append(Figure(f"{scenario.name}: virtual time, {peer.name}", end_ns / 1e6, "ms"))
    return figures
