# SPDX-License-Identifier: Apache-2.0
"""Labs in containers: up and down against plain Containerlab, one switch's rate and idle RTT, the dilation a lab needs.

Nothing is pinned: a lab on the wall clock has the whole machine, and so has its peer. Needs root, Docker and
Containerlab (`make containers`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.harness import Figure
from qbed.base.errors import QbedError
from qbed.network.load import load_lab
from qbed.plan.compile import compile_lab
from qbed.runs.calibrate import calibrated
from qbed.substrates import substrate
from qbed.substrates.containers.containerlab import find
from qbed.substrates.containers.engine import Engine

ROOT = Path(__file__).parents[1]
LAB = """
name: {name}
topology: {topology}
links: {{default: {{rate: {rate}, delay: {delay}}}}}
switches: {{default: {{scheme: droptail, buffer: 512 KB}}}}
hosts: {{default: {{tcp: cubic}}}}
workload: [flow: {{from: h1, to: h2, size: 1 KB}}]
duration: 10 ms
"""
SIZES = {3: "{star: {hosts: 2}}", 20: "{dumbbell: {left: 9, right: 9}}"}
DILATED = ("dumbbell", "fairness", "incast")
PACKET_BYTES, HEADER_BYTES = 1500, 28
MIN_BPS, MAX_BPS = 20e6, 4e9
"""The bounds of the search for the largest rate."""
TOLERATED_LOSS = 0.001
STEP = 1.1
"""The search ends when it knows the rate within this factor."""
TRIAL_S = 2
TRIALS = 3
PATIENCE_S = 60.0
"""A command that takes longer hangs: the longest of them, a transfer, takes seconds."""
ATTEMPTS = 5
PING = ("ping", "-q", "-c", "300", "-i", "0.01")
CLOSE_PING = ("ping", "-q", "-c", "1000", "-i", "0.001")
"""Requests so close that the cores and caches of an idle machine stay awake."""


class Labs:
    """`qbed` with sessions and files of its own, all gone in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder / "state")}
        (folder / "state").mkdir()

    def run(self, *arguments: str | Path) -> str:
        """A command's output; its own words if it fails."""
        return output_of([sys.executable, "-m", "qbed", *map(str, arguments)], self.folder, self.environment)

    def background(self, lab: str, node: str, *argv: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "qbed", "exec", lab, node, "--", *argv]
        return subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def write(self, name: str, topology: str, rate: str, delay: str) -> Path:
        file = self.folder / f"{name}.yml"
        file.write_text(LAB.format(name=name, topology=topology, rate=rate, delay=delay))
        return file

    @contextmanager
    def up(self, name: str, file: Path) -> Iterator[None]:
        self.run("up", file, "--on", "containerlab", "--dilate", "1")
        try:
            yield
        finally:
            self.run("down", name)


def output_of(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a command and return its output; `RuntimeError` with the end of its errors if it fails or does not end."""
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            output, error = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # what `qbed exec` has started ends with it
            raise RuntimeError(f"{' '.join(command)}: has not ended after {PATIENCE_S:g} s") from None
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {error.strip() or output.strip()}")
    return output


def is_possible() -> bool:
    """Whether this machine has Docker and Containerlab; if not, the reason is printed."""
    try:
        find()
        Engine().check()
    except QbedError as error:
        print(f"containers: skipped: {error}", flush=True)
        return False
    return True


def measure(rounds: int) -> list[Figure]:
    if not is_possible():
        return []
    with ExitStack() as stack:
        labs = Labs(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="qbed-bench-"))))
        figures = []
        for nodes, topology in SIZES.items():
            figures += up_and_down(labs, rounds, nodes, topology)
        return figures + one_switch(labs, rounds) + dilations()


# --- up and down --------------------------------------------------------------------------------


def up_and_down(labs: Labs, rounds: int, nodes: int, topology: str) -> list[Figure]:
    """qbed and plain Containerlab with the same images, nodes and links, in turn; the smallest time of each counts."""
    name = f"bench-{nodes}"
    file = labs.write(name, topology, "100 Mbit/s", "1 ms")
    plain = plain_topology(labs, name, file)
    actions: dict[str, Callable[[], object]] = {
        "qbed up": lambda: labs.run("up", file, "--on", "containerlab", "--dilate", "1"),
        "qbed down": lambda: labs.run("down", name),
        "containerlab deploy": lambda: containerlab("deploy", plain),
        "containerlab destroy": lambda: containerlab("destroy", plain, "--cleanup"),
    }
    minimum = dict.fromkeys(actions, float("inf"))
    for _ in range(rounds + 1):  # the first warms caches; if it was slower, the least takes no notice of it
        for what, action in actions.items():
            begun = time.monotonic()
            action()
            minimum[what] = min(minimum[what], time.monotonic() - begun)
    figures = [Figure(f"{nodes} nodes: {what}", seconds, "s") for what, seconds in minimum.items()]
    for qbed_action, containerlab_action in (("qbed up", "containerlab deploy"), ("qbed down", "containerlab destroy")):
        figures.append(
            Figure(
                f"{nodes} nodes: {qbed_action} / {containerlab_action}",
                minimum[qbed_action] / minimum[containerlab_action],
                "",
                1.3,
            )
        )
    return figures


def plain_topology(labs: Labs, name: str, file: Path) -> Path:
    """A topology of the same images, nodes and links without qbed: containers that sleep."""
    folder = labs.folder / f"{name}-plain"
    labs.run("export", file, "-o", folder)
    path = folder / f"{name}.clab.yml"
    topology = yaml.safe_load(path.read_text())
    topology["name"] = f"{name}-plain"
    for node in topology["topology"]["nodes"].values():
        settings = {key: node[key] for key in ("kind", "image")}
        node.clear()
        node.update(settings, entrypoint="sleep", cmd="3600")
    path.write_text(yaml.safe_dump(topology))
    return path


def containerlab(verb: str, topology: Path, *options: str) -> None:
    output_of(["containerlab", verb, "--topo", str(topology), *options], topology.parent)


# --- one switch ---------------------------------------------------------------------------------


def one_switch(labs: Labs, rounds: int) -> list[Figure]:
    """Two hosts on the machine's kernel and a switch between them; its links are as fast as links here come."""
    name = "bench-switch"
    file = labs.write(name, SIZES[3], "10 Gbit/s", "0 ns")
    with labs.up(name, file):
        address = address_of_h2(labs, name)
        rtts = [idle_rtt_ms(labs, name, address) for _ in range(rounds)]
        datagrams = max(largest_rate(labs, name, address) for _ in range(rounds))
        tcp = max(
            transfer(labs, name, address, "--time", "4")["end"]["sum_received"]["bits_per_second"]
            for _ in range(rounds)
        )
    return [
        Figure("one switch: idle RTT, mean of 300", min(mean for mean, _ in rtts), "ms", 0.3),
        Figure("one switch: idle RTT, least", min(minimum for _, minimum in rtts), "ms"),
        Figure(
            f"one switch: {PACKET_BYTES}-byte packets, {TOLERATED_LOSS:.1%} lost", datagrams / 1e9, "Gbit/s", 1.0, ">="
        ),
        Figure("one switch: TCP goodput, one flow", tcp / 1e9, "Gbit/s"),
    ]


def address_of_h2(labs: Labs, lab: str) -> str:
    shown = labs.run("exec", lab, "h2", "--", "ip", "-4", "-o", "address", "show", "eth0")
    return shown.split()[3].split("/")[0]


def idle_rtt_ms(labs: Labs, lab: str, address: str, ping: tuple[str, ...] = PING) -> tuple[float, float]:
    """Mean and least."""
    return rtt_ms(labs.run("exec", lab, "h1", "--", *ping, address))


def rtt_ms(shown: str) -> tuple[float, float]:
    """Mean and least round trip in the output of ping."""
    found = re.search(r"= ([0-9.]+)/([0-9.]+)/", shown)
    assert found is not None, shown
    return float(found.group(2)), float(found.group(1))


def largest_rate(labs: Labs, lab: str, address: str) -> float:
    """The largest rate of IP packets, in bit/s, that arrives but for the tolerated loss: bisection on a log scale.

    Whatever else the machine does only ever adds losses: a rate counts if it passes once in `TRIALS`.
    """
    passes, fails, best = MIN_BPS, MAX_BPS, 0.0
    while fails / passes > STEP:
        offered = (passes * fails) ** 0.5
        arrived = next((rate for _ in range(TRIALS) if (rate := arriving(labs, lab, address, offered))), None)
        if arrived is None:
            fails = offered
            continue
        passes, best = offered, max(best, arrived)
        if arrived < offered / STEP:  # the sender has no more
            break
    return best


def arriving(labs: Labs, lab: str, address: str, offered_bps: float) -> float | None:
    """The rate at which packets leave the switch; None if more than the tolerated ones are lost in it.

    Counted at both hosts' interfaces: what the receiving program's socket has no room for has been forwarded.
    """
    payload = PACKET_BYTES - HEADER_BYTES
    bitrate = str(int(offered_bps * payload / PACKET_BYTES))
    before = sent_and_received(labs, lab)
    datagrams = ("--udp", "--bitrate", bitrate, "--length", str(payload), "--time", str(TRIAL_S))
    seconds = transfer(labs, lab, address, *datagrams)["end"]["sum_sent"]["seconds"]
    sent, received = (now - then for now, then in zip(sent_and_received(labs, lab), before, strict=True))
    return None if sent - received > TOLERATED_LOSS * sent else received * PACKET_BYTES * 8 / seconds


def sent_and_received(labs: Labs, lab: str) -> tuple[int, int]:
    """Packets that h1 has sent (a veth counts apart those that its peer had no room for), and that h2 has received."""

    def count(node: str, *names: str) -> int:
        files = [f"/sys/class/net/eth0/statistics/{name}" for name in names]
        return sum(map(int, labs.run("exec", lab, node, "--", "cat", *files).split()))

    return count("h1", "tx_packets", "tx_dropped"), count("h2", "rx_packets")


def transfer(labs: Labs, lab: str, address: str, *options: str) -> dict[str, Any]:
    """One iperf3 transfer from h1 to h2: its report. A client that an overloaded switch cuts off tries again."""
    client = ("iperf3", "--client", address, "--json", "--connect-timeout", "5000")
    for attempt in range(1, ATTEMPTS + 1):
        server = labs.background(lab, "h2", "iperf3", "--server", "--one-off")
        try:
            wait_for_server(labs, lab)
            return dict(json.loads(labs.run("exec", lab, "h1", "--", *client, *options)))
        except RuntimeError as error:
            print(f"transfer {' '.join(options)}, attempt {attempt} of {ATTEMPTS}: {error}", flush=True)
        finally:
            server.terminate()
            server.wait(PATIENCE_S)
    raise RuntimeError(f"iperf3 {' '.join(options)} failed {ATTEMPTS} times")


def wait_for_server(labs: Labs, lab: str) -> None:
    for _ in range(50):
        if "5201" in labs.run("exec", lab, "h2", "--", "ss", "-Hltn", "sport = 5201"):
            return
        time.sleep(0.1)
    raise RuntimeError("iperf3's server does not listen")


# --- dilation -----------------------------------------------------------------------------------


def dilations() -> list[Figure]:
    """The dilation that `--dilate auto` finds for the project's labs, and the rate of their slowest link under it."""
    figures = []
    for name in DILATED:
        plan = compile_lab(load_lab(ROOT / "labs" / name / "lab.yml", {}))
        slowest = min(min(link.a.rate_bps, link.b.rate_bps) for link in plan.links)
        try:
            dilation = calibrated(substrate("containerlab"), plan)
        except QbedError as error:
            print(f"{name}: no dilation: {error}", flush=True)
            continue
        figures.append(Figure(f"{name}: smallest dilation", dilation, ""))
        figures.append(Figure(f"{name}: slowest link, undilated", slowest / dilation / 1e6, "Mbit/s"))
    return figures
