# SPDX-License-Identifier: Apache-2.0
"""Turns of parts that share a core: what children inherit, and what the thread has afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

from qbed.substrates.virtual.turns import long_turns

SHOWN = "import os; print(os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))"


def policy_and_nice(*before: str) -> list[int]:
    """A child's scheduling policy and nice value."""
    command = [*before, sys.executable, "-c", SHOWN]
    return [int(word) for word in subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()]


def test_children_inherit_the_batch_policy_and_the_thread_is_reset() -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    before = os.sched_getscheduler(0)
    if before != os.SCHED_OTHER:  # the tests run with another policy: it stays
        with long_turns():
            assert os.sched_getscheduler(0) == before
        return
    with long_turns():
        assert policy_and_nice() == [os.SCHED_BATCH, nice]
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert policy_and_nice() == [os.SCHED_OTHER, nice]


def test_another_policy_stays() -> None:
    program = (
        "import os; from qbed.substrates.virtual.turns import long_turns\n"
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
        "with long_turns(): print(os.sched_getscheduler(0))\n"
        "print(os.sched_getscheduler(0))\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert shown.split() == [str(os.SCHED_IDLE)] * 2


def test_a_nice_thread_stays_nice() -> None:
    program = (
        "import os; from qbed.substrates.virtual.turns import long_turns\n"
        "os.nice(3); before = os.getpriority(os.PRIO_PROCESS, 0)\n"
        "with long_turns(): assert os.getpriority(os.PRIO_PROCESS, 0) == before\n"
        "assert os.getpriority(os.PRIO_PROCESS, 0) == before\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
