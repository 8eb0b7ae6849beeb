# SPDX-License-Identifier: Apache-2.0
"""qbed from Python: what the command line does, with labs and matrices made in code, and results as frames.

`import qbed` has all of it: `qbed.Lab`, `qbed.run`, `qbed.open`, `qbed.up` (docs/interactive.md).
"""

from qbed.api.cells import cell, queue, store
from qbed.api.labs import Lab, labs, load, new
from qbed.api.live import CommandResult, Live, up
from qbed.api.runs import Run, merge, open, run
from qbed.api.service import Job, Service

__all__ = [
    "CommandResult",
    "Job",
    "Lab",
    "Live",
    "Run",
    "Service",
    "cell",
    "labs",
    "load",
    "merge",
    "new",
    "open",
    "queue",
    "run",
    "store",
    "up",
]
