# SPDX-License-Identifier: Apache-2.0
"""Stands in for the guest's kernel: same command line, files and gate. `behaviour` beside it may make it misbehave.

The first argument is a folder of outputs by plan: a plan's output is generated once, since loading the generator takes
ten times as long as a copy.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path


def write_output(outputs: Path, folder: Path) -> None:
    """Write `out/` for the plan in the cell folder."""
    content = (folder / "plan.json").read_bytes()
    known = outputs / hashlib.sha256(content).hexdigest()
    if not known.exists():
        sys.path.insert(0, str(Path(__file__).parent))
        from synthetic import write_out

        from qbed.plan.model import Plan

        new = outputs / str(os.getpid())
        new.mkdir()
        write_out(Plan.loads(content), new)
        try:
            (new / "out").rename(known)
        except OSError:  # another process has generated it meanwhile
            shutil.rmtree(new / "out")
        new.rmdir()
    (folder / "out").mkdir(exist_ok=True)
    for file in known.iterdir():
        shutil.copyfile(file, folder / "out" / file.name)


def main() -> None:
    words = dict(word.partition("=")[::2] for word in sys.argv[2:])
    folder = Path.cwd()
    plan = json.loads((folder / "plan.json").read_bytes())
    gate = int(words["qgate"])

    def say(message: dict[str, object]) -> None:
        os.write(gate, json.dumps(message).encode() + b"\n")

    tools = (folder / "guest" / "qbed-agent").readlink().parent
    behaviour = json.loads((tools / "behaviour").read_text())
    actions = behaviour.get(str(plan["seed"]), behaviour.get("all", ""))
    print("booting", flush=True)
    say({"event": "ready", "setup_nodes": len(plan["nodes"])})
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
    say({"event": "progress", "time_ns": plan["duration_ns"] // 2})
    write_output(Path(sys.argv[1]), folder)
    if actions == "garbage":
        (folder / "out" / "taps.bin").write_bytes(b"garbage!" * 100)
    if actions == "warn":
        print("[    0.1] WARNING: CPU: 0 PID: 1 at lib/nlattr.c:122 \x1b[31mwarned+0xb7/0x1c0", flush=True)
    if actions == "contradict":
        counters = json.loads((folder / "out" / "counters.json").read_text())
        counters["links"][0]["a"]["sent"] += 500
        (folder / "out" / "counters.json").write_text(json.dumps(counters))


main()
