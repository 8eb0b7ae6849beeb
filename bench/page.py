# SPDX-License-Identifier: Apache-2.0
"""The live page in Chromium with 1,041 nodes and 1,080 sampled queues: first picture, frames a second, memory."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.harness import Figure

from qbed_testing.browser import Browser
from qbed_testing.page_labs import NODES, open_page, write_lab
from qbed_testing.service import ServiceProcess

LAB = """\
topology: {clos: {hosts: 25, racks: 40, spines: 1}}
workload:
  - flows: {pairs: [[h101, h1], [h301, h201], [h501, h401], [h701, h601], [h901, h801]], size: 8 MB, label: long}
observe: {queues: 200 us}
duration: 100 ms
"""
REPLAYS, WARM = 60, 10
FRAMES = """(async () => { const begun = performance.now(), frames = qbed.frames;
  await new Promise(resolve => setTimeout(resolve, 1000));
  return (qbed.frames - frames) / (performance.now() - begun) * 1000; })()"""
# From the description of the cell, which comes before its data, until all of it is drawn.
PICTURE = """(async cell => {
  const choice = document.getElementById('cell-choice'), begun = performance.now();
  choice.value = String(cell);
  choice.dispatchEvent(new Event('change'));
  const drawn = () => qbed.series?.cell.cell === cell && qbed.topology.drawn && qbed.heat.drawn;
  let first = 0;
  while (!qbed.series?.totals || !drawn()) {
    if (!first && drawn() && qbed.series.end) first = performance.now() - begun;
    await new Promise(requestAnimationFrame);
  }
  return [first || performance.now() - begun, performance.now() - begun]; })"""


def heap(browser: Browser) -> float:
    """The page's JavaScript heap in MB after a garbage collection."""
    browser.send("HeapProfiler.collectGarbage")
    return float(browser.evaluate("performance.memory.usedJSHeapSize")) / 1e6


def watch(browser: Browser, service: ServiceProcess, lab: Path) -> tuple[float, int]:
    """Frames a second while the campaign's cells run (the least of the seconds), and the job."""
    job, rates = service.submit(lab, images=False), []
    open_page(browser, service, f"#run={job}")
    browser.wait_for("qbed.series?.end > 0")
    while service.get(f"/jobs/{job}")["state"] == "running":
        rates.append(float(browser.evaluate(FRAMES)))
    assert service.wait_until_ended(job)["state"] == "finished"
    return min(rates), job


def measure(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as place:
        lab = write_lab(Path(place), "thousand", LAB)
        options = ("--enable-precise-memory-info",)
        with ServiceProcess(Path(place, "service")) as service, Browser(Path(place, "browser"), *options) as browser:
            frames, job = watch(browser, service, lab)
            open_page(browser, service, f"#run={job}")
            browser.wait_for(f"qbed.series?.totals && qbed.series.cell.nodes.length === {NODES['large']}")
            pictures = [browser.evaluate(f"{PICTURE}({number % 2})") for number in range(1, 2 * rounds + 1)]
            heaps = []
            for replay in range(REPLAYS):
                browser.evaluate(f"{PICTURE}({replay % 2})")
                if replay in (WARM, REPLAYS - 1):
                    heaps.append(heap(browser))
            time.sleep(1)
            idle = float(browser.evaluate(FRAMES))
    return [
        Figure("1,041 nodes: first picture", min(first for first, _ in pictures) / 1e3, "s", 2.0, "<="),
        Figure("1,041 nodes: whole cell of 1,080 queues drawn", min(whole for _, whole in pictures) / 1e3, "s"),
        Figure("frames a second while it runs (the least second)", frames, "", 30.0, ">="),
        Figure("frames a second afterwards", idle, "", 30.0, ">="),
        Figure(f"heap after {WARM} cells", heaps[0], "MB"),
        Figure(f"heap after {REPLAYS} cells", heaps[1], "MB", heaps[0] * 1.1, "<="),
    ]
