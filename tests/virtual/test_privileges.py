# SPDX-License-Identifier: Apache-2.0
"""A lab needs no root, and root in a guest writes only to the cell's folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates.toolchain import find_toolchain, toolchain_in
from qbed.substrates.virtual.substrate import VirtualSubstrate
from qbed.testing import LIMITS, CellOutput, write_plan

ORDINARY_UID = 65534
LAB = """
name: unprivileged
topology: {star: {hosts: 3}}
links: {default: {rate: 1 Gbit/s, delay: 10 us}}
switches: {default: {scheme: ecn, buffer: 64 KB, threshold: 10 packets}}
hosts: {default: {tcp: dctcp}}
workload:
  - incast: {senders: 2, receiver: h1, size: 1 MB}
capture: [h1>s1]
duration: 50 ms
"""


def test_a_cell_runs_as_an_ordinary_user(run_cell: Callable[..., Any]) -> None:
    """Run by root, the test repeats the cell in a child process with another user id; the results are equal."""
    reference = run_cell(LAB)
    if os.geteuid() != 0:
        return  # the cell above ran as an ordinary user
    with tempfile.TemporaryDirectory(prefix="qbed-unprivileged-") as parent:
        tools = Path(parent) / "toolchain"
        toolchain = find_toolchain()
        shutil.copytree(toolchain.folder, tools)
        folder = Path(parent) / "cell"
        plan = write_plan(folder, LAB)
        for path in (Path(parent), folder, *folder.iterdir()):
            os.chown(path, ORDINARY_UID, ORDINARY_UID)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgroups([])
                os.setresgid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID)
                os.setresuid(ORDINARY_UID, ORDINARY_UID, ORDINARY_UID)
                substrate = VirtualSubstrate(toolchain_in(tools))
                substrate.cell(folder, plan).run(LIMITS, lambda fraction: None)
                status = 0
            except BaseException as error:
                print(error, flush=True)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (folder / "out" / "flows.ndjson").stat().st_uid == ORDINARY_UID
        assert CellOutput(plan, folder).digest() == reference.digest()


@pytest.mark.parametrize(
    "attempt",
    [
        "touch {target}",
        "mount -o remount,rw / && touch {target}",
        "mount -n -t hostfs none /tmp -o {folder} && touch /tmp/evil",
        "mount -n -t hostfs none /tmp -o ./../ && touch /tmp/evil",
        "ln -s {folder} /mnt/link && touch /mnt/link/evil",
        "mount -n -t hostfs none /tmp -o / && touch /tmp{target}",
    ],
)
def test_a_guest_writes_only_to_its_folder(running_lab: Any, attempt: str) -> None:
    with tempfile.TemporaryDirectory(prefix="qbed-outside-", dir="/var/tmp") as outside:
        target = Path(outside) / "evil"
        with running_lab(LAB.replace("capture: [h1>s1]\n", "")) as lab:
            status, output = lab.run("h1", "sh", "-c", attempt.format(target=target, folder=outside))
            inside, message = lab.run("h1", "sh", "-c", "echo kept > /mnt/inside")
        assert status != 0, output
        assert inside == 0, message
        assert list(Path(outside).iterdir()) == []
