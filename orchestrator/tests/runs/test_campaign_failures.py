# SPDX-License-Identifier: Apache-2.0
"""Failures around campaigns: two at once, read-only folders, clocks that jump, ten thousand cells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from campaigns import CAMPAIGN, Bench, guests_of, hashes, wait_until, write_lab

from qbed.storage.checksums import CELL_ROW, cell_record, read_cell_record

CLOCK = r"""
/* The wall clock jumps by ten days, forward and back, every few times that somebody looks at it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	static unsigned calls;
	int status;

	if (!real)
		real = dlsym(RTLD_NEXT, "clock_gettime");
	status = real(clock, now);
	if (clock == CLOCK_REALTIME)
		now->tv_sec += (++calls / 3 % 2 ? 864000 : -864000);
	return status;
}
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def two_runs(bench: Bench) -> list[subprocess.Popen[str]]:
    """The first has guests, which are held; the second waits for it."""
    arguments = ("run", "lab", "--out", "a", "--no-images", "--profile", "quick")
    first = bench.start(*arguments)
    wait_until(lambda: guests_of(bench.folder / "a" / "cells"))
    second = bench.start(*arguments)
    assert second.stderr is not None
    assert "another `qbed run` is writing to this folder: waiting for it" in second.stderr.readline()
    return [first, second]


def test_a_second_run_waits_and_finds_all_done(bench: Bench) -> None:
    bench.behave(all="held")
    first, second = two_runs(bench)
    bench.release()
    first.communicate(timeout=60)
    out, err = second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0) and "2 cells are finished already" in out + err, out + err


def test_a_run_that_waits_goes_on_with_what_a_killed_one_left(bench: Bench) -> None:
    bench.behave(all="held")
    first, second = two_runs(bench)
    bench.behave()
    first.kill()
    first.communicate()
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0 and "2 of 2 cells complete" in out + err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
@pytest.mark.parametrize("begun", [False, True])
def test_a_folder_that_cannot_be_written_is_reported(bench: Bench, begun: bool) -> None:
    place = bench.folder / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", place], check=True)
    try:
        if begun:
            assert bench.campaign("small/run", "--profile", "quick")[0] == 0
            shutil.rmtree(place / "run" / "cells" / "000001")
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        status, text = bench.campaign("small/run", "--profile", "quick")
        assert status == 1 and text.count("error: ") == 1 and "read-only file system" in text.lower(), text
        subprocess.run(["mount", "-o", "remount,rw", place], check=True)
        assert bench.campaign("small/run", "--profile", "quick")[0] == 0
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_clock_that_jumps_changes_nothing(bench: Bench) -> None:
    """Neither results nor what the store has."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    bench.environment["QBED_STORE"] = "1 GB"
    assert bench.campaign("a", "--profile", "quick")[0] == 0
    (bench.folder / "clock.c").write_text(CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", "clock.so", "clock.c", "-ldl"], cwd=bench.folder, check=True)
    bench.environment["LD_PRELOAD"] = str(bench.folder / "clock.so")
    for out, stored in (("b", " (2 from the store)"), ("c", "")):
        status, text = bench.campaign(out, "--profile", "quick", *([] if stored else ["--no-store"]))
        assert (status, f"2 of 2 cells complete{stored}, in" in text) == (0, True), text
        assert hashes(bench.folder / "a") == hashes(bench.folder / out)
    took = json.loads((bench.folder / "c" / "meta.json").read_text())
    assert all(0 <= seconds < 100 for seconds in took["cell_wall_s"].values())
    assert bench.run("store", "verify")[0] == 0


def test_of_ten_thousand_cells_one_is_run(bench: Bench) -> None:
    """The others are finished: copies of one, with numbers and seeds of their own."""
    axes = CAMPAIGN.partition("axes:\n")[0] + f"axes: {{seed: {list(range(1, 10_001))}}}\n"
    write_lab(bench.lab, axes)
    process = bench.start("run", "lab", "--out", "a", "--no-images", "--jobs", "1")
    cells = bench.folder / "a" / "cells"
    wait_until(lambda: (cells / "000000").exists())
    process.terminate()
    assert "the same command goes on from there" in "".join(process.communicate(timeout=30))
    shutil.rmtree(cells / "000001", ignore_errors=True)
    row = read_cell_record(cells / "000000", 0)
    del row["files"]
    tables = [path for path in (cells / "000000").iterdir() if path.name != CELL_ROW]
    for number in range(2, 10_000):
        folder = cells / f"{number:06}"
        folder.mkdir(exist_ok=True)
        for path in tables:
            if not (folder / path.name).exists():
                os.link(path, folder / path.name)
        (folder / CELL_ROW).write_bytes(cell_record(folder, row | {"cell": number, "seed": number + 1}))
    status, text = bench.campaign("a")
    assert (status, "9999 cells are finished already" in text, "10000 of 10000 cells" in text) == (0, True, True), text
    assert bench.query("a", "SELECT count(*), sum(seed) FROM 'RUN/cells.parquet'") == [(10_000, 50_005_000)]
    assert bench.query("a", "SELECT count(DISTINCT cell) FROM 'RUN/flows.parquet'") == [(10_000,)]
