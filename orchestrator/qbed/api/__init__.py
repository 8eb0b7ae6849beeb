# SPDX-License-Identifier: Apache-2.0
"""qbed from Python: what the command line does, with labs and matrices made in code, and results as frames.

`import qbed` has all of it: `qbed.Lab`, `qbed.run`, `qbed.open`, `qbed.up` (docs/python.md).
"""

from qbed.api.labs import Lab, load
from qbed.api.live import Live, Said, up
from qbed.api.runs import Run, open, run

__all__ = ["Lab", "Live", "Run", "Said", "load", "open", "run", "up"]
