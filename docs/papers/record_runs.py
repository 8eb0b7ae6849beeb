# SPDX-License-Identifier: Apache-2.0
"""Run the campaigns behind the papers' pages and record their verdicts and figures: python docs/papers/record_runs.py

    record_runs.py [PAPER[.RUN]...] [--runs FOLDER] [--finished]

An interrupted run continues where it stopped. `--finished` records finished runs only.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from qbed.base.errors import QbedError
from qbed.base.json_files import read_json
from qbed.claims.verdict import NOT_JUDGED, read_verdicts
from qbed.report.images import draw_images, write
from qbed.report.page import draw
from qbed.report.style import SCREEN

from papers import FOLDER, RESULTS, ROOT, Paper, Record, Run, load_papers, record_path

PICTURES = FOLDER / "pictures"
STYLE = replace(SCREEN, sharpness=1)


def selected(papers: dict[str, Paper], names: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of paper and run. Raises `ValueError` for an unknown name."""
    pairs = [(paper, run) for paper, content in papers.items() for run in content.runs]
    wanted = set(names)
    unknown = wanted - {paper for paper, _ in pairs} - {f"{paper}.{run}" for paper, run in pairs}
    if unknown:
        known = ", ".join(sorted(papers))
        raise ValueError(f"{min(unknown)}: expected one of {known}, or PAPER.RUN")
    return [pair for pair in pairs if not wanted or pair[0] in wanted or ".".join(pair) in wanted]


def record(folder: Path, run: Run, figures: Iterable[str], prefix: str) -> Record:
    """The record of a finished run; its pictures are written."""
    meta, identity = (read_json(folder / name) for name in ("meta.json", "campaign.json"))
    provenance, wanted = meta["provenance"], set(figures)
    drawings = [drawing for drawing in draw(folder) if drawing.name in wanted]
    missing = wanted - {drawing.name for drawing in drawings if drawing.figure is not None}
    if missing:
        raise ValueError(f"{folder} has no figure {min(missing)}")
    titles = {drawing.name: drawing.title for drawing in drawings}
    renamed = [replace(drawing, name=f"{prefix}-{drawing.name}") for drawing in drawings]
    files = draw_images(PICTURES, renamed, STYLE, ["png"], lambda _: None)
    if files.problems:
        raise ValueError(files.problems[0])
    return Record(
        command=run.command,
        commit=provenance["commit"],
        kernel=identity["toolchain"]["kernel_version"],
        cpu=provenance["processor"],
        date=provenance["run_at"].partition(" ")[0],
        cells=len(meta["cell_wall_s"]),
        claims=[verdict for verdict in read_verdicts(folder) if verdict.verdict != NOT_JUDGED],
        figures=titles,
    )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run and record the campaigns behind docs/papers.")
    parser.add_argument("names", nargs="*", metavar="PAPER[.RUN]")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "papers", metavar="FOLDER")
    parser.add_argument("--finished", action="store_true", help="record finished runs, and start none")
    options = parser.parse_args(arguments)
    papers = load_papers()
    try:
        pairs = selected(papers, options.names)
    except ValueError as error:
        print(f"papers: {error}", file=sys.stderr)
        return 2
    changed = ["git", "diff", "--quiet", "HEAD", "--", ".", ":!docs/papers"]
    if not options.finished and subprocess.run(changed, cwd=ROOT, check=False).returncode != 0:
        print("papers: commit the changes first: a record names the commit that was run", file=sys.stderr)
        return 2
    failed = False
    for name, key in pairs:
        try:
            failed |= not record_one(name, papers[name], key, options.runs / f"{name}-{key}", options.finished)
        except (QbedError, ValueError) as error:
            print(f"papers: {name}.{key}: {error}", file=sys.stderr)
            failed = True
    return int(failed)


def record_one(name: str, paper: Paper, key: str, folder: Path, finished: bool) -> bool:
    """Run and record one run of a paper. `finished`: only record it. Return whether all its cells are complete."""
    run, complete = paper.runs[key], True
    if not finished:
        print(f"papers: {name}.{key}: {run.command}", flush=True)
        command = [sys.executable, "-m", "qbed", "run", *run.arguments, "--no-images", "--out", str(folder)]
        # A verdict other than the expected one is recorded like any other.
        complete = subprocess.run([*command, "--fail-on", "errors"], cwd=ROOT, check=False).returncode == 0
    if not (folder / "claims.json").exists():
        print(f"papers: {name}.{key}: not finished", flush=True)
        return complete
    figures = [figure.name for item in paper.items for figure in item.figures if figure.run == key]
    RESULTS.mkdir(exist_ok=True)
    text = record(folder, run, figures, f"{name}-{key}").model_dump_json(indent=1, exclude_defaults=True) + "\n"
    write(record_path(name, key), text.encode())
    return complete


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
