# SPDX-License-Identifier: Apache-2.0
"""A Ctrl-C while a worker starts: the worker does not see it, and the runner sees it a moment later. How workers start,
and their cores.
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
import sys, threading, time
from pathlib import Path
from qbed.runs.executor.local import STOPPING, _start_method, _uninterrupted

def serve():
    time.sleep(0.2)

if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        threading.Thread(target=time.sleep, args=[60], daemon=True).start()
    context = _start_method()
    assert context.get_start_method() == sys.argv[1]
    process = context.Process(target=serve)
    with _uninterrupted():
        process.start()
        fields = dict(line.split(":") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        blocked = int(fields["SigBlk"], 16)
        print(all(blocked >> number - 1 & 1 for number in STOPPING))
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_first_worker_starts_with_stopping_signals_blocked(method: str, tmp_path: Path) -> None:
    """A process with another thread is not forked."""
    (tmp_path / "starts.py").write_text(STARTS)
    command = [sys.executable, "starts.py", method]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


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
