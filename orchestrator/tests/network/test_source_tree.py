# SPDX-License-Identifier: Apache-2.0
"""The hash of a source tree, and the update of a built tree to another one."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from qbed.base.locations import checkout
from qbed.base.source_tree import tree_hash


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QBED_CACHE", str(tmp_path / "cache"))
    for name in ("net/ipv4/tcp.c", "drivers/gpu/card.c", ".git/index", "net/ipv4/tcp.o", "scripts/run"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "tree"


def test_the_hash_covers_names_contents_and_executable_files(tree: Path) -> None:
    found = [tree_hash(tree)]
    (tree / "net/ipv4/tcp.c").write_text("another")
    found.append(tree_hash(tree))
    (tree / "net/ipv4/tcp.c").rename(tree / "net/ipv4/udp.c")
    found.append(tree_hash(tree))
    (tree / "scripts/run").chmod(0o755)
    found.append(tree_hash(tree))
    (tree / "net/link.c").symlink_to("ipv4/udp.c")
    found.append(tree_hash(tree))
    assert len(set(found)) == len(found)


def test_the_hash_covers_neither_unused_drivers_nor_results_of_a_build_nor_the_place(tree: Path) -> None:
    found = tree_hash(tree)
    for name in ("drivers/gpu/card.c", ".git/index", "net/ipv4/tcp.o"):
        (tree / name).write_text("another")
    os.utime(tree / "net/ipv4/tcp.c", (1, 1))
    assert tree_hash(tree) == found
    assert tree_hash(tree.rename(tree.with_name("moved"))) == found


def update_tree() -> ModuleType:
    root = checkout()
    assert root is not None
    found = importlib.util.spec_from_file_location("update_tree", root / "kernel" / "update_tree.py")
    assert found is not None and found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


def test_an_update_writes_only_files_that_differ(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for folder, names in ((source, ("same.c", "new/added.c", "edited.c")), (target, ("same.c", "gone.c", "edited.c"))):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{name} of {folder.name}" if name == "edited.c" else name)
            os.utime(folder / name, (1, 1))
    (source / "link.h").symlink_to("same.c")
    (source / "edited.c").chmod(0o755)
    update_tree().update(source, target)
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*.[ch]")) == [
        "edited.c",
        "link.h",
        "new/added.c",
        "same.c",
    ]
    assert (target / "edited.c").read_text() == "edited.c of source" and os.access(target / "edited.c", os.X_OK)
    assert (target / "link.h").readlink() == Path("same.c")
    assert (target / "same.c").stat().st_mtime == 1 and (target / "edited.c").stat().st_mtime > 1
