# SPDX-License-Identifier: Apache-2.0
"""`qbed run` as a user has it, with a stand-in for the guest's kernel: results, failures, interruptions, resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from campaigns import CAMPAIGN, Bench, guests_of, hashes, wait_until, write_lab, write_manifest

from qbed.storage.identity import StoreError
from qbed.storage.run_folder import SPILL, RunFolder


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def shown_cells(run: Path) -> list[list[str]]:
    """The rows of the report's list of cells."""
    page = (run / "report.html").read_text()
    data = page.partition('<script type="application/json" id="cells-data">')[2].partition("</script>")[0]
    rows: list[list[str]] = json.loads(data)["rows"]
    return rows


def test_equal_runs_are_equal_files_whatever_the_jobs(bench: Bench) -> None:
    assert bench.campaign("a")[0] == 0
    assert bench.campaign("b", "--jobs", "1")[0] == 0
    first, second = hashes(bench.folder / "a"), hashes(bench.folder / "b")
    assert first == second
    assert set(first) == {"cells.parquet", "flows.parquet", "queue_series.parquet", "queues.parquet"}
    assert pq.read_schema(bench.folder / "a" / "flows.parquet").metadata[b"qbed.version"] == b"1"


def test_the_tables_hold_every_cell_with_its_axes(bench: Bench) -> None:
    status, text = bench.campaign("a")
    assert (status, "12 of 12 cells complete" in text) == (0, True)
    rows = bench.query("a", "SELECT cell, tcp, delay, seed, status, flows FROM 'RUN/cells.parquet' ORDER BY cell")
    assert rows[0] == (0, "reno", "5 us", 1, "complete", 2) and len(rows) == 12
    assert bench.query("a", "SELECT count(*), min(slowdown) >= 1 FROM 'RUN/flows.parquet'") == [(24, True)]
    assert bench.query("a", "SELECT count(DISTINCT port) FROM 'RUN/queues.parquet' WHERE port = 's1>s2'") == [(1,)]
    page = (bench.folder / "a" / "report.html").read_text()
    assert "<b>1</b><span>claim holds</span>" in page and "claims not as expected" not in page
    assert "Every flow completes." in page and page.count("<script>/**") == 1
    assert "What was run" in page and '<span class="where">tcp reno</span>' in page
    table = json.loads((bench.folder / "a" / "parameters.json").read_text())
    assert (table["version"], table["combinations"]) == (1, 4)
    assert "http://" not in page.partition("<script>/**")[0], "the page needs no network"
    listed = shown_cells(bench.folder / "a")
    assert len(listed) == 12 and listed[0][:7] == ["0", "reno", "5 us", "1", "complete", "s2>s1", "2 / 2"]


@pytest.mark.parametrize("name", ["lab.yml", "other.yml"])
def test_a_lab_file_is_a_campaign_of_one_cell(bench: Bench, name: str) -> None:
    (bench.lab / "lab.yml").rename(bench.lab / name)
    status, text = bench.run("run", f"lab/{name}", "--out", "a", "--no-images", "--seeds", "2")
    assert (status, "1 of 1 cells complete" in text) == (0, True), text
    assert "What does the lab lab do?" in (bench.folder / "a" / "report.html").read_text()


def test_a_finished_run_is_not_run_again_and_another_is_refused(bench: Bench) -> None:
    assert bench.campaign("a", "--profile", "quick")[0] == 0
    before = hashes(bench.folder / "a")
    bench.behave(all="panic")
    status, text = bench.campaign("a", "--profile", "quick")
    assert (status, "2 cells are finished already" in text) == (0, True)
    assert hashes(bench.folder / "a") == before
    status, text = bench.campaign("a")
    assert (status, "the axes and their values and the plans" in text) == (2, True)
    (bench.folder / "other").mkdir()
    (bench.folder / "other" / "file").touch()
    status, text = bench.campaign("other")
    assert (status, "is not empty and is no run folder" in text) == (2, True)


def test_a_folder_of_a_run_that_ended_before_it_had_a_name_is_taken(tmp_path: Path) -> None:
    (tmp_path / ".campaign.json.tmp").write_text("{")
    store = RunFolder(tmp_path)
    assert store.claim({"version": 1, "name": "x", "plans": "a", "matrix": {}}) is None
    assert (tmp_path / "campaign.json").exists() and store.cells.is_dir()


def test_what_a_killed_query_left_goes_with_its_run(tmp_path: Path) -> None:
    store = RunFolder(tmp_path)
    store.claim({"version": 1, "name": "x", "plans": "a", "matrix": {}})
    (tmp_path / SPILL.format("1234")).mkdir()
    (tmp_path / SPILL.format("1234") / "duckdb_temp_storage_DEFAULT-0.tmp").touch()
    (tmp_path / "notes.txt").touch()
    store.claim({"version": 1, "name": "x", "plans": "b", "matrix": {}}, fresh=True)
    assert {path.name for path in tmp_path.iterdir()} == {"campaign.json", "cells", "notes.txt"}


def test_fresh_throws_another_run_away_and_nothing_else(bench: Bench) -> None:
    assert bench.campaign("a", "--profile", "quick")[0] == 0
    (bench.folder / "a" / "notes.txt").write_text("mine")
    status, text = bench.campaign("a", "--profile", "quick", "--fresh")
    assert (status, "2 cells are finished already" in text) == (0, True), "the same run is no other"
    write_manifest(bench.tools, kernel_version="newer")
    status, text = bench.campaign("a", "--profile", "quick")
    assert (status, "the kernel, modules and agent differ" in text, "--fresh" in text) == (2, True, True)
    status, text = bench.campaign("a", "--profile", "quick", "--fresh")
    assert (status, "held another run (the kernel, modules and agent differ)" in text) == (0, True), text
    assert "finished already" not in text and "2 of 2 cells complete" in text
    assert (bench.folder / "a" / "notes.txt").read_text() == "mine"
    (bench.folder / "other").mkdir()
    (bench.folder / "other" / "file").touch()
    (bench.folder / "other" / "campaign.json").write_text("{}")
    status, text = bench.campaign("other", "--fresh")
    assert (status, "its content does not match its checksum" in text) == (2, True)
    assert sorted(path.name for path in (bench.folder / "other").iterdir()) == ["campaign.json", "file"]


def test_a_run_that_was_being_thrown_away_is_gone(tmp_path: Path) -> None:
    """Killed between the first and the last file: the old run is not mistaken for the new one's beginning."""
    run = RunFolder(tmp_path / "run")
    old: dict[str, object] = {"version": 1, "name": "lab", "plans": "old", "matrix": {"axes": []}}
    new = old | {"plans": "new"}
    assert run.claim(old) is None
    (run.cells / "000000").mkdir()
    (run.cells / "000000" / "cell.json").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "_empty", lambda self: exec("raise KeyboardInterrupt"))
        with pytest.raises(KeyboardInterrupt):
            run.claim(new, fresh=True)
    with pytest.raises(StoreError):
        run.identity()
    assert run.claim(new) is None
    assert run.survey(range(1)) == ([0], []) and run.identity()["plans"] == "new"
    assert sorted(path.name for path in run.path.iterdir()) == ["campaign.json", "cells"]


@pytest.mark.parametrize(
    ("behaviour", "patience_s", "message"),
    [
        ("panic", 60, "the guest's kernel panicked: the test said so"),
        ("fail", 60, "the agent says: no such qdisc"),
        ("garbage", 60, "the tap stream has an unknown record type"),
        ("hang", 5, "virtual time stands still at 0 ns: no progress in 5 s"),
    ],
)
def test_a_broken_cell_is_named_and_the_others_go_on(
    bench: Bench, behaviour: str, patience_s: int, message: str
) -> None:
    bench.behave(seed_2=behaviour)
    status, text = bench.campaign("a", "--set", "links.default.delay=5 us", "--stall-timeout", str(patience_s))
    assert status == 1
    assert message in text and "4 of 6 cells complete, 2 failed" in text
    assert "undecided" in text and "cells are missing: 2 failed" in text
    kept = [bench.folder / "a" / "cells" / name for name in ("000001.failed", "000004.failed")]
    assert all("booting" in (folder / "work" / "console.log").read_text() for folder in kept)
    assert sum(str(folder) in text for folder in kept) == 1, "the first of one reason"
    assert guests_of(bench.folder) == []
    bench.behave()
    assert bench.campaign("a", "--set", "links.default.delay=5 us")[0] == 0, "the next run mends them"


def test_a_cell_that_contradicts_its_plan_is_invalid(bench: Bench) -> None:
    bench.behave(seed_1="contradict")
    status, text = bench.campaign("a")
    assert (status, "4 invalid" in text, "would be in flight" in text) == (1, True, True)
    assert "cells are missing: 4 invalid" in (bench.folder / "a" / "claims.json").read_text()
    assert shown_cells(bench.folder / "a")[0][:4] == ["0", "reno", "5 us", "1"]
    assert shown_cells(bench.folder / "a")[0][4] == "invalid" and "in flight" in shown_cells(bench.folder / "a")[0][5]


def test_a_cell_whose_kernel_complains_is_invalid(bench: Bench) -> None:
    bench.behave(seed_1="warn")
    status, text = bench.campaign("a", "--profile", "quick")
    message = "kernel message: [    0.1] WARNING: CPU: 0 PID: 1 at lib/nlattr.c:122 [31mwarned"
    assert (status, "2 invalid" in text, message in text) == (1, True, True), text
    assert "WARNING: " in (bench.folder / "a" / "cells" / "000000" / "work" / "console.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind_and_goes_on_later(bench: Bench, number: int) -> None:
    bench.behave(seed_3="held")
    process = bench.start("run", "lab", "--out", "a", "--no-images")
    cells = bench.folder / "a" / "cells"
    wait_until(lambda: (cells / "000001").exists() and guests_of(cells))
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "the same command goes on from there" in out + err
    assert guests_of(bench.folder / "a") == [] and not list(cells.glob("*.tmp"))
    bench.behave()
    assert bench.campaign("a")[0] == 0
    assert bench.campaign("b")[0] == 0
    assert hashes(bench.folder / "a") == hashes(bench.folder / "b")


def test_a_killed_runner_takes_its_guests_along(bench: Bench) -> None:
    bench.behave(all="held")
    process = bench.start("run", "lab", "--out", "a", "--no-images")
    cells = bench.folder / "a" / "cells"
    wait_until(lambda: guests_of(cells))
    process.kill()
    process.communicate()
    wait_until(lambda: not guests_of(cells))
    bench.behave()
    status, text = bench.campaign("a")
    assert (status, "12 of 12 cells complete" in text) == (0, True)


def test_a_claim_that_fails_is_the_exit_status(bench: Bench) -> None:
    write_lab(bench.lab, CAMPAIGN.replace("= count(*) AS holds", "< count(*) AS holds"))
    status, text = bench.campaign("a", "--profile", "quick")
    assert (status, "refuted" in text) == (1, True)
    refuted = CAMPAIGN.replace("= count(*) AS holds", "< count(*) AS holds")
    write_lab(bench.lab, refuted.replace("    sql:", "    expect: refuted\n    why: It was written so.\n    sql:"))
    status, text = bench.campaign("a", "--profile", "quick")
    assert (status, "refuted, as expected" in text) == (0, True)


def test_sql_that_fails_decides_nothing(bench: Bench) -> None:
    write_lab(bench.lab, CAMPAIGN.replace("count(*) AS flows", "sum(CAST(label AS INTEGER)) AS flows"))
    status, text = bench.campaign("a", "--profile", "quick")
    assert (status, "undecided" in text, "the SQL fails" in text) == (1, True, True)


def test_mistakes_are_found_before_anything_runs(bench: Bench) -> None:
    write_lab(bench.lab, CAMPAIGN.replace("values: [5 us, 10 us]", "values: [5 us, 10 parsecs]"))
    status, text = bench.campaign("a")
    assert (status, "10 parsecs" in text) == (2, True) and not (bench.folder / "a").exists()
    status, text = bench.campaign("a", "--set", "duration")
    assert (status, "expected FIELD=VALUE" in text) == (2, True)
    (bench.tools / "linux").unlink()
    write_lab(bench.lab)
    status, text = bench.campaign("a")
    assert (status, "is missing" in text) == (1, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_reported_and_finished_cells_are_kept(bench: Bench) -> None:
    small = bench.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=65m", "tmpfs", small], check=True)
    try:
        with (small / "ballast").open("wb") as ballast:
            ballast.truncate(0)
        (small / "run").mkdir()
        bench.behave(seed_3="held")
        process = bench.start("run", "lab", "--out", "small/run", "--no-images")
        wait_until(lambda: (small / "run" / "cells" / "000001").exists())
        (small / "ballast").write_bytes(bytes(64 << 20))
        bench.release()
        process_output = "".join(process.communicate(timeout=60))
        assert process.returncode == 1 and "the disk is full" in process_output, process_output
        assert "Traceback" not in process_output
        (small / "ballast").unlink()
        bench.behave()
        assert (small / "run" / "cells" / "000000" / "cell.json").exists()
        assert bench.campaign("small/run")[0] == 0, "with room, it goes on"
    finally:
        subprocess.run(["umount", "-l", small], check=True)


def test_a_wrong_view_is_named_and_can_be_mended(bench: Bench) -> None:
    campaign = bench.folder / "lab" / "campaign.yml"
    good = campaign.read_text()
    campaign.write_text(good.replace("FROM ended GROUP", "FROM endde GROUP"))
    status, text = bench.campaign("a", "--profile", "quick")
    assert (status, (bench.folder / "a").exists()) == (2, False), text
    assert "campaign.yml:13:11: views.shares: the SQL is wrong" in text and "endde" in text
    campaign.write_text(good)
    assert bench.campaign("a", "--profile", "quick")[0] == 0


def test_the_report_can_be_made_again_from_the_tables(bench: Bench) -> None:
    assert bench.campaign("a", "--profile", "quick")[0] == 0
    page = bench.folder / "a" / "report.html"
    before = page.read_text()
    page.unlink()
    for cell in (bench.folder / "a" / "cells").iterdir():
        subprocess.run(["rm", "-rf", cell], check=True)
    assert bench.run("report", "a")[0] == 0
    assert page.read_text() == before
    assert (bench.folder / "a" / "figures" / "queue.png").read_bytes()[:4] == b"\x89PNG"
    assert len(json.loads((bench.folder / "a" / "claims.json").read_text())) == 1
