# SPDX-License-Identifier: Apache-2.0
"""The hash of a Linux source tree: of the files that the build of User-Mode Linux reads.

Files are read once: the hash is cached under the names, sizes and times of the files.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path

from qbed.base.cache import read_cache, write_cache
from qbed.base.files import open_regular
from qbed.base.locations import sources_folder

_CACHE = "source-trees.json"
_BUILT = ("*.o", "*.a", "*.ko", "*.cmd", ".config", ".git/*", "include/config/*", "include/generated/*")
"""Results of a build in the tree, which kernel/build.sh leaves out as well."""


def tree_hash(tree: Path) -> str:
    """16 digits of the hash of a tree's files. OSError."""
    files = sorted(_files(tree))
    known = "".join(f"{name}\0{size} {changed_ns}\0" for name, size, changed_ns in files)
    key = hashlib.sha256(f"{tree}\0{known}".encode(errors="surrogateescape")).hexdigest()
    if not (found := read_cache(_CACHE).get(key)):
        found = _content(tree, [name for name, _, _ in files])
        write_cache(_CACHE, key, found)
    return str(found)


def _content(tree: Path, names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        path = tree / name
        digest.update(f"{name}\0{path.lstat().st_mode & 0o100}\0".encode(errors="surrogateescape"))
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()))
            continue
        with open_regular(path) as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _files(tree: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of the last change of each file and link."""
    list_of_unused = sources_folder() / "kernel" / "unused-sources"
    unused = list_of_unused.read_text().split() if list_of_unused.exists() else []
    left_out = re.compile("|".join(translate(pattern) for pattern in (*unused, *_BUILT))).match
    folders = [""]
    while folders:
        below = folders.pop()
        with os.scandir(tree / below) as entries:
            for entry in entries:
                name = below + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if name != ".git":
                        folders.append(f"{name}/")
                elif not left_out(name):
                    status = entry.stat(follow_symlinks=False)
                    yield name, status.st_size, status.st_ctime_ns
