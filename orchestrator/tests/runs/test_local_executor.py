# SPDX-License-Identifier: Apache-2.0
"""A Ctrl-C while a worker starts: the worker does not see it, and the runner sees it a moment later. The cores
of workers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qbed.runs.executor.local import _uninterrupted, groups

# A process of its own: the first that multiprocessing starts is the one that matters.
STARTS = """
import multiprocessing, sys
from pathlib import Path
from qbed.runs.executor.local import _uninterrupted

def serve():
    pass

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=serve)
    with _uninterrupted():
        process.start()
        fields = dict(line.split(":") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        print(int(fields["SigBlk"], 16) >> 1 & 1)
    process.join()
    sys.exit(process.exitcode)
"""


def test_the_first_worker_starts_with_the_interrupt_blocked(tmp_path: Path) -> None:
    (tmp_path / "starts.py").write_text(STARTS)
    done = subprocess.run([sys.executable, "starts.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.parametrize("on_another_thread", [False, True])
def test_an_interrupt_comes_when_the_worker_stands(on_another_thread: bool) -> None:
    """The kernel may give it to any thread that does not block it."""
    stands, over = False, threading.Event()
    other = threading.Thread(target=over.wait)
    if on_another_thread:
        other.start()
    try:
        with pytest.raises(KeyboardInterrupt), _uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            stands = sum(range(100_000)) > 0
    finally:
        over.set()
    assert stands
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_worker_has_a_core_for_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3, 6})
    assert groups([0, 1, 2, 3, 6], 1) == [(0,), (1,), (2,), (3,), (6,)]
    assert groups([0, 1, 2, 3, 6], 2) == [(0, 1), (2, 3)]
    assert groups([0], 2) == [(0, 1)]  # --jobs 1
    assert groups([0, 1, 2, 3, 6], 8) == [(0, 1, 2, 3, 6)]
