# SPDX-License-Identifier: Apache-2.0
"""The live page: plain modules of JavaScript, and uPlot (MIT)."""

from __future__ import annotations

from html import escape
from importlib.util import find_spec
from pathlib import Path

from qbed.base.errors import QbedError

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
BRINGS_UPLOT = "youplot"
"""A Python package that has uPlot's local release in it, so that the page needs no npm. Nothing else of it is used."""


def assets(grafana: str | None = None) -> dict[str, tuple[bytes, str]]:
    """The served files by path. They are read once, so that no request path names a file. `grafana`: URL of a link."""
    local = {path.name: path.read_bytes() for path in sorted(Path(__file__).parent.iterdir()) if path.suffix in KINDS}
    found = {f"/page/{name}": (content, KINDS[Path(name).suffix]) for name, content in {**local, **_uplot()}.items()}
    page, kind = found.pop("/page/index.html")
    if grafana:
        page = page.replace(b"</nav>", f' <a href="{escape(grafana)}">Grafana</a></nav>'.encode(), 1)
    return {"/": (page, kind), **found}


def _uplot() -> dict[str, bytes]:
    """uPlot as a module, and its style."""
    spec = find_spec(BRINGS_UPLOT)
    if spec is None or spec.origin is None:
        raise QbedError(f"there is no Python package {BRINGS_UPLOT}: `pip install 'qbed[service]'` brings it")
    place = Path(spec.origin).parent / "vendor"
    script = (place / "uplot.iife.min.js").read_bytes() + b"\nexport default uPlot;\n"
    return {"uPlot.js": script, "uPlot.min.css": (place / "uplot.min.css").read_bytes()}
