# SPDX-License-Identifier: Apache-2.0
"""Labs in containers, from before their first container to after their last.

A lab's *record* is written before anything of it is made, and removed after everything of it has gone. So whatever
crashes in between, `qbed down` finds the record and takes away what it names. While a process brings a lab up or runs
a cell, it holds the record's lock, and so does the Containerlab that it started: a lock that can be taken says that
no process uses the lab.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from qbed.base.errors import QbedError
from qbed.base.json_files import write_json
from qbed.substrates import SessionError, SubstrateError
from qbed.substrates.containers import bmv2, containerlab
from qbed.substrates.containers.engine import Container, Engine
from qbed.substrates.containers.folder import NODES, SHARED
from qbed.substrates.sessions import state_folder
from qbed.telemetry.console import console_tail

RECORD, LOCK, TOPOLOGY = "containers.json", "containers.lock", "lab.clab.yml"
BUSY_S = 60.0
SMALLEST_FREE_BYTES = 64 << 20


@dataclass(frozen=True)
class Record:
    """The parts of a lab in containers. `kind`: started by hand, or a cell of a run; its folder stays."""

    name: str
    folder: str
    nodes: tuple[str, ...]
    kind: Literal["lab", "cell"]
    file: str
    dilation: int
    state: Literal["deploying", "up"] = "deploying"
    host_kernel: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """Containers that are no nodes: BMv2's."""
    origin_ns: int = 0
    """The machine's CLOCK_MONOTONIC at the lab's epoch, its time 0."""

    @property
    def path(self) -> Path:
        return Path(self.folder)

    @property
    def topology(self) -> Path:
        return self.path / TOPOLOGY

    def write(self) -> None:
        folder = state_folder() / self.name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(folder / RECORD, asdict(self))

    def delete(self) -> None:
        """Remove the record: the last thing of a lab that goes."""
        folder = state_folder() / self.name
        (folder / RECORD).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def read_record(name: str) -> Record | None:
    """The record of a lab, or None."""
    try:
        values = json.loads((state_folder() / name / RECORD).read_bytes())
        return Record(**values | {key: tuple(values.get(key, ())) for key in ("nodes", "host_kernel", "beside")})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        path = state_folder() / name / RECORD
        raise SessionError(
            f"{path} is damaged ({error}); `containerlab destroy --name {name}`, then remove it"
        ) from None


def records() -> list[Record]:
    """Every lab in containers that qbed knows of, up or broken."""
    folder = state_folder()
    names = [path.parent.name for path in sorted(folder.glob(f"*/{RECORD}"))] if folder.is_dir() else []
    return [record for name in names if (record := read_record(name)) is not None]


@contextmanager
def lock(name: str, wait_s: float = 0.0) -> Iterator[int]:
    """Hold a lab's lock; yield its descriptor. Raise `SessionError` if another process holds it for `wait_s`."""
    folder = state_folder() / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + wait_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise SessionError(f"another qbed is at work on the lab {name}; stop that first") from None
                time.sleep(0.05)
        yield descriptor
    finally:
        os.close(descriptor)


def is_busy(name: str) -> bool:
    """Whether a process is at work on the lab: it comes up, or is a cell that runs."""
    try:
        with lock(name):
            return False
    except SessionError:
        return True


def check_machine(name: str, images: Mapping[str, str], host_images: Mapping[str, str]) -> None:
    """Check engine, images, name and disk space before the deployment. `images` by role, `host_images` by host."""
    engine = Engine()
    engine.check()
    containerlab.find()
    missing = {role: image for role, image in sorted(images.items()) if not engine.has_image(image)}
    if bmv2.ROLE in missing:
        raise SubstrateError(
            f"Docker has no image of BMv2: `docker pull {missing[bmv2.ROLE]}` brings it, `engine: p4switch` needs none"
        )
    for host, image in host_images.items():
        if not engine.has_image(image):
            text = f"Docker has no image {image}, which host {host} runs: `docker pull {image}` brings it"
            raise SubstrateError(text)
    if missing:
        names = ", ".join(sorted(set(missing.values())))
        raise SubstrateError(f"Docker has no image {names}: `make images` builds the nodes' images")
    if existing := engine.containers(name):
        raise SessionError(
            f"the name {name} is taken: {len(existing)} containers ({existing[0].name}, ...) of a lab of another"
            f" owner have it; `containerlab destroy --name {name}` removes them"
        )
    state_folder().mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(state_folder()).free < SMALLEST_FREE_BYTES:
        raise SubstrateError(f"the disk is full: {state_folder()} has less than {SMALLEST_FREE_BYTES >> 20} MB left")


def deploy(record: Record, held: int) -> None:
    """Let Containerlab make the lab; `held`: the descriptor of its lock. What it half made is taken away again."""
    try:
        containerlab.deploy(record.topology, held)
    except BaseException:
        with suppress(QbedError):
            destroy(record)
        raise


def up(record: Record) -> None:
    """Say in the record that the lab is complete."""
    replace(record, state="up").write()


def destroy(record: Record) -> None:
    """Take everything of a lab away but its record. Safe to call again, and for what was only half made."""
    engine = Engine()
    engine.check()
    trouble: QbedError | None = None
    if record.topology.exists():
        try:
            containerlab.destroy(record.topology)
        except QbedError as error:
            trouble = error
    for container in engine.containers(record.name):
        engine.remove(container)
    if left := engine.containers(record.name):
        raise trouble or SubstrateError(f"{left[0].name} cannot be removed")
    containerlab.clear_traces(record.name, [*record.nodes, *record.beside])
    for part in (f"clab-{record.name}", SHARED):
        shutil.rmtree(record.path / part, ignore_errors=True)
    if record.kind == "lab":
        shutil.rmtree(record.path, ignore_errors=True)


def take_down(record: Record) -> None:
    """Take a lab down, whatever state it is in; returns when nothing of it is left."""
    with lock(record.name, 0.0 if record.kind == "cell" else BUSY_S):
        destroy(record)
        record.delete()


def ended_container(record: Record) -> str | None:
    """Which container of a lab has ended, and what it said last; None: all run, or the engine does not answer."""
    try:
        engine = Engine()
        found = engine.containers(record.name)
        stopped = [container for container in found if container.state != "running"]
        missing = sorted({*record.nodes, *record.beside} - {container.node for container in found})
        if missing:
            return f"the container of {missing[0]} has gone"
        return _describe_ended(engine, stopped[0], record.path) if stopped else None
    except QbedError as error:
        return str(error)


def _describe_ended(engine: Engine, container: Container, folder: Path) -> str:
    if container.state == "created":
        reason = engine.start_error(container) or "the engine gives no reason"
        return f"the container of {container.node} has not started: {reason}"
    lines = engine.logs(container) or console_tail(folder / NODES / container.node / "console.log")[-8:]
    shown = "".join(f"\n    | {line}" for line in lines)
    return f"the container of {container.node} has ended ({container.status})" + (
        f"; it said last:{shown}" if shown else ""
    )
