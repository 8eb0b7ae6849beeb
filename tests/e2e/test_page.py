# SPDX-License-Identifier: Apache-2.0
"""The live page in a browser during a run: its curves equal the results; keyboard, mouse and colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from qbed_testing.browser import Browser, chromium
from qbed_testing.service import ServiceProcess, write_lab

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(chromium() is None, reason="there is no Chromium here (tools/browser)"),
]
TOKEN = "a-token-of-many-letters"
FULLEST = "qbed.series?.cell.queues.indexOf('s1>h3')"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with ServiceProcess(tmp_path_factory.mktemp("service"), QBED_TOKEN=TOKEN) as process:
        process.http.headers["authorization"] = f"Bearer {TOKEN}"
        yield process


@pytest.fixture(scope="module")
def page(service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browser, int, Any]]:
    """A page that was opened while a campaign ran, with the finished job."""
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.open(f"{service.url}/")
        browser.wait_for("document.getElementById('token-dialog').open")  # the page asks for the token
        browser.evaluate(f"document.getElementById('token').value = '{TOKEN}'")
        job = service.submit(write_lab(tmp_path_factory.mktemp("lab") / "mine", "300 ms", "[1, 2, 3]"))
        browser.evaluate("document.querySelector('#token-dialog button').click()")  # the page shows the running job
        browser.wait_for("window.qbed?.series?.end > 0")
        assert browser.evaluate("document.getElementById('cell-choice').value") == ""  # the running cell
        yield browser, job, service.wait_until_ended(job)


def test_the_curve_equals_the_results(page: Any, service: ServiceProcess) -> None:
    browser, job, ended = page
    assert ended["state"] == "finished"
    browser.wait_for("document.querySelectorAll('#claims li').length === 2")
    cell = browser.evaluate("qbed.series.cell.cell")
    browser.wait_for("qbed.series.end * qbed.series.cell.bin_ns >= qbed.series.cell.duration_ns")
    times, minimum, mean, maximum = browser.evaluate(f"qbed.series.curve({FULLEST})")
    ns = browser.evaluate(f"Array.from(qbed.series.rows.get({FULLEST}).ns.slice(0, {len(times)}))")
    assert sum(ns) == 300_000_000
    names = "mean_bytes, max_bytes"
    sql = f"SELECT {names} FROM queues WHERE port = 's1>h3' AND cell = {cell}"
    ((stored_mean, highest),) = service.post(f"/jobs/{job}/query", sql=sql)["rows"]
    assert sum(value * part for value, part in zip(mean, ns, strict=True)) / sum(ns) == pytest.approx(
        stored_mean, rel=1e-5
    )
    assert max(maximum) == highest and all(
        low <= middle <= high for low, middle, high in zip(minimum, mean, maximum, strict=True)
    )
    series = (
        "SELECT time_ns, interval_ns, mean_bytes FROM queue_series"
        f" WHERE port = 's1>h3' AND cell = {cell} ORDER BY time_ns"
    )
    rows = service.post(f"/jobs/{job}/query", sql=series)["rows"]
    width = browser.evaluate("qbed.series.cell.bin_ns")
    for column in range(0, len(times), 37):  # some single columns
        inside = [row for row in rows if (row[0] - 1) // width == column]
        expected = sum(row[1] * row[2] for row in inside) / sum(row[1] for row in inside)
        assert mean[column] == pytest.approx(expected, rel=1e-3, abs=1)


def test_a_finished_cell_is_shown_from_its_tables(page: Any) -> None:
    """The curve of a chosen finished cell equals the curve that was shown while it ran."""
    browser, _, _ = page
    cell = browser.evaluate("qbed.series.cell.cell")
    live = browser.evaluate(f"qbed.series.curve({FULLEST})")
    browser.wait_for("document.getElementById('cell-choice').options.length === 4")
    choose = """(() => { const choice = document.getElementById('cell-choice'); choice.value = '%s';
      choice.dispatchEvent(new Event('change')); })()"""
    for other in (cell, (cell + 1) % 3, cell):
        browser.evaluate(choose % other)
        browser.wait_for(f"qbed.series?.cell.cell === {other} && qbed.series.end * qbed.series.cell.bin_ns >= 300e6")
        browser.wait_for(
            f"qbed.series.flows.size === 2 && document.getElementById('cell').textContent.includes('cell {other},')"
        )
        past = browser.evaluate(f"qbed.series.curve({FULLEST})")
        same = [all(abs(a - b) <= 1 for a, b in zip(*both, strict=True)) for both in zip(past, live, strict=True)]
        assert all(same) == (other == cell)
    assert "seed" in browser.evaluate("document.getElementById('cell-choice').textContent")


def test_claims_topology_heat_map_and_curves_are_drawn(page: Any) -> None:
    browser, _, _ = page
    browser.wait_for("document.querySelectorAll('#claims li').length === 2")
    assert browser.evaluate("document.querySelectorAll('#claims .marked, #claims .mark').length") == 0
    colours = """(id => {
      const canvas = document.getElementById(id), context = canvas.getContext('2d'), colours = new Set();
      const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
      for (let at = 0; at < data.length; at += 4) colours.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
      return [...colours]; })"""
    browser.wait_for(f"{colours}('heat').length >= 4")  # unknown, empty and full queues, the selection
    assert browser.evaluate("qbed.topology.layout.edges.length") == 3
    browser.evaluate("qbed.timeline.point(qbed.series.cell.duration_ns / 2)")
    browser.wait_for(f"{colours}('topology').includes(0xd55e00)")  # the link to h3 is full
    browser.wait_for("document.querySelectorAll('#curves .uplot').length === 1")
    assert browser.evaluate("document.querySelector('#curves [data-queue]').dataset.queue") == "s1>h3"
    browser.wait_for("document.querySelectorAll('#flows .uplot').length === 1")
    browser.wait_for("document.getElementById('flows-text').textContent.startsWith('2 flows')")
    assert browser.evaluate("document.querySelectorAll('#missing li').length") == 0
    assert "s1>h3" in browser.evaluate("document.querySelector('#totals tbody').textContent")
    assert browser.console_errors() == []


def test_the_page_is_controlled_by_keyboard(page: Any) -> None:
    browser, _, _ = page
    browser.evaluate("document.getElementById('show-all').click()")
    browser.evaluate("document.getElementById('heat').focus()")
    browser.key("ArrowUp")
    row = browser.evaluate("qbed.heat.row")
    browser.key("ArrowDown")
    assert browser.evaluate("qbed.heat.row") == row + 1
    browser.key("+", "+")
    assert share(browser)[1] - share(browser)[0] == pytest.approx(0.8)
    before = browser.evaluate("qbed.timeline.cursor")
    browser.key("ArrowRight")
    assert browser.evaluate("qbed.timeline.cursor") > before
    browser.key("Home")
    assert share(browser) == [0, 1]
    browser.key(" ", " ")
    assert browser.evaluate("qbed.paused && document.getElementById('pause').ariaPressed") == "true"
    browser.key(" ", " ")
    chosen = browser.evaluate("qbed.curves.chosen.length")
    browser.key("Enter", "\r")
    assert browser.evaluate("qbed.curves.chosen.length") != chosen
    browser.key("Enter", "\r")
    browser.evaluate("document.getElementById('topology').focus()")
    marks = set()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp"):
        browser.key(key)
        marks.add(browser.evaluate("qbed.topology.layout.marks[qbed.topology.mark].label"))
    assert marks >= {"s1"} and len(marks) >= 3
    reached = []
    browser.evaluate("document.activeElement.blur()")
    for _ in range(24):
        browser.key("Tab")
        reached.append(browser.evaluate("document.activeElement.id || document.activeElement.textContent.slice(0, 12)"))
    assert {"lab", "profile", "pause", "show-all", "instant", "topology", "heat"} <= {*reached}


def share(browser: Browser) -> Any:
    """The shown part of the cell's time."""
    return browser.evaluate("[qbed.timeline.from, qbed.timeline.to].map(ns => ns / qbed.timeline.duration)")


def test_the_heat_map_is_zoomed_by_the_wheel_and_dragged(page: Any) -> None:
    browser, _, _ = page
    browser.evaluate("document.getElementById('heat').scrollIntoView()")
    browser.evaluate("document.getElementById('show-all').click()")
    left, top, width, height = browser.evaluate(
        "(() => { const box = document.getElementById('heat').getBoundingClientRect();"
        " return [box.left + qbed.heat.left, box.top, box.width - qbed.heat.left, box.height]; })()"
    )

    def at(share: float) -> dict[str, float]:
        return {"x": left + share * width, "y": top + 0.1 * height}

    browser.mouse("wheel", **at(0.25), deltaX=0, deltaY=-100)
    browser.wait_for("qbed.timeline.from > 0")
    assert share(browser) == pytest.approx([0.05, 0.85], abs=0.003)  # the point under the mouse stays
    browser.mouse("wheel", **at(0.25), deltaX=0, deltaY=100)
    browser.wait_for("qbed.timeline.to > 0.99 * qbed.timeline.duration")
    assert share(browser) == pytest.approx([0, 1], abs=0.003)
    browser.mouse("wheel", **at(0.5), deltaX=0, deltaY=-100)
    browser.wait_for("qbed.timeline.from > 0.09 * qbed.timeline.duration")
    chosen = browser.evaluate("qbed.curves.chosen.length")
    browser.mouse("moved", "pressed", **at(0.55))
    browser.mouse("moved", **at(0.525), buttons=1)
    browser.mouse("moved", "released", **at(0.5), buttons=1)
    assert share(browser) == pytest.approx([0.14, 0.94], abs=0.003)  # the view follows the mouse
    browser.mouse("moved", **at(0.2))
    assert share(browser) == pytest.approx([0.14, 0.94], abs=0.003), "the button is released"
    assert browser.evaluate("qbed.timeline.cursor / qbed.timeline.duration") == pytest.approx(0.3, abs=0.005)
    assert browser.evaluate("qbed.curves.chosen.length") == chosen, "a drag is no click"
    browser.mouse("pressed", "released", **at(0.2))
    assert browser.evaluate("qbed.curves.chosen.length") != chosen and browser.evaluate("qbed.heat.row") == 0
    browser.mouse("pressed", "released", **at(0.2))
    assert browser.evaluate("qbed.curves.chosen.length") == chosen
    browser.evaluate("document.getElementById('show-all').click()")
    assert share(browser) == [0, 1]


def test_dark_mode_changes_the_colours(page: Any) -> None:
    browser, _, _ = page
    colours = "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"
    browser.set_dark_mode(False)
    light_colours = browser.evaluate(colours)
    browser.set_dark_mode(True)
    assert browser.evaluate(colours) != light_colours
    browser.set_dark_mode(False)


def test_the_gallery_shows_claims_of_all_versions(page: Any) -> None:
    browser, job, _ = page
    # An address that is chosen while the page is about to write its own: the timer runs before the hashchange event.
    browser.evaluate("qbed.addressed = ''; location.hash = '#gallery'; qbed.updateAddress()")
    browser.wait_for("document.querySelectorAll('#gallery li:not(.marked)').length === 2")
    assert f"campaign {job}" in browser.evaluate("document.getElementById('gallery').textContent")
    browser.evaluate("location.hash = '#live'")
