# SPDX-License-Identifier: Apache-2.0
"""Run queued cells by their keys, on any machine or batch system, any number of times.

The plan is read from the queue, the result is put into the store. Concurrent runs of one key do the work once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qbed.base.errors import QbedError
from qbed.base.json_files import Row
from qbed.plan.model import Plan
from qbed.runs.worker import CellWork, Outcome, Task, Worker
from qbed.storage.cell_store import CellStore, cell_key, default_store
from qbed.storage.queue import Queue
from qbed.substrates import DEFAULT, Limits, Substrate, substrate


@dataclass(frozen=True, kw_only=True)
class QueuedCell(CellWork):
    """A queued cell with its plan."""

    content: bytes

    def describe(self, number: int) -> Row:
        return {"cell": number, "substrate": self.on, "dilation": self.dilation}

    def compile(self, number: int) -> tuple[Plan, bytes, Row]:
        return Plan.loads(self.content), self.content, self.describe(number)


def needed_store() -> CellStore:
    """The user's store; `QbedError` if it is off, because cells that are run by key have no other destination."""
    store = default_store()
    if store is None:
        raise QbedError("QBED_STORE is `off`: a cell that is run by its key has no place for its result")
    return store


def run_queued(key: str, limits: Limits, on: Substrate | None = None) -> Outcome:
    """Run the cell with this key unless the store has it, and remove it from the queue when it is complete."""
    store, on = needed_store(), on or substrate(DEFAULT)
    queue = Queue(store)
    folder = queue.cell_folder(key)
    inputs = on.inputs
    assert inputs is not None

    def inputs_of(plan: bytes) -> dict[str, str]:
        return inputs.of(Plan.loads(plan))

    done = Outcome(0, "complete", None, 0.0, stored=True)
    if store.has(key):
        queue.remove(key)
        return done
    queue.plan(key, inputs_of)
    with folder.lock():
        if store.has(key):
            queue.remove(key)
            return done
        content = queue.plan(key, inputs_of)
        folder.cells.mkdir(exist_ok=True)
        outcome = Worker(QueuedCell(folder.path, limits, content=content), on).run(0)
        if outcome.status == "complete":
            queue.remove(key)
    return outcome


def queue_cell(task: Task, number: int, queue: Queue, on: Substrate) -> str:
    """Put a cell's plan into the queue unless the store has the cell; returns its key."""
    plan, content, _ = task.compile(number)
    assert on.inputs is not None
    key = cell_key(content, on.inputs.of(plan))
    if not queue.store.has(key):
        queue.add(key, content)
    return key


def queue_cells(task: Task) -> Iterator[tuple[str, bool]]:
    """Queue all cells of a campaign that the store does not have; returns each key, and whether the store has it."""
    queue = Queue(needed_store())
    queue.expire()
    for number in range(len(task.matrix)):
        key = queue_cell(task, number, queue, substrate(task.on))
        yield key, queue.store.has(key)
