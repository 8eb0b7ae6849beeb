# SPDX-License-Identifier: Apache-2.0
"""A lab needs no root, and whatever runs in it, as the guest's root, writes only to its own folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbed.substrates.toolchain import Toolchain, find_toolchain
from qbed.substrates.virtual.substrate import VirtualSubstrate

from qbed_testing.cells import LIMITS, CellOutput, write_plan

NOBODY = 65534
LAB = """
name: humble
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
    """As root: everything again as `nobody`, in a fork that has given up its rights; the results are the same."""
    reference = run_cell(LAB)
    if os.geteuid() != 0:
        return  # the line above was the test
    with tempfile.TemporaryDirectory(prefix="qbed-nobody-") as place:
        tools = Path(place) / "toolchain"
        toolchain = find_toolchain()
        shutil.copytree(toolchain.folder, tools)
        folder = Path(place) / "cell"
        plan = write_plan(folder, LAB)
        for path in (Path(place), folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                substrate = VirtualSubstrate(Toolchain(tools, toolchain.manifest))
                substrate.cell(folder, plan).run(LIMITS, lambda fraction: None)
                status = 0
            except BaseException as error:
                print(error, flush=True)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (folder / "out" / "flows.ndjson").stat().st_uid == NOBODY
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
def test_the_guest_writes_only_to_its_own_folder(running_lab: Any, attempt: str) -> None:
    with tempfile.TemporaryDirectory(prefix="qbed-outside-", dir="/var/tmp") as outside:
        target = Path(outside) / "evil"
        with running_lab(LAB.replace("capture: [h1>s1]\n", "")) as lab:
            status, output = lab.run("h1", "sh", "-c", attempt.format(target=target, folder=outside))
            inside, said = lab.run("h1", "sh", "-c", "echo kept > /mnt/inside")
        assert status != 0, output
        assert inside == 0, said
        assert list(Path(outside).iterdir()) == []
