# SPDX-License-Identifier: Apache-2.0
"""Write the papers' pages from their lists and the recorded runs: python docs/papers/write_pages.py"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from textwrap import fill

from qbed.claims.verdict import Estimate, Verdict
from qbed.report.ci import number
from qbed.report.images import write

from papers import FOLDER, Item, Paper, Record, Reference, load_papers, load_records

WIDTH = 120
NOTE = "<!-- make generate -->"
EMPTY = "-"


def wrapped(text: str) -> str:
    return fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def interval(measure: Estimate) -> str:
    """The average with its interval; `too few seeds` for an infinite interval."""
    if measure.point_estimate is None:
        return "no value"
    if measure.low is None or measure.high is None:
        return f"{number(measure.point_estimate)} (too few seeds)"
    if measure.low == measure.high:
        return number(measure.point_estimate)
    return f"{number(measure.point_estimate)} ({number(measure.low)} to {number(measure.high)})"


def power(measure: Estimate) -> str:
    """The distance from the bound that the seeds would have shown with a probability of 80 %."""
    if measure.detectable is None:
        return EMPTY
    return f"factor {number(measure.detectable)}" if measure.average == "geometric" else number(measure.detectable)


def group(measure: Estimate) -> str:
    return ", ".join(f"{name} {value}" for name, value in measure.group.items()) or EMPTY


def verdict(claim: Verdict) -> str:
    shown = f"**{claim.verdict}**"
    return shown if claim.verdict == claim.expect else f"{shown} (expected: {claim.expect})"


def anchor(item: Item) -> str:
    """The anchor that Markdown makes of an item's heading."""
    kept = "".join(letter for letter in heading(item).lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def heading(item: Item) -> str:
    return f"{item.item} (section {item.section})" if item.section else item.item


def claims_of(item: Item, records: Mapping[str, Record]) -> list[tuple[Reference, Verdict | None]]:
    """The item's claims as recorded; None for a run without a record."""
    return [
        (reference, records[reference.run].claim(reference.name) if reference.run in records else None)
        for reference in item.claims
    ]


def outcome(item: Item, records: Mapping[str, Record]) -> str:
    """The verdicts of an item, or its state."""
    if not item.claims:
        return item.state
    counted = Counter("not run" if claim is None else claim.verdict for _, claim in claims_of(item, records))
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in sorted(counted.items()))


def _claim(name: str, claim: Verdict | None) -> Iterator[str]:
    if claim is None:
        yield f"`{name}`: the run behind it is not recorded yet."
        return
    by = f" by {claim.seeds} seeds" if claim.seeds else ""
    yield wrapped(f"`{name}`: {verdict(claim)}{by}. The paper: {claim.paper}")
    if claim.estimates:
        rows = [
            f"| {cell(measure.name)} | {cell(group(measure))} | {interval(measure)} | "
            f"{cell(measure.bound or EMPTY)} | {power(measure)} | {measure.outcome or EMPTY} |"
            for measure in claim.estimates
        ]
        yield "\n".join(
            [
                "| measure | of | ours (95 % interval) | the claim's bound | shown from | outcome |",
                "|---|---|---|---|---:|---|",
                *rows,
            ]
        )
    if claim.why and claim.expect != "holds":
        yield wrapped(f"Cause: {claim.why}")
    elif claim.reason and claim.verdict != "holds":
        yield wrapped(f"Reason: {claim.reason}.")
    for caveat in claim.caveats:
        yield wrapped(f"Caveat: {caveat}.")


def _item(name: str, paper: Paper, item: Item, records: Mapping[str, Record]) -> Iterator[str]:
    yield f"## {heading(item)}"
    yield wrapped(item.shows)
    if item.answer:
        yield wrapped(item.answer)
    runs = dict.fromkeys(reference.run for reference in (*item.claims, *item.figures))
    if runs:
        yield "\n".join(f"    {paper.runs[run].command}" for run in runs)
    for reference, claim in claims_of(item, records):
        yield from _claim(reference.name, claim)
    for reference in item.figures:
        run, figure = reference
        if run in records:
            yield wrapped(f"![{records[run].figures[figure]}](pictures/{name}-{run}-{figure}.png)")


def _runs(paper: Paper, records: Mapping[str, Record]) -> Iterator[str]:
    yield "## Runs"
    rows = ["| run | cells | date | commit | kernel | CPU |", "|---|---:|---|---|---|---|"]
    for key, run in paper.runs.items():
        found = records.get(key)
        shown = ["", "", "", "", ""] if found is None else [
            str(found.cells), found.date, f"`{found.commit}`", found.kernel, found.cpu,
        ]  # fmt: skip
        rows.append(f"| `{cell(run.command)}` | {' | '.join(shown)} |")
    yield "\n".join(rows)


def page(name: str, paper: Paper, records: Mapping[str, Record]) -> str:
    """The page of a paper."""
    parts = [
        f"# {paper.title}",
        NOTE,
        wrapped(
            f"{paper.authors}, {paper.published}. Scheme: [{paper.scheme}](../../schemes/{paper.scheme}/README.md). "
            "Each item of the paper in its order: what the paper shows, what qbed measures, and the verdict over seeds "
            "([intervals](../decisions/0047-claims-are-judged-over-seeds.md)). *Shown from* is the distance from the "
            "bound that these seeds would have shown with a probability of 80 %."
        ),
        "\n".join(
            ["| item | result |", "|---|---|"]
            + [f"| [{heading(item)}](#{anchor(item)}) | {outcome(item, records)} |" for item in paper.items]
        ),
    ]
    for item in paper.items:
        parts += _item(name, paper, item, records)
    parts += _runs(paper, records)
    return "\n\n".join(parts) + "\n"


def _sensitivities(papers: Mapping[str, Paper], records: Mapping[str, Mapping[str, Record]]) -> Iterator[str]:
    for name, paper in papers.items():
        for entry in paper.sensitivities:
            run, claim = entry.claim
            start = f"| {paper.scheme} | {cell(entry.parameter)} | {cell(entry.paper)}"
            if run not in records[name]:
                yield f"{start} | {EMPTY} | not run | `{claim}` |"
                continue
            measures = [measure for measure in records[name][run].claim(claim).estimates if measure.bound]
            for measure in measures:
                yield f"{start} | {cell(group(measure))} | {cell(measure.name)} {interval(measure)} | `{claim}` |"


def index(papers: Mapping[str, Paper], records: Mapping[str, Mapping[str, Record]]) -> str:
    """The page of all papers: results by paper, and sensitivities."""
    rows = ["| paper | items | holds | refuted | undecided | without a claim |", "|---|---:|---:|---:|---:|---:|"]
    for name, paper in papers.items():
        found = [claim for item in paper.items for _, claim in claims_of(item, records[name])]
        counted = Counter("not run" if claim is None else claim.verdict for claim in found)
        without = sum(not item.claims for item in paper.items)
        counts = " | ".join(str(counted[verdict]) for verdict in ("holds", "refuted", "undecided"))
        rows.append(f"| [{paper.title}]({name}.md) | {len(paper.items)} | {counts} | {without} |")
    return (
        "\n\n".join(
            [
                "# The papers",
                NOTE,
                wrapped(
                    "A page for each of the four papers, with each of its figures, tables and numbers. The columns of "
                    "verdicts count claims. `make papers` runs the campaigns again (hours; an interrupted run "
                    "continues), and records them in `results/`; `make generate` writes the pages."
                ),
                "\n".join(rows),
                "## Sensitivities",
                wrapped(
                    "Each parameter is varied alone. Ours are the measures with a bound: the average over seeds with "
                    "its 95 % interval."
                ),
                "\n".join(
                    [
                        "| scheme | parameter | the paper | value | ours | claim |",
                        "|---|---|---|---|---|---|",
                        *_sensitivities(papers, records),
                    ]
                ),
            ]
        )
        + "\n"
    )


def pages() -> dict[str, str]:
    """The generated files by name."""
    papers = load_papers()
    records = {name: load_records(name, paper) for name, paper in papers.items()}
    made = {f"{name}.md": page(name, paper, records[name]) for name, paper in papers.items()}
    return made | {"README.md": index(papers, records)}


if __name__ == "__main__":
    for name, text in pages().items():
        write(FOLDER / name, text.encode())
    sys.exit()
