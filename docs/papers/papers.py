# SPDX-License-Identifier: Apache-2.0
"""Lists of what the four papers show, with the runs that answer it: `docs/papers/NAME.yml`.

`make papers` runs the campaigns (record_runs.py), `make generate` writes a page for each paper (write_pages.py).
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from qbed.claims.verdict import Verdict

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
RESULTS = FOLDER / "results"


class Reference(NamedTuple):
    """A claim or figure of a run, written `RUN.NAME`."""

    run: str
    name: str


def _split(text: object) -> object:
    return text.split(".") if isinstance(text, str) else text


Named = Annotated[Reference, BeforeValidator(_split)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Run(Part):
    """A campaign's profile that answers items of a paper."""

    campaign: str
    """The lab's folder or the campaign file, from the repository's root."""
    profile: str
    seeds: str = ""
    """Seeds instead of the profile's, such as `1..3`."""
    set: dict[str, str] = {}
    """Fields of the lab that differ from the profile's, such as a shorter duration."""

    @property
    def arguments(self) -> list[str]:
        """The arguments of `qbed run`."""
        seeds = ["--seeds", self.seeds] if self.seeds else []
        return [self.campaign, "--profile", self.profile, *seeds, *(f"--set={n}={v}" for n, v in self.set.items())]

    @property
    def command(self) -> str:
        return shlex.join(["qbed", "run", *self.arguments])

    @property
    def file(self) -> Path:
        path = ROOT / self.campaign
        return path / "campaign.yml" if path.is_dir() else path


class Item(Part):
    """A figure, table, number, algorithm or section of a paper."""

    item: str
    """Its name in the paper, such as `Fig. 4`."""
    section: str = ""
    shows: str
    """The content in the paper, with its numbers."""
    claims: list[Named] = []
    """RUN.CLAIM, for each claim that measures it."""
    figures: list[Named] = []
    """RUN.FIGURE, by the figure's `name` or kind."""
    answer: str = ""
    """The answer of qbed beside the claims; required without claims."""
    state: Literal["measured", "implemented", "not comparable", "missing"] = "measured"


class Sensitivity(Part):
    """A parameter that a claim varies alone."""

    parameter: str
    paper: str
    """The paper's value, or `silent`."""
    claim: Named


class Paper(Part):
    """A paper, and everything that it shows, in its order."""

    cited_as: str
    """How the `source` of a claim begins that cites the paper."""
    title: str
    authors: str
    published: str
    scheme: str
    """The scheme's folder in schemes/."""
    contains: dict[str, int]
    """How many of each numbered kind the paper has, such as `Fig.`: 6."""
    runs: dict[Annotated[str, Field(pattern=r"^[a-z0-9-]+$")], Run]
    items: list[Item]
    sensitivities: list[Sensitivity] = []


class Record(Part):
    """A recorded run: `results/PAPER-RUN.json`."""

    command: str
    commit: str
    kernel: str
    cpu: str
    date: str
    cells: int
    claims: list[Verdict]
    figures: dict[str, str]
    """Titles of the figures by name."""

    def claim(self, name: str) -> Verdict:
        return next(claim for claim in self.claims if claim.name == name)


def load_papers() -> dict[str, Paper]:
    """The lists by name, in alphabetical order."""
    return {path.stem: Paper.model_validate(yaml.safe_load(path.read_text())) for path in sorted(FOLDER.glob("*.yml"))}


def record_path(paper: str, run: str) -> Path:
    return RESULTS / f"{paper}-{run}.json"


def load_records(name: str, paper: Paper) -> dict[str, Record]:
    """The recorded runs of a paper by their names; runs without a record are missing."""
    paths = {run: record_path(name, run) for run in paper.runs}
    return {run: Record.model_validate_json(path.read_text()) for run, path in paths.items() if path.exists()}
