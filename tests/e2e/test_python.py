# SPDX-License-Identifier: Apache-2.0
"""The Python interface: the notebook of docs/, cell by cell, and functions that it does not use."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import qbed
from qbed.base.errors import QbedError

NOTEBOOK = Path(__file__).parents[2] / "docs" / "python.ipynb"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The variables of the notebook after its last cell, run in a new folder."""
    variables: dict[str, Any] = {"__name__": "__notebook__"}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("notebook")
        patch.chdir(folder)
        patch.setenv("XDG_RUNTIME_DIR", str(folder / "state"))
        for number, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"cell {number} of the notebook", "exec"), variables)
        variables["folder"] = folder
    return variables


def test_the_notebook_runs(notebook: dict[str, Any]) -> None:
    run = notebook["run"]
    assert notebook["flows"].height == 12 and set(notebook["flows"]["buffer"]) == {"16 KB", "64 KB", "256 KB"}
    assert "2 received" in notebook["ping"].stdout and notebook["ping"].status == 0
    assert run.axes == {"buffer": ["16 KB", "64 KB", "256 KB"], "seed": [1, 2]}
    assert notebook["cell"] == "buffer=64 KB, seed=1" and notebook["parting"].table == "flows"


def test_the_notebook_runs_in_a_kernel_without_ipywidgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_spec("ipywidgets") is None
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "state"))
    book = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = {kind for output in outputs for kind in output.get("data", {})}
    assert "application/vnd.plotly.v1+json" in shown, "a figure is drawn in the notebook"
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert (tmp_path / "runs" / "notebook" / "cells.parquet").exists()


def test_a_run_folder_can_be_opened(notebook: dict[str, Any]) -> None:
    run = qbed.open(notebook["folder"] / "runs" / "notebook")
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
        qbed.open(notebook["folder"])


def test_progress_is_reported_per_cell(notebook: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(notebook["folder"])
    progress: list[tuple[int, int]] = []
    axes = {"seed": [3, 4]}
    run = qbed.run(
        notebook["lab"], axes=axes, jobs=1, images=False, progress=lambda ended, cells: progress.append((ended, cells))
    )
    assert progress[-1] == (2, 2) and run.folder.parent == Path(notebook["folder"], "runs")
    again: list[tuple[int, int]] = []
    qbed.run(notebook["lab"], axes=axes, images=False, progress=lambda *counts: again.append(counts))
    assert set(again) == {(2, 2)}
