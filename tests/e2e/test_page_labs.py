# SPDX-License-Identifier: Apache-2.0
"""The page with labs of 6, 102 and 1,041 nodes, while they run and afterwards; links to it; its accessibility."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbed_testing.browser import Browser, chromium
from qbed_testing.checkouts import ROOT
from qbed_testing.page_labs import LABS, NODES, open_page, write_lab
from qbed_testing.service import ServiceProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(chromium() is None, reason="there is no Chromium here (tools/browser)"),
]
WIDTHS = {"wide": 1280, "phone": 400}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service")) as process:
        yield process


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def jobs(service: ServiceProcess, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """A campaign of each lab, whose page was open while it ran."""
    found = {}
    for name, lab in LABS.items():
        folder = write_lab(tmp_path_factory.mktemp("labs"), name, lab)
        found[name] = service.submit(folder, images=name == "small")
        open_page(browser, service, f"#run={found[name]}")
        browser.wait_for(f"qbed.series?.cell.nodes.length === {NODES[name]}")
        assert_drawn(browser)
        assert service.wait_until_ended(found[name])["state"] == "finished"
    return found


def assert_drawn(browser: Browser) -> None:
    """The topology is on its canvas, without a place that two nodes share."""
    browser.wait_for("document.getElementById('topology').clientHeight > 100")
    places = "qbed.topology.layout.marks.map(mark => `${mark.x} ${mark.y}`)"
    assert browser.evaluate(f"new Set({places}).size === {places}.length")
    pixels = """(() => { const canvas = document.getElementById('topology'), {width, height} = canvas;
      const {data} = canvas.getContext('2d').getImageData(0, 0, width, height);
      return data.filter((value, at) => at % 4 === 3 && value).length;
    })()"""
    browser.wait_for(f"{pixels} > 500")


def assert_no_errors(browser: Browser) -> None:
    """Nothing is wrong on the console. The totals of a cell that has just ended are missing for a moment."""
    assert [error for error in browser.console_errors() if "/totals" not in error] == []


def show(browser: Browser, service: ServiceProcess, job: int, more: str = "") -> None:
    """Open a finished campaign and wait for its first cell."""
    open_page(browser, service, f"#run={job}{more}")
    browser.wait_for("qbed.series?.totals && qbed.series.ended")


@pytest.mark.parametrize("name", LABS)
def test_a_finished_lab_shows_what_it_recorded(
    name: str, service: ServiceProcess, browser: Browser, jobs: dict[str, int]
) -> None:
    show(browser, service, jobs[name])
    assert_drawn(browser)
    rows = browser.evaluate("qbed.series.rows.size")
    assert rows == {"small": 6, "star": 1, "large": 0}[name]
    browser.wait_for(f"document.getElementById('heat').hidden === {json.dumps(rows == 0)}")
    browser.wait_for("document.querySelectorAll('#totals tbody tr').length === 10")
    hints = browser.evaluate("document.getElementById('missing').textContent")
    assert ("observe: {queues" in hints) == (name == "large") and "observe: {flows" in hints
    browser.wait_for("document.getElementById('bars').clientHeight > 100")
    count = {"small": 2, "star": 80, "large": 3}[name]
    assert browser.evaluate("document.getElementById('flows-text').textContent").startswith(f"{count} flows, ")
    if name == "star":
        assert browser.evaluate("qbed.series.highest") > 100_000, "the queue's length is that of its packets"
    assert_no_errors(browser)


def test_the_phase_of_a_running_job_is_not_checking(service: ServiceProcess, jobs: dict[str, int]) -> None:
    phases = [data["name"] for name, data in service.events(f"/jobs/{jobs['small']}/events") if name == "phase"]
    assert phases[:2] == ["checking", "running"] and {"claims", "report"} <= {*phases}


def test_only_a_verdict_that_was_not_expected_has_a_mark(
    service: ServiceProcess, browser: Browser, jobs: dict[str, int]
) -> None:
    show(browser, service, jobs["star"])
    browser.wait_for("document.querySelectorAll('#claims li').length === 2")
    lines = browser.evaluate(
        "[...document.querySelectorAll('#claims li')].map(line => [line.className, line.innerText])"
    )
    assert lines[0][0] == "" and lines[0][1].startswith("all-complete: holds")
    assert lines[1][0] == "marked" and "no-queue: refuted \u26a0 not as expected" in lines[1][1]
    browser.wait_for("document.getElementById('job-status').textContent === 'finished, not as expected'")


def test_a_rack_opens_on_a_click_and_closes_by_its_switch(
    service: ServiceProcess, browser: Browser, jobs: dict[str, int]
) -> None:
    show(browser, service, jobs["large"])
    assert browser.evaluate("qbed.topology.layout.marks.length") == 81
    browser.wait_for("document.querySelectorAll('#missing li').length === 2")  # nothing moves after that
    browser.evaluate("document.getElementById('topology').scrollIntoView()")
    place = """(kind => { const {topology} = qbed, {canvas, layout} = topology, box = canvas.getBoundingClientRect();
      const rack = topology.series.cell.nodes.indexOf('rack7');
      const mark = layout.marks.find(mark => (kind === 'rack' ? mark.parent : mark.nodes[0]) === rack);
      const [x, y] = topology.at(mark, layout); return {x: box.left + x, y: box.top + y}; })"""
    browser.mouse("moved", "pressed", "released", **browser.evaluate(f"{place}('rack')"))
    browser.wait_for("qbed.topology.layout.marks.length === 105")
    browser.mouse("moved", "pressed", "released", **browser.evaluate(f"{place}('switch')"))
    browser.wait_for("qbed.topology.layout.marks.length === 81")
    browser.wait_for("document.getElementById('topology-under').textContent.startsWith('rack7: ')")


def test_a_link_and_a_reload_show_the_same(service: ServiceProcess, browser: Browser, jobs: dict[str, int]) -> None:
    state = """[qbed.series.cell.cell, qbed.curves.chosen.map(queue => qbed.series.cell.queues[queue]),
      qbed.timeline.cursor, qbed.timeline.from, qbed.timeline.to, qbed.curves.other?.cell.cell, qbed.job]"""
    show(browser, service, jobs["small"], "&cell=1&queue=s1%3Es2&queue=s2%3Eh4&time=12.5&view=10-60&with=0")
    browser.wait_for("qbed.curves.other?.rows.size && document.querySelectorAll('#curves .uplot').length === 2")
    linked = [1, ["s1>s2", "s2>h4"], 12.5e6, 10e6, 60e6, 0, jobs["small"]]
    assert browser.evaluate(state) == linked
    browser.evaluate("qbed.curves.toggle(qbed.series.cell.queues.indexOf('s2>h4'))")
    browser.evaluate("document.getElementById('zoom-in').click()")
    browser.evaluate("""(() => { const box = document.getElementById('instant'); box.value = '30.25';
      box.dispatchEvent(new Event('change')); })()""")
    browser.wait_for("location.hash.includes('time=30.25') && location.hash.includes('view=22.5-47.5')")
    browser.send("Page.reload")
    browser.wait_for("window.qbed?.series?.totals && qbed.curves.other?.rows.size")
    assert browser.evaluate(state) == [1, ["s1>s2"], 30.25e6, 22.5e6, 47.5e6, 0, jobs["small"]]
    assert browser.evaluate("document.getElementById('cell-choice').value") == "1"
    labels = "[...document.querySelectorAll('#curves .u-legend .u-label')].map(label => label.textContent)"
    assert {"mean (cell 1)", "mean (cell 0)"} <= {*browser.evaluate(labels)}


def test_all_charts_share_the_view_and_the_cursor(
    service: ServiceProcess, browser: Browser, jobs: dict[str, int]
) -> None:
    show(browser, service, jobs["small"], "&cell=0&queue=s1%3Es2")
    browser.wait_for("document.querySelectorAll('#curves .uplot').length === 1")
    browser.evaluate("document.getElementById('curves').scrollIntoView()")
    box = browser.evaluate("""(() => { const {left, top, width, height} = document.querySelector('#curves .u-over')
      .getBoundingClientRect(); return [left, top, width, height]; })()""")
    browser.mouse("moved", x=box[0] + box[2] / 4, y=box[1] + box[3] / 2)
    browser.wait_for("qbed.timeline.cursor !== null")
    assert browser.evaluate("qbed.timeline.cursor / qbed.timeline.duration") == pytest.approx(0.25, abs=0.01)
    browser.wait_for("document.getElementById('under').textContent.includes(' at 50')")
    browser.wait_for("document.getElementById('topology-under').textContent.includes('(50')")
    browser.mouse("pressed", x=box[0] + box[2] / 4, y=box[1] + box[3] / 2)
    browser.mouse("moved", x=box[0] + box[2] / 2, y=box[1] + box[3] / 2, buttons=1)
    browser.mouse("released", x=box[0] + box[2] / 2, y=box[1] + box[3] / 2)
    browser.wait_for("qbed.timeline.to < 0.6 * qbed.timeline.duration")
    shown = browser.evaluate("[qbed.timeline.from, qbed.timeline.to].map(ns => ns / qbed.timeline.duration)")
    assert shown == pytest.approx([0.25, 0.5], abs=0.01)


def test_a_small_view_has_finer_columns(service: ServiceProcess, browser: Browser, jobs: dict[str, int]) -> None:
    """Columns of a part of the cell are read when the view has come to rest; they have the same totals."""
    show(browser, service, jobs["star"], "&view=0-8")
    browser.wait_for("qbed.heat.series.cell.bin_ns < 40_000 && qbed.heat.series.ended")
    assert browser.evaluate("[qbed.series.cell.bin_ns, qbed.heat.series.cell.from_ns]") == [2e6, 0]
    drops = "[...%s.rows.get(%s.shown(1)[0]).dropped].slice(0, %s).reduce((sum, value) => sum + value, 0)"
    whole = browser.evaluate(drops % ("qbed.series", "qbed.series", 5))
    fine = browser.evaluate(drops % ("qbed.heat.series", "qbed.heat.series", 512))
    assert fine == whole > 0, "the first 10 ms"
    browser.evaluate("document.getElementById('show-active').click()")
    assert browser.evaluate("qbed.timeline.to") < 1e9
    browser.evaluate("document.getElementById('show-all').click()")
    browser.wait_for("qbed.heat.series === qbed.series")
    assert_no_errors(browser)


def test_a_pause_keeps_the_picture_and_nothing_is_lost(
    service: ServiceProcess, browser: Browser, jobs: dict[str, int]
) -> None:
    show(browser, service, jobs["small"], "&cell=0")
    browser.evaluate("document.getElementById('pause').click()")
    before = browser.evaluate("qbed.series.version")
    browser.evaluate("document.getElementById('cell-choice').value = '1'")
    browser.evaluate("document.getElementById('cell-choice').dispatchEvent(new Event('change'))")
    browser.wait_for("qbed.held.some(([event]) => event === 'cell-end')")
    assert browser.evaluate("qbed.series") is None and before > 0
    browser.evaluate("document.getElementById('pause').click()")
    browser.wait_for("qbed.series?.cell.cell === 1 && qbed.series.rows.size === 6 && qbed.series.totals")


def test_figures_are_beside_the_claims_and_in_the_gallery(
    service: ServiceProcess, browser: Browser, jobs: dict[str, int]
) -> None:
    show(browser, service, jobs["small"])
    browser.wait_for("document.querySelectorAll('#figures img').length > 1")
    browser.wait_for("[...document.querySelectorAll('#figures img')].every(image => image.naturalWidth > 100)")
    browser.evaluate("location.hash = '#gallery'")
    browser.wait_for("document.querySelectorAll('#gallery section').length === 3")
    browser.wait_for("document.querySelectorAll('#gallery .picture img').length >= 1")
    browser.wait_for("document.querySelectorAll('#gallery .picture canvas').length >= 1")  # of a lab without figures
    browser.evaluate(f"document.querySelector('#gallery a[href=\"#run={jobs['large']}\"]').click()")
    browser.wait_for("qbed.series?.cell.nodes.length === 1041")
    assert_no_errors(browser)


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe, from the tools of the page's tests."""
    tools = subprocess.run([ROOT / "tools/page-tools"], capture_output=True, text=True)
    if tools.returncode == 3:
        pytest.skip("there is no Node here")
    assert tools.returncode == 0, tools.stderr
    return (Path(tools.stdout.strip()) / "node_modules/axe-core/axe.min.js").read_text()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_serious(
    service: ServiceProcess, browser: Browser, jobs: dict[str, int], axe: str, width: str, dark: bool
) -> None:
    browser.set_dark_mode(dark)
    size = {"width": WIDTHS[width], "height": 1000, "deviceScaleFactor": 1, "mobile": width == "phone"}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    try:
        for place in (f"#run={jobs['small']}&cell=0&with=1", f"#run={jobs['large']}", "#gallery"):
            open_page(browser, service, place)
            browser.wait_for(
                "qbed.series?.totals" if "run" in place else "!!document.querySelector('#gallery .picture img')"
            )
            assert browser.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width], place
            browser.evaluate(axe + "; 0")
            found = browser.evaluate("axe.run().then(({violations}) => violations)")
            serious = [
                (rule["id"], [node["html"] for node in rule["nodes"]])
                for rule in found
                if rule["impact"] in ("serious", "critical")
            ]
            assert serious == [], place
    finally:
        browser.set_dark_mode(False)
        browser.send("Emulation.clearDeviceMetricsOverride")


def test_the_large_lab_is_drawn_soon_and_often(service: ServiceProcess, browser: Browser, jobs: dict[str, int]) -> None:
    """A smoke test with wide bounds; `bench/page.py` measures."""
    show(browser, service, jobs["large"])
    benchmark = """(() => { const {topology} = qbed, begun = performance.now();
      for (let frame = 0; frame < 30; frame++) { topology.drawn = ''; topology.draw(); }
      return (performance.now() - begun) / 30; })()"""
    assert browser.evaluate(benchmark) < 100
