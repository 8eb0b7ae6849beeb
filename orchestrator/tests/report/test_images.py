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
from qbed.report.style import SCREEN, new_figure


def test_a_browser_that_does_not_answer_is_ended_and_another_one_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing = Drawing("one", "One", new_figure("of a few", "x", "y").add_trace(go.Bar(x=["a"], y=[1])))
    drawn = [images.draw_images(tmp_path / "a", [drawing], SCREEN, ["pdf"], lambda _: None)]
    hung = plotly.io.kaleido.scope._proc.pid
    children = [int(child) for child in Path(f"/proc/{hung}/task/{hung}/children").read_text().split()]
    for process in (*children, hung):
        os.kill(process, signal.SIGSTOP)
    monkeypatch.setattr(images, "PATIENCE_S", 8.0)  # the next one has no more to start and draw in
    drawn.append(images.draw_images(tmp_path / "b", [drawing], SCREEN, ["pdf"], lambda _: None))
    assert [(len(files), why) for files, why in drawn] == [(1, []), (1, [])]
    assert (tmp_path / "a" / "one.pdf").read_bytes() == (tmp_path / "b" / "one.pdf").read_bytes()
    assert not any(is_alive(process) for process in children)


def is_alive(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return status.exists() and "\nState:\tZ" not in status.read_text()
