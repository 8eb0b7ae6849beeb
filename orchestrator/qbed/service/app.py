# SPDX-License-Identifier: Apache-2.0
"""The routes of the HTTP interface. `qbed.service.guard` decides which requests reach them."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi import Path as InPath
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException

from qbed import __version__
from qbed.base import crash_report
from qbed.base.errors import MissingError, QbedError
from qbed.base.json_files import Row
from qbed.lab import library, reference
from qbed.live.cell_events import ended_cell
from qbed.service import gallery, requests, results, sse
from qbed.service.guard import Guard
from qbed.service.job_runner import JobRunner
from qbed.service.jobs import RUN, FullError, Jobs
from qbed.service.labs import LabRefusedError, Labs
from qbed.service.page import assets
from qbed.service.requests import NODE, Job
from qbed.service.settings import Settings
from qbed.service.states import ENDED, State, TransitionError
from qbed.service.uploads import UploadError, Uploads, checksums
from qbed.storage.identity import StoreError
from qbed.substrates import DEFAULT, names, substrate


class ForbiddenError(QbedError):
    """The owner of the service does not allow it."""


_STATUS: tuple[tuple[type[QbedError], int], ...] = (
    (MissingError, 404), (TransitionError, 409), (FullError, 429), (UploadError, 422), (results.QueryError, 422),
    (LabRefusedError, 422), (StoreError, 409), (ForbiddenError, 403),
)  # fmt: skip
_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": requests.Mistake, "description": text}
    for status, text in {
        400: "no HTTP that can be understood", 401: "the token is missing or wrong", 403: "not allowed here",
        404: "there is no such thing", 405: "not done to that", 408: "the request did not come to its end",
        409: "not in this state", 413: "too long", 415: "of another type than expected",
        421: "another service's name", 422: "a mistake in what was sent", 429: "too much at once: later",
        500: "the service cannot reach its own files", 507: "there is no room on the service's disk",
    }.items()
}  # fmt: skip
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}
}
_REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " img-src data:"
)
"""A report is a page with scripts from its run: it has no origin and may send no request."""
_PICTURE_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'"
"""A picture has its own styles, and no scripts."""
MAX_JOBS = 200
_log = logging.getLogger("qbed.service")
api = APIRouter(prefix="/api", responses=_ERROR_RESPONSES)


class Service:
    """The state of the service that the routes use."""

    def __init__(self, settings: Settings) -> None:
        folder = settings.folder
        self.settings = settings
        self.jobs = Jobs(folder)
        self.runner = JobRunner(self.jobs, settings)
        self.uploads = Uploads(folder, settings.uploads)
        self.labs = Labs(folder, settings)
        self.asker = results.Asker(folder, settings)
        self.stopping = asyncio.Event()
        self.streams = 0
        substrate(DEFAULT)  # its modules are loaded before the first viewer

    def run(self, job: int) -> Path:
        """A job's run folder."""
        self.jobs.get(job)
        return self.jobs.place(job) / RUN

    def state(self, job: int) -> Callable[[], str]:
        """A function that returns the job's state. A removed job has ended."""

        def now() -> str:
            try:
                return str(self.jobs.get(job)["state"])
            except MissingError:
                return ENDED[0]

        return now

    def described(self, row: Row) -> Job:
        """A job as clients see it."""
        last = sse.latest(self.jobs.place(row["id"])) if row["state"] != "queued" else {}
        concluded, progress = last.get("concluded", {}), last.get("progress", {})
        cells = last.get("cells", {}).get("total")
        done = last.get("skipped", {}).get("cells", 0) + progress.get("finished", 0) + progress.get("running", 0)
        totals = concluded.get("totals")
        return Job(
            **row, cells=cells, done=cells if totals or cells is None else done, totals=totals,
            phase=last.get("phase", {}).get("name"), messages=last.get("refused", {}).get("messages", []),
            verdicts=concluded.get("verdicts", []),
        )  # fmt: skip

    async def streaming(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Pass events on, and count the stream while it lasts."""
        try:
            async for event in events:
                yield event
        finally:
            self.streams -= 1

    def begin_stream(self, events: AsyncIterator[bytes]) -> StreamingResponse:
        if self.streams >= self.settings.streams:
            raise FullError(f"{self.streams} viewers are served already")
        self.streams += 1
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self.streaming(events), media_type="text/event-stream", headers=headers)


def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


Here = Annotated[Service, Depends(_service)]
JobNumber = Annotated[int, InPath(ge=1, lt=2**53)]


# --- campaigns ---


@api.post("/jobs", status_code=201, summary="Submit a campaign")
async def submit(asked: requests.Submission, here: Here) -> Job:
    if asked.on not in names():
        raise HTTPException(422, f"there is no substrate {asked.on}: expected one of {', '.join(names())}")
    if asked.on != DEFAULT and not here.settings.allow_containers:
        raise ForbiddenError("this service runs no containers (`qbed serve --allow-containers`)")
    lab, name = _lab(asked, here)
    most = here.settings
    request = asked.model_dump() | {
        "cell_timeout": min(asked.cell_timeout or most.cell_timeout_s, most.cell_timeout_s),
        "cell_space": min(asked.cell_space or most.cell_space_bytes, most.cell_space_bytes),
    }
    job = await asyncio.to_thread(here.jobs.add, name, request, lab, queue=most.queue, kept=most.kept)
    here.runner.look()
    return here.described(here.jobs.get(job))


def _lab(asked: requests.Of, here: Service) -> tuple[Path | None, str]:
    """The uploaded folder, if there is one, and the name of the lab."""
    if asked.upload is not None:
        folder = here.uploads.find(asked.upload)
        file = getattr(asked, "campaign", None)
        if file is not None and not (folder / file).is_file():
            raise MissingError(f"there is no {file} in what was sent")
        return folder, _called(folder) or asked.upload[:12]
    assert asked.lab is not None
    lab, _, file = asked.lab.partition("/")
    if lab not in library.names() or (file and not library.find(Path(asked.lab)).is_file()):
        raise MissingError(f"there is no lab {asked.lab}: `GET /api/labs` lists them")
    return None, asked.lab


def _called(folder: Path) -> str | None:
    """The name that a lab file gives, from its first lines alone."""
    with suppress(OSError, UnicodeDecodeError):
        for line in (folder / "lab.yml").read_text()[:4_000].splitlines():
            if line.startswith("name:"):
                return "".join(letter for letter in line[5:].strip() if letter.isalnum() or letter in "-_")[:64] or None
    return None


@api.get("/jobs", summary="List campaigns, the newest first")
def jobs(
    here: Here,
    limit: Annotated[int, Query(ge=1, le=MAX_JOBS)] = 50,
    before: Annotated[int | None, Query(ge=1, lt=2**62)] = None,
    state: State | None = None,
) -> list[Job]:
    return [here.described(row) for row in here.jobs.newest(limit, before, state)]


@api.get("/jobs/{job}", summary="How a campaign stands")
def job(job: JobNumber, here: Here) -> Job:
    return here.described(here.jobs.get(job))


@api.post("/jobs/{job}/cancel", summary="Cancel a campaign; finished cells are kept")
async def cancel(job: JobNumber, here: Here) -> Job:
    await here.runner.cancel(job)
    return here.described(here.jobs.get(job))


@api.post("/jobs/{job}/retry", summary="Run what is not finished of a campaign that has ended")
async def retry(job: JobNumber, here: Here) -> Job:
    waiting = len(here.jobs.newest(here.settings.queue, state="queued"))
    if waiting >= here.settings.queue:
        raise FullError(f"{waiting} jobs wait already: try again later")
    here.jobs.turn(job, "retry")
    here.runner.look()
    return here.described(here.jobs.get(job))


@api.delete("/jobs/{job}", status_code=204, summary="Forget a campaign that has ended, with its results")
def remove(job: JobNumber, here: Here) -> None:
    here.jobs.remove(job)


@api.get(
    "/jobs/{job}/events",
    summary="What a campaign does, as it does it",
    response_class=StreamingResponse,
    responses=_EVENTS,
)
async def events(job: JobNumber, request: Request, here: Here) -> StreamingResponse:
    here.jobs.get(job)
    text = request.headers.get("last-event-id", "0")
    at = int(text) if text.isdecimal() and len(text) < 16 else 0
    return here.begin_stream(sse.job_events(here.jobs.place(job), here.state(job), at, here.stopping))


@api.get(
    "/jobs/{job}/samples",
    summary="What the queues of its cells do while they run",
    response_class=StreamingResponse,
    responses=_EVENTS,
)
async def samples(job: JobNumber, here: Here) -> StreamingResponse:
    return here.begin_stream(sse.samples(here.run(job), here.state(job), here.stopping))


@api.get(
    "/jobs/{job}/cells/{cell}/samples",
    summary="What the queues of a cell did that has ended",
    response_class=StreamingResponse,
    responses=_EVENTS,
)
async def past_samples(job: JobNumber, cell: Annotated[int, InPath(ge=0, lt=2**31)], here: Here) -> StreamingResponse:
    events = await asyncio.to_thread(ended_cell, here.run(job), cell)
    return here.begin_stream(sse.replay(events, here.stopping))


# --- results ---


@api.get("/jobs/{job}/cells", summary="The cells that have ended")
def cells(
    job: JobNumber,
    here: Here,
    offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> dict[str, Any]:
    return results.cells(here.run(job), offset, limit)


@api.get("/jobs/{job}/files", summary="The files of its results, with their sizes")
def files(job: JobNumber, here: Here) -> dict[str, int]:
    return dict(results.files(here.run(job)))


@api.get("/jobs/{job}/files/{name:path}", summary="One of them", response_class=FileResponse)
def file(job: JobNumber, name: str, here: Here) -> FileResponse:
    place = results.file(here.run(job), name)
    policies = {".html": _REPORT_POLICY, ".svg": _PICTURE_POLICY}
    policy = {"content-security-policy": policies[place.suffix]} if place.suffix in policies else {}
    return FileResponse(place, media_type=results.media_type(name), headers=policy)


@api.post("/jobs/{job}/query", summary="One SELECT over its tables", response_class=FileResponse)
async def query(job: JobNumber, asked: requests.Query, here: Here) -> FileResponse:
    answer = await here.asker.ask(here.run(job), asked.sql, asked.format)
    kind = {"json": "application/json", "csv": "text/csv; charset=utf-8", "parquet": results.PARQUET}[asked.format]
    return FileResponse(answer, media_type=kind, background=BackgroundTask(answer.unlink, missing_ok=True))


@api.get("/gallery", summary="Every lab's last campaign, and its claims over the versions of qbed")
def shown(here: Here) -> list[dict[str, Any]]:
    return gallery.of(here.jobs)


# --- labs ---


@api.get("/labs", summary="The labs that come with qbed")
def labs() -> list[dict[str, Any]]:
    return [entry.__dict__ for entry in library.entries()]


@api.get("/labs/{name}", summary="A lab's files")
def lab(name: str) -> dict[str, dict[str, str]]:
    if name not in library.names():
        raise MissingError(f"there is no lab {name[:100]!r}: `GET /api/labs` lists them")
    folder = library.find(Path(name))
    texts = {path.name: path.read_text() for path in sorted(folder.glob("*.yml"))}
    return {"texts": texts, "checksums": checksums(folder)}


@api.get("/schema", summary="The lab file's JSON Schema")
def schema() -> dict[str, Any]:
    return reference.schema()


@api.post(
    "/uploads", status_code=201, summary="Send a lab folder: a ZIP, a tar, or a tar.gz",
    openapi_extra={"requestBody": {"required": True, "content": {
        kind: {"schema": {"type": "string", "format": "binary"}}
        for kind in ("application/zip", "application/x-tar", "application/gzip")}}},
)  # fmt: skip
async def upload(request: Request, here: Here) -> requests.Uploaded:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/zip", "application/x-tar", "application/gzip"):
        raise HTTPException(415, "expected application/zip, application/x-tar or application/gzip")
    body = await request.body()
    name, found = await asyncio.to_thread(here.uploads.take, body)
    return requests.Uploaded(upload=name, files=found)


@api.get("/up", summary="The labs that this service has brought up")
def labs_up(here: Here) -> list[requests.LabUp]:
    return [
        requests.LabUp(name=name, since=one["since"], is_up=here.labs.is_up(name))
        for name, one in here.labs.known().items()
    ]


@api.post("/up", status_code=201, summary="Bring a lab up, without its workload")
async def up(asked: requests.Up, here: Here) -> requests.LabUp:
    sent, _ = _lab(asked, here)
    lab = sent if sent is not None else library.find(Path(str(asked.lab)))
    name = await here.labs.up(lab, sent is not None, asked.settings, asked.seed)
    return requests.LabUp(name=name, since=here.labs.known()[name]["since"], is_up=True)


@api.post("/up/{name}/nodes/{node}/exec", summary="Run a command on a node")
async def execute(name: str, node: str, asked: requests.Command, here: Here) -> requests.Answer:
    if not here.settings.allow_programs:
        raise ForbiddenError("this service runs no commands of clients (`qbed serve --allow-programs`)")
    if not re.fullmatch(NODE, node):
        raise MissingError("there is no such node")
    status, out, error = await here.labs.exec(name, node, asked.argv, asked.timeout)
    return requests.Answer(status=status, stdout=out, stderr=error)


@api.delete("/up/{name}", status_code=204, summary="Take a lab down")
async def down(name: str, here: Here) -> None:
    await here.labs.down(name)


@api.get("/version", summary="The version, and what clients may do")
def version(here: Here) -> dict[str, Any]:
    allowed = {name: getattr(here.settings, name) for name in ("allow_programs", "allow_files", "allow_containers")}
    return {"qbed": __version__, **allowed}


# --- the application ---


def _error_response(status: int, *errors: str) -> JSONResponse:
    headers = {"retry-after": "5"} if status == 429 else {}
    return JSONResponse({"errors": [text[:4_000] for text in errors]}, status, headers)


async def _mistake(_: Request, error: Exception) -> Response:
    return _error_response(next((status for kind, status in _STATUS if isinstance(error, kind)), 422), str(error))


async def _files(_: Request, error: Exception) -> Response:
    """Its disk is full, or its files are not as they should be: that is the owner's, and the log says which file."""
    why = ((error.strerror if isinstance(error, OSError) else str(error)) or "no reason given").lower()
    if crash_report.is_full(error):
        return _error_response(507, f"the service cannot write: {why}")
    _log.error("a request could not be answered", exc_info=error)
    return _error_response(500, f"the service cannot reach its own files: {why}")


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:20]]
    return _error_response(422, *found)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"errors": [str(error.detail)]}, error.status_code, error.headers)


def make_app(settings: Settings) -> FastAPI:
    """The application with its guard."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service = app.state.service = Service(settings)
        working = asyncio.create_task(service.runner.work())
        try:
            yield
        finally:
            service.stopping.set()
            await service.runner.stop()
            await working
            service.jobs.close()

    app = FastAPI(
        title="qbed", version=__version__, lifespan=life, openapi_url="/api/openapi.json", docs_url=None,
        redoc_url=None, description="Campaigns of a lab bench for in-network congestion signals. docs/service.md",
    )  # fmt: skip
    app.include_router(api)
    for path, (content, kind) in assets().items():
        app.add_api_route(path, _asset(content, kind), include_in_schema=False, methods=["GET", "HEAD"])
    app.add_exception_handler(QbedError, _mistake)
    app.add_exception_handler(OSError, _files)
    app.add_exception_handler(sqlite3.OperationalError, _files)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(Guard, settings=settings)
    return app


def _asset(content: bytes, kind: str) -> Callable[[], Response]:
    def asset() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return asset
