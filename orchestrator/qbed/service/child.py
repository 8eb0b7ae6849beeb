# SPDX-License-Identifier: Apache-2.0
"""A job's process. `python -m qbed.service.child PARENT` loads everything and waits for a job on standard input, one
line of JSON, so that a job that is submitted starts at once.

It ends with the status of `qbed run`. SIGTERM says that the job waits again: finished cells are kept, and the same job
goes on from there. What is loaded stands in `main`: the runner's workers import this module, too.
"""

from __future__ import annotations

import json
import os
import sys

from qbed.service.owned import belong


def main() -> None:
    """Wait for a job, and run it."""
    belong(int(sys.argv[1]))
    from qbed.service.order import Order
    from qbed.service.work import carry_out

    line = sys.stdin.readline()
    if not line.strip():
        return
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nobody is asked anything
    sys.exit(carry_out(Order(**json.loads(line))))


if __name__ == "__main__":
    main()
