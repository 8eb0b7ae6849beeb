# SPDX-License-Identifier: Apache-2.0
"""HTTP client of a service, for `qbed --server URL`."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from qbed.base.errors import QbedError
from qbed.service.uploads import MAX_BYTES, MAX_FILES, checksums, files_in
from qbed.storage.run_folder import MERGED_FILES

PATIENCE_S = 60.0
"""How long to retry if the service does not answer: it may be restarting."""
_TIMES = httpx.Timeout(30.0, read=60.0)
_PIECE = 1 << 20


class ServerError(QbedError):
    """The service does not answer, or refuses."""


class RefusedError(ServerError):
    """The service refuses the request, with a reason."""

    exit_status = 2


class Client:
    """A connection to a service."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self.url = url.rstrip("/")
        try:
            self._http = httpx.Client(base_url=f"{self.url}/api", headers=headers, timeout=_TIMES, trust_env=False)
        except (httpx.InvalidURL, ValueError) as error:
            raise ServerError(f"{url} is no URL of a service: {error}") from None

    def close(self) -> None:
        self._http.close()

    def get(self, path: str) -> Any:
        """Send a GET request; returns the JSON of the response."""
        return self._request("GET", path).json()

    def post(self, path: str, body: Any = None) -> Any:
        """Send a POST request with a JSON body; returns the JSON of the response."""
        return self._request("POST", path, json=body).json()

    def has(self, folder: Path) -> bool:
        """Whether the service has the same lab in its library."""
        try:
            return bool(self.get(f"/labs/{folder.resolve().name}")["checksums"] == checksums(folder))
        except RefusedError:
            return False

    def send(self, folder: Path) -> str:
        """Upload a lab folder; returns the name of the upload."""
        content = packed(folder)
        headers = {"content-type": "application/zip"}
        return str(self._request("POST", "/uploads", content=content, headers=headers).json()["upload"])

    def _request(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **more)
        except httpx.HTTPError as error:
            raise ServerError(f"{self.url} does not answer: {error}") from None
        return _fine(answer)

    def events(self, job: int) -> Iterator[dict[str, Any]]:
        """A job's events until it has ended. A lost connection is opened again."""
        last, received_at = "0", time.monotonic()
        while True:
            try:
                with self._http.stream("GET", f"/jobs/{job}/events", headers={"last-event-id": last}) as answer:
                    if answer.status_code != 200:
                        answer.read()
                    for event, identity, data in _events(_fine(answer).iter_lines()):
                        received_at, last = time.monotonic(), identity or last
                        if event == "end":
                            return
                        yield data
            except (httpx.HTTPError, ServerError) as error:
                if isinstance(error, RefusedError) or time.monotonic() - received_at > PATIENCE_S:
                    text = f"{self.url} does not answer any more: {error}; job {job} may still run there"
                    raise ServerError(text) from None
                time.sleep(0.5)

    def fetch(self, job: int, name: str, place: Path) -> None:
        """Download a file of the job's results: written to a temporary file and renamed."""
        beside = place.with_name(f".{place.name}.tmp")
        place.parent.mkdir(exist_ok=True)
        try:
            with self._http.stream("GET", f"/jobs/{job}/files/{name}") as answer, beside.open("wb") as file:
                if answer.status_code != 200:
                    answer.read()
                for piece in _fine(answer).iter_bytes(_PIECE):
                    file.write(piece)
        except httpx.HTTPError as error:
            beside.unlink(missing_ok=True)
            raise ServerError(f"{self.url} does not answer: {error}") from None
        beside.rename(place)


def files_of(names: list[str]) -> list[str]:
    """The names that are files of a run folder: other names from a service are not used as paths."""
    plain = {*MERGED_FILES, "checksums.json", "meta.json", "report.html"}
    figures = [name for name in names if name.startswith("figures/") and name.endswith((".png", ".svg", ".pdf"))]
    good = [name for name in figures if "/" not in name[8:] and not name[8:].startswith(".") and "\0" not in name]
    return [name for name in names if name in plain] + good


def _fine(answer: httpx.Response) -> httpx.Response:
    if answer.status_code < 400:
        return answer
    try:
        errors = "\n".join(str(text) for text in answer.json()["errors"])
    except (ValueError, KeyError, TypeError):
        errors = f"it answers {answer.status_code} {answer.reason_phrase}"
    raise (RefusedError if answer.status_code < 500 else ServerError)(errors)


def _events(lines: Iterator[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Server-sent events: their names, identities and data."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
            continue
        if "event" in fields:
            yield fields["event"], fields.get("id", ""), json.loads(fields.get("data", "{}"))
        fields = {}


def packed(folder: Path) -> bytes:
    """A lab folder as a reproducible ZIP, without hidden files and links."""
    target, size, count = io.BytesIO(), 0, 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for path in files_in(folder):
            size, count = size + path.stat().st_size, count + 1
            if size > MAX_BYTES or count > MAX_FILES:
                raise ServerError(f"{folder} is too much to send: at most {MAX_FILES} files, {MAX_BYTES >> 20} MiB")
            file.writestr(zipfile.ZipInfo(str(path.relative_to(folder))), path.read_bytes())
    return target.getvalue()
