# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks: all, or those named.

python -m bench.run [--rounds N] [BENCH...]: versus_ns3 scale host_forwarding parts ten_thousand agent rate syscalls
    parallel merge scheduling p4 p4switch telemetry containers containers_tcp service page many_cells incast_ns3
    prefetch_losses address_translation start
"""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from bench.harness import machine, write
from qbed.substrates.virtual.guest_memory import kept_memory

ALL = (
    *("versus_ns3", "scale", "host_forwarding", "parts", "ten_thousand", "agent", "rate", "syscalls"),
    *("parallel", "merge", "scheduling", "p4", "p4switch", "telemetry", "containers", "containers_tcp", "service"),
    *("page", "many_cells", "incast_ns3", "prefetch_losses", "address_translation", "start"),
)


def main(
    names: Annotated[list[str] | None, typer.Argument(help=f"some of {', '.join(ALL)}")] = None,
    rounds: Annotated[int, typer.Option(help="Counted runs of each; the smallest time counts.")] = 3,
) -> None:
    """Measure, print ratios, write bench/results/NAME.json."""
    print("machine:", machine(), flush=True)
    for name in names or ALL:
        module = importlib.import_module(f"bench.{name}")
        print(f"\n{name}: {(module.__doc__ or '').strip().splitlines()[0]}", flush=True)
        with kept_memory():  # as in a campaign; labs that are not run by the bench's process have new memory
            figures = module.measure(rounds)
        write(name, figures)


if __name__ == "__main__":
    typer.run(main)
