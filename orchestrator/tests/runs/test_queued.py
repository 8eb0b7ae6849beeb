# SPDX-License-Identifier: Apache-2.0
"""Cells by their keys: queued, run by any process, and taken from the store by a run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from campaigns import Bench, guests_of, hashes, wait_until, write_manifest


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.environment["QBED_STORE"] = "1 GB"
    return bench


def keys(bench: Bench, *arguments: str) -> list[str]:
    status, text = bench.run("queue", "lab", "--profile", "quick", *arguments)
    assert status == 0, text
    return [line for line in text.splitlines() if len(line) == 64]


def plans(bench: Bench) -> list[Path]:
    return sorted((bench.folder / "cache" / "queue").glob("??/*/plan.json"))


def test_cells_that_are_run_by_their_keys_are_taken_by_the_run(bench: Bench) -> None:
    filed = keys(bench)
    assert len(set(filed)) == 2 and filed == keys(bench)
    assert [path.parent.name for path in plans(bench)] == sorted(filed)
    for key, message in ((filed[0], "complete, in"), (filed[0], "it was in the store"), (filed[1], "complete, in")):
        status, text = bench.run("cell", key)
        assert (status, message in text) == (0, True), text
    assert plans(bench) == [] and keys(bench) == []
    bench.behave(all="panic")
    status, text = bench.campaign("a", "--profile", "quick")
    assert (status, "2 of 2 cells complete (2 from the store)" in text) == (0, True), text
    bench.behave()
    assert bench.campaign("b", "--profile", "quick", "--no-store")[0] == 0
    assert hashes(bench.folder / "a") == hashes(bench.folder / "b")


def test_two_who_run_one_cell_do_its_work_once(bench: Bench) -> None:
    bench.behave(all="slow")
    key = keys(bench)[0]
    both = [bench.start("cell", key) for _ in range(2)]
    outputs = sorted("".join(process.communicate(timeout=60)).partition(",")[0].strip() for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert outputs == ["complete", "it was in the store"]


def test_two_runs_of_a_campaign_do_its_work_once(bench: Bench) -> None:
    """In folders of their own, and neither has finished when the other begins."""
    bench.behave(all="slow")
    arguments = ["run", "lab", "--profile", "quick", "--no-images", "--jobs", "2", "--out"]
    both = [bench.start(*arguments, out) for out in "ab"]
    outputs = ["".join(process.communicate(timeout=120)) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert (
        sum(int(text.partition(" from the store")[0].rpartition("(")[2] or 0) for text in outputs if "(" in text) == 2
    )
    assert hashes(bench.folder / "a") == hashes(bench.folder / "b")


def test_a_cell_that_is_killed_is_run_again(bench: Bench) -> None:
    bench.behave(all="held")
    key = keys(bench)[0]
    process = bench.start("cell", key)
    wait_until(lambda: guests_of(bench.folder / "cache"))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not guests_of(bench.folder / "cache"))
    bench.behave()
    assert bench.run("cell", key)[0] == 0 and key not in keys(bench)


def test_a_cell_that_fails_is_kept_and_tried_again(bench: Bench) -> None:
    bench.behave(all="panic")
    key = keys(bench)[0]
    status, text = bench.run("cell", key)
    assert (status, "the cell failed: the guest's kernel panicked" in text) == (1, True), text
    kept = bench.folder / "cache" / "queue" / key[:2] / key / "cells" / "000000.failed"
    assert "booting" in (kept / "work" / "console.log").read_text()
    bench.behave()
    assert bench.run("cell", key)[0] == 0 and not kept.exists()


def test_an_unknown_cell_is_reported(bench: Bench) -> None:
    (key, other) = keys(bench)
    for wrong, message in (
        ("../../etc", "`../../etc` is not the key of a cell: expected 64 hexadecimal digits"),
        ("0" * 64, f"no plan is queued under {'0' * 64}: `qbed queue LAB` queues"),
    ):
        status, text = bench.run("cell", wrong)
        assert (status, message in text) == (2, True), text
    plan = bench.folder / "cache" / "queue" / key[:2] / key / "plan.json"
    plan.write_bytes(plan.read_bytes() + b" ")
    status, text = bench.run("cell", key)
    assert (status, "has another key here: it is damaged" in text) == (2, True), text
    write_manifest(bench.tools, kernel_version="newer")
    status, text = bench.run("cell", other)
    assert (status, "was queued with another toolchain" in text) == (2, True), text
    bench.environment["QBED_STORE"] = "off"
    assert "a cell that is run by its key has no place for its result" in bench.run("cell", key)[1]
