# SPDX-License-Identifier: Apache-2.0
"""Damaged results (flipped bits, truncated and missing files) are detected, and their cells are run again."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from qbed.base.json_files import write_json
from qbed.claims.verdict import read_verdicts
from qbed.claims.views import connect
from qbed.storage.axis_values import quantity_columns
from qbed.storage.checksums import DamagedError, check_cell
from qbed.storage.identity import StoreError
from qbed.storage.listing import Listing
from qbed.storage.run_folder import RunFolder

DAMAGES = int(os.environ.get("QBED_DAMAGES", "1000"))
"""Number of damages to a cell's files; the merged files get half as many."""
AXES = {"buffer": "str", "seed": "int", "buffer_bytes": "int"}
NUMBERS = quantity_columns([("buffer", ["32 KB", "64 KB"])])
LAB = """\
name: damaged
topology: {star: {hosts: 2}}
links: {default: {rate: 1 Gbit/s, delay: 5 us}}
switches: {default: {scheme: droptail, buffer: 64 KB}}
workload:
  - flow: {from: h1, to: h2, size: 100 KB}
observe: {queues: 100 us, flows: 1 ms}
capture: [h1>s1]
duration: 5 ms
"""
CAMPAIGN = """\
question: What is left of it?
axes:
  buffer: {field: switches.default.buffer, values: [32 KB, 64 KB]}
  seed: [1]
claims:
  - {name: all, paper: It ends., sql: "SELECT count(*) = 2 AS holds FROM flows"}
"""


def qbed(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qbed", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lab and a finished run of two cells with the guests' output (`--keep`)."""
    folder = tmp_path_factory.mktemp("damage")
    (folder / "lab").mkdir()
    (folder / "lab" / "lab.yml").write_text(LAB)
    (folder / "lab" / "campaign.yml").write_text(CAMPAIGN)
    done = qbed(folder, "run", "lab", "--out", "run", "--no-images", "--keep")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(finished_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished_run, tmp_path / "x", symlinks=True)
    return tmp_path / "x"


def files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_size
    )


def damage(path: Path, rng: random.Random) -> str:
    """Flip one bit of a file (85 %), truncate it, append a byte or remove it; return a description."""
    content = path.read_bytes()
    kind = rng.choices(("flip", "truncate", "append", "remove"), (85, 8, 4, 3))[0]
    if kind == "flip":
        bit = rng.randrange(8 * len(content))
        content = content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]
    elif kind == "truncate":
        content = content[: rng.randrange(len(content))]
    elif kind == "append":
        content += bytes([rng.randrange(256)])
    path.unlink()
    if kind != "remove":
        path.write_bytes(content)
    return f"{kind}: {path}"


def damage_and_check(paths: list[Path], times: int, check: Callable[[Path], None]) -> None:
    """Damage random files one at a time; `check` asserts that the damaged file is reported."""
    rng = random.Random(1)
    found: Counter[str] = Counter()
    for _ in range(times):
        victim = rng.choice(paths)
        before = victim.read_bytes()
        what = damage(victim, rng)
        try:
            check(victim)
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
        finally:
            victim.write_bytes(before)
        found[victim.name] += 1
    assert len(found) == len({victim.name for victim in paths}), "a file was not damaged"


def test_damage_to_a_cell_is_detected(folder: Path) -> None:
    run = RunFolder(folder / "run")
    cell = run.cells / "000001"
    before = {path.name: path.read_bytes() for path in run.path.glob("*.parquet")}
    assert run.survey(range(2)) == ([], [])

    def check(victim: Path) -> None:
        to_run, found = run.survey(range(2))
        assert to_run == [1] and [error.file for error in found] == [victim], f"to run: {to_run}, {found}"
        assert [error.file for error in run.verify()] == [victim]
        with pytest.raises(DamagedError, match=re.escape(str(victim))):
            check_cell(cell)  # `qbed samples` calls this
        if victim.suffix == ".arrow" or victim.name == "cell.json":
            with pytest.raises(DamagedError, match=re.escape(f"{victim} ")):
                run.merge(range(2), AXES, NUMBERS)

    damage_and_check(files(cell), DAMAGES, check)
    run.merge(range(2), AXES, NUMBERS)
    assert before == {path.name: path.read_bytes() for path in run.path.glob("*.parquet")}


def test_damage_to_merged_files_is_detected(folder: Path) -> None:
    run = folder / "run"
    paths = [*sorted(run.glob("*.parquet")), run / "checksums.json", run / "claims.json", run / "campaign.json"]

    def check(victim: Path) -> None:
        with pytest.raises(StoreError, match=f"{re.escape(str(victim))} |{re.escape(str(run))} is no run folder"):
            connect(run).close()
            read_verdicts(run)
        if victim.name == "cells.parquet" and victim.exists():  # without it, the cells themselves are listed
            with pytest.raises(StoreError, match=re.escape(str(victim))):
                list(Listing(run).rows())

    damage_and_check(paths, DAMAGES // 2, check)
    connect(run).close()


@pytest.mark.parametrize("name", ["flows.arrow", "queue_series.arrow", "cell.json", "h1-eth0.pcap"])
def test_a_damaged_cell_is_reported_and_run_again(folder: Path, name: str) -> None:
    run = folder / "run"
    before = {path.name: path.read_bytes() for path in run.glob("*.parquet")}
    victim = next(path for path in files(run / "cells" / "000001") if path.name == name)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    done = qbed(folder, "verify", "run")
    line = f"run/{victim.relative_to(run)} is not what was written"
    assert (done.returncode, done.stdout) == (1, line + "\n") and "`qbed run` of the same campaign" in done.stderr
    done = qbed(folder, "run", "lab", "--out", "run", "--no-images", "--keep")
    assert done.returncode == 0 and line in done.stderr and "1 cells are finished already" in done.stderr, done.stderr
    assert before == {path.name: path.read_bytes() for path in run.glob("*.parquet")}
    assert qbed(folder, "verify", "run").returncode == 0


@pytest.mark.parametrize("defect", ["missing", "damaged"])
def test_the_report_refuses_a_missing_or_damaged_table(folder: Path, defect: str) -> None:
    table = folder / "run" / "flows.parquet"
    content = table.read_bytes()
    table.unlink()
    if defect == "damaged":
        table.write_bytes(content[: len(content) // 2] + b"x" + content[len(content) // 2 + 1 :])
    done = qbed(folder, "report", "run", "--no-images")
    message = "is missing" if defect == "missing" else "is not what was written"
    assert (
        done.returncode == 2 and f"error: run/flows.parquet {message}; `qbed run` of the same campaign" in done.stderr
    )
    assert qbed(folder, "verify", "run").stdout == f"run/flows.parquet {message}\n"
    assert qbed(folder, "run", "lab", "--out", "run", "--no-images").returncode == 0
    assert table.read_bytes() == content
    assert qbed(folder, "report", "run", "--no-images").returncode == 0


def test_a_fifo_in_place_of_a_file_blocks_no_command(folder: Path) -> None:
    run = folder / "run"
    for path in (
        run / "flows.parquet",
        run / "cells" / "000000" / "flows.arrow",
        run / "cells" / "000001" / "cell.json",
    ):
        path.unlink()
        os.mkfifo(path)
    done = qbed(folder, "verify", "run")
    assert done.returncode == 1 and done.stdout.count(" is no file\n") == 3, done.stdout
    assert qbed(folder, "report", "run", "--no-images").returncode == 2
    done = qbed(folder, "run", "lab", "--out", "run", "--no-images")
    assert (done.returncode, "2 of 2 cells complete" in done.stderr) == (0, True), done.stderr
    assert qbed(folder, "verify", "run").returncode == 0


def test_a_copy_of_another_cell_is_refused(folder: Path) -> None:
    cells = folder / "run" / "cells"
    shutil.rmtree(cells / "000001")
    assert "cells/000001 is missing" in qbed(folder, "verify", "run").stdout
    shutil.copytree(cells / "000000", cells / "000001", symlinks=True)
    assert "cell.json is the record of another cell, 0\n" in qbed(folder, "verify", "run").stdout
    done = qbed(folder, "run", "lab", "--out", "run", "--no-images")
    assert done.returncode == 0 and "is the record of another cell, 0" in done.stderr
    assert qbed(folder, "verify", "run").returncode == 0


def test_a_run_without_checksums_is_refused(folder: Path) -> None:
    run = folder / "run"
    checksums = (run / "checksums.json").read_bytes()
    (run / "checksums.json").unlink()
    for command in (["report", "--no-images"], ["cells"]):
        done = qbed(folder, *command, "run")
        assert done.returncode == 2 and "checksums.json is missing" in done.stderr, done.stderr
    done = qbed(folder, "verify", "run")
    assert done.returncode == 1 and "checksums.json is missing" in done.stdout, done
    (run / "checksums.json").write_bytes(checksums)
    identity = json.loads((run / "campaign.json").read_bytes())
    identity.pop("sha256")
    write_json(run / "campaign.json", identity)
    for words in (["report", "run"], ["cells", "run"], ["verify", "run"], ["run", "lab", "--out", "run"]):
        done = qbed(folder, *words)
        assert done.returncode != 0 and "campaign.json is damaged: its content does not match" in done.stderr, done
