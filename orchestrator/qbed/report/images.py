# SPDX-License-Identifier: Apache-2.0
"""Figures as files: PNG, and SVG and PDF for papers. Equal figures are equal files, and are rendered once."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import plotly.graph_objects as go
import plotly.io

from qbed.base.files import move
from qbed.report.figures import Drawing
from qbed.report.image_record import ImageRecord, kaleido_version, key_of
from qbed.report.style import Style, styled

FORMATS = ("png", "svg", "pdf")
PATIENCE_S = 60.0
BROWSER_BYTES = 16 << 20
"""Temporary files of the renderer's browser."""
NO_RENDERER = (
    "no figure was written as a file, since Kaleido is not installed here; the page has all figures, "
    "and `qbed report` writes the files where Kaleido is installed (in containers: the image `figures`)"
)
_UID = re.compile(rb'<defs id="defs-([0-9a-f]{6})">')
_DATE = re.compile(rb"/(CreationDate|ModDate) \(D:\d{14}")


@dataclass
class ImageFiles:
    """The files of the figures, how many of them were kept, and why the others could not be drawn."""

    paths: list[Path] = field(default_factory=list)
    kept: int = 0
    problems: list[str] = field(default_factory=list)


def draw_images(
    folder: Path,
    drawings: Iterable[Drawing],
    style: Style,
    formats: Sequence[str],
    advance: Callable[[str], None],
    record: ImageRecord | None = None,
) -> ImageFiles:
    """Write the images into a folder. With a record, an image is kept if it shows the same already."""
    if formats and kaleido_version() is None:
        return ImageFiles(problems=[NO_RENDERER])
    folder.mkdir(parents=True, exist_ok=True)
    files = ImageFiles()
    try:
        for drawing in drawings:
            if drawing.figure is not None:
                figure = styled(drawing.figure, drawing.title, style)
                for kind in formats:
                    path = folder / f"{drawing.name}.{kind}"
                    _write_image(path, figure, style, advance, record, files)
    except _RenderError as error:
        files.problems.append(str(error))
    finally:
        if record is not None:
            record.write()
    return files


class _RenderError(Exception):
    """An image could not be drawn, nor will the next ones."""


def _write_image(
    path: Path,
    figure: go.Figure,
    style: Style,
    advance: Callable[[str], None],
    record: ImageRecord | None,
    files: ImageFiles,
) -> None:
    """Write an image, unless the file has it, and add it to `files`."""
    kind = path.suffix[1:]
    key = key_of(figure, kind, style)
    if record is not None and record.is_current(path, key):
        files.kept += 1
    else:
        advance(f"figures/{path.name}")
        try:
            image = _timeless(_drawn(figure, kind, style))
        except Exception as error:  # kaleido raises whatever its browser says; the page has every figure anyway
            why = str(error).splitlines()[0] if str(error) else repr(error)
            raise _RenderError(f"{path.name} could not be drawn: {why}{_low_space()}") from error
        write(path, image)
        if record is not None:
            record.add(path, key, image)
    files.paths.append(path)


def _low_space() -> str:
    """A hint if the browser has too little space for its temporary files, which its message does not say."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    return f"; {folder} (TMPDIR) has only {free >> 10} KiB free" if free < BROWSER_BYTES else ""


def _drawn(figure: go.Figure, kind: str, style: Style) -> bytes:
    """Render `figure` as a file's content. If the browser hangs, as happens now and then, start another one."""
    scope = plotly.io.kaleido.scope
    if scope is not None and scope.mathjax is not None:
        scope.mathjax = None  # no figure has formulas, and a PDF that is quick enough shows that it is being loaded
    ended = threading.Event()

    def end() -> None:
        ended.set()
        if (browser := getattr(scope, "_proc", None)) is not None:
            _kill(browser.pid)

    for last in (False, True):
        ended.clear()
        watchdog = threading.Timer(PATIENCE_S, end)
        watchdog.daemon = True
        watchdog.start()
        try:
            scale = style.sharpness if kind == "png" else 1
            image: bytes = plotly.io.to_image(figure, kind, width=style.width, height=figure.layout.height, scale=scale)
            return image
        except Exception:
            if last or not ended.is_set():
                raise
        finally:
            watchdog.cancel()
    raise AssertionError


def _kill(pid: int) -> None:
    """A process and all that it has started, which are in no group of their own."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                _kill(int(child))
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _timeless(image: bytes) -> bytes:
    """Without the date of a PDF and the random names in an SVG."""
    if image.startswith(b"%PDF"):
        return _DATE.sub(rb"/\1 (D:19700101000000", image)
    found = _UID.search(image)
    return image.replace(found[1], b"figure") if found else image


def write(path: Path, content: bytes) -> None:
    """Beside, then renamed."""
    beside = path.with_name(f".{path.name}.tmp")
    beside.write_bytes(content)
    move(beside, path)
