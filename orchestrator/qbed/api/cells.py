# SPDX-License-Identifier: Apache-2.0
"""Cells by their keys, from Python: the store of finished cells, and the queue of cells to run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbed.api.labs import Lab
from qbed.api.runs import prepared
from qbed.base import terminal
from qbed.base.errors import QbedError
from qbed.substrates import Limits
from qbed.substrates.rebuild import build_changed

if TYPE_CHECKING:
    from qbed.runs.worker import Outcome
    from qbed.storage.cell_store import CellStore


def store() -> CellStore:
    """The store of finished cells, as for `qbed store`. `cells()` lists them, `shrink(max_bytes)` removes the least
    recently used ones, `verify()` removes damaged ones.
    """
    from qbed.storage.cell_store import default_store

    found = default_store()
    if found is None:
        raise QbedError("QBED_STORE is `off`: there is no store")
    return found


def queue(
    lab: Lab | str | Path, *, profile: str | None = None, seeds: Sequence[int] | None = None, **options: Any
) -> list[str]:
    """Queue the plans of a campaign's cells that the store does not have; returns their keys.

    The arguments are those of `qbed.run`.
    """
    from qbed.runs.queued import queue_cells

    build_changed(terminal.print_status)
    task = prepared("queue", lab, options, profile=profile, seeds=seeds).task
    return [key for key, stored in queue_cells(task) if not stored]


def cell(key: str, limits: Limits | None = None) -> Outcome:
    """Run one cell of the queue into the store, unless the store has it. `qbed.run` takes cells from the store."""
    from qbed.runs.queued import run_queued

    return run_queued(key, limits or Limits())
