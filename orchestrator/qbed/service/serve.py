# SPDX-License-Identifier: Apache-2.0
"""The service's process: one for a folder, one event loop, the jobs as its children."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from qbed.service.app import make_app
from qbed.service.job_table import Recovery, recover
from qbed.service.jobs import Jobs
from qbed.service.listen import bound_sockets
from qbed.service.settings import Settings, SettingsError

GRACE_S = 3
MAX_CONNECTIONS = 256


class _Server(uvicorn.Server):
    """Streams end when the service does; their clients connect again."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None], ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._end_streams, self._ready = end_streams, ready

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._end_streams()
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")


def serve(
    settings: Settings, ready: Callable[[str], None], recovering: Callable[[Recovery], None] | None = None
) -> None:
    """Serve until SIGTERM or SIGINT. `ready` gets the address.

    With `recovering`, the list of jobs is rebuilt first, and the function gets the result.
    """
    settings.check()
    settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _exclusive_lock(settings):
        if recovering is not None:
            recovering(recover(settings.folder))
        sockets = bound_sockets(settings)
        # Jobs are opened here, since an error in the application's start would be a traceback.
        app = make_app(settings, Jobs(settings.folder))
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, proxy_headers=False,
            timeout_graceful_shutdown=GRACE_S, limit_concurrency=MAX_CONNECTIONS, lifespan="on",
        )  # fmt: skip
        server = _Server(config, lambda: app.state.service.stopping.set(), ready)
        server.run(sockets)


@contextmanager
def _exclusive_lock(settings: Settings) -> Iterator[None]:
    descriptor = os.open(settings.folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise SettingsError(f"another `qbed serve` has the folder {settings.folder}: choose another --folder") from None
    finally:
        os.close(descriptor)
