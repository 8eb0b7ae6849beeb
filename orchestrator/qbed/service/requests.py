# SPDX-License-Identifier: Apache-2.0
"""Models of the requests and responses of the HTTP interface. The OpenAPI document is made from them."""

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
    """A model that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class LabChoice(Shape):
    """The choice of a lab: one of `GET /api/labs`, or an upload."""

    lab: LabName | None = None
    """A lab of the library, or a campaign in its folder: `incast`, `incast/sizes.yml`."""
    upload: Upload | None = None
    """The name that `POST /api/uploads` returned."""
    settings: Settings
    """Fields of the lab, as `--set FIELD=VALUE`."""

    @model_validator(mode="after")
    def _check_choice(self) -> LabChoice:
        if (self.lab is None) == (self.upload is None):
            raise ValueError("expected either `lab` or `upload`")
        return self


class Submission(LabChoice):
    """A campaign to run."""

    campaign: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,62}\.yml$")] = None
    """The campaign file of an upload, if it is not `campaign.yml`."""
    profile: Text | None = None
    """A profile of the campaign."""
    seeds: Annotated[list[Seed] | None, Field(min_length=1, max_length=10_000)] = None
    """Seeds that replace the campaign's."""
    on: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")] = "virtual"
    """A substrate."""
    dilation: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    """In containers: the factor by which lab time is slower than the wall clock."""
    cell_timeout: Annotated[float | None, Field(ge=1, le=1e6)] = None
    """Seconds of wall clock for one cell, at most the limit of the service."""
    stall_timeout: Annotated[float, Field(ge=1, le=1e6)] = 300.0
    """Seconds of wall clock after which a cell whose virtual time does not advance is ended."""
    cell_space: Annotated[int | None, Field(ge=1)] = None
    """Bytes that one cell may write, at most the limit of the service."""
    keep: bool = False
    """Keep the files that the guests wrote."""
    images: bool = True
    """Also draw the figures as PNG."""
    store: bool = True
    """Take finished cells from the store."""
    locked: bool = False
    """Compare with the campaign's lock."""


class Job(Shape):
    """A campaign that waits, runs or has ended."""

    id: int
    """The job's number."""
    name: str
    """The lab's name."""
    state: State
    """The job's state."""
    request: dict[str, Any]
    """The submission."""
    created: float
    """Time of the submission, in seconds of Unix time."""
    started: float | None
    """Time of the last start of its process."""
    ended: float | None
    """Time of its end."""
    attempts: int
    """Number of starts of its process."""
    exit_status: int | None
    """Exit status, as that of `qbed run`."""
    cells: int | None = None
    """Number of cells, once it is known."""
    done: float | None = None
    """Number of finished cells. A running cell counts by its progress."""
    phase: str | None = None
    """Present phase of the run."""
    messages: list[str] = []
    """Error messages of a failed job."""
    verdicts: list[dict[str, Any]] = []
    """Verdicts of its claims."""
    totals: dict[str, int] | None = None
    """Numbers of cells by outcome."""


class Uploaded(Shape):
    """An uploaded lab folder."""

    upload: Upload
    """Name of the upload in later requests."""
    files: list[str]
    """Files of the folder."""


class Query(Shape):
    """A SELECT over a run's tables."""

    sql: Annotated[str, Field(min_length=1, max_length=20_000)]
    """The SELECT."""
    format: Literal["json", "csv", "parquet"] = "json"
    """The format of the answer."""


class Up(LabChoice):
    """A lab to bring up."""

    seed: Seed | None = None
    """Seed of the lab's random numbers."""


class Command(Shape):
    """A program to run on a node."""

    argv: Annotated[
        list[Annotated[str, Field(max_length=4_000, pattern=r"^[^\x00]*$")]], Field(min_length=1, max_length=100)
    ]
    """The command with its arguments."""
    timeout: Annotated[float, Field(gt=0, le=600)] = 60.0
    """Seconds of wall clock after which the program is ended."""


class Answer(Shape):
    """The result of a program."""

    status: int
    """Exit status; 124 if the program was ended after its timeout."""
    stdout: str
    """Standard output, cut after 1 MiB."""
    stderr: str
    """Standard error, cut after 1 MiB."""


class LabUp(Shape):
    """A lab that this service has brought up."""

    name: str
    """The lab's name."""
    since: float
    """Time at which it was brought up, in seconds of Unix time."""
    is_up: bool
    """Whether the lab is still up."""


class Problem(Shape):
    """The reasons for which a request was refused."""

    errors: list[str]
    """Error messages, one sentence each."""
