# SPDX-License-Identifier: Apache-2.0
"""Documents: every link leads to a file and a heading that exist, and every page is in the index."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from qbed.base.locations import checkout

ROOT = checkout()
assert ROOT is not None
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documents() -> list[str]:
    assert ROOT is not None
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", documents())
def test_links_lead_somewhere(name: str) -> None:
    assert ROOT is not None
    page = ROOT / name
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        path = (page.parent / place).resolve() if place else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(link)
    assert not broken


def test_every_page_is_in_the_index() -> None:
    assert ROOT is not None
    index = (ROOT / "docs" / "index.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()
