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
from qbed.live.cell_tables import totals
from qbed.service import gallery, requests, results, sse
from qbed.service.events import latest
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
    """The settings of the service forbid the request."""


_STATUS: tuple[tuple[type[QbedError], int], ...] = (
    (MissingError, 404), (TransitionError, 409), (FullError, 429), (UploadError, 422), (results.QueryError, 422),
    (LabRefusedError, 422), (StoreError, 409), (ForbiddenError, 403),
)  # fmt: skip
_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": requests.Problem, "description": text}
    for status, text in {
        400: "malformed HTTP request", 401: "the token is missing or invalid", 403: "not allowed on this service",
        404: "not found", 405: "the path does not support this method", 408: "the request body timed out",
        409: "not allowed in the present state", 413: "the body is too long", 415: "unsupported media type",
        421: "the Host header names another service", 422: "the body or a parameter is invalid",
        429: "too many requests: try again later", 500: "the service cannot access its files",
        507: "the service's disk is full",
    }.items()
}  # fmt: skip
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}
}
_REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " img-src data:"
)
"""Policy of a report: a page with scripts, without an origin, that may send no request."""
_PICTURE_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'"
"""Policy of a picture: inline styles, and no scripts."""
MAX_JOBS = 200
_log = logging.getLogger("qbed.service")
api = APIRouter(prefix="/api", responses=_ERROR_RESPONSES)


class Service:
    """The state of the service that the routes use."""

    def __init__(self, settings: Settings, jobs: Jobs) -> None:
        folder = settings.folder
        self.settings = settings
        self.jobs = jobs
        self.runner = JobRunner(self.jobs, settings)
        self.uploads = Uploads(folder, settings.uploads)
        self.labs = Labs(folder, settings)
        self.queries = results.QueryRunner(folder, settings)
        self.stopping = asyncio.Event()
        self.streams = 0
        substrate(DEFAULT)  # load its modules before the first request

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

    def describe(self, row: Row) -> Job:
        """A job as the API returns it."""
        last = latest(self.jobs.place(row["id"])) if row["state"] != "queued" else {}
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
        """Forward events, and count the stream until it ends."""
        try:
            async for event in events:
                yield event
        finally:
            self.streams -= 1

    def begin_stream(self, events: AsyncIterator[bytes]) -> StreamingResponse:
        if self.streams >= self.settings.streams:
            raise FullError(f"{self.streams} event streams are open already")
        self.streams += 1
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self.streaming(events), media_type="text/event-stream", headers=headers)


def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


ServiceDep = Annotated[Service, Depends(_service)]
JobNumber = Annotated[int, InPath(ge=1, lt=2**53)]
CellNumber = Annotated[int, InPath(ge=0, lt=2**31)]
Instant = Annotated[int, Query(ge=0, lt=2**53)]


# --- campaigns ---


@api.post("/jobs", status_code=201, summary="Submit a campaign")
async def submit(body: requests.Submission, service: ServiceDep) -> Job:
    if body.on not in names():
        raise HTTPException(422, f"there is no substrate {body.on}: expected one of {', '.join(names())}")
    if body.on != DEFAULT and not service.settings.allow_containers:
        raise ForbiddenError("this service runs no containers (`qbed serve --allow-containers`)")
    lab, name = _lab(body, service)
    limits = service.settings
    request = body.model_dump() | {
        "cell_timeout": min(body.cell_timeout or limits.cell_timeout_s, limits.cell_timeout_s),
        "cell_space": min(body.cell_space or limits.cell_space_bytes, limits.cell_space_bytes),
    }
    job = await asyncio.to_thread(service.jobs.add, name, request, lab, queue=limits.queue, retention=limits.retention)
    service.runner.wake()
    return service.describe(service.jobs.get(job))


def _lab(body: requests.LabChoice, service: Service) -> tuple[Path | None, str]:
    """The uploaded folder, if there is one, and the name of the lab."""
    if body.upload is not None:
        folder = service.uploads.find(body.upload)
        file = getattr(body, "campaign", None)
        if file is not None and not (folder / file).is_file():
            raise MissingError(f"there is no {file} in the upload")
        return folder, _lab_name(folder) or body.upload[:12]
    assert body.lab is not None
    lab, _, file = body.lab.partition("/")
    if lab not in library.names() or (file and not library.find(Path(body.lab)).is_file()):
        raise MissingError(f"there is no lab {body.lab}: `GET /api/labs` lists them")
    return None, body.lab


def _lab_name(folder: Path) -> str | None:
    """The lab's name, read from the first 4,000 characters of its file."""
    with suppress(OSError, UnicodeDecodeError):
        for line in (folder / "lab.yml").read_text()[:4_000].splitlines():
            if line.startswith("name:"):
                return "".join(letter for letter in line[5:].strip() if letter.isalnum() or letter in "-_")[:64] or None
    return None


@api.get("/jobs", summary="List campaigns, the newest first")
def jobs(
    service: ServiceDep,
    limit: Annotated[int, Query(ge=1, le=MAX_JOBS)] = 50,
    before: Annotated[int | None, Query(ge=1, lt=2**62)] = None,
    state: State | None = None,
) -> list[Job]:
    return [service.describe(row) for row in service.jobs.newest(limit, before, state)]


@api.get("/jobs/{job}", summary="A campaign's state")
def job(job: JobNumber, service: ServiceDep) -> Job:
    return service.describe(service.jobs.get(job))


@api.post("/jobs/{job}/cancel", summary="Cancel a campaign; finished cells are kept")
async def cancel(job: JobNumber, service: ServiceDep) -> Job:
    await service.runner.cancel(job)
    return service.describe(service.jobs.get(job))


@api.post("/jobs/{job}/retry", summary="Run the unfinished cells of a campaign that has ended")
async def retry(job: JobNumber, service: ServiceDep) -> Job:
    waiting = len(service.jobs.newest(service.settings.queue, state="queued"))
    if waiting >= service.settings.queue:
        raise FullError(f"{waiting} jobs wait already: try again later")
    service.jobs.apply(job, "retry")
    service.runner.wake()
    return service.describe(service.jobs.get(job))


@api.delete("/jobs/{job}", status_code=204, summary="Remove a campaign that has ended, with its results")
def remove(job: JobNumber, service: ServiceDep) -> None:
    service.jobs.remove(job)


@api.get(
    "/jobs/{job}/events",
    summary="A campaign's events, as they occur",
    response_class=StreamingResponse,
    responses=_EVENTS,
)
async def events(job: JobNumber, request: Request, service: ServiceDep) -> StreamingResponse:
    service.jobs.get(job)
    text = request.headers.get("last-event-id", "0")
    offset = int(text) if text.isdecimal() and len(text) < 16 else 0
    return service.begin_stream(sse.job_events(service.jobs.place(job), service.state(job), offset, service.stopping))


@api.get(
    "/jobs/{job}/samples",
    summary="Queue samples of the running cell",
    response_class=StreamingResponse,
    responses=_EVENTS,
)
async def samples(job: JobNumber, service: ServiceDep) -> StreamingResponse:
    return service.begin_stream(sse.samples(service.run(job), service.state(job), service.stopping))


@api.get(
    "/jobs/{job}/cells/{cell}/samples",
    summary="Queue samples of a cell that has ended",
    response_class=StreamingResponse,
    responses=_EVENTS,
)
async def past_samples(
    job: JobNumber, cell: CellNumber, service: ServiceDep, from_ns: Instant = 0, until_ns: Instant | None = None
) -> StreamingResponse:
    window = None if until_ns is None else (from_ns, until_ns)
    if window and from_ns >= window[1]:
        raise HTTPException(422, "expected until_ns after from_ns")
    events = await asyncio.to_thread(ended_cell, service.run(job), cell, window)
    return service.begin_stream(sse.replay(events, service.stopping))


# --- results ---


@api.get("/jobs/{job}/cells/{cell}/totals", summary="Totals of the queues and flows of a cell that has ended")
def cell_totals(job: JobNumber, cell: CellNumber, service: ServiceDep) -> dict[str, Any]:
    return totals(service.run(job), cell)


@api.get("/jobs/{job}/cells", summary="The cells that have ended")
def cells(
    job: JobNumber,
    service: ServiceDep,
    offset: Annotated[int, Query(ge=0, lt=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> dict[str, Any]:
    return results.cells(service.run(job), offset, limit)


@api.get("/jobs/{job}/files", summary="The files of its results, with their sizes")
def files(job: JobNumber, service: ServiceDep) -> dict[str, int]:
    return dict(results.files(service.run(job)))


@api.get("/jobs/{job}/files/{name:path}", summary="A file of its results", response_class=FileResponse)
def file(job: JobNumber, name: str, service: ServiceDep) -> FileResponse:
    place = results.file(service.run(job), name)
    policies = {".html": _REPORT_POLICY, ".svg": _PICTURE_POLICY}
    policy = {"content-security-policy": policies[place.suffix]} if place.suffix in policies else {}
    return FileResponse(place, media_type=results.media_type(name), headers=policy)


@api.post("/jobs/{job}/query", summary="Run a SELECT over its tables", response_class=FileResponse)
async def query(job: JobNumber, body: requests.Query, service: ServiceDep) -> FileResponse:
    answer = await service.queries.run(service.run(job), body.sql, body.format)
    kind = {"json": "application/json", "csv": "text/csv; charset=utf-8", "parquet": results.PARQUET}[body.format]
    return FileResponse(answer, media_type=kind, background=BackgroundTask(answer.unlink, missing_ok=True))


@api.get("/gallery", summary="The last campaign of each lab, and its claims by version of qbed")
def list_gallery(service: ServiceDep) -> list[dict[str, Any]]:
    return gallery.entries(service.jobs)


# --- labs ---


@api.get("/labs", summary="The labs of the library")
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
async def upload(request: Request, service: ServiceDep) -> requests.Uploaded:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/zip", "application/x-tar", "application/gzip"):
        raise HTTPException(415, "expected application/zip, application/x-tar or application/gzip")
    archive = await request.body()
    name, found = await asyncio.to_thread(service.uploads.add, archive)
    return requests.Uploaded(upload=name, files=found)


@api.get("/up", summary="The labs that this service has brought up")
def labs_up(service: ServiceDep) -> list[requests.LabUp]:
    return [
        requests.LabUp(name=name, since=lab["since"], is_up=service.labs.is_up(name))
        for name, lab in service.labs.known().items()
    ]


@api.post("/up", status_code=201, summary="Bring a lab up, without its workload")
async def up(body: requests.Up, service: ServiceDep) -> requests.LabUp:
    sent, _ = _lab(body, service)
    lab = sent if sent is not None else library.find(Path(str(body.lab)))
    name = await service.labs.up(lab, sent is not None, body.settings, body.seed)
    return requests.LabUp(name=name, since=service.labs.known()[name]["since"], is_up=True)


@api.post("/up/{name}/nodes/{node}/exec", summary="Run a command on a node")
async def execute(name: str, node: str, body: requests.Command, service: ServiceDep) -> requests.Answer:
    if not service.settings.allow_programs:
        raise ForbiddenError("this service runs no commands of clients (`qbed serve --allow-programs`)")
    if not re.fullmatch(NODE, node):
        raise MissingError("there is no such node")
    status, out, error = await service.labs.exec(name, node, body.argv, body.timeout)
    return requests.Answer(status=status, stdout=out, stderr=error)


@api.delete("/up/{name}", status_code=204, summary="Take a lab down")
async def down(name: str, service: ServiceDep) -> None:
    await service.labs.down(name)


@api.get("/version", summary="The version, and the permissions of clients")
def version(service: ServiceDep) -> dict[str, Any]:
    allowed = {name: getattr(service.settings, name) for name in ("allow_programs", "allow_files", "allow_containers")}
    return {"qbed": __version__, **allowed}


# --- the application ---


def _error_response(status: int, *errors: str) -> JSONResponse:
    headers = {"retry-after": "5"} if status == 429 else {}
    return JSONResponse({"errors": [text[:4_000] for text in errors]}, status, headers)


async def _qbed_error(_: Request, error: Exception) -> Response:
    return _error_response(next((status for kind, status in _STATUS if isinstance(error, kind)), 422), str(error))


async def _internal_error(_: Request, error: Exception) -> Response:
    """A full disk or an unreadable file of the service. The log names the file."""
    reason = ((error.strerror if isinstance(error, OSError) else str(error)) or "no reason given").lower()
    if crash_report.is_full(error):
        return _error_response(507, f"the service cannot write: {reason}")
    _log.error("a request could not be answered", exc_info=error)
    return _error_response(500, f"the service cannot access its files: {reason}")


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()[:20]]
    return _error_response(422, *found)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"errors": [str(error.detail)]}, error.status_code, error.headers)


def make_app(settings: Settings, jobs: Jobs | None = None) -> FastAPI:
    """The application with its guard.

    Unless `jobs` are given, its start opens the jobs of the folder. Its end closes them.
    """

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service = app.state.service = Service(settings, jobs or Jobs(settings.folder))
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
        redoc_url=None, description="Campaigns of qbed, a test bench for congestion control. docs/service.md",
    )  # fmt: skip
    app.include_router(api)
    for path, (content, kind) in assets(settings.grafana).items():
        app.add_api_route(path, _asset(content, kind), include_in_schema=False, methods=["GET", "HEAD"])
    app.add_exception_handler(QbedError, _qbed_error)
    app.add_exception_handler(OSError, _internal_error)
    app.add_exception_handler(sqlite3.OperationalError, _internal_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(Guard, settings=settings)
    return app


def _asset(content: bytes, kind: str) -> Callable[[], Response]:
    def asset() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return asset
