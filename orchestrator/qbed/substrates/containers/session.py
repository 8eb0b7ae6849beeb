# SPDX-License-Identifier: Apache-2.0
"""Interactive labs in containers: `qbed up LAB --on containerlab`. Docker keeps them running."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from qbed.base.errors import QbedError, nearest
from qbed.plan.model import LinkChange, LinkEvent, Plan
from qbed.substrates import Job, Pace, Samples, SessionError, Status, Terminal, check_name_free_elsewhere
from qbed.substrates.containers import NAME, beside, bmv2, jobs
from qbed.substrates.containers.cell import deployed, origin_for, ready_until, remove_leftovers
from qbed.substrates.containers.engine import Engine
from qbed.substrates.containers.folder import NODES, OUT, PLACE, SOCKET, write_folder
from qbed.substrates.containers.labs import (
    TOPOLOGY,
    Record,
    check_machine,
    destroy,
    is_busy,
    lock,
    read_record,
    take_down,
)
from qbed.substrates.containers.placement import Placement
from qbed.substrates.lines import Message
from qbed.substrates.sessions import (
    LineConnection,
    change_message,
    command,
    connect,
    input_message,
    resize_message,
    state_folder,
)
from qbed.telemetry.wall import read_node, read_wall

CELL = "cell"
BOOT_S = 60.0
WORKLOAD_AHEAD_NS = 1_000_000_000
"""As in virtual time: servers have started by then."""
ANSWER_S = 30.0
"""A running node has started a program long before."""


def start(plan: Plan, file: Path, placement: Placement, images: dict[str, str]) -> None:
    """Bring up a lab and return when its nodes run. Remains of a crash are removed first. `images` by role."""
    name, dilation = plan.lab, placement.dilation
    folder = state_folder() / name / CELL
    record = Record(
        name=name,
        folder=str(folder),
        nodes=tuple(node.name for node in plan.nodes),
        kind="lab",
        file=str(file.resolve()),
        dilation=dilation,
        host_kernel=tuple(plan.nodes[node].name for node in placement.host_kernel),
        beside=beside.names(plan),
    )
    remove_leftovers(record)
    try:
        check_machine(name, images, beside.host_images(plan))
        record.write()
        write_folder(folder, plan, placement, images, name=name, file=TOPOLOGY, start="on go", interactive=True)
        with deployed(record) as nodes:
            nodes.gather(ready_until(plan))
            bmv2.configure_switches(plan, folder / NODES, name, dilation)
            origin_ns = origin_for(plan, dilation, 0)  # without a common start: a node is ready once it has booted
            nodes.start("lab", origin_ns)
            nodes.wait({"ready"}, (origin_ns + plan.epoch_ns * dilation) / 1e9 + BOOT_S)
            replace(record, state="up", origin_ns=origin_ns + plan.epoch_ns * dilation).write()
    except BaseException:
        with suppress(QbedError), lock(name):
            destroy(record)
            record.delete()
        raise


def check_name_free(name: str) -> None:
    """SessionError if a lab of this name is up on any substrate."""
    check_name_free_elsewhere(name, NAME)
    before = read_record(name)
    if before is not None and before.state == "up":
        raise SessionError(f"the lab {name} is up already; `qbed down {name}` takes it down")


def samples(folder: Path, plan: Plan) -> Samples:
    """The samples of a folder's nodes, before or after they are merged.

    All nodes have one clock, the machine's: between two of them nothing can drift. `error_ns` is by how much their
    deadlines ran late; it is null until a node has said it, which it does at its end.
    """
    try:
        place = json.loads(next(folder.glob(f"{NODES}/*/{PLACE}")).read_bytes())
    except (StopIteration, FileNotFoundError):
        raise SessionError(f"{folder} has no samples: its nodes have not begun") from None
    wall = read_wall(folder / OUT)
    error_ns = None if wall is None else wall.latest_ns // wall.dilation
    clock: Message = {"event": "clock", "lab": plan.lab, "unit": "ns since the lab's epoch", "substrate": NAME}
    clock |= {"dilation": place["dilation"], "error_ns": error_ns, "source": "CLOCK_MONOTONIC"}
    gathered = folder / OUT
    if (gathered / "done.json").exists():
        return Samples(clock, [gathered])
    return Samples(clock, [folder / NODES / node.name / OUT for node in plan.nodes])


@dataclass(frozen=True)
class ContainerDeployment:
    """A lab or cell of a record, up or broken: a `qbed.substrates.Deployment`."""

    record: Record
    substrate: str = NAME

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def file(self) -> str:
        return self.record.file

    @property
    def folder(self) -> Path:
        return self.record.path

    def is_up(self) -> bool:
        return read_record(self.name) is not None

    @contextmanager
    def _connect(self, node: str) -> Iterator[LineConnection]:
        """A connection to a node."""
        record = self.record
        if node not in record.nodes:
            raise SessionError(f"the lab {record.name} has no node `{node}`{nearest(node, record.nodes)}")
        if record.state != "up":
            raise SessionError(
                f"{record.name} did not come up; `qbed down {record.name}` takes away what is left of it"
            )
        try:
            connection = connect(record.path / NODES / node, SOCKET)
        except OSError as error:
            raise SessionError(
                f"node {node} of {record.name} does not answer ({error.strerror}): `qbed ps` shows what runs"
            ) from error
        with LineConnection(connection) as conversation:
            yield conversation

    @contextmanager
    def exec(
        self,
        node: str,
        argv: list[str],
        *,
        background: bool,
        stdin: bytes = b"",
        terminal: Terminal | None = None,
        listens: bool = False,
    ) -> Iterator[_Execution]:
        with self._connect(node) as conversation:
            job, wrapped = None, argv
            if stdin:
                wrapped = self._with_input(node, argv, stdin)
            if background:
                what = Job(0, node, " ".join(argv), self._since_ns())
                job, wrapped = jobs.begin(self.folder, self._mount(node), what, wrapped)
            conversation.set_timeout(ANSWER_S)  # until it runs
            conversation.send(command("background" if background else "exec", node, wrapped, terminal) | {"id": 1})
            yield _Execution(conversation, f"node {node} of {self.name}", self.name, job)

    def _with_input(self, node: str, argv: list[str], stdin: bytes) -> list[str]:
        mark = f"stdin-{secrets.token_hex(4)}"
        (self.folder / NODES / node / mark).write_bytes(stdin)
        return ["/bin/sh", "-c", f'exec "$@" <{self._mount(node)}/{mark}', "sh", *argv]

    def _mount(self, node: str) -> str:
        """The path of a node's folder inside the node: /mnt in a guest, /qbed on the machine's kernel."""
        return "/qbed" if node in self.record.host_kernel else "/mnt"

    def _since_ns(self) -> int:
        """The lab's time since its epoch."""
        return (time.monotonic_ns() - self.record.origin_ns) // self.record.dilation

    def workload(self) -> None:
        """Start the workload of every node at one instant of the machine's clock."""
        plan = Plan.loads((self.folder / "plan.json").read_bytes())
        base_ns = plan.epoch_ns + self._since_ns() + WORKLOAD_AHEAD_NS
        self._tell_nodes({"command": "workloads", "base_ns": base_ns})

    def _tell_nodes(self, message: Message) -> None:
        """Send a message to every node, and wait until each has done what it says."""
        for node in self.record.nodes:
            with self._connect(node) as conversation:
                conversation.set_timeout(ANSWER_S)
                conversation.send(message | {"id": 1})
                try:
                    next(answer for answer in conversation.events() if answer.get("event") == "exit")
                except TimeoutError:
                    text = f"node {node} of {self.name} does not answer: `qbed ps` shows what runs"
                    raise SessionError(text) from None

    def jobs(self) -> list[Job]:
        return jobs.running(self.folder)

    def end(self, job: int) -> None:
        found = jobs.find(self.folder, self.name, job)
        with self.exec(found.node, jobs.ending(self._mount(found.node), found.number), background=False) as ending:
            for answer in ending.events():
                if answer.get("event") == "exit":
                    return

    def advance(self, ns: int) -> int:
        raise self._no_virtual_time()

    def set_pace(self, pace: Pace) -> None:
        raise self._no_virtual_time()

    def _no_virtual_time(self) -> SessionError:
        return SessionError(f"{self.name} is in containers: its time passes by itself")

    def change_links(self, links: list[LinkChange], states: list[LinkEvent]) -> None:
        if self.record.kind == "cell":
            raise SessionError(f"{self.name} is a cell of `qbed run`: `events` of its lab file change its links")
        self._tell_nodes(change_message(links, states))

    def samples(self, plan: Plan) -> Samples:
        return samples(self.folder, plan)

    def status(self) -> Status:
        record = self.record
        since_ns = self._since_ns() if record.state == "up" else 0
        runs = "a cell of `qbed run`" if record.kind == "cell" else _running(record)
        found = [read_node(record.path / NODES / node / OUT) for node in record.nodes]
        known = [node for node in found if node is not None]
        if not known:
            return Status("docker", since_ns, runs)
        late_ns = max(node.late_ns.p99 for node in known)
        return Status("docker", since_ns, runs, sum(node.lost for node in known), late_ns)

    def stop(self) -> None:
        take_down(self.record)


@dataclass
class _Execution:
    """A program on a node. The node ends it when the connection closes."""

    conversation: LineConnection
    node: str
    lab: str
    job: jobs.Begun | None
    cancelled: bool = False

    def events(self) -> Iterator[Message]:
        if self.cancelled:
            return
        try:
            for answer in self.conversation.events():
                if answer.get("event") != "running":
                    yield answer
                elif self.job is not None:
                    yield {"event": "started", "id": self.job.number, "output": str(self.job.output)}
                else:
                    self.conversation.set_timeout(None)
        except TimeoutError:
            raise SessionError(
                f"{self.node} has not started the command within {ANSWER_S:g} s: it hangs, or the"
                f" machine has far too much to do; `qbed down {self.lab}` takes the lab down"
            ) from None

    def interrupt(self) -> None:
        self.cancelled = True

    def send_input(self, keys: bytes) -> None:
        self.conversation.send(input_message(keys))

    def resize(self, terminal: Terminal) -> None:
        self.conversation.send(resize_message(terminal))


def _running(record: Record) -> str:
    """The number of running containers of a lab."""
    if record.state != "up":
        return "comes up" if is_busy(record.name) else "broken"
    try:
        found = Engine().containers(record.name)
    except QbedError as error:
        return str(error).partition(":")[0]
    alive = {container.node for container in found if container.state == "running"}
    nodes = f"{len(alive & set(record.nodes))} of {len(record.nodes)} nodes"
    return nodes + "".join(f", {name} has ended" for name in record.beside if name not in alive)
