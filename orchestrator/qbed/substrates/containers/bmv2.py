# SPDX-License-Identifier: Apache-2.0
"""BMv2 as a switch's engine: its public image as it is, a container beside the node's, in its network namespace.

Program and entries are sent by P4Runtime, over a socket in the node's folder. P4Runtime has no queues: their rates and
lengths are set over BMv2's Thrift interface, by the command line of its image.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from qbed.base.json_files import Row
from qbed.network.frames import ETHERNET_BYTES
from qbed.plan.model import Plan
from qbed.plan.p4_switch import BMV2
from qbed.plan.pipeline import Pipeline
from qbed.plan.queue import KernelQdisc
from qbed.substrates import SubstrateError
from qbed.substrates.containers.engine import Container, Engine
from qbed.substrates.containers.p4runtime import DEVICE, RefusedError, configure

ROLE = "bmv2"
IMAGE = "p4lang/behavioral-model@sha256:7f28ab029368a1749a100c37ca4eaa6861322abb89885cfebb5c316326a45247"
SCRIPT, ADDRESS = "bmv2.sh", "p4runtime.sock"
TIMEOUT_S = 60.0
_SUFFIX = "_bmv2"  # no node has such a name: theirs have no underscore
_COMMAND_LINE = ("sh", "-c", 'echo "$1" | simple_switch_CLI', "sh")
_MAX_ERROR_CHARS = 300
_ALL, _FIRST = 1000, 3  # lines of its console; of what it complains of, the first are the reason
_GREETING, _PROMPT, _UNREACHABLE = (
    "Control utility for runtime P4 table manipulation",
    "RuntimeCmd:",
    "Could not connect",
)


class Bmv2Error(SubstrateError):
    """Raised if BMv2 does not start or refuses its configuration; the message names the switch."""


def switches(plan: Plan) -> list[int]:
    """The nodes with a program that BMv2 runs."""
    return [index for index, node in enumerate(plan.nodes) if node.pipeline and node.pipeline.engine == BMV2]


def containers(plan: Plan) -> dict[str, str]:
    """The switch of every container beside one, by the container's name in the lab."""
    return {f"{plan.nodes[index].name}{_SUFFIX}": plan.nodes[index].name for index in switches(plan)}


def unsupported(pipeline: Pipeline) -> str | None:
    """The feature that a program needs and BMv2 or P4Runtime does not have; None if there is none."""
    if pipeline.recirculation:
        return "has no port without a link"
    return "does not take registers by P4Runtime" if pipeline.registers else None


def topology(switch: Row, name: str, image: str) -> Row:
    """Containerlab's entry of the container beside a switch with this entry and name."""
    return {
        "kind": "linux",
        "image": image,
        "network-mode": f"container:{name}",
        "entrypoint": f"/bin/sh /qbed/{SCRIPT}",
        "binds": switch["binds"],
    }


def write(pipeline: Pipeline, folder: Path) -> None:
    """Write the files of a switch's BMv2 into the node's folder."""
    interfaces_exist = " && ".join(f"[ -e /sys/class/net/{interface} ]" for interface in pipeline.ports)
    ports = " ".join(f"-i {number}@{interface}" for number, interface in enumerate(pipeline.ports))
    # The kernel below is to say nothing of its own; Containerlab has switched IPv6 on as it made this container. What
    # is wrong with a program BMv2 says on its output only, which would keep it back.
    (folder / SCRIPT).write_text(f"""\
until {interfaces_exist}; do sleep 0.1; done
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
exec stdbuf -oL {BMV2} --no-p4 --device-id {DEVICE} --log-console -L warn {ports} -- \\
    --grpc-server-addr unix:/qbed/{ADDRESS}
""")


def configure_switches(plan: Plan, folders: Path, lab: str, dilation: int) -> None:
    """Configure program, entries and queues of each BMv2 of a lab while its nodes wait. Raise `Bmv2Error`."""
    names = {node: name for name, node in containers(plan).items()}
    found = {container.node: container for container in Engine().containers(lab)} if names else {}
    for index in switches(plan):
        node = plan.nodes[index]
        pipeline = _pipeline(plan, index)
        try:
            container = found[names[node.name]]
        except KeyError:
            raise Bmv2Error(f"switch {node.name}: the container of BMv2 has gone") from None
        with tempfile.TemporaryDirectory() as short:  # a socket's path has 108 bytes at most
            near = Path(short) / "node"
            near.symlink_to((folders / node.name).resolve())
            _wait(near / ADDRESS, node.name, container)
            program = next(program for program in plan.p4 if program.name == pipeline.program)
            before = len(Engine().logs(container, _ALL))
            try:
                configure(f"unix:{near / ADDRESS}", program, pipeline)
            except RefusedError as error:
                text = f"switch {node.name}: BMv2 refuses the program {program.name} or an entry of it: {error}"
                raise Bmv2Error(text + _log_excerpt(Engine().logs(container, _ALL)[before:][:_FIRST])) from None
        _set_queues(container, node.name, list(queues(plan, index, dilation)))


def _wait(address: Path, switch: str, container: Container) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not _listens(address):
        state = _state(container)
        if state != "running" or time.monotonic() > until:
            text = f"switch {switch}: BMv2 does not answer (its container is {state})"
            raise Bmv2Error(text + _log_excerpt(Engine().logs(container)))
        time.sleep(0.1)


def _listens(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(address)) == 0


def _state(container: Container) -> str:
    return next((known.state for known in Engine().containers() if known.id == container.id), "gone")


def _log_excerpt(lines: list[str]) -> str:
    return "; it said:" + "".join(f"\n    | {line}" for line in lines) if lines else ""


def _set_queues(container: Container, switch: str, commands: list[str]) -> None:
    """Set the queues. The command line exits with 0 even on errors, so its output is parsed. Thrift starts after
    P4Runtime.
    """
    until = time.monotonic() + TIMEOUT_S
    while True:
        output = Engine().run(container, [*_COMMAND_LINE, "\n".join(commands)])
        if _UNREACHABLE not in output or _state(container) != "running" or time.monotonic() > until:
            break
        time.sleep(0.1)
    _, greeting, answers = output.partition(_GREETING)
    if not greeting or answers.replace(_PROMPT, "").strip():
        words = " ".join((answers if greeting else output).replace(_PROMPT, "").split())
        raise Bmv2Error(f"switch {switch}: BMv2 refuses its queues' rates and lengths: {words[-_MAX_ERROR_CHARS:]}")


def queues(plan: Plan, node: int, dilation: int) -> Iterator[str]:
    """Yield BMv2's commands for each port: its queue's length, and its rate in frames of the largest size."""
    ends = {end.interface: (link, end) for link in plan.links for end in (link.a, link.b) if end.node == node}
    for port, interface in enumerate(_pipeline(plan, node).ports):
        link, end = ends[interface]
        frame_bytes = link.mtu + ETHERNET_BYTES
        qdisc = plan.queues[end.queue].qdisc
        assert isinstance(qdisc, KernelQdisc), "a P4 switch has plain queues: see `qbed.network.queues.plain`"
        limit = int.from_bytes(bytes.fromhex(qdisc.options), "little")
        packets = limit if qdisc.kind == "pfifo" else max(1, limit // frame_bytes)
        yield f"set_queue_depth {packets} {port}"
        bits = 8 * (frame_bytes + end.overhead_bytes) * dilation
        yield f"set_queue_rate {max(1, round(end.rate_bps / bits))} {port}"


def _pipeline(plan: Plan, node: int) -> Pipeline:
    found = plan.nodes[node].pipeline
    assert found is not None
    return found
