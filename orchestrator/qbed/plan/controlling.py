# SPDX-License-Identifier: Apache-2.0
"""P4 switches with a controller: the P4Runtime server and a script of the lab, both in the switch's namespace.

The plan has both as files and programs, like FRR; the agent has no code for either.
"""

from qbed.p4.sources import Program
from qbed.p4.switch_program import Script
from qbed.plan.model import Node
from qbed.plan.workload import Program as Daemon

ADDRESS = "127.0.0.1:9559"
"""The server's address in the switch's namespace; 9559 is P4Runtime's port."""
FOLDER = "/run/p4"
"""The node's folder for the files of both."""
TOOLS = "/run/qbed/tools"
PROGRAMS, PYTHON = "programs", "python"
"""Toolboxes: the P4Runtime server, and the Python interpreter of qbed with its packages."""
SIZE = 8
"""Memory of Python with gRPC, in units of an FRR daemon."""
_STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def controlled(switch: Node, program: Program, script: Script, epoch_ns: int) -> Node:
    """Return the switch with the P4Runtime server, which takes over its program, and its controller."""
    serve = ["p4switch", "serve", "--listen", ADDRESS, "--running", f"{FOLDER}/{program.name}.json"]
    return switch.model_copy(
        update={
            "environment": environment(epoch_ns, FOLDER),
            "folders": [FOLDER],
            "files": {
                f"{FOLDER}/{program.name}.json": program.text,
                f"{FOLDER}/{program.name}.p4info.txtpb": program.info.text,
                f"{FOLDER}/{script.name}": script.text,
            },
            "programs": [
                Daemon(argv=[*serve, "--ready", f"{FOLDER}/ready"], ready=f"{FOLDER}/ready", optional=False),
                Daemon(argv=[f"{FOLDER}/{script.name}", ADDRESS], ready=None, optional=False),
            ],
        }
    )


def environment(epoch_ns: int, writable: str) -> dict[str, str]:
    """Return the environment of a script, chosen so that its output depends on the plan alone: no random hash seeds of
    Python, and no compiled modules, which differ between machines.

    QBED_EPOCH_NS: the start of the workloads, in CLOCK_MONOTONIC. `writable`: a folder that the script may write to.
    """
    return {
        "HOME": "/",
        "PATH": f"{TOOLS}/{PYTHON}/bin:{TOOLS}/{PROGRAMS}:{_STANDARD_PATH}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPYCACHEPREFIX": f"{writable}/compiled",
        "PYTHONUNBUFFERED": "1",
        "QBED_EPOCH_NS": str(epoch_ns),
    }
