# SPDX-License-Identifier: Apache-2.0
"""Files of guest memory: their place, and which of them are kept for the next guest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from qbed.substrates import CellError
from qbed.substrates.virtual import guest_memory as module
from qbed.substrates.virtual.guest_memory import MEMORY_FD, guest_memory, kept_memory

MB = 1 << 20


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The two folders that memory may be in."""
    found = tmp_path / "first", tmp_path / "second"
    for folder in found:
        folder.mkdir()
    monkeypatch.setattr(module, "_FOLDERS", found)
    yield found
    assert not module._kept and not module._scopes


def _inode(needed: int = MB) -> int:
    """Uses memory for a guest, and returns its file's inode."""
    with guest_memory(needed) as memory:
        os.pwrite(memory.descriptor, b"used", 0)
        return os.fstat(memory.descriptor).st_ino


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_memory_is_a_file_without_a_name(folders: tuple[Path, Path]) -> None:
    with guest_memory(MB) as memory:
        assert memory.folder == folders[0] and memory.descriptor >= MEMORY_FD
        assert os.fstat(memory.descriptor).st_nlink == 0 and not os.get_inheritable(memory.descriptor)
        assert not list(folders[0].iterdir())
    assert not _is_open(memory.descriptor)


def test_memory_is_kept_only_in_the_context() -> None:
    with kept_memory():
        first = _inode()
        assert _inode() == first
        with kept_memory():
            assert _inode() == first
        assert _inode() == first
        (kept,) = module._kept
    assert not _is_open(kept.descriptor)


def test_guests_at_the_same_time_have_different_memory() -> None:
    with kept_memory():
        for _ in range(3):
            with ExitStack() as stack:
                files = [stack.enter_context(guest_memory(MB, 3)).descriptor for _ in range(3)]
                assert len(set(files)) == 3
            assert {memory.descriptor for memory in module._kept} == set(files)


def test_no_more_memory_is_kept_than_a_cell_has_guests() -> None:
    with kept_memory():
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(guest_memory(MB, 4))
        assert len(module._kept) == 4
        with guest_memory(MB, 2):
            assert len(module._kept) == 1
        _inode()
        assert len(module._kept) == 1


def test_memory_is_kept_after_an_error() -> None:
    with kept_memory():
        with pytest.raises(RuntimeError), guest_memory(MB):
            raise RuntimeError
        assert len(module._kept) == 1


def test_memory_that_cannot_grow_is_replaced(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's own blocks count as room."""
    with kept_memory():
        with guest_memory(MB) as memory:
            os.pwrite(memory.descriptor, bytes(2 * MB), 0)
        usage = shutil.disk_usage(folders[0])
        with monkeypatch.context() as full:
            full.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0))
            with guest_memory(2 * MB) as same:
                assert same is memory
            with pytest.raises(CellError), guest_memory(16 * MB):
                pass
        with guest_memory(MB) as memory:
            os.pwrite(memory.descriptor, bytes(2 * MB), 0)
        monkeypatch.setattr(
            shutil, "disk_usage", lambda place: usage._replace(free=0 if isinstance(place, int) else usage.free)
        )
        with guest_memory(16 * MB) as other:
            assert other is not memory
            assert os.fstat(other.descriptor).st_blocks == 0


def test_a_folder_without_room_is_not_used(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(folders[0])
    monkeypatch.setattr(
        shutil, "disk_usage", lambda place: usage._replace(free=0 if place == folders[0] else usage.free)
    )
    with guest_memory(MB) as memory:
        assert memory.folder == folders[1]


def test_no_room_is_an_error() -> None:
    message = r"no place for the guest's memory: .* no 1099511627776 MB free"
    with pytest.raises(CellError, match=message), guest_memory(1 << 60):
        pass
