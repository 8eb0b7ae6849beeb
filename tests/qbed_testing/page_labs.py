# SPDX-License-Identifier: Apache-2.0
"""Labs of 6, 102 and 1,041 nodes for the live page: its tests, its benchmark and its pictures."""

from __future__ import annotations

from pathlib import Path

from qbed_testing.browser import Browser
from qbed_testing.service import ServiceProcess

LABS = {
    "small": """\
topology: {dumbbell: {left: 2, right: 2}}
workload: [{flows: {pairs: [[h1, h3], [h2, h4]], size: 40 MB, label: bulk}}]
observe: {queues: 100 us}
duration: 200 ms
""",
    "star": """\
topology: {star: {hosts: 101}}
workload: [{incast: {senders: 80, receiver: h1, size: 32 KB, start: 1 ms}}]
observe: {queues: summary, ports: {s1>h1: every packet}}
duration: 1 s
""",
    "large": """\
topology: {clos: {hosts: 25, racks: 40, spines: 1}}
workload: [{flows: {pairs: [[h101, h1], [h301, h1], [h501, h401]], size: 3 MB, label: long}}]
duration: 20 ms
""",
}
NODES = {"small": 6, "star": 102, "large": 1041}
COMMON = """\
name: NAME
links: {default: {rate: 1 Gbit/s, delay: 20 us}}
switches: {default: {scheme: ecn, buffer: 128 KB, threshold: 40 packets}}
"""
CAMPAIGN = """\
question: Is it seen?
axes: {seed: [1, 2]}
claims:
  - name: all-complete
    paper: Every flow completes.
    random: no
    sql: SELECT count(*) FILTER (status <> 'complete') = 0 AS holds, count(*) AS flows FROM flows
  - name: no-queue
    paper: No queue forms.
    random: no
    sql: SELECT max(max_bytes) = 0 AS holds, max(max_bytes) AS bytes FROM queues
"""


def write_lab(folder: Path, name: str, lab: str) -> Path:
    """Write the lab folder `name` below `folder`; returns it."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "lab.yml").write_text(COMMON.replace("NAME", name) + lab)
    (place / "campaign.yml").write_text(CAMPAIGN)
    return place


def open_page(browser: Browser, service: ServiceProcess, place: str) -> None:
    """Open the page anew, also if only the fragment differs."""
    browser.open("data:text/html,empty")
    browser.send("Page.navigate", url=f"{service.url}/{place}")
    browser.wait_for("window.qbed && document.readyState === 'complete'")
