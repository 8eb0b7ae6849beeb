# SPDX-License-Identifier: Apache-2.0
"""The store of finished cells: what is put is what is taken, or nothing is."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbed.storage.cell_store import CellStore, default_store, key
from qbed.storage.checksums import CELL_ROW
from qbed.storage.identity import StoreError

ROW = {"status": "complete", "flows": 3, "warnings": []}
MARK = key("0" * 64, {})


@pytest.fixture
def store(tmp_path: Path) -> CellStore:
    return CellStore(tmp_path / "store", 10_000_000)


def finished(folder: Path, content: bytes = b"rows") -> Path:
    folder.mkdir(parents=True)
    (folder / "flows.arrow").write_bytes(content)
    (folder / "h1-eth0.pcap").write_bytes(b"frames")
    (folder / CELL_ROW).write_text("the run's own")
    return folder


def taken(store: CellStore, into: Path, mark: str = MARK) -> dict[str, bytes] | None:
    into.mkdir(exist_ok=True)
    row = store.take(mark, into)
    assert row in (None, ROW)
    files = {path.name: path.read_bytes() for path in into.iterdir()}
    assert row is not None or not files
    return None if row is None else files


def test_what_is_put_is_taken(store: CellStore, tmp_path: Path) -> None:
    assert taken(store, tmp_path / "before") is None
    store.put(MARK, finished(tmp_path / "cell"), ROW)
    files = {"flows.arrow": b"rows", "h1-eth0.pcap": b"frames"}
    assert taken(store, tmp_path / "a") == taken(store, tmp_path / "b") == files
    assert taken(store, tmp_path / "c", key("1" * 64, {})) is None
    assert [cell.key for cell in store.cells()] == [MARK]


@pytest.mark.parametrize("name", ["flows.arrow", "h1-eth0.pcap", CELL_ROW])
@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_what_is_damaged_is_no_cell(store: CellStore, tmp_path: Path, name: str, how: str) -> None:
    store.put(MARK, finished(tmp_path / "cell"), ROW)
    victim = next(store.folder.glob(f"??/{MARK}/{name}"))
    content = victim.read_bytes()
    victim.unlink()
    if how != "gone":
        victim.write_bytes(content[:-1] + (b"" if how == "cut" else bytes([content[-1] ^ 1])))
    assert taken(store, tmp_path / "a") is None
    assert list(store.cells()) == []
    store.put(MARK, tmp_path / "cell", ROW)
    assert taken(store, tmp_path / "b") is not None


def test_what_verify_finds_is_gone(store: CellStore, tmp_path: Path) -> None:
    other = key("1" * 64, {})
    for number, mark in enumerate((MARK, other)):
        store.put(mark, finished(tmp_path / str(number), bytes([number])), ROW)
    assert list(store.verify()) == []
    next(store.folder.glob(f"??/{other}/flows.arrow")).write_bytes(b"2")
    assert [error.file.name for error in store.verify()] == ["flows.arrow"]
    assert [cell.key for cell in store.cells()] == [MARK]


def test_what_was_not_used_for_longest_goes_first(store: CellStore, tmp_path: Path) -> None:
    marks = [key(f"{number:064}", {}) for number in range(4)]
    for number, mark in enumerate(marks):
        store.put(mark, finished(tmp_path / str(number), bytes(1_000_000)), ROW)
        os.utime(next(store.folder.glob(f"??/{mark}/{CELL_ROW}")), (number, number))
    assert taken(store, tmp_path / "used", marks[0]) is not None
    assert [cell.key for cell in store.shrink(2_500_000)] == [marks[2], marks[1]]
    assert {cell.key for cell in store.cells()} == {marks[0], marks[3]}
    assert store.shrink() == []


def _fight(folder: Path, number: int) -> None:
    store, folder_copy = CellStore(folder / "store", 1_000_000), folder / str(number)
    cell = finished(folder_copy / "cell")
    for round_number in range(50):
        store.put(MARK, cell, ROW)
        assert taken(store, folder_copy / str(round_number)) in (
            None,
            {"flows.arrow": b"rows", "h1-eth0.pcap": b"frames"},
        )
        if round_number % 3 == number:
            store.drop(MARK)


def test_many_at_once(tmp_path: Path) -> None:
    """Each takes all of a cell or nothing, while others put it and throw it away."""
    context = multiprocessing.get_context("spawn")
    fighters = [context.Process(target=_fight, args=(tmp_path, number)) for number in range(3)]
    for fighter in fighters:
        fighter.start()
    for fighter in fighters:
        fighter.join()
    assert [fighter.exitcode for fighter in fighters] == [0, 0, 0]
    assert not list((tmp_path / "store").glob("??/.*"))


@given(plan=st.text(), other=st.text(), agent=st.text(), another=st.text())
def test_a_key_is_of_plan_and_toolchain(plan: str, other: str, agent: str, another: str) -> None:
    same = (plan, agent) == (other, another)
    assert (key(plan, {"agent": agent}) == key(other, {"agent": another})) == same


def test_a_full_disk_keeps_nothing(store: CellStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cell = finished(tmp_path / "cell")
    monkeypatch.setattr("qbed.storage.cell_store.move", full)
    store.put(MARK, cell, ROW)
    assert list(store.cells()) == [] and not list(store.folder.glob("??/.*"))


def test_the_environment_sets_the_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path))
    for setting, bytes_ in (("2 GB", 2_000_000_000), ("", 20_000_000_000)):
        monkeypatch.setenv("QBED_STORE", setting)
        found = default_store()
        assert found is not None and (found.folder, found.max_bytes) == (tmp_path / "cells", bytes_)
    monkeypatch.setenv("QBED_STORE", "off")
    assert default_store() is None
    monkeypatch.setenv("QBED_STORE", "much")
    with pytest.raises(StoreError, match="QBED_STORE: expected `off` or a size such as `20 GB`"):
        default_store()
