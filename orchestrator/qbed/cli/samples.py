# SPDX-License-Identifier: Apache-2.0
"""`qbed samples`: what the queues and flows of a running lab do, as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qbed.base import terminal
from qbed.cli.run import Influx, Ndjson, Otlp
from qbed.config.units import parse_duration
from qbed.storage.identity import IDENTITY

if TYPE_CHECKING:
    from qbed.live.sinks.address import Address


def register(app: typer.Typer) -> None:
    app.command()(samples)


def samples(
    what: Annotated[str, typer.Argument(metavar="LAB|RUN", help="A lab that is up, or a run folder.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the lab ends.")] = False,
    influx: Influx = None,
    otlp: Otlp = None,
    ndjson: Ndjson = None,
    send: Annotated[bool, typer.Option("--send", help="Send the rest of a run to the sinks that it was sent to.")] = (
        False
    ),
    sink_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long a sink may accept nothing until the command ends.")
    ] = "30s",
) -> None:
    """Print the samples of queues and flows as NDJSON in lab time. The first line describes the clock.

    With --influx, --otlp, --ndjson or --send they go there instead: of a lab its samples, of a run folder all points of
    the cells that have ended, as far as they are not there yet. Exit status 1: something was not delivered.
    """
    from qbed.live.samples import find, stream
    from qbed.live.sinks.address import addresses_of

    try:
        if influx or otlp or ndjson or send:
            addresses = _send_addresses(what) if send else addresses_of(influx, otlp, ndjson)
            _deliver(what, follow, addresses, _seconds(sink_timeout))
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


def _send_addresses(what: str) -> list[Address]:
    """The sinks that the points of a run were sent to."""
    from qbed.live.delivery_log import sinks_of
    from qbed.live.sinks.address import Address

    if not (Path(what) / IDENTITY).exists():
        raise typer.BadParameter(f"expected a run folder, got `{what}`", param_hint="--send")
    # QBED_INFLUX and QBED_OTLP may name other sinks than the run's: --send is only for those of the run.
    names = sinks_of(Path(what))
    if not names:
        raise typer.BadParameter(
            f"no points of {what} were sent yet: name a sink by --influx or --otlp", param_hint="--send"
        )
    return [Address.named(name) for name in names]


def _seconds(text: str) -> float:
    try:
        return parse_duration(text) / 1e9
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--sink-timeout") from None


def _deliver(what: str, follow: bool, addresses: list[Address], timeout_s: float) -> None:
    from qbed.live.exporter import Delivery, deliver, deliver_lab
    from qbed.live.samples import find

    def show(delivery: Delivery) -> None:
        terminal.print_status(f"{delivery.points} points to {delivery.sink}, {delivery.left} cells left")

    complete = True
    for address in addresses:
        if (Path(what) / IDENTITY).exists():
            done = deliver(Path(what), address.make(), timeout_s, show)
        else:
            done = deliver_lab(find(what), address.make(), follow=follow, patience_s=timeout_s)
        terminal.print_status(done.describe())
        complete = complete and done.complete
    if not complete:
        raise typer.Exit(1)
