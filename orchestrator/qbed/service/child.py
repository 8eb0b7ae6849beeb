# SPDX-License-Identifier: Apache-2.0
"""A job's process. `python -m qbed.service.child PARENT` loads everything and waits for a job on standard input, one
line of JSON, so that a job that is submitted starts at once.

It ends with the status of `qbed run`. After SIGTERM the job is queued again; its finished cells are kept. Modules are
loaded in `main`, because the runner's workers import this module, too.
"""

from __future__ import annotations

import json
import os
import sys

from qbed.service.child_lifetime import belong


def main() -> None:
    """Wait for a job, and run it."""
    belong(int(sys.argv[1]))
    from qbed.service.job_spec import JobSpec
    from qbed.service.work import run_job

    line = sys.stdin.readline()
    if not line.strip():
        return
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # no prompt reads the service's input
    sys.exit(run_job(JobSpec(**json.loads(line))))


if __name__ == "__main__":
    main()
