# SPDX-License-Identifier: Apache-2.0
"""Writes docs/pictures/page-*.png (`make pictures`): the page with 6, 102 and 1,041 nodes, running and finished."""

from __future__ import annotations

import tempfile
from pathlib import Path

from qbed_testing.browser import Browser
from qbed_testing.page_labs import LABS, NODES, open_page, write_lab
from qbed_testing.service import ServiceProcess

ROOT = Path(__file__).parents[1]
SIZE = {"width": 1100, "height": 1150, "deviceScaleFactor": 1, "mobile": False}
OBSERVED = {"small": "", "star": "", "large": "observe: {queues: 100 us}\n"}
SHARE = {"small": 0.5, "star": 0.01, "large": 0.5}
"""The part of the cell that has been received when the picture of the running lab is taken."""


def write_pictures(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place, ServiceProcess(Path(place, "service")) as service:
        for name, lab in LABS.items():
            job = service.submit(write_lab(Path(place), name, lab + OBSERVED[name]), images=False)
            with Browser(Path(place, f"browser-{name}")) as browser:
                browser.send("Emulation.setDeviceMetricsOverride", **SIZE)
                open_page(browser, service, f"#run={job}")
                browser.wait_for(
                    f"qbed.series?.end * qbed.series?.cell.bin_ns >= {SHARE[name]} * qbed.timeline.duration"
                )
                browser.wait_for("qbed.topology.drawn && (qbed.heat.drawn || !qbed.series.rows.size)")
                browser.screenshot(folder / f"page-{NODES[name]}-running.png")
                service.wait_until_ended(job)
                open_page(browser, service, f"#run={job}&cell=0")
                browser.wait_for("qbed.series?.totals && document.querySelectorAll('#totals tbody tr').length")
                browser.wait_for("qbed.frames > 30")
                browser.screenshot(folder / f"page-{NODES[name]}-finished.png")


if __name__ == "__main__":
    write_pictures(ROOT / "docs/pictures")
