# SPDX-License-Identifier: Apache-2.0
"""Labs, campaigns and toolchains for tests of the runner."""

from __future__ import annotations

import json
import sys
from pathlib import Path

LAB = """\
name: tiny
topology: {dumbbell: {left: 2, right: 2}}
links:
  default: {rate: 1 Gbit/s, delay: 5 us}
switches:
  default: {scheme: droptail, buffer: 128 KB}
workload:
  - flows: {pairs: [[h1, h3], [h2, h4]], size: 100 KB, label: bulk}
observe: {queues: 1 ms}
duration: 20 ms
"""
CAMPAIGN = """\
question: Do the books agree?
axes:
  tcp:
    - {name: reno, set: {hosts.default.tcp: reno}}
    - {name: cubic, set: {hosts.default.tcp: cubic}}
  delay: {field: links.default.delay, values: [5 us, 10 us]}
  seed: [1, 2, 3]
profiles:
  quick:
    axes: {seed: [1], delay: [5 us]}
views:
  ended: SELECT * FROM flows WHERE status = 'complete'
  shares: SELECT tcp, seed, jain_index(received_bytes) AS jain FROM ended GROUP BY ALL
claims:
  - name: all-complete
    paper: Every flow completes.
    source: a test
    sql: SELECT (SELECT count(*) FROM ended) = count(*) AS holds, count(*) AS flows FROM flows
figures:
  - {kind: queue}
  - {kind: fct}
  - {kind: goodput}
  - {kind: bar, name: own, title: Own, sql: "SELECT tcp AS x, avg(jain) AS y FROM shares GROUP BY 1 ORDER BY 1"}
"""


def write_lab(folder: Path, campaign: str = CAMPAIGN, lab: str = LAB) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "lab.yml").write_text(lab)
    (folder / "campaign.yml").write_text(campaign)
    return folder


def fake_toolchain(folder: Path, **behaviour: str) -> Path:
    """A toolchain whose kernel is `fake_linux.py`; `behaviour`: by seed (`seed_2="panic"`), or `all`."""
    (folder / "modules").mkdir(parents=True, exist_ok=True)
    for name in ("qbed-agent", "modules/qlink.ko", "modules/qtap.ko", "modules/qgate.ko"):
        (folder / name).touch()
    by_seed = {name.removeprefix("seed_"): value for name, value in behaviour.items()}
    (folder / "behaviour").write_text(json.dumps(by_seed))
    (folder / "manifest.json").write_text(json.dumps({"kernel_version": "fake"}))
    kernel = folder / "linux"
    script = Path(__file__).parent / "fake_linux.py"
    kernel.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    kernel.chmod(0o755)
    return folder
