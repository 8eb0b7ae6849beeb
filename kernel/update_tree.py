# SPDX-License-Identifier: GPL-2.0-only
"""Make a source tree equal to another one: `update_tree.py FROM TO`.

Only files that differ are written, so that make compiles only what depends on them.
"""

import filecmp
import os
import shutil
import sys
from pathlib import Path


def entries(tree: Path) -> set[str]:
    """The files and links of a tree."""
    found = set()
    for folder, folders, files in os.walk(tree):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        found |= {os.path.relpath(Path(folder, name), tree) for name in [*files, *links]}
    return found


def same(a: Path, b: Path) -> bool:
    """Whether two files or links are equal."""
    if a.is_symlink() or b.is_symlink():
        return a.is_symlink() and b.is_symlink() and a.readlink() == b.readlink()
    return filecmp.cmp(a, b, shallow=False)


def update(source: Path, target: Path) -> None:
    """Make `target` equal to `source`, except for empty folders."""
    wanted, found = entries(source), entries(target)
    for name in found - wanted:
        (target / name).unlink()
    for name in wanted:
        if name in found and same(source / name, target / name):
            continue
        (target / name).unlink(missing_ok=True)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target / name, follow_symlinks=False)
        if not (source / name).is_symlink():
            (target / name).chmod((source / name).stat().st_mode)


if __name__ == "__main__":
    update(Path(sys.argv[1]), Path(sys.argv[2]))
