# SPDX-License-Identifier: Apache-2.0
"""`qbed serve`: campaigns of many, over HTTP, with a live page."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from qbed.base import terminal
from qbed.base.errors import QbedError
from qbed.base.files import read_text
from qbed.cli.run import CellSpace, parse_space

if TYPE_CHECKING:
    from qbed.service.job_table import Recovery

TOKEN = "QBED_TOKEN"
_LONGEST_TOKEN = 4_096


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    folder: Annotated[Path | None, typer.Option(help="Folder of jobs and results.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; other addresses than loopback require a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: a free one.")] = 8410,
    token_file: Annotated[Path | None, typer.Option(help=f"File with the token of clients; or {TOKEN}.")] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="Host name that clients use; may be given several times.")
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="URL that users open, printed with the token; it allows its host name."),
    ] = None,
    grafana: Annotated[
        str | None, typer.Option(metavar="URL", help="URL of a Grafana with the dashboards, for a link on the page.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Number of concurrent campaigns.")] = 1,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Concurrent cells of a campaign (default: number of cores).")
    ] = None,
    queue: Annotated[int, typer.Option(min=1, help="Maximum number of waiting campaigns.")] = 100,
    retention: Annotated[int, typer.Option(min=1, help="Maximum number of campaigns whose results are kept.")] = 1_000,
    cell_timeout: Annotated[float, typer.Option(min=1, help="Maximum wall-clock seconds of a cell.")] = 3600.0,
    cell_space: CellSpace = "64 GB",
    query_timeout: Annotated[float, typer.Option(min=1, help="Seconds of wall clock for a client's SQL.")] = 30.0,
    allow_programs: Annotated[
        bool, typer.Option("--allow-programs", help="Allow clients' labs with programs.")
    ] = False,
    allow_files: Annotated[
        bool, typer.Option("--allow-files", help="Allow clients' labs to name files of this machine.")
    ] = False,
    allow_containers: Annotated[
        bool, typer.Option("--allow-containers", help="Allow campaigns in containers, as root.")
    ] = False,
    recover: Annotated[
        bool,
        typer.Option("--recover", help="Rebuild the list of jobs from their folders first, if it is damaged or lost."),
    ] = False,
) -> None:
    """Serve an HTTP API that queues and runs campaigns, and a page that shows running labs."""
    try:
        from qbed.service.serve import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("qbed"):
            raise
        raise QbedError(f"there is no Python package {error.name}: `pip install 'qbed[service]'` brings it") from None
    from qbed.service.settings import Settings, usual_folder
    from qbed.substrates.rebuild import build_changed

    build_changed(terminal.print_status)
    token = _token(token_file)
    names = (*(name or ()), *([_host_name(url, "--url")] if url else ()))
    if grafana:
        _host_name(grafana, "--grafana")
    settings = Settings(
        (folder or usual_folder()).resolve(), host.removeprefix("[").removesuffix("]"), port, token, names, jobs, cores,
        queue, retention, cell_timeout, parse_space(cell_space), allow_programs, allow_files, allow_containers,
        grafana, query_s=query_timeout,
    )  # fmt: skip

    def ready(address: str) -> None:
        page = f"{url}#token={token}" if url and token else url or address
        terminal.print_line(f"qbed serves at {page}")
        terminal.flush()

    run(settings, ready, recovering=_print_recovery if recover else None)


def _print_recovery(recovery: Recovery) -> None:
    kept = f"; the earlier list is {recovery.aside}" if recovery.aside is not None else ""
    terminal.print_status(f"{len(recovery.jobs)} jobs are in the list again{kept}")
    for name in recovery.unreadable:
        terminal.warn([f"the folder of job {name} has no readable job.json: the job is not in the list"])


def _host_name(url: str, option: str) -> str:
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and not re.search(r"[\s\x00-\x20\x7f#]", url):
            return parts.hostname
    raise typer.BadParameter(f"expected a URL such as http://localhost:8410/, got `{url}`", param_hint=option)


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(TOKEN) or None
    try:
        return read_text(file, _LONGEST_TOKEN).strip()
    except UnicodeDecodeError:
        raise QbedError(f"{file}: expected a token in ASCII") from None
