# SPDX-License-Identifier: Apache-2.0
"""Kill a campaign repeatedly with SIGKILL at random instants, and resume it with the same command.

    .venv/bin/python tests/e2e/kill_campaign.py --kills 200 [--seed 1]     (make test-kills)

After each kill, no finished cell is damaged or run again. A finished campaign has the same results as an undisturbed
run, byte by byte; then the next campaign starts in a new folder.
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
question: Are the results equal after kills?
axes:
  buffer: {field: switches.default.buffer, values: [32 KB, 64 KB]}
  seed: [1, 2, 3]
claims:
  - {name: all, paper: There are four flows a seed., random: no, sql: SELECT count(*) % 4 = 0 AS holds FROM flows}
"""
VARYING_FILES = {"meta.json", "report.html", "wall.ndjson"}
"""Files that contain times of the wall clock."""


def file_hashes(run: Path) -> dict[str, str]:
    """Hashes of the files of a run folder that are equal in equal runs, by path."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in VARYING_FILES]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def holders(process: subprocess.Popen[str]) -> list[str]:
    """The processes that have another process's output open: pid, state and arguments."""
    assert process.stdout is not None and process.stderr is not None
    pipes = {Path(f"/proc/self/fd/{pipe.fileno()}").readlink() for pipe in (process.stdout, process.stderr)}
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder.name != str(os.getpid()) and pipes & {
                descriptor.readlink() for descriptor in (folder / "fd").iterdir()
            }:
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                found.append(f"{folder.name} {state} {(folder / 'cmdline').read_bytes()[:200]!r}")
    return found


@dataclass
class KilledCampaign:
    """A campaign that is killed and resumed, with counts of kills and finished runs."""

    folder: Path
    random: random.Random
    kills: int = 0
    finished: int = 0
    """Number of finished runs."""
    cells: int = 0
    """Number of finished cells at a kill, summed over all kills."""
    known: dict[Path, int] = field(default_factory=dict)
    """Finished cells of the current run with their inodes."""

    def __post_init__(self) -> None:
        (self.folder / "lab").mkdir()
        (self.folder / "lab" / "lab.yml").write_text(LAB)
        (self.folder / "lab" / "campaign.yml").write_text(CAMPAIGN)
        begun = time.monotonic()
        self.wait(self.start("undisturbed"))
        self.duration_s = time.monotonic() - begun
        self.expected = file_hashes(self.folder / "undisturbed")

    def start(self, out: str) -> subprocess.Popen[str]:
        """Start the campaign. Each output folder has a separate store, as a shared store would have all cells."""
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

    def kill_repeatedly(self, kills: int) -> None:
        """Kill the campaign `kills` times, and let the last run finish."""
        while self.kills < kills:
            process = self.start(f"run-{self.finished}")
            try:
                process.wait(self.random.uniform(0, 1.2 * self.duration_s))
            except subprocess.TimeoutExpired:
                self._kill(process)
            else:
                self.wait(process)
                self._check_finished_run()
        self.wait(self.start(f"run-{self.finished}"))
        self._check_finished_run()

    def _kill(self, process: subprocess.Popen[str]) -> None:
        self.kills += 1
        if self.random.random() < 0.5:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()  # its workers and guests must end, too
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"kill {self.kills}: processes that outlive their runner: {holders(process)}"
            ) from None
        run = self.folder / f"run-{self.finished}"
        for cell, inode in self.known.items():
            assert cell.stat().st_ino == inode, f"{cell} was run twice"
        for cell in run.glob("cells/??????"):
            assert not list(cell_damages(cell, int(cell.name))), f"{cell} is incomplete"
            self.known[cell] = cell.stat().st_ino
        self.cells += len(self.known)

    def _check_finished_run(self) -> None:
        run = self.folder / f"run-{self.finished}"
        for cell, inode in self.known.items():
            assert cell.stat().st_ino == inode, f"{cell} was run twice"
        found = file_hashes(run)
        assert found == self.expected, sorted(set(found.items()) ^ set(self.expected.items()))
        assert not list(CellStore(self.folder / f"cache-run-{self.finished}" / "cells", 1 << 40).verify())
        self.known.clear()
        self.finished += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qbed-kills-") as folder:
        campaign = KilledCampaign(Path(folder), random.Random(options.seed))
        campaign.kill_repeatedly(options.kills)
    print(
        f"{campaign.kills} kills (seed {options.seed}) within {1.2 * campaign.duration_s:.1f} s of the start,"
        f" {campaign.finished} campaigns finished: each equal to the undisturbed one, {len(campaign.expected)} files;"
        f" {campaign.cells} times a finished cell was kept"
    )


if __name__ == "__main__":
    main()
