# SPDX-License-Identifier: Apache-2.0
"""Child processes that end with the service, however it ends.

`python -m qbed.service.child_lifetime PARENT ARGV...` requests SIGTERM for its parent's death, and executes ARGV.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from qbed.base.locations import repository
from qbed.base.processes import end_with_parent

STOP_S = 25.0
"""Longer than a run takes to end its workers."""


def belong(parent: int) -> None:
    """Request SIGTERM for the end of `parent`, the parent of this process."""
    if not end_with_parent(parent, signal.SIGTERM):
        sys.exit(143)


async def start(
    argv: list[str], *, environment: Mapping[str, str], stdin: int = DEVNULL, out: int = PIPE, error: int = PIPE,
    folder: Path | None = None,
) -> Process:  # fmt: skip
    """Start a process in its own group. The parent is the thread that forks, so call this from the loop's thread, which
    lives as long as the service.
    """
    command = [sys.executable, "-m", __name__, str(os.getpid()), *argv]
    return await asyncio.create_subprocess_exec(
        *command, stdin=stdin, stdout=out, stderr=error, env=dict(environment), cwd=folder, start_new_session=True,
        limit=1 << 20,
    )  # fmt: skip


def clean_environment(**more: str) -> dict[str, str]:
    """The service's environment without the owner's permissions and token. An uploaded lab names no repository: its
    code would run here.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in ("QBED_TRUST", "QBED_TOKEN")}
    return inherited | {"QBED_REPOSITORY": str(repository() or "")} | more


async def end(process: Process, patience_s: float = STOP_S) -> None:
    """End a process by SIGTERM, then its group by SIGKILL."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience_s)
    kill_group(process)
    await process.wait()


def kill_group(process: Process) -> None:
    """Kill the rest of a process's group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def main() -> None:
    """Execute the command."""
    belong(int(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
