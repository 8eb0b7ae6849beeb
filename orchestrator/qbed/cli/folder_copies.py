# SPDX-License-Identifier: Apache-2.0
"""Copies of a scheme's or congestion control's folder under another name."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from qbed.base.errors import LabError
from qbed.base.files import read_bytes

LARGEST = 1 << 20


def copy_folder(like: Path, name: str, parts: Sequence[str], readme: str, word: str | None = None) -> Path:
    """Write the folder `name` beside `like`, with the files that the globs of `parts` match; nothing is overwritten.

    `name` replaces `word`, by default the folder's name, in texts and file names.
    """
    word = word or like.name
    place = like.with_name(name)
    if place.exists() or place.is_symlink():
        raise LabError([f"{place} exists already; choose another name"])
    beside = like.with_name(f".{name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    for file in sorted(file for part in parts for file in like.glob(part)):
        written = beside / renamed(str(file.relative_to(like)), word, name)
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_text(renamed(read_bytes(file, LARGEST).decode(), word, name))
    (beside / "README.md").write_text(readme.format(name=name, like=word))
    beside.rename(place)
    return place


def renamed(text: str, like: str, name: str) -> str:
    """Replace a name: `ecn` alone or before `_`, `ECN_` of its identifiers, `sch_ecn`, `tcp_ecn` and `test_ecn`.

    `without_ecn` and `INET_ECN_set_ce` stand for the two bits in a packet.
    """
    text = re.sub(rf"(^|[^A-Za-z_]){like}(?![a-z])", rf"\g<1>{name}", text, flags=re.M)
    text = re.sub(rf"(^|[^A-Za-z_]_?){like.upper()}_", rf"\g<1>{name.upper()}_", text, flags=re.M)
    return re.sub(rf"(sch|tcp|test)_{like}", rf"\g<1>_{name}", text)
