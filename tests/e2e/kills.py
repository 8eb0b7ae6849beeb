# SPDX-License-Identifier: Apache-2.0
"""A campaign that is killed again and again: kill -9 at random instants, and each time the same command.

    .venv/bin/python tests/e2e/kills.py --kills 200 [--seed 1]     (make test-kills)

Each time it looks at what lies there: no cell that was finished is touched again, none is damaged. When the campaign is
done, its results are compared with those of a run that nobody disturbed, byte by byte, and it begins anew elsewhere.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from qbed.storage.cell_store import CellStore
from qbed.storage.checksums import cell_damages

LAB = """\
name: killed
topology: {dumbbell: {left: 2, right: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
capture: [h1>s1]
workload: [{flows: {pairs: [[h1, h3], [h2, h4]], size: 200 KB, spread: 50 us}}]
observe: {queues: every packet, flows: 1 ms}
duration: 10 ms
"""
CAMPAIGN = """\
question: Is it the same, whoever kills it?
axes:
  buffer: {field: switches.default.buffer, values: [32 KB, 64 KB]}
  seed: [1, 2, 3]
claims:
  - {name: all, paper: There are twelve flows., sql: SELECT count(*) = 12 AS holds FROM flows}
"""
DIFFER = {"meta.json", "report.html", "wall.ndjson"}
"""Files with the wall clock's times in them."""


def content(run: Path) -> dict[str, str]:
    """By path: the hash of every file of a run folder that equal runs have equal."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in DIFFER]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def holders(process: subprocess.Popen[str]) -> list[str]:
    """Who still has the output of a process: their numbers, states and arguments."""
    assert process.stdout is not None and process.stderr is not None
    ours = {Path(f"/proc/self/fd/{pipe.fileno()}").readlink() for pipe in (process.stdout, process.stderr)}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.name != str(os.getpid()) and ours & {one.readlink() for one in (folder / "fd").iterdir()}:
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                found.append(f"{folder.name} {state} {(folder / 'cmdline').read_bytes()[:200]!r}")
    return found


@dataclass
class Victim:
    """The campaign, and what has been done to it."""

    folder: Path
    random: random.Random
    kills: int = 0
    finished: int = 0
    """Runs that came to their end."""
    cells: int = 0
    """Cells that were finished when a run was killed, over all kills."""
    known: dict[Path, int] = field(default_factory=dict)
    """Finished cells of the run that goes on, and their inodes."""

    def __post_init__(self) -> None:
        (self.folder / "lab").mkdir()
        (self.folder / "lab" / "lab.yml").write_text(LAB)
        (self.folder / "lab" / "campaign.yml").write_text(CAMPAIGN)
        begun = time.monotonic()
        self.wait(self.start("undisturbed"))
        self.usual_s = time.monotonic() - begun
        self.expected = content(self.folder / "undisturbed")

    def start(self, out: str) -> subprocess.Popen[str]:
        """The one command. Each folder has a store of its own: another's would have all cells."""
        environment = {**os.environ, "QBED_STORE": "1 GB", "QBED_CACHE": str(self.folder / f"cache-{out}")}
        command = [sys.executable, "-m", "qbed", "run", "lab", "--no-images", "--out", out]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=environment, text=True, stdout=pipe, stderr=pipe, start_new_session=True
        )

    @staticmethod
    def wait(process: subprocess.Popen[str]) -> None:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err

    def suffer(self, kills: int) -> None:
        """So many kills, and the last run to its end."""
        while self.kills < kills:
            process = self.start(f"run-{self.finished}")
            try:
                process.wait(self.random.uniform(0, 1.2 * self.usual_s))
            except subprocess.TimeoutExpired:
                self._kill(process)
            else:
                self.wait(process)
                self._look_at_the_end()
        self.wait(self.start(f"run-{self.finished}"))
        self._look_at_the_end()

    def _kill(self, process: subprocess.Popen[str]) -> None:
        self.kills += 1
        if self.random.random() < 0.5:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()  # its workers and guests follow
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"kill {self.kills}: these outlive their runner: {holders(process)}") from None
        run = self.folder / f"run-{self.finished}"
        for cell, inode in self.known.items():
            assert cell.stat().st_ino == inode, f"{cell} was run twice"
        for cell in run.glob("cells/??????"):
            assert not list(cell_damages(cell, int(cell.name))), f"{cell} is half-written"
            self.known[cell] = cell.stat().st_ino
        self.cells += len(self.known)

    def _look_at_the_end(self) -> None:
        run = self.folder / f"run-{self.finished}"
        for cell, inode in self.known.items():
            assert cell.stat().st_ino == inode, f"{cell} was run twice"
        found = content(run)
        assert found == self.expected, sorted(set(found.items()) ^ set(self.expected.items()))
        assert not list(CellStore(self.folder / f"cache-run-{self.finished}" / "cells", 1 << 40).verify())
        self.known.clear()
        self.finished += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qbed-kills-") as folder:
        victim = Victim(Path(folder), random.Random(asked.seed))
        victim.suffer(asked.kills)
    print(
        f"{victim.kills} kills (seed {asked.seed}) within {1.2 * victim.usual_s:.1f} s of the start, {victim.finished}"
        f" campaigns finished: each equal to the undisturbed one, {len(victim.expected)} files; {victim.cells} times a"
        " finished cell lay there and was not touched"
    )


if __name__ == "__main__":
    main()
