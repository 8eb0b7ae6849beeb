# SPDX-License-Identifier: Apache-2.0
"""Fuzz the API: every response follows the OpenAPI document, and none is an internal server error."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi import checks as openapi
from uploads import LAB, zipped

from qbed.service.app import make_app
from qbed.service.settings import Settings
from qbed.service.uploads import UploadError, Uploads

schema = schemathesis.openapi.from_dict(make_app(Settings(Path("/nowhere"))).openapi())
bounded = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Run a service with an upload and a queued job. It starts no jobs and has no rate limit."""
    with TemporaryDirectory() as folder:
        app = make_app(Settings(Path(folder), jobs=0, labs=0, rate_per_s=1e6, burst=10**6))
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        zipped_lab = zipped({"lab.yml": LAB})
        httpx.post(f"{url}/api/uploads", content=zipped_lab, headers={"content-type": "application/zip"})
        httpx.post(f"{url}/api/jobs", json={"lab": "dumbbell"})
        yield url
        server.should_exit = True
        thread.join()


# The streams of a queued job have no end. The next test covers uploads.
@schema.exclude(path_regex=r"/(events|samples|uploads)$").parametrize()
@bounded
def test_the_api_conforms_to_its_document(case: schemathesis.Case[Any], url: str) -> None:
    answer = case.call(base_url=url)
    assert answer.status_code < 500, answer.text
    case.validate_response(
        answer,
        checks=[
            schemathesis.checks.not_a_server_error,
            openapi.status_code_conformance,
            openapi.content_type_conformance,
            openapi.response_schema_conformance,
        ],
    )


@given(st.binary(max_size=600), st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_any_upload_becomes_a_folder_or_is_refused(noise: bytes, at: int, value: int) -> None:
    """Uploads are random bytes, or a valid archive with one changed byte. No file is written outside `uploads`."""
    good = bytearray(zipped({"lab.yml": LAB, "sizes/web.txt": b"1 1\n"}))
    good[at % len(good)] = value
    with TemporaryDirectory() as folder:
        uploads = Uploads(Path(folder), 8)
        for archive in (noise, b"PK\x03\x04" + noise, b"\x1f\x8b\x08\x00" + noise, bytes(good)):
            try:
                name, files = uploads.add(archive)
            except UploadError:
                continue
            assert files and uploads.find(name).is_dir()
        assert {path.name for path in Path(folder).iterdir()} == {"uploads"}
        assert not [path for path in Path(folder).rglob("*") if path.is_symlink() or path.name.startswith(".new")]
