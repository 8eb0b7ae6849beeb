# SPDX-License-Identifier: Apache-2.0
"""Uploaded lab folders: a ZIP or a (compressed) tar of files with plain names.

An archive is untrusted: names must be plain, links and devices are refused, and sizes are counted while unpacking
instead of taken from the archive.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from qbed.base.errors import MissingError, QbedError

MAX_FILES, MAX_BYTES, MAX_DEPTH = 200, 16 << 20, 4
MAX_ENTRIES, MAX_TAR = 4 * MAX_FILES, MAX_BYTES + (2 << 20)
"""Limits that include folders and headers."""
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_PIECE = 1 << 16
_BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError,
)  # fmt: skip
LAB_FILES = ("lab.yml", "campaign.yml")


class UploadError(QbedError):
    """The upload is no lab folder."""


Member = tuple[str, IO[bytes]]


class Uploads:
    """Uploaded folders, by the checksum of their archives. The oldest are deleted beyond a limit."""

    def __init__(self, folder: Path, max_uploads: int) -> None:
        self._folder, self._max_uploads = folder / "uploads", max_uploads
        self._folder.mkdir(parents=True, exist_ok=True)
        for leftover in self._folder.glob(".new-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def add(self, archive: bytes) -> tuple[str, list[str]]:
        """Unpack an archive; returns its name and its files. `UploadError`."""
        name = hashlib.sha256(archive).hexdigest()
        place = self._folder / name
        if not place.exists():
            new = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
            try:
                _unpack(archive, new)
                top = _top(new)
                with suppress(FileExistsError, OSError):  # another client has just sent the same archive
                    top.rename(place)
            finally:
                shutil.rmtree(new, ignore_errors=True)
        place.touch()
        self._delete_oldest()
        return name, sorted(str(file.relative_to(place)) for file in place.rglob("*") if file.is_file())

    def find(self, name: str) -> Path:
        """The folder of a name; `MissingError`."""
        place = self._folder / name
        if not place.is_dir():
            raise MissingError(f"there is no upload {name}: send it (again) first")
        return place

    def _delete_oldest(self) -> None:
        places = sorted(self._folder.glob("[0-9a-f]*"), key=lambda path: path.stat().st_mtime)
        for place in places[: -self._max_uploads]:
            shutil.rmtree(place, ignore_errors=True)


def _top(folder: Path) -> Path:
    """The folder of the lab: the upload itself, or its only folder."""
    inside: list[Path] = list(folder.iterdir())
    nested = inside if len(inside) == 1 and inside[0].is_dir() else []
    for place in [folder, *nested]:
        if any((place / name).is_file() for name in LAB_FILES):
            return place
    raise UploadError("expected a lab folder: there is no lab.yml and no campaign.yml")


def _unpack(archive: bytes, folder: Path) -> None:
    left = MAX_BYTES
    seen: set[str] = set()
    try:
        for count, (name, stream) in enumerate(_members(archive), 1):
            if count > MAX_FILES:
                raise UploadError(f"expected at most {MAX_FILES} files")
            place = folder.joinpath(*_parts(name))
            if name.lower() in seen:
                raise UploadError(f"{name!r} is there twice")
            seen.add(name.lower())
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file:
                while piece := stream.read(_PIECE):
                    left -= len(piece)
                    if left < 0:
                        raise UploadError(f"expected at most {MAX_BYTES >> 20} MiB of files")
                    file.write(piece)
    except UploadError:
        raise
    except _BROKEN as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise UploadError(f"the archive is damaged, or no ZIP and no tar: {why}") from None


def _parts(name: str) -> list[str]:
    parts = name.removeprefix("./").split("/")
    if len(parts) > MAX_DEPTH or not all(_PART.fullmatch(part) for part in parts):
        raise UploadError(
            f"{name[:200]!r} is no name for a file of a lab: expected letters, digits, `_`, `-` and `.`,"
            f" at most {MAX_DEPTH} folders deep"
        )
    return parts


def _members(archive: bytes) -> Iterator[Member]:
    """Generate the archive's files, without folders; reject other members."""
    if archive.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            if len(packed.infolist()) > MAX_ENTRIES:
                raise UploadError(f"expected at most {MAX_FILES} files")
            for entry in packed.infolist():
                kind = stat.S_IFMT(entry.external_attr >> 16)
                if entry.is_dir():
                    continue
                if kind not in (0, stat.S_IFREG):
                    raise UploadError(f"{entry.filename[:200]!r} is no plain file")
                with packed.open(entry) as stream:
                    yield entry.filename, stream
        return
    with tarfile.open(fileobj=io.BytesIO(_inflated(archive)), mode="r:") as packed:
        for number, member in enumerate(packed):
            if number > MAX_ENTRIES:
                raise UploadError(f"expected at most {MAX_FILES} files")
            if member.isdir():
                continue
            found = packed.extractfile(member) if member.isreg() and not member.issparse() else None
            if found is None:
                raise UploadError(f"{member.name[:200]!r} is no plain file")
            yield member.name, found


def _inflated(archive: bytes) -> bytes:
    """Decompress a tar, if it is compressed. Its length is limited, since lengths in its headers are untrusted."""
    if not archive.startswith(b"\x1f\x8b"):
        return archive
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
    content = unzip.decompress(archive, MAX_TAR)
    if unzip.unconsumed_tail:
        raise UploadError(f"expected at most {MAX_BYTES >> 20} MiB of files")
    return content


def files_in(folder: Path) -> Iterator[Path]:
    """The files of a lab folder that belong to the lab: no hidden files, links or runs."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__", "runs")))
        for name in sorted(names):
            path = Path(place, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def checksums(folder: Path) -> dict[str, str]:
    """The checksums of files by name."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files_in(folder)}
