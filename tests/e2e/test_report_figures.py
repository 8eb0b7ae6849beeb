# SPDX-License-Identifier: Apache-2.0
"""A run's report in a browser, on a narrow screen too, and its figures as files: nothing is clipped."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from qbed_testing.browser import Browser, chromium
from qbed_testing.service import write_lab

pytestmark = [pytest.mark.e2e]
LONG = "The length of the queue where two senders share one port of the switch, over the duration of the experiment"
FIGURES = f"""\
figures:
  - {{kind: queue, title: "{LONG}"}}
  - {{kind: cdf, queue: s1>h3}}
  - {{kind: goodput, x: buffer}}
  - {{kind: drops}}
  - kind: line
    name: tails
    sql: SELECT buffer_bytes AS x, avg(max_bytes) AS y, 0 AS low, max(max_bytes) AS high FROM queues GROUP BY ALL
"""
OUTSIDE_PAGE = """(() => { const wide = document.documentElement.clientWidth;
  return [...document.querySelectorAll('h1, h2, h3, .tile, .claim, .badge, .plot, .plot text, input, button, footer')]
    .filter(one => !one.closest('.scroll, pre') && one.getBoundingClientRect().width > 0)
    .map(one => [one, one.getBoundingClientRect()])
    .filter(([, box]) => box.left < -0.5 || box.right > wide + 0.5)
    .map(([one, box]) => `${one.tagName} ${one.textContent.slice(0, 30)}: ${box.left} to ${box.right}`); })()"""
CLIPPED = """(() => { const page = document.documentElement.getBoundingClientRect();
  return [...document.querySelectorAll('text')].filter(one => one.textContent).filter(one => {
    const box = one.getBoundingClientRect();
    return box.left < -0.5 || box.top < -0.5 || box.right > page.width + 0.5 || box.bottom > page.height + 0.5;
  }).map(one => one.textContent); })()"""


def qbed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "qbed", *arguments], text=True, capture_output=True, check=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lab = write_lab(tmp_path_factory.mktemp("lab") / "mine", "20 ms", "[1]")
    campaign = lab / "campaign.yml"
    text = campaign.read_text().replace("axes: {", "axes: {switches.default.buffer: [1 MB, 32 KB, 128 KB], ")
    campaign.write_text(text + FIGURES)
    done = qbed("run", str(lab), "--out", str(lab / "run"))
    assert done.returncode == 0, done.stderr
    return lab / "run"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("there is no Chromium here (tools/browser)")
    with Browser(tmp_path_factory.mktemp("browser"), "--allow-file-access-from-files") as browser:
        yield browser


@pytest.mark.parametrize("width", [420, 1280])
def test_the_report_fits_narrow_and_wide_screens(run: Path, browser: Browser, width: int) -> None:
    browser.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    browser.open((run / "report.html").as_uri())
    browser.wait_for("document.querySelectorAll('.plot .main-svg').length >= 5")
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(OUTSIDE_PAGE) == []
    assert LONG in browser.evaluate("document.querySelector('.figures h3').textContent")
    assert browser.console_errors() == []


def test_no_text_of_a_figure_is_clipped(run: Path, browser: Browser) -> None:
    done = qbed("report", str(run), "--style", "paper", "--format", "svg")
    assert done.returncode == 0, done.stderr
    browser.send("Emulation.clearDeviceMetricsOverride")
    images = [*(run / "figures").glob("*.svg"), *(run / "figures" / "paper").glob("*.svg")]
    assert len(images) == 10
    for image in images:
        browser.open(image.as_uri())
        assert browser.evaluate(CLIPPED) == [], image


def test_figures_for_a_paper_have_its_width_and_font_size(run: Path) -> None:
    done = qbed("report", str(run), "--style", "paper", "--width", "7 in", "--font-size", "9 pt")
    assert done.returncode == 0 and done.stdout.strip().endswith("figures/paper"), done.stderr
    folder = run / "figures" / "paper"
    assert {path.suffix for path in folder.iterdir()} == {".png", ".svg", ".pdf"}
    pdf, svg = (folder / "queue.pdf").read_bytes(), (folder / "queue.svg").read_text()
    box = re.search(rb"/MediaBox \[0 0 (\d+) (\d+)\]", pdf)
    assert box is not None
    assert int(box[1]) == 504 and abs(int(box[2]) - 0.62 * 504) <= 1
    pixels = int.from_bytes((folder / "queue.png").read_bytes()[16:20], "big")
    assert pixels == pytest.approx(7 * 600, abs=7)
    assert b"/FontFile2" in pdf  # embedded fonts, and text instead of outlines
    assert "font-size: 12px" in svg and LONG[:30] not in svg
    assert LONG[:30] in (run / "figures" / "queue.svg").read_text()


def test_equal_figures_are_equal_files(run: Path) -> None:
    before = {path: path.read_bytes() for path in (run / "figures").glob("*.*")}
    assert len(before) == 15
    (run / "images.json").unlink()  # or they would be kept
    assert qbed("report", str(run)).returncode == 0
    assert [path.name for path, content in before.items() if path.read_bytes() != content] == []


def test_a_changed_figure_is_rendered_and_the_others_are_kept(run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (run / "figures").glob("*.*")}
    campaign = run.parent / "campaign.yml"
    campaign.write_text(campaign.read_text().replace("avg(max_bytes) AS y", "2 * avg(max_bytes) AS y"))
    done = qbed("run", str(run.parent), "--out", str(run))
    assert done.returncode == 0, done.stderr
    assert "images of figures: 3 rendered, 12 kept (unchanged)" in done.stderr
    changed = {path.name for path, when in before.items() if path.stat().st_mtime_ns != when}
    assert changed == {"tails.png", "tails.svg", "tails.pdf"}
