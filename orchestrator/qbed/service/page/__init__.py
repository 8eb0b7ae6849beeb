# SPDX-License-Identifier: Apache-2.0
"""The live page: plain modules of JavaScript, and uPlot, which `tools/page` takes from its package."""

from __future__ import annotations

from pathlib import Path

from qbed.places import page_folder

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
UPLOT = ("uPlot.esm.js", "uPlot.min.css")


def assets() -> dict[str, tuple[bytes, str]]:
    """What is served, by its path: read once, so that no path of a client's names a file. uPlot may be missing."""
    own = {path.name: path for path in sorted(Path(__file__).parent.iterdir()) if path.suffix in KINDS}
    theirs = {name: path for name in UPLOT if (path := page_folder() / name).is_file()}
    found = {f"/page/{name}": (path.read_bytes(), KINDS[path.suffix]) for name, path in {**own, **theirs}.items()}
    return {"/": found.pop("/page/index.html"), **found}
