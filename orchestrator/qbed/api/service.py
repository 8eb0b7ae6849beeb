# SPDX-License-Identifier: Apache-2.0
"""Campaigns on a service (`qbed serve`), from Python: `qbed.Service(URL).submit("incast").wait()`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qbed.api.labs import Lab
from qbed.api.runs import Run, run_options
from qbed.base.errors import LabError
from qbed.base.json_files import Row
from qbed.lab.library import find
from qbed.service import SERVER, TOKEN, connected

if TYPE_CHECKING:
    from qbed.service.client import Client


@dataclass(frozen=True)
class Job:
    """A campaign on a service."""

    client: Client
    number: int

    @property
    def status(self) -> Row:
        """The job's current status: `state`, `cells`, how many are `done`, `exit_status`, `request`."""
        status: Row = self.client.get(f"/jobs/{self.number}")
        return status

    def cancel(self) -> None:
        """End it; the service keeps its finished cells."""
        self.client.post(f"/jobs/{self.number}/cancel")

    def wait(
        self,
        *,
        out: str | Path | None = None,
        fresh: bool = False,
        progress: Callable[[Row], None] | None = None,
    ) -> Run:
        """Wait for its end, and bring its results into a run folder here. `progress` receives the service's events.

        `LabError`: the campaign was refused, or the job cancelled.
        """
        from qbed.runs.experiment import RunOptions
        from qbed.service.submission import bring

        refused: list[str] | None = [f"job {self.number} was cancelled"]
        for event in self.client.events(self.number):
            if progress is not None:
                progress(event)
            if event["event"] == "concluded":
                refused = None
            elif event["event"] in ("attempt", "refused"):
                refused = event.get("messages", refused)
        if refused is not None:
            raise LabError(refused)
        options = RunOptions(self.status["request"]["profile"], None if out is None else Path(out))
        return Run(bring(self.client, self.number, options, fresh=fresh))


class Service:
    """A service, by its URL and token. Their defaults are the environment variables `QBED_SERVER` and `QBED_TOKEN`."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self._client = connected(url or os.environ.get(SERVER), token or os.environ.get(TOKEN))

    def jobs(self) -> list[Job]:
        """All campaigns of the service."""
        return [self.job(int(job["id"])) for job in self._client.get("/jobs")]

    def job(self, number: int) -> Job:
        """The campaign with this number."""
        return Job(self._client, number)

    def submit(
        self,
        lab: Lab | str | Path,
        *,
        profile: str | None = None,
        seeds: Sequence[int] | None = None,
        images: bool = True,
        **options: Any,
    ) -> Job:
        """Submit a campaign of files, or a single lab. The keywords are those of `qbed.run`."""
        from qbed.service.submission import submit

        chosen = run_options(
            "submit", options, profile=profile, out=None, seeds=seeds, more=("profile", "seeds", "images")
        )
        if isinstance(lab, Lab):
            chosen = replace(chosen, settings={**lab.settings, **(chosen.settings or {})})
        file = lab.file if isinstance(lab, Lab) else find(Path(lab))
        return self.job(submit(self._client, file, chosen, images=images))
