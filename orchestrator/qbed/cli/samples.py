# SPDX-License-Identifier: Apache-2.0
"""`qbed samples`: what the queues and flows of a running lab do, as a stream."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from qbed import terminal


def register(app: typer.Typer) -> None:
    app.command()(samples)


def samples(
    what: Annotated[str, typer.Argument(metavar="LAB|RUN", help="A lab that is up, or a run folder.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
) -> None:
    """Print the samples of queues and flows as NDJSON, in the lab's time; the first line says what clock that is."""
    from qbed.live.samples import find, stream

    try:
        for row in stream(find(what), follow=follow):
            terminal.give(json.dumps(row) + "\n")
            if follow:
                terminal.flush()
        terminal.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:  # whoever read has had enough
        terminal.abandon()
