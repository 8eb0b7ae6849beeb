# SPDX-License-Identifier: Apache-2.0
"""`qbed samples`: what the queues and flows of a running lab do, as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from qbed.base import terminal
from qbed.cli.run import Influx, Ndjson, sinks


def register(app: typer.Typer) -> None:
    app.command()(samples)


def samples(
    what: Annotated[str, typer.Argument(metavar="LAB|RUN", help="A lab that is up, or a run folder.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the lab ends.")] = False,
    influx: Influx = None,
    ndjson: Ndjson = None,
) -> None:
    """Print the samples of queues and flows as NDJSON in lab time. The first line describes the clock.

    With --influx or --ndjson they go there instead: of a lab its samples, of a run folder all points of the cells that
    have ended, as far as they are not there yet. Exit status 1: something was not delivered.
    """
    from qbed.live.samples import find, stream

    try:
        if influx or ndjson:
            _deliver(what, follow, influx, ndjson)
            return
        for row in stream(find(what), follow=follow):
            terminal.write_stdout(json.dumps(row) + "\n")
            if follow:
                terminal.flush()
        terminal.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:  # the reader has closed the pipe
        terminal.discard_stdout()


def _deliver(what: str, follow: bool, influx: str | None, ndjson: Path | None) -> None:
    from qbed.live.exporter import deliver, deliver_lab
    from qbed.live.samples import find
    from qbed.storage.identity import IDENTITY

    complete = True
    for address in sinks(influx, ndjson):
        if (Path(what) / IDENTITY).exists():
            done = deliver(Path(what), address.make())
        else:
            done = deliver_lab(find(what), address.make(), follow=follow)
        terminal.print_status(done.describe())
        complete = complete and not done.left
    if not complete:
        raise typer.Exit(1)
