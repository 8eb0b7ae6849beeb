# SPDX-License-Identifier: Apache-2.0
"""Stands in for containers: threads that speak the control socket and leave what nodes leave (docs/formats.md)."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_out

from qbed.base.errors import QbedError
from qbed.plan.model import Plan
from qbed.runs import forwarding
from qbed.substrates.containers import cell, containerlab, labs, session
from qbed.substrates.containers.engine import Container
from qbed.telemetry.taps import Run, read_taps

FORWARDING_BPS = 400_000_000
"""Forwarding rate of the fake machine."""


class FakeNode(threading.Thread):
    """One node. `behaviour`: `""`, `fail` (an error, no end), `vanish` (its socket closes), `deaf`, `stuck`."""

    def __init__(self, folder: Path, behaviour: str = "") -> None:
        super().__init__(daemon=True)
        self.folder, self.behaviour = folder, behaviour
        self.place = json.loads((folder / "place.json").read_text())
        self.plan = Plan.loads((folder / "plan.json").read_bytes())
        self.name = self.plan.nodes[self.place["node"]].name
        self.state = "waiting"
        self.went: dict[str, Any] | None = None
        self.listener = socket.socket(socket.AF_UNIX)
        folder_fd = os.open(folder, os.O_PATH)
        self.listener.bind(f"/proc/self/fd/{folder_fd}/control.sock")
        os.close(folder_fd)
        self.listener.listen()
        self.clients: list[socket.socket] = []
        self.start()

    def run(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.clients.append(client)
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def tell(self, client: socket.socket, **message: Any) -> None:
        client.sendall(json.dumps(message).encode() + b"\n")

    def hello(self, client: socket.socket, error: str | None = None) -> None:
        self.tell(client, event="hello", node=self.name, state=self.state, error=error)

    def serve(self, client: socket.socket) -> None:
        with suppress(OSError):  # the lab is being taken down
            self.converse(client)

    def converse(self, client: socket.socket) -> None:
        if self.behaviour != "deaf":
            self.hello(client)
        for line in client.makefile("rb"):
            message = json.loads(line)
            if message["command"] == "go":
                self.go(client, message)
            elif message["command"] == "exec" and self.behaviour != "stuck":
                self.execute(client, message)

    def go(self, client: socket.socket, message: dict[str, Any]) -> None:
        self.went, self.state = message, "running"
        self.hello(client)
        if self.behaviour == "vanish":
            self.end()
            return
        if self.behaviour == "fail":
            self.hello(client, "no such qdisc")
            return
        if message["mode"] == "lab":
            self.tell(client, event="ready", setup_nodes=1)
            return
        write_part(self.plan, self.place["node"], self.folder, self.behaviour)
        self.state = "ended"
        self.hello(client)

    def execute(self, client: socket.socket, message: dict[str, Any]) -> None:
        self.tell(client, event="running", id=message["id"])
        done = subprocess.run(message["argv"], capture_output=True, check=False)
        for stream in ("stdout", "stderr"):
            data = base64.b64encode(getattr(done, stream)).decode()
            self.tell(client, event=stream, id=message["id"], data=data)
        self.tell(client, event="exit", id=message["id"], code=done.returncode)

    def end(self) -> None:
        self.listener.close()
        for client in self.clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()


def write_part(plan: Plan, node: int, folder: Path, behaviour: str = "") -> None:
    """The part of the synthetic cell that one node records."""
    with tempfile.TemporaryDirectory() as name:
        write_out(plan, Path(name))
        gathered, out = Path(name) / "out", folder / "out"
        rows = [json.loads(line) for line in (gathered / "flows.ndjson").open()]
        with (out / "flows.ndjson").open("w") as flows:
            for row in rows:
                if row["src"] == node:
                    flows.write(json.dumps(row | {"end_ns": None, "received_bytes": 0}) + "\n")
                elif row["dst"] == node:
                    flows.write(json.dumps(row | {"status": "running", "sent_bytes": 0}) + "\n")
        queues = [index for index, queue in enumerate(plan.queues) if queue.node == node]
        with (gathered / "taps.bin").open("rb") as stream, (out / "taps.bin").open("wb") as taps:
            for batch in read_taps(stream, len(plan.queues), chunk_bytes=1 << 16):
                if not isinstance(batch, Run):
                    continue
                taps.write(batch.records[[int(i) in queues for i in batch.records["id"]]].tobytes())
        counters = json.loads((gathered / "counters.json").read_text())
        for link, pair in zip(plan.links, counters["links"], strict=True):
            for side, end in (("a", link.a), ("b", link.b)):
                if end.node != node:
                    pair[side] = {"sent": 999}  # the peer in this node's guest, which is not counted
        for index in set(range(len(plan.queues))) - set(queues):
            counters["queues"][index] = {"kind": "pfifo_fast", "packets": 999}
        counters["nodes"] = [given if index == node else {} for index, given in enumerate(counters["nodes"])]
        (out / "counters.json").write_text(json.dumps(counters))
    late = {"max": 10_000, "p99": 2_000, "p50": 100, "events": 1000}
    if behaviour == "slow":
        late |= {"max": 10**6, "p99": 10**6}
    if behaviour == "late":
        late |= {"max": 10**9, "p99": 10**8}
    interface = {
        "rx_packets": 1,
        "rx_dropped": 7 * (behaviour == "drop"),
        "offloads": ["tso"] * (behaviour == "offload"),
    }
    names = [queue.interface for queue in plan.queues if queue.node == node]
    host = {
        "wall_ns": 10**9,
        "cpu_ns": 10**8,
        "steal_ns": 0,
        "late_ns": late,
        "interfaces": dict.fromkeys(names, interface),
    }
    if behaviour != "silent":
        (out / "host.json").write_text(json.dumps(host))
    (out / "done.json").write_text(json.dumps({"status": "complete", "end_ns": plan.duration_ns}))


class FakeContainerlab:
    """Replaces Containerlab and the Docker engine: `deployed` by name; `behaviour` by the node's name."""

    def __init__(self) -> None:
        self.deployed: dict[str, list[FakeNode]] = {}
        self.behaviour: dict[str, str] = {}
        self.fail: QbedError | None = None
        self.engine_down: QbedError | None = None
        self.images = {"image-host", "image-switch"}
        self.foreign: list[str] = []
        self.calls: list[str] = []

    def deploy(self, topology: Path, *held: int) -> None:
        self.calls.append("deploy")
        name = self._name(topology)
        self.deployed[name] = []
        for index, folder in enumerate(sorted((topology.parent / "nodes").iterdir())):
            if self.fail is not None and index == 1:
                raise self.fail
            self.deployed[name].append(FakeNode(folder, self.behaviour.get(folder.name, "")))

    def destroy(self, topology: Path) -> None:
        self.calls.append("destroy")
        self._check()
        for node in self.deployed.pop(self._name(topology), []):
            node.end()

    @staticmethod
    def _name(topology: Path) -> str:
        return next(line for line in topology.read_text().splitlines() if line.startswith("name: "))[6:]

    # --- the engine ---

    def _check(self) -> None:
        if self.engine_down is not None:
            raise self.engine_down

    def check(self) -> str:
        self._check()
        return "fake"

    def has_image(self, name: str) -> bool:
        return name in self.images

    def containers(self, lab: str | None = None) -> list[Container]:
        self._check()
        found = [
            Container(f"{name}-{node.name}", f"clab-{name}-{node.name}", node.name, self._state(node), "Exited (1)")
            for name, nodes in self.deployed.items()
            if lab in (None, name)
            for node in nodes
        ]
        return found + [
            Container(lab_name, f"clab-{lab_name}-x", "x", "running", "Up")
            for lab_name in self.foreign
            if lab_name == lab
        ]

    @staticmethod
    def _state(node: FakeNode) -> str:
        return "running" if node.listener.fileno() >= 0 else "exited"

    def remove(self, container: Container) -> None:
        for nodes in self.deployed.values():
            nodes[:] = [node for node in nodes if node.name != container.node]

    def logs(self, container: Container, lines: int = 8) -> list[str]:
        return ["its last word"]


@pytest.fixture
def clab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeContainerlab:
    fake = FakeContainerlab()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("QBED_IMAGES", "host=image-host,linux-switch=image-switch")
    monkeypatch.setattr(containerlab, "deploy", fake.deploy)
    monkeypatch.setattr(containerlab, "destroy", fake.destroy)
    monkeypatch.setattr(containerlab, "find", lambda: "containerlab")
    monkeypatch.setattr(containerlab, "NAMESPACES", tmp_path)
    monkeypatch.setattr(containerlab, "SSH_CONFIG", tmp_path)
    monkeypatch.setattr(containerlab, "HOSTS", tmp_path / "hosts")
    engine: Callable[[], Any] = lambda: fake  # noqa: E731
    monkeypatch.setattr(labs, "Engine", engine)
    monkeypatch.setattr(session, "Engine", engine)
    monkeypatch.setattr(cell, "LEAD_NS", 0)
    monkeypatch.setattr(forwarding, "forwarding_bps", lambda on, measure: FORWARDING_BPS)
    return fake
