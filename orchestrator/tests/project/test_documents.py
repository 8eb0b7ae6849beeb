# SPDX-License-Identifier: Apache-2.0
"""Documents: links lead to files and headings that exist; pages have a title, short lines and a row in the index, and
link terms of the glossary.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from qbed.base.locations import checkout

_ROOT = checkout()
assert _ROOT is not None
ROOT: Path = _ROOT
DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
GENERATED = "<!-- Generated"
TERM = re.compile(r"^\| ([\w -]+) \| ", re.MULTILINE)
# Terms of one word that pages have to link too; the other ones are words that readers know.
LINKED_WORDS = {"substrate", "tap"}


def documents() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def linked_terms() -> list[str]:
    """The terms of the glossary of several words, and LINKED_WORDS."""
    terms = TERM.findall((DOCS / "glossary.md").read_text())
    assert set(terms) >= LINKED_WORDS
    return [term for term in terms if " " in term or term in LINKED_WORDS]


def prose(text: str) -> str:
    """A page without code, tables and headings."""
    lines = FENCE.sub("", text).split("\n")
    return re.sub(r"`[^`]*`", "", "\n".join(line for line in lines if not line.startswith(("|", "#", "    "))))


def unlinked(text: str, term: str) -> bool:
    """Whether the first use of a term in a page's prose is outside of a link."""
    words = prose(text)
    first = re.search(r"\b" + term.replace(" ", r"\s+") + r"s?\b", words, re.IGNORECASE)
    return first is not None and not any(
        link.start() < first.start() < link.end() for link in re.finditer(r"\[[^\]]+\]\([^)]+\)", words)
    )


@pytest.mark.parametrize("name", documents())
def test_links_lead_somewhere(name: str) -> None:
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


@pytest.mark.parametrize("name", documents())
def test_a_document_has_a_title_and_short_lines(name: str) -> None:
    text = (ROOT / name).read_text()
    first, second = text.split("\n")[:2]
    if first.startswith(GENERATED):
        assert second.startswith("# ")
        return
    assert first.startswith("# ")
    lines = FENCE.sub("", text).split("\n")
    long = [line for line in lines if len(line) > 120]
    assert [line for line in long if not line.lstrip().startswith("|") and line[:4] != "    "] == []


@pytest.mark.parametrize("folder, index", [(DOCS, "index.md"), (DOCS / "decisions", "README.md")])
def test_every_page_is_in_the_index(folder: Path, index: str) -> None:
    rows = (folder / index).read_text()
    pages = {path.name for path in folder.glob("*.md")} - {index}
    assert {page for page in pages if f"]({page})" not in rows} == set()


def test_decisions_are_dated_records() -> None:
    for number, path in enumerate(sorted((DOCS / "decisions").glob("[0-9]*.md")), 1):
        title, _, date = path.read_text().split("\n")[:3]
        assert path.name.startswith(f"{number:04}-") and title.startswith(f"# {number}. ")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
        labels = re.findall(r"^\*\*(\w+)\.\*\*", path.read_text(), re.MULTILINE)
        assert labels == ["Context", "Decision", "Consequence"], path.name


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_a_page_links_its_first_use_of_a_term(page: str) -> None:
    text = (DOCS / page).read_text()
    if page != "glossary.md" and not text.startswith(GENERATED):
        assert [term for term in linked_terms() if unlinked(text, term)] == []


def test_the_site_loads_nothing_from_elsewhere() -> None:
    configuration = (DOCS / "conf.py").read_text()
    assert "http:" not in configuration and "https:" not in configuration
