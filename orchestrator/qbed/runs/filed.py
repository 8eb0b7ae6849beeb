# SPDX-License-Identifier: Apache-2.0
"""A cell of which nothing is known but its key: what every machine and batch system runs, again and again if it must.

The plan comes from the queue, the result goes into the store. Two who run the same key at once do the work once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qbed.errors import QbedError
from qbed.plan.model import Plan
from qbed.results.queue import Queue
from qbed.results.store import CellStore, cell_key, default_store
from qbed.runs.worker import Orders, Outcome, Row, Task, Worker
from qbed.substrates import DEFAULT, Limits, Substrate, substrate


@dataclass(frozen=True, kw_only=True)
class Filed(Orders):
    """A filed cell: one plan."""

    content: bytes

    def describe(self, number: int) -> Row:
        return {"cell": number, "substrate": self.on, "dilation": self.dilation}

    def compile(self, number: int) -> tuple[Plan, bytes, Row]:
        return Plan.loads(self.content), self.content, self.describe(number)


def needed_store() -> CellStore:
    """The user's store; `QbedError` if there is none, as cells that go by their keys have no other place."""
    store = default_store()
    if store is None:
        raise QbedError("QBED_STORE is `off`: a cell that is run by its key has no place for its result")
    return store


def run_filed(mark: str, limits: Limits, on: Substrate | None = None) -> Outcome:
    """Run the cell with this key, unless the store has it. Its plan leaves the queue when it is complete."""
    store, on = needed_store(), on or substrate(DEFAULT)
    queue = Queue(store)
    folder = queue.cell_folder(mark)
    assert on.provenance is not None
    done = Outcome(0, "complete", None, 0.0, stored=True)
    if store.has(mark):
        queue.remove(mark)
        return done
    queue.plan(mark, on.provenance)
    with folder.lock():
        if store.has(mark):
            queue.remove(mark)
            return done
        content = queue.plan(mark, on.provenance)
        folder.cells.mkdir(exist_ok=True)
        outcome = Worker(Filed(folder.path, limits, content=content), on).run(0)
        if outcome.status == "complete":
            queue.remove(mark)
    return outcome


def file_cell(task: Task, number: int, queue: Queue, on: Substrate) -> str:
    """Put a cell's plan into the queue unless the store has the cell; returns its key."""
    _, content, _ = task.compile(number)
    assert on.provenance is not None
    mark = cell_key(content, on.provenance)
    if not queue.store.has(mark):
        queue.add(mark, content)
    return mark


def file_cells(task: Task) -> Iterator[tuple[str, bool]]:
    """File all cells of a campaign that the store does not have: of each its key, and whether the store has it."""
    queue = Queue(needed_store())
    queue.expire()
    for number in range(len(task.matrix)):
        mark = file_cell(task, number, queue, substrate(task.on))
        yield mark, queue.store.has(mark)
