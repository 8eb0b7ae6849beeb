# SPDX-License-Identifier: Apache-2.0
"""A switch in P4 with a controller: the P4Runtime server and a script of the lab's, beside it in its namespace.

All of it goes into the plan as files and programs, as FRR does; the agent knows neither.
"""

from qbed.network.programs import Script
from qbed.plan import model as p
from qbed.schemes.programs import Program

ADDRESS = "127.0.0.1:9559"
"""Where the server listens, in the switch's own namespace; 9559 is P4Runtime's port."""
FOLDER = "/run/p4"
"""Where both have their files: a folder of the node's own."""
TOOLS = "/run/qbed/tools"
PROGRAMS, PYTHON = "programs", "python"
"""Toolboxes: the P4Runtime server, and the Python that qbed itself runs with, with its packages."""
SIZE = 8
"""Memory: Python with gRPC, as daemons of FRR count."""
_STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def controlled(switch: p.Node, program: Program, script: Script, epoch_ns: int) -> p.Node:
    """The switch with its server, which takes over the program that runs there, and its controller."""
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
                p.Program(argv=[*serve, "--ready", f"{FOLDER}/ready"], ready=f"{FOLDER}/ready"),
                p.Program(argv=[f"{FOLDER}/{script.name}", ADDRESS]),
            ],
        }
    )


def environment(epoch_ns: int, writable: str) -> dict[str, str]:
    """What a script does is a function of the plan alone: no hash seeds of Python's own, and no compiled modules, which
    one machine has and another has not.

    QBED_EPOCH_NS: when the workloads begin, by CLOCK_MONOTONIC. `own`: a folder that it may write.
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
