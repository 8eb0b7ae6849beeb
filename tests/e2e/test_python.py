# SPDX-License-Identifier: Apache-2.0
"""qbed from Python, in the real guest: the notebook of docs/, cell by cell, and what it leaves out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import qbed
from qbed.base.errors import QbedError

NOTEBOOK = Path(__file__).parents[2] / "docs" / "python.ipynb"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the notebook has defined when it has come to its end, in a folder of its own."""
    here: dict[str, Any] = {"__name__": "__notebook__"}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("notebook")
        patch.chdir(folder)
        patch.setenv("XDG_RUNTIME_DIR", str(folder / "state"))
        for number, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"cell {number} of the notebook", "exec"), here)
        here["folder"] = folder
    return here


def test_the_notebook_comes_to_its_end(told: dict[str, Any]) -> None:
    run = told["run"]
    assert told["flows"].height == 12 and set(told["flows"]["buffer"]) == {"16 KB", "64 KB", "256 KB"}
    assert "2 received" in told["ping"].stdout and told["ping"].status == 0
    assert run.axes == {"buffer": ["16 KB", "64 KB", "256 KB"], "seed": [1, 2]}
    assert told["cell"] == "buffer=64 KB, seed=1" and told["parting"].table == "flows"


def test_a_run_is_opened_again(told: dict[str, Any]) -> None:
    run = qbed.open(told["folder"] / "runs" / "notebook")
    assert run.holds and run.claims["longer-buffers-hold-more"].measured["longest"] > 0
    assert {"cells", "flows", "queues", "queue_series"} <= set(run.tables) and run.verify() == []
    table = run.table("flows")
    assert table.num_rows == 12 and {"cell", "buffer", "fct_ns"} <= set(table.column_names)
    assert run.sql("SELECT count(*) AS n FROM cells").to_pylist() == [{"n": 6}]
    assert run.figures["queue"].data and (run.folder / "figures" / "queue.png").exists()
    with pytest.raises(QbedError, match="has no table `flow`; did you mean `flows`"):
        run.frame("flow")
    with pytest.raises(QbedError, match="the SQL fails"):
        run.frame("SELECT nothing FROM flows")
    with pytest.raises(QbedError, match="no run folder"):
        qbed.open(told["folder"])


def test_cells_are_told_as_they_end(told: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(told["folder"])
    heard: list[tuple[int, int]] = []
    axes = {"seed": [3, 4]}
    run = qbed.run(
        told["lab"], axes=axes, jobs=1, images=False, progress=lambda ended, cells: heard.append((ended, cells))
    )
    assert heard[-1] == (2, 2) and run.folder.parent == Path(told["folder"], "runs")
    again: list[tuple[int, int]] = []
    qbed.run(told["lab"], axes=axes, images=False, progress=lambda *said: again.append(said))
    assert set(again) == {(2, 2)}
