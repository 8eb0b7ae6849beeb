# SPDX-License-Identifier: Apache-2.0
"""The ABQ paper's incast in ns-3: ratio of drop-tail's to ECN's 99th percentile (Fig. 5a: about 10).

The results are simulated, not timed: 10 to 100 senders with the settings of the paper's published simulator
(ns3/incast.cc), NewReno through drop-tail and DCTCP through marking at 40 packets, at a minimum RTO of 10 and of 200
ms. The simulation is deterministic.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from statistics import mean
from typing import Any

from bench.harness import RESULTS, Figure, build

MODULES = ("applications", "core", "internet", "network", "point-to-point", "traffic-control")
SOURCE = Path(__file__).parent / "ns3" / "incast.cc"
SENDERS = range(10, 101, 10)
RTO_MS = (10, 200)
SUMS = ("drops", "timeouts")
BYTES, SEGMENT = 32768, 1446
"""Bytes of each flow, and of payload in a packet, as in the ns-3 program."""


def measure(rounds: int) -> list[Figure]:
    if not Path("/usr/include/ns3").is_dir():
        subprocess.run(["tools/apt", "libns3-dev"], check=True)
    flags = ("-std=c++17", *(f"-lns3-{module}" for module in MODULES))
    program = build(SOURCE, RESULTS / "ns3-incast", *flags)
    figures = []
    for rto_ms in RTO_MS:
        tails = {}
        for scheme in ("droptail", "ecn"):
            runs = [simulated(program, scheme, senders, rto_ms) for senders in SENDERS]
            tails[scheme] = mean(run["p99_ms"] for run in runs)
            case = f"{scheme}, minimum RTO {rto_ms} ms"
            figures.append(Figure(f"{case}: mean p99", tails[scheme], "ms"))
            figures.append(Figure(f"{case}: mean goodput", mean(run["goodput_mbps"] for run in runs), "Mbit/s"))
            figures += [Figure(f"{case}: {name}", sum(run[name] for run in runs), "") for name in SUMS]
            figures.append(Figure(f"{case}: smallest window", min(run["smallest_window_bytes"] for run in runs), "B"))
        case = f"drop-tail's p99, minimum RTO {rto_ms} ms, over"
        figures.append(Figure(f"{case} ECN's (paper: 9)", tails["droptail"] / tails["ecn"], ""))
        figures.append(
            Figure(f"{case} the transmission time of the bytes", tails["droptail"] / mean(map(link_ms, SENDERS)), "")
        )
    return figures


def link_ms(senders: int) -> float:
    """Transmission time of all frames at 1 Gbit/s, with 42 bytes of headers each: a bound for all schemes."""
    frames = -(-BYTES // SEGMENT)
    return senders * (BYTES + 42 * frames) * 8 / 1e6


def simulated(program: Path, scheme: str, senders: int, rto_ms: int) -> dict[str, Any]:
    """Run the program once and parse its output."""
    argv = [str(program), f"--scheme={scheme}", f"--senders={senders}", f"--min-rto={rto_ms}"]
    run = subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(run.stdout)
    print(f"  {run.stdout.strip()}", flush=True)
    return found
