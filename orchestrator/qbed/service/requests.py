# SPDX-License-Identifier: Apache-2.0
"""Requests and responses of the HTTP interface, as the OpenAPI document has them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from qbed.service.states import State

LAB = r"^[a-z0-9][a-z0-9-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62}\.yml)?$"
NODE = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$"
LabName = Annotated[str, Field(pattern=LAB, examples=["dumbbell"])]
Upload = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Settings = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=200)], Any], Field(max_length=100, default_factory=dict)
]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Text = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]


class Shape(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Of(Shape):
    """Which lab: one of `GET /api/labs`, or one that was uploaded."""

    lab: LabName | None = None
    """A lab of the library, or a campaign in its folder: `incast`, `incast/sizes.yml`."""
    upload: Upload | None = None
    """The name that `POST /api/uploads` returned."""
    settings: Settings
    """Fields of the lab, as `--set FIELD=VALUE`."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Of:
        if (self.lab is None) == (self.upload is None):
            raise ValueError("expected either `lab` or `upload`")
        return self


class Submission(Of):
    """A campaign to run."""

    campaign: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}\.yml$")] = None
    """The campaign file of an upload, if it is not `campaign.yml`."""
    profile: Text | None = None
    """A profile of the campaign."""
    seeds: Annotated[list[Seed] | None, Field(min_length=1, max_length=10_000)] = None
    """Instead of the campaign's."""
    on: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")] = "virtual"
    """A substrate."""
    dilation: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """In containers: how much slower than the clock."""
    cell_timeout: Annotated[float | None, Field(ge=1, le=1e6)] = None
    """Seconds of wall clock for one cell; the owner's limit is the most."""
    stall_timeout: Annotated[float, Field(ge=1, le=1e6)] = 300.0
    """Seconds of wall clock in which virtual time must move."""
    cell_space: Annotated[int | None, Field(ge=1)] = None
    """Bytes that one cell may write; the owner's limit is the most."""
    keep: bool = False
    """Keep what the guests wrote."""
    images: bool = True
    """Draw the figures as PNG, too."""
    store: bool = True
    """Take cells that are finished anywhere from the store."""
    locked: bool = False
    """Compare with the campaign's lock."""


class Job(Shape):
    """A campaign that waits, runs or has ended."""

    id: int
    """Its number."""
    name: str
    """The lab."""
    state: State
    """Its state."""
    request: dict[str, Any]
    """The submission."""
    created: float
    """When it was submitted, in seconds of Unix time."""
    started: float | None
    """When its process was started last."""
    ended: float | None
    """When it ended."""
    attempts: int
    """How often its process was started."""
    exit_status: int | None
    """The exit status that `qbed run` would have had."""
    cells: int | None = None
    """How many it has, once that is known."""
    done: float | None = None
    """How many of them are done, as far as is known."""
    phase: str | None = None
    """Its present phase."""
    messages: list[str] = []
    """Why it failed."""
    verdicts: list[dict[str, Any]] = []
    """The verdicts of its claims."""
    totals: dict[str, int] | None = None
    """How its cells went."""


class Uploaded(Shape):
    """A lab folder that is here."""

    upload: Upload
    """Its name from now on."""
    files: list[str]
    """The files in it."""


class Query(Shape):
    """SQL over a run's tables: one SELECT."""

    sql: Annotated[str, Field(min_length=1, max_length=20_000)]
    """The SELECT."""
    format: Literal["json", "csv", "parquet"] = "json"
    """The format of the answer."""


class Up(Of):
    """A lab to bring up."""

    seed: Seed | None = None
    """The seed of everything random."""


class Command(Shape):
    """A program for a node."""

    argv: Annotated[
        list[Annotated[str, Field(max_length=4_000, pattern=r"^[^\x00]*$")]], Field(min_length=1, max_length=100)
    ]
    """The command with its arguments."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 60.0
    """Seconds of wall clock; after them it is ended."""


class Answer(Shape):
    """The result of a program."""

    status: int
    """Its exit status; 124 where it was ended after its time."""
    stdout: str
    """Its output, cut after 1 MiB."""
    stderr: str
    """Likewise."""


class LabUp(Shape):
    """A lab that this service has brought up."""

    name: str
    """The lab."""
    since: float
    """When, in seconds of Unix time."""
    is_up: bool
    """Whether it still is."""


class Mistake(Shape):
    """Why a request was refused."""

    errors: list[str]
    """The errors, a sentence each."""
