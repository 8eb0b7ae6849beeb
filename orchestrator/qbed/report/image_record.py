# SPDX-License-Identifier: Apache-2.0
"""`images.json`: what each image of a run folder shows, so that an image is rendered only if that has changed."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import plotly.graph_objects as go
import plotly.io

from qbed.base.files import MIB, read_bytes
from qbed.base.json_files import read_json, write_json
from qbed.report.style import Style

FILE = "images.json"
_LARGEST = 256 * MIB


def kaleido_version() -> str | None:
    """Return the version of Kaleido, which writes figures as files; None if it is not installed."""
    try:
        return version("kaleido")
    except PackageNotFoundError:
        return None


RENDERER = f"1 plotly {version('plotly')} kaleido {kaleido_version()}"
"""Part of each key: another renderer may render an equal figure otherwise."""


def key_of(figure: go.Figure, kind: str, style: Style) -> str:
    """SHA-256 over all that determines an image: its figure with its data and layout, format and resolution."""
    drawn = str(plotly.io.to_json(figure, engine="json"))
    return hashlib.sha256(f"{RENDERER}\n{kind} {style.sharpness}\n{drawn}".encode(errors="replace")).hexdigest()


class ImageRecord:
    """The keys and contents' hashes of the images in a run folder, by their paths in it."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._known: dict[str, tuple[str, str]] = {}
        with suppress(
            OSError, ValueError, LookupError, TypeError, AttributeError
        ):  # without a valid file, all images are rendered
            found = read_json(run / FILE)
            self._known = {str(path): (str(entry["key"]), str(entry["sha256"])) for path, entry in found.items()}

    def is_current(self, image: Path, key: str) -> bool:
        """Whether a file has the image of `key`, unchanged since it was rendered."""
        expected, content = self._known.get(self._path(image), ("", ""))
        if expected != key:
            return False
        try:
            return hashlib.sha256(read_bytes(image, _LARGEST)).hexdigest() == content
        except OSError:
            return False

    def add(self, image: Path, key: str, content: bytes) -> None:
        self._known[self._path(image)] = (key, hashlib.sha256(content).hexdigest())

    def write(self) -> None:
        """Write `images.json`, without images that no longer exist."""
        present = {path: known for path, known in self._known.items() if (self._run / path).is_file()}
        write_json(
            self._run / FILE, {path: {"key": key, "sha256": content} for path, (key, content) in present.items()}
        )

    def _path(self, image: Path) -> str:
        return image.relative_to(self._run).as_posix()
