# SPDX-License-Identifier: Apache-2.0
"""Results of runs for CI: a JUnit XML file and a Markdown summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOBase
from itertools import islice
from pathlib import Path
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from qbed.base.files import move
from qbed.base.json_files import temporary_path
from qbed.base.terminal import clean, shorten
from qbed.campaign.lock import NEXT_STEP
from qbed.claims.verdict import Verdict, caveats_of
from qbed.storage.listing import Listing

_MARKUP = {
    ord(character): f"&#{ord(character)};" if character in "<>&" else f"\\{character}"
    for character in "\\`*_{}[]<>#|~&"
}
MAX_LINES = 200
"""Limit on each list (claims, cells, differences) in the Markdown summary."""


@dataclass(frozen=True)
class Ended:
    """A run that has ended. `counted`: its cells by status."""

    name: str
    run: Path
    counted: Mapping[str, int]
    wall_s: float
    verdicts: Sequence[Verdict] = ()
    differences: Sequence[str] = ()
    problems: Sequence[str] = ()
    times: Mapping[int, float] = field(default_factory=dict)

    @property
    def cells(self) -> int:
        return sum(self.counted.values())


def number(value: object) -> str:
    """A measured number, as people read it."""
    if isinstance(value, list):
        return " | ".join(map(number, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def describe_verdict(verdict: Verdict) -> str:
    """Why, or by which numbers."""
    if verdict.reason is not None:
        return verdict.reason
    spread = {
        estimate.label: f" ({number(estimate.low)} to {number(estimate.high)})"
        for estimate in verdict.estimates
        if estimate.low is not None
    }
    return ", ".join(f"{name} {number(value)}{spread.get(name, '')}" for name, value in verdict.measured.items())


# --- JUnit ---


class _Xml:
    """Elements, one after the other. Text has no character that XML cannot have."""

    def __init__(self, file: TextIOBase) -> None:
        self._to = XMLGenerator(file, "utf-8", short_empty_elements=True)
        self._to.startDocument()

    def open(self, element: str, **attributes: object) -> None:
        shortened = {name: shorten(value) for name, value in attributes.items()}
        self._to.startElement(element, AttributesImpl(shortened))

    def close(self, element: str) -> None:
        self._to.endElement(element)
        self._to.ignorableWhitespace("\n")

    def case(self, suite: str, name: str, time_s: float = 0.0, **children: tuple[str, str]) -> None:
        """Write a test case. `children`: a kind (`failure`, `error`, `skipped`), its type and text."""
        self.open("testcase", classname=suite, name=name, time=f"{time_s:.3f}")
        for kind, (type_, text) in children.items():
            self.open(kind, message=text.partition("\n")[0], **({} if kind == "skipped" else {"type": type_}))
            self._to.characters(clean(text))
            self._to.endElement(kind)
        self.close("testcase")


def write_junit(file: Path, ended: Iterable[Ended]) -> None:
    """A suite of claims, one of cells and one of the lock for each run: what is not as it should be is a failure."""
    with temporary_path(file).open("w", encoding="utf-8") as out:
        xml = _Xml(out)
        xml.open("testsuites")
        for run in ended:
            _claims(xml, run)
            _cells(xml, run)
            if run.differences:
                count = len(run.differences)
                xml.open("testsuite", name=f"{run.name}.lock", tests=count, failures=count, errors=0, skipped=0)
                for text in run.differences:
                    xml.case(f"{run.name}.lock", text.partition(" differs ")[0], failure=("different", text))
                xml.close("testsuite")
        xml.close("testsuites")
    move(temporary_path(file), file)


def _claims(xml: _Xml, run: Ended) -> None:
    wrong = sum(verdict.contradicted for verdict in run.verdicts)
    skipped = sum(_open(verdict) for verdict in run.verdicts)
    suite = f"{run.name}.claims"
    xml.open("testsuite", name=suite, tests=len(run.verdicts), failures=wrong, errors=0, skipped=skipped)
    for verdict in run.verdicts:
        text = f"{verdict.verdict}, expected {verdict.expect}: {describe_verdict(verdict)}\n{verdict.paper}"
        if _open(verdict):
            reason = f"{verdict.verdict}: {verdict.reason}"
            xml.case(suite, verdict.name, skipped=("", reason if verdict.reason else text))
        elif verdict.contradicted:
            xml.case(suite, verdict.name, failure=(verdict.verdict, text))
        else:
            xml.case(suite, verdict.name)
    xml.close("testsuite")


def _open(verdict: Verdict) -> bool:
    """Whether a claim is not judged, or its seeds neither show nor exclude the expected verdict."""
    return verdict.verdict == "not judged" or not (verdict.as_expected or verdict.contradicted)


def _cells(xml: _Xml, run: Ended) -> None:
    suite, listing = f"{run.name}.cells", Listing(run.run)
    failures, errors = run.counted.get("invalid", 0), run.counted.get("failed", 0)
    xml.open(
        "testsuite", name=suite, tests=run.cells, failures=failures, errors=errors, skipped=0, time=f"{run.wall_s:.3f}"
    )
    for row in listing.rows():
        name = ", ".join([str(row["cell"]), *(f"{axis}={row[axis]}" for axis in listing.axes)])
        time_s = run.times.get(row["cell"], 0.0)
        match row["status"]:
            case "complete":
                xml.case(suite, name, time_s)
            case "failed":
                xml.case(suite, name, time_s, error=("failed", str(row["error"])))
            case status:
                wrong = row["contradictions"] if isinstance(row["contradictions"], list) else [row["error"]]
                xml.case(suite, name, time_s, failure=(status, "\n".join(map(str, wrong))))
    xml.close("testsuite")


# --- Markdown ---


def write_summary(file: Path, ended: Iterable[Ended]) -> None:
    """A page; what is there already stays before it, as CI systems have one file for all steps."""
    with file.open("a", encoding="utf-8") as out:
        for run in ended:
            out.writelines(f"{line}\n" for line in _page(run))


def _page(run: Ended) -> Iterator[str]:
    counted = ", ".join(f"{count} {status}" for status, count in run.counted.items() if count)
    yield f"## {_plain(run.name)}\n"
    yield f"{run.cells} cells ({counted or 'none'}) in {run.wall_s:.1f} s\n"
    if run.verdicts:
        yield "| claim | verdict | | the sentence |\n|---|---|---|---|"
        for verdict in run.verdicts[:MAX_LINES]:
            mark = "❌ " if verdict.contradicted else ""
            known = f", {verdict.expectation}" if verdict.expectation else ""
            columns = (verdict.name, f"{mark}{verdict.verdict}{known}", describe_verdict(verdict), verdict.paper)
            yield f"| {' | '.join(map(_plain, columns))} |"
        yield ""
        for text, names in islice(caveats_of(run.verdicts).items(), MAX_LINES):
            yield f"- Caution: {_plain(text)}: {_plain(', '.join(names))}"
        yield ""
    bad = (row for row in Listing(run.run).rows() if row["status"] != "complete")
    wrong = [
        f"cell {row['cell']} {row['status']}: {row['error'] or row['contradictions']}" for row in islice(bad, MAX_LINES)
    ]
    for title, texts in (("Cells", wrong), ("Lock", run.differences), ("Remarks", run.problems)):
        if texts:
            yield f"### {title}\n"
            yield from (f"- {_plain(text)}" for text in texts[:MAX_LINES])
            yield ""
            if title == "Lock":
                yield f"{NEXT_STEP}\n"


def _plain(text: object) -> str:
    """A text in one line that is no markup."""
    line = " ".join(shorten(text, 500).split())
    return line.translate(_MARKUP)
