# SPDX-License-Identifier: Apache-2.0
"""Runs that continue on another toolchain: cells stay if they load none of the files that changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from campaigns import Bench, hashes, write_lab, write_manifest

from qbed.base.json_files import Row, write_sealed

SCHEMES = """\
question: Do the schemes differ?
axes:
  switches.default.scheme: [droptail, ecn, stamp]
  seed: [1, 2]
"""
REFUSED = "the kernel, modules and agent differ"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A finished run `a` of six cells with three schemes, two of which have a module."""
    bench = Bench(tmp_path)
    write_lab(bench.lab, SCHEMES)
    for name in ("sch_ecn", "sch_stamp"):
        change_module(bench, name, b"1")
    status, text = bench.campaign("a", "--no-store")
    assert status == 0, text
    return bench


def change_module(bench: Bench, name: str, content: bytes) -> None:
    """Replace a module, as a build of changed sources does."""
    (bench.tools / "modules" / f"{name}.ko").write_bytes(content)
    write_manifest(bench.tools, kernel_version="fake", modules_hash=f"{name} {content!r}")


def cells(bench: Bench, out: str) -> set[tuple[str, int]]:
    """The finished cells of a run with the times of their records."""
    records = (bench.folder / out / "cells").glob("??????/cell.json")
    return {(path.parent.name, path.stat().st_mtime_ns) for path in records}


def test_a_change_of_a_module_that_no_cell_loads_stops_no_run(bench: Bench) -> None:
    before = cells(bench, "a")
    bench.behave(all="panic")
    change_module(bench, "sch_abq", b"2")
    status, text = bench.campaign("a", "--no-store")
    assert (status, "6 cells are finished already" in text, "changed" in text) == (0, True, False), text
    assert cells(bench, "a") == before and len(before) == 6


@pytest.mark.parametrize("options", [(), ("--fresh",)])
def test_only_cells_that_load_the_changed_module_are_run_again(bench: Bench, options: tuple[str, ...]) -> None:
    before, tables = cells(bench, "a"), hashes(bench.folder / "a")
    change_module(bench, "sch_ecn", b"2")
    status, text = bench.campaign("a", "--no-store", *options)
    assert "modules/sch_ecn.ko changed: 2 finished cells are run again" in text, text
    assert (status, "4 cells are finished already" in text) == (0, True), text
    assert {name for name, _ in before - cells(bench, "a")} == {"000002", "000003"}
    assert hashes(bench.folder / "a") == tables, "the fake kernel does the same"
    identity = json.loads((bench.folder / "a" / "campaign.json").read_bytes())
    assert identity["toolchain"]["modules_hash"] == "sch_ecn b'2'"


def test_the_store_has_cells_that_do_not_load_the_changed_module(bench: Bench) -> None:
    bench.environment["QBED_STORE"] = "1 GB"
    assert bench.campaign("b")[0] == 0
    change_module(bench, "sch_ecn", b"2")
    status, text = bench.campaign("c")
    assert (status, "6 of 6 cells complete (4 from the store)" in text) == (0, True), text


@pytest.mark.parametrize("what", ["module", "kernel", "kernel, and a record is damaged"])
def test_a_run_of_which_no_cell_would_stay_is_another_run(bench: Bench, what: str) -> None:
    before = cells(bench, "a")
    if what == "module":
        change_module(bench, "qlink", b"2")
    else:
        write_manifest(bench.tools, kernel_version="newer")
    if "damaged" in what:
        record = bench.folder / "a" / "cells" / "000001" / "cell.json"
        times = (record.stat().st_atime_ns, record.stat().st_mtime_ns)
        record.write_text("{}")
        os.utime(record, ns=times)
    status, text = bench.campaign("a", "--no-store")
    assert (status, REFUSED in text, "--fresh" in text) == (2, True, True), text
    assert cells(bench, "a") == before


def test_obsolete_cells_are_found_after_an_interruption(bench: Bench) -> None:
    """The folder has the new toolchain before its obsolete cells are removed."""
    change_module(bench, "sch_ecn", b"2")
    file = bench.folder / "a" / "campaign.json"
    identity = {name: value for name, value in json.loads(file.read_bytes()).items() if name != "sha256"}
    identity["toolchain"]["modules_hash"] = "sch_ecn b'2'"
    write_sealed(file, identity)
    status, text = bench.campaign("a", "--no-store")
    assert (status, "modules/sch_ecn.ko changed: 2 finished cells are run again" in text) == (0, True), text


@pytest.mark.parametrize("inputs", [{}, {"inputs": []}, {"inputs": {"x": 1}}])
def test_without_a_record_of_inputs_a_run_needs_its_toolchain(bench: Bench, inputs: Row) -> None:
    """An older qbed left none, and the folder may be untrusted."""
    for file in (bench.folder / "a" / "cells").glob("*/cell.json"):
        row = {name: value for name, value in json.loads(file.read_bytes()).items() if name not in ("inputs", "sha256")}
        write_sealed(file, row | inputs)
    status, text = bench.campaign("a", "--no-store")
    assert (status, "6 cells are finished already" in text) == (0, True), text
    change_module(bench, "sch_abq", b"2")
    status, text = bench.campaign("a", "--no-store")
    assert (status, REFUSED in text) == (2, True), text


@pytest.mark.parametrize(("changed", "status"), [("sch_abq", 0), ("sch_ecn", 2)])
def test_shards_of_another_toolchain_are_merged_if_their_cells_load_the_same(
    bench: Bench, changed: str, status: int
) -> None:
    shards = ("s1", "s2")
    for part in (1, 2):
        assert bench.campaign(f"s{part}", "--no-store", "--shard", f"{part}/2")[0] == 0
    change_module(bench, changed, b"2")
    found, text = bench.run("merge", "lab", *shards, "--no-images", "--out", "merged")
    assert found == status, text
    assert (f"is a shard of another campaign: {REFUSED}" in text) == (status == 2), text


def test_the_default_folder_depends_on_what_the_plans_load(bench: Bench) -> None:
    def folders() -> int:
        assert bench.run("run", "lab", "--no-images")[0] == 0
        return len(list((bench.folder / "runs").iterdir()))

    assert folders() == 1
    change_module(bench, "sch_abq", b"2")
    assert folders() == 1
    change_module(bench, "sch_ecn", b"2")
    assert folders() == 2
