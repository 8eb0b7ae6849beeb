# SPDX-License-Identifier: Apache-2.0
"""Real InfluxDB servers, as processes on loopback from a folder of their own, and servers that are none."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb
import pytest

from qbed.live.points import EPOCH_NS, STRETCH
from qbed.live.sinks.influx import Influx

TOOL = Path(__file__).parents[2] / "tools" / "influxd"
CONFIG = """\
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
query-log-enabled = false
[http]
bind-address = "127.0.0.1:{http}"
log-enabled = false
[monitor]
store-enabled = false
"""


COLUMNS = (
    "min_bytes",
    "max_bytes",
    "min_packets",
    "max_packets",
    "enqueued",
    "dequeued",
    "dropped",
    "marked",
    "dequeued_bytes",
)
FIELDS = ",".join(("interval_ns", "mean_bytes", "mean_packets", *COLUMNS))


@cache
def program(version: str) -> str:
    """The server's program; a test is skipped where it cannot be had."""
    done = subprocess.run([TOOL, version], capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """An InfluxDB that can be killed and started again."""

    def __init__(self, folder: Path, version: str = "1.6.7") -> None:
        self.port = free_port()
        self._folder, self._program = folder, program(version)
        (folder / "influxdb.conf").write_text(CONFIG.format(folder=folder, http=self.port, rpc=free_port()))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Headers of queries."""
        return {}

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            command = [self._program, "run", "-config", str(self._folder / "influxdb.conf")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + 60
        while True:
            try:
                self.query("SHOW DATABASES")
                return
            except OSError:
                assert time.monotonic() < until and self._process.poll() is None, (self._folder / "log").read_text()
                time.sleep(0.05)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def query(self, query: str, database: str | None = None) -> list[dict[str, Any]]:
        """The rows of an InfluxQL query, each with the tags that it is grouped by; `time` in nanoseconds."""
        query_fields = {"q": query, "epoch": "ns"} | ({"db": database} if database else {})
        body = urllib.parse.urlencode(query_fields).encode()
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.root}/query", body, self.headers), timeout=60
        ) as answer:
            result = json.load(answer)["results"][0]
        assert "error" not in result, result
        return [
            dict(zip(series["columns"], values, strict=True)) | series.get("tags", {})
            for series in result.get("series", ())
            for values in series.get("values", ())
        ]

    def sink(self, database: str, api: str = "v1") -> Influx:
        """A database that is made if need be, as a sink."""
        self.query(f'CREATE DATABASE "{database}"')
        path = database if api == "v1" else f"api/v2/write?bucket={database}/autogen"
        return Influx(f"{self.root}/{path}", timeout_s=5)


class Server2(Server):
    """An InfluxDB 2 with the organisation `qbed`. A bucket is also a database."""

    TOKEN = "a-token-of-many-letters"

    def __init__(self, folder: Path, version: str) -> None:
        super().__init__(folder, version)
        self._org = ""

    def start(self) -> None:
        folder = self._folder
        paths = [f"--bolt-path={folder}/bolt", f"--sqlite-path={folder}/sqlite", f"--engine-path={folder}/engine"]
        options = [*paths, f"--http-bind-address=127.0.0.1:{self.port}", "--reporting-disabled"]
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self._program, *options], stdout=log, stderr=log)
        until = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"{self.root}/health", timeout=10):
                    break
            except OSError:
                assert time.monotonic() < until and self._process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
        setup = {"username": "qbed", "password": "a-password", "org": "qbed", "bucket": "first", "token": self.TOKEN}
        self._org = self._post("/api/v2/setup", setup)["org"]["id"]

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", **self.headers}
        request = urllib.request.Request(f"{self.root}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Token {self.TOKEN}"}

    def sink(self, database: str, api: str = "v1") -> Influx:
        self._post("/api/v2/buckets", {"orgID": self._org, "name": database, "retentionRules": []})
        path = database if api == "v1" else f"api/v2/write?org=qbed&bucket={database}"
        return Influx(f"{self.root}/{path}", self.TOKEN, timeout_s=5)


@contextmanager
def served(folder: Path, version: str = "1.6.7") -> Iterator[Server]:
    server = (Server2 if version.startswith("2") else Server)(folder, version)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def between(server: str, answer: Callable[[int], bytes | int | None]) -> Iterator[str]:
    """A proxy before a server: `answer`, by the number of the request: a status, bytes that are no
    HTTP, or None: passed on.
    """
    count = iter(range(1 << 30))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            reply = answer(next(count))
            if isinstance(reply, bytes):
                self.wfile.write(reply)
                self.close_connection = True
                return
            if reply is None:
                query = urllib.request.Request(f"{server}{self.path}", body, dict(self.headers.items()))
                with urllib.request.urlopen(query, timeout=30) as real:
                    reply = real.status
            self.send_response(reply)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on loopback with this handler; yields its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def in_parquet(run: Path) -> list[Any]:
    sql = f"SELECT cell::VARCHAR, port, time_ns, {FIELDS} FROM '{run}/queue_series.parquet' ORDER BY ALL"
    return duckdb.sql(sql).fetchall()


def in_influx(server: Server, database: str) -> list[Any]:
    rows = server.query(f'SELECT {FIELDS} FROM "queue" GROUP BY *', database)
    names = FIELDS.split(",")
    times = [(row["time"] - EPOCH_NS) // STRETCH for row in rows]
    found = zip(rows, times, strict=True)
    return sorted((row["cell"], row["queue"], at, *(row[name] for name in names)) for row, at in found)
