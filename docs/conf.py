# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration: the Markdown files of the repository as a site without external resources (`make docs`).

Pages keep their paths, so a relative link is the same on the site and on a forge. The tables of docs/index.md are the
sidebar. Mermaid diagrams are shown as text, since their renderer would come from a content delivery network.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
INDEX = "docs/index"
LEXERS = {"mermaid": "text", "p4": "c"}  # languages of code blocks that Pygments lacks
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#:]+)(#[^)\s]*)?\)")

project = "qbed"
root_doc = INDEX
include_patterns = PAGES
extensions = ["myst_parser"]
myst_heading_anchors = 4
suppress_warnings = ["toc.not_included"]  # the READMEs of schemes and folders are reached by links
html_theme = "furo"
html_title = "qbed"
html_copy_source = False
html_show_sphinx = False


def sidebar(index: str) -> str:
    """Hidden tables of contents, one for each section of the index, with the section's pages in their order."""
    parts = []
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        caption = section.partition("\n")[0]
        pages = re.findall(r"^\| \[([^\]]+)\]\(([^)#]+)\.md\)", section, re.MULTILINE)
        entries = [f"{label} <{page}>" for label, page in pages]
        parts.append("\n".join([f"```{{toctree}}\n:hidden:\n:caption: {caption}\n", *entries, "```"]))
    return "\n\n".join(parts)


def with_pages_for_folders(page: str, text: str) -> str:
    """The text, with the README in place of each link to a folder, and only the words where a folder has none."""

    def resolved(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        folder = (ROOT / page).parent / target
        if not folder.is_dir():
            return link[0]
        return f"[{words}]({target.rstrip('/')}/README.md{anchor})" if (folder / "README.md").exists() else words

    return LINK.sub(resolved, text)


def prepare(_app: Any, page: str, source: list[str]) -> None:
    text = with_pages_for_folders(f"{page}.md", source[0])
    text = re.sub(r"^```(\w+)$", lambda fence: f"```{LEXERS.get(fence[1], fence[1])}", text, flags=re.MULTILINE)
    source[0] = f"{text}\n\n{sidebar(text)}\n" if page == INDEX else text


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", prepare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
