# SPDX-License-Identifier: Apache-2.0
"""Figures as files, when the browser that draws them does not answer."""

import os
import signal
from pathlib import Path

import plotly.graph_objects as go
import plotly.io
import pytest

from qbed.report import images
from qbed.report.figures import Drawing
from qbed.report.image_record import FILE, ImageRecord
from qbed.report.style import SCREEN, Style, new_figure, paper


def test_a_browser_that_does_not_answer_is_ended_and_another_one_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = drawing("one", 1)
    drawn = [images.draw_images(tmp_path / "a", [bar], SCREEN, ["pdf"], lambda _: None)]
    hung = plotly.io.kaleido.scope._proc.pid
    children = [int(child) for child in Path(f"/proc/{hung}/task/{hung}/children").read_text().split()]
    for process in (*children, hung):
        os.kill(process, signal.SIGSTOP)
    monkeypatch.setattr(images, "PATIENCE_S", 8.0)  # the next one has no more to start and draw in
    drawn.append(images.draw_images(tmp_path / "b", [bar], SCREEN, ["pdf"], lambda _: None))
    assert [(len(files.paths), files.kept, files.problems) for files in drawn] == [(1, 0, []), (1, 0, [])]
    assert (tmp_path / "a" / "one.pdf").read_bytes() == (tmp_path / "b" / "one.pdf").read_bytes()
    assert not any(is_alive(process) for process in children)


def drawing(name: str, value: int, title: str = "A title") -> Drawing:
    return Drawing(name, title, new_figure("", "x", "y").add_trace(go.Bar(x=["a"], y=[value])))


def test_only_images_that_show_something_else_are_rendered(tmp_path: Path) -> None:
    folder = tmp_path / "figures"

    def rendered(drawings: list[Drawing], style: Style = SCREEN) -> tuple[list[str], int]:
        names: list[str] = []
        files = images.draw_images(folder, drawings, style, ["svg", "png"], names.append, ImageRecord(tmp_path))
        assert files.problems == [] and len(files.paths) == 2 * len(drawings)
        return names, files.kept

    one, both = ["figures/one.svg", "figures/one.png"], [drawing("one", 1), drawing("two", 2)]
    assert rendered(both) == ([*one, "figures/two.svg", "figures/two.png"], 0)
    before = (folder / "two.svg").read_bytes()
    assert rendered(both) == ([], 4)
    assert rendered([drawing("one", 5), drawing("two", 2)]) == (one, 2)
    assert rendered([drawing("one", 5, "Another title"), drawing("two", 2)]) == (one, 2)
    assert b"Another title" in (folder / "one.svg").read_bytes() and (folder / "two.svg").read_bytes() == before
    (folder / "two.svg").write_bytes(b"edited")
    (folder / "one.png").unlink()
    assert rendered([drawing("one", 5, "Another title"), drawing("two", 2)]) == ([one[1], "figures/two.svg"], 2)
    assert (folder / "two.svg").read_bytes() == before
    assert rendered([drawing("two", 2)], paper()) == (["figures/two.svg", "figures/two.png"], 0)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"figures/one.svg": 1}', '{"figures/one.svg": {"key": "x"}}'])
def test_a_damaged_record_of_images_costs_only_time(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)

    def drawn() -> images.ImageFiles:
        record = ImageRecord(tmp_path)
        return images.draw_images(tmp_path / "figures", [drawing("one", 1)], SCREEN, ["svg"], lambda _: None, record)

    files = drawn()
    assert (len(files.paths), files.kept, files.problems) == (1, 0, [])
    assert drawn().kept == 1


def is_alive(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()
