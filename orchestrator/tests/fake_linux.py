# SPDX-License-Identifier: Apache-2.0
"""Stands in for the guest's kernel: same command line, files and gate. `behaviour` beside it may make it misbehave."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from synthetic import write_out

from qbed.plan.model import Plan


def main() -> None:
    words = dict(word.partition("=")[::2] for word in sys.argv[1:])
    folder = Path.cwd()
    plan = Plan.loads((folder / "plan.json").read_bytes())
    gate = int(words["qgate"])

    def say(message: dict[str, object]) -> None:
        os.write(gate, json.dumps(message).encode() + b"\n")

    tools = (folder / "guest" / "qbed-agent").readlink().parent
    behaviour = json.loads((tools / "behaviour").read_text())
    actions = behaviour.get(str(plan.seed), behaviour.get("all", ""))
    print("booting", flush=True)
    say({"event": "ready", "setup_nodes": len(plan.nodes)})
    if actions == "panic":
        print("Kernel panic - not syncing: the test said so", flush=True)
        sys.exit(1)
    if actions == "hang":
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "1000")
        time.sleep(1000)
    if actions == "slow":
        time.sleep(5)
    while actions == "held" and not (tools / "released").exists():
        time.sleep(0.05)
    if actions == "fail":
        (folder / "out" / "done.json").write_text(json.dumps({"status": "failed", "error": "no such qdisc"}))
        return
    say({"event": "progress", "time_ns": plan.duration_ns // 2})
    write_out(plan, folder)
    if actions == "garbage":
        (folder / "out" / "taps.bin").write_bytes(b"garbage!" * 100)
    if actions == "warn":
        print("[    0.1] WARNING: CPU: 0 PID: 1 at lib/nlattr.c:122 \x1b[31mwarned+0xb7/0x1c0", flush=True)
    if actions == "contradict":
        counters = json.loads((folder / "out" / "counters.json").read_text())
        counters["links"][0]["a"]["sent"] += 500
        (folder / "out" / "counters.json").write_text(json.dumps(counters))


main()
