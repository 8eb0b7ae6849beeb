# SPDX-License-Identifier: Apache-2.0
"""A campaign that a service runs, from the client's side: submission and download of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbed.base.errors import QbedError
from qbed.base.locations import labs_folder
from qbed.runs.experiment import RunOptions, default_folder
from qbed.service.client import Client, files_of
from qbed.storage.identity import IDENTITY, StoreError, read_any_identity
from qbed.storage.run_folder import RunFolder
from qbed.substrates import DEFAULT


def submit(client: Client, lab: Path, options: RunOptions, *, images: bool) -> int:
    """Submit a campaign; returns the job's number. A lab is uploaded unless the service has an equal one."""
    if options.several or options.lock == "write" or options.shard or options.sinks:
        raise QbedError(
            "with --server a campaign has one substrate and no shards, and writes neither a lock nor samples elsewhere"
        )
    return int(client.post("/jobs", _request(client, lab, options) | {"images": images})["id"])


def _request(client: Client, lab: Path, options: RunOptions) -> dict[str, Any]:
    limits = options.limits
    request: dict[str, Any] = {
        "profile": options.profile, "seeds": options.seeds, "settings": dict(options.settings or {}),
        "on": options.on or DEFAULT, "dilation": options.dilation, "cell_timeout": limits.cell_s,
        "stall_timeout": limits.stall_s, "cell_space": limits.space_bytes, "keep": options.keep,
        "store": options.store, "locked": options.lock is not None,
    }  # fmt: skip
    folder = lab if lab.is_dir() else lab.parent
    name = folder.resolve().name
    if folder.resolve().parent == labs_folder().resolve() and client.has(folder):
        return request | {"lab": name if lab.is_dir() else f"{name}/{lab.name}"}
    file = {} if lab.is_dir() else {"campaign": lab.name}
    return request | {"upload": client.send(folder), **file}


def bring(client: Client, job: int, options: RunOptions, *, fresh: bool) -> Path:
    """Download a job's results into a local run folder."""
    names = list(client.get(f"/jobs/{job}/files"))
    identity = {name: value for name, value in client.get(f"/jobs/{job}/files/{IDENTITY}").items() if name != "sha256"}
    place = (options.out or default_folder(identity, options)).resolve()
    try:
        RunFolder(place).claim(identity, fresh=fresh)
        read_any_identity(place)
    except StoreError as error:
        raise StoreError(f"{error}; the results are job {job} on {client.url}") from None
    for name in files_of(names):
        client.fetch(job, name, place / name)
    return place
