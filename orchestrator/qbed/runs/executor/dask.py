# SPDX-License-Identifier: Apache-2.0
"""Run cells on the workers of a Dask scheduler (`qbed run --scheduler ADDRESS`), one cell at a time on each.

    dask worker ADDRESS --nthreads 1 --nworkers N --resources cell=1     (playbooks/worker.yml)

A worker runs `qbed cell KEY` as a process that dies with it, with the toolchain and the store of its machine, and
returns the result. If both machines share a store, no files are returned. If a worker dies, the scheduler assigns its
cell to another one.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from qbed.base.json_files import FILES
from qbed.runs.executor import RunAbortedError
from qbed.runs.executor.command import CommandError, Returned, command_of
from qbed.runs.queued import needed_store
from qbed.storage.checksums import CELL_ROW, DamagedError, cell_damages, read_cell_record
from qbed.storage.queue import Queue
from qbed.substrates import Limits

RESOURCE = "cell"
CONNECT_S = 15
START = "`dask worker ADDRESS --nthreads 1 --resources cell=1`"
ROOM_A_WORKER = 3
"""Cells submitted per worker: one is running, the others are queued."""


@dataclass(frozen=True)
class Parcel:
    """The result of a worker: the files of a cell's folder by name, or the error.

    `shared`: the files are in the store or queue of the receiver.
    """

    wall_s: float
    shared: bool = False
    complete: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    error: str | None = None


def _place(queue: Queue) -> tuple[str, str]:
    return socket.gethostname(), str(queue.folder.resolve())


def run_for_receiver(key: str, plan: bytes, limits: Limits, receiver: tuple[str, str]) -> Parcel:
    """Run a cell on a worker."""
    begun, queue = time.monotonic(), Queue(needed_store())
    if not queue.store.has(key):
        queue.add(key, plan)
    command = ["setpriv", "--pdeathsig", "KILL", *command_of(key, limits)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    wall_s, complete, ended = time.monotonic() - begun, queue.store.has(key), queue.ended(key)
    folder = queue.store.place(key) if complete else ended[0] if ended else None
    if folder is None:
        return Parcel(wall_s, error=f"{socket.gethostname()}: {done.stderr.strip() or f'status {done.returncode}'}")
    if _place(queue) == receiver:
        return Parcel(wall_s, shared=True)
    names = [CELL_ROW, *read_cell_record(folder, 0)[FILES]]
    parcel = Parcel(wall_s, complete=complete, files={name: (folder / name).read_bytes() for name in names})
    if not complete:
        queue.remove(key)
    return parcel


@dataclass
class DaskEngine:
    """An `Engine` that uses the workers of one scheduler."""

    address: str
    _client: Any = None
    _futures: dict[Any, str] = field(default_factory=dict)

    def begin(self, queue: Queue, limits: Limits) -> None:
        try:
            import distributed
        except ImportError:
            raise CommandError("--scheduler needs Dask: `pip install 'qbed[dask]'`") from None
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        try:
            client: Any = distributed.Client
            self._client = client(self.address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise CommandError(f"no Dask scheduler answers at {self.address}: {error}") from None
        self._queue, self._limits = queue, limits
        if self._workers() == 0:
            raise CommandError(f"no worker at {self.address} has the resource `{RESOURCE}`: start some by {START}")

    def _workers(self) -> int:
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return sum(int(worker.get("resources", {}).get(RESOURCE, 0)) for worker in workers.values())

    def room(self) -> int:
        return ROOM_A_WORKER * max(self._workers(), 1)

    def submit(self, key: str, plan: bytes) -> None:
        future = self._client.submit(
            run_for_receiver, key, plan, self._limits, _place(self._queue),
            key=f"qbed-{key[:16]}-{uuid.uuid4().hex[:8]}", resources={RESOURCE: 1}, pure=False,
        )  # fmt: skip
        self._futures[future] = key

    def ended(self, wait_s: float) -> Iterator[Returned]:
        import distributed

        wait: Any = distributed.wait
        try:
            with self._client.as_current():
                done, _ = wait(list(self._futures), timeout=wait_s, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return
        for future in done:
            key = self._futures.pop(future)
            if future.status == "cancelled" or future.status == "lost":
                raise RunAbortedError(f"the Dask scheduler at {self.address} is gone; finished cells are kept")
            if future.status == "error":
                problem = future.exception()
                yield Returned(key, 0.0, f"{type(problem).__name__}: {problem}")
            else:
                yield self._unpack(key, future.result())

    def _unpack(self, key: str, parcel: Parcel) -> Returned:
        """Store the received files as those of a local run."""
        if parcel.error or parcel.shared:
            return Returned(key, parcel.wall_s, parcel.error)
        run = self._queue.cell_folder(key)
        folder = run.begin(0)
        try:
            for name, content in parcel.files.items():
                if not _is_inside(name):
                    raise CommandError(f"a worker sent a file called `{name}`")
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
            for damage in cell_damages(folder, 0):
                raise damage
            row = read_cell_record(folder, 0)
        except (DamagedError, CommandError) as error:
            run.drop(0)
            return Returned(key, parcel.wall_s, f"what a worker sent is damaged: {error}")
        if parcel.complete:
            del row[FILES], row["cell"]
            self._queue.store.put(key, folder, row)
            run.drop(0)
        else:
            folder.replace(run.folder(0, ".failed" if row["status"] == "failed" else ""))
        return Returned(key, parcel.wall_s)

    def stop(self) -> None:
        if self._client is not None:
            with suppress(OSError):  # of a scheduler that is gone
                self._client.cancel(list(self._futures), force=True)
            self._client.close(timeout=CONNECT_S)
        self._client = None
        self._futures.clear()


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name and bool(path.parts)
