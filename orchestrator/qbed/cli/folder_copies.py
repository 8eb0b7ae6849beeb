# SPDX-License-Identifier: Apache-2.0
"""Copies of a scheme's or congestion control's folder under another name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from qbed.base.errors import LabError, QbedError
from qbed.base.files import read_bytes
from qbed.base.locations import MARKER, checkout, congestion_folder, repository, schemes_folder

LARGEST = 1 << 20


def copy_folder(like: Path, place: Path, parts: Sequence[str], readme: str, word: str | None = None) -> Path:
    """Write the folder `place`, with the files of `like` that the globs of `parts` match; nothing is overwritten.

    The name of `place` replaces `word`, by default the name of `like`, in texts and file names.
    """
    word, name = word or like.name, place.name
    if place.exists() or place.is_symlink():
        raise LabError([f"{place} exists already; choose another name"])
    beside = place.with_name(f".{name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    for file in sorted(file for part in parts for file in like.glob(part)):
        written = beside / renamed(str(file.relative_to(like)), word, name)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(renamed(read_bytes(file, LARGEST).decode(), word, name))
    (beside / "README.md").write_text(readme.format(name=name, like=word))
    beside.rename(place)
    return place


def user_folder(name: str) -> Path:
    """The folder `schemes` or `congestion` for new ones: in the user's repository, or in this checkout."""
    root = repository()
    if root is None and checkout() is not None:
        return schemes_folder() if name == "schemes" else congestion_folder()
    if root is None:
        raise QbedError(f"there is no {MARKER} in this folder or above: run `qbed init` where your code is to be")
    (root / name).mkdir(exist_ok=True)
    return root / name


def renamed(text: str, like: str, name: str) -> str:
    """Replace a name: `ecn` alone or before `_`, `ECN_` of its identifiers, `sch_ecn`, `tcp_ecn` and `test_ecn`.

    `without_ecn` and `INET_ECN_set_ce` stand for the two bits in a packet.
    """
    text = re.sub(rf"(^|[^A-Za-z_]){like}(?![a-z])", rf"\g<1>{name}", text, flags=re.M)
    text = re.sub(rf"(^|[^A-Za-z_]_?){like.upper()}_", rf"\g<1>{name.upper()}_", text, flags=re.M)
    return re.sub(rf"(sch|tcp|test)_{like}", rf"\g<1>_{name}", text)
