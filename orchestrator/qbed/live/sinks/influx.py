# SPDX-License-Identifier: Apache-2.0
"""InfluxDB 1, 2 and 3, by line protocol over HTTP; which of its interfaces, the URL says.

    http://localhost:8086/qbed                                  1.x, and what understands it: the database `qbed`
    http://localhost:8086/api/v2/write?org=lab&bucket=qbed      2.x
    http://localhost:8181/api/v3/write_lp?db=qbed               3.x

The token (or `user:password` of 1.x) is in QBED_INFLUX_TOKEN, or in the file that QBED_INFLUX_TOKEN_FILE names: a URL
is seen by all users of a machine, and is kept in the run folder. The precision is always sent: InfluxDB 3 guesses it
otherwise. `accept_partial=false` makes it take a batch wholly or not at all, as the others do.
"""

from __future__ import annotations

import base64
import http.client
import io
import os
import re
import ssl
import zlib
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from qbed.base.files import read_text
from qbed.base.terminal import shorten
from qbed.live.points import Points
from qbed.live.sinks import NotTakenError, SinkError
from qbed.live.sinks.line_protocol import LINE_PROTOCOL

TOKEN = "QBED_INFLUX_TOKEN"
TOKEN_FILE = "QBED_INFLUX_TOKEN_FILE"
LONGEST_TOKEN = 4_096
TIMEOUT_S = 10.0
LONGEST_TIMEOUT_S = 80.0
MAX_ANSWER = 2_000
LONGEST_WAIT_S = 60.0
_EXAMPLE = "http://localhost:8086/qbed"
_LATER = {"/api/v2/write": ("bucket", {"precision": "ns"}), "/api/v3/write_lp": ("db", {"precision": "nanosecond"})}
"""The paths of the interfaces of 2.x and 3.x: what their query must have, and what is added to it."""


class Influx:
    """A database of an InfluxDB. Raises `SinkError` if the URL names none."""

    def __init__(self, url: str, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._parts = _checked(url)
        self._target = _target(self._parts)
        self._headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "gzip"}
        self._headers |= _authorization(self._parts.path, token or _token())
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    @property
    def name(self) -> str:
        return self._parts.geturl()

    def open(self, size: int | None) -> None:
        """Nothing: a server that is not there may come."""

    def encode(self, points: Points) -> bytes:
        """Gzip without a time, so that equal points are equal bytes; level 1, since a lab wants the core."""
        deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
        return deflate.compress(LINE_PROTOCOL.write(points)) + deflate.flush()

    def write(self, body: bytes) -> int:
        """Whatever is not the answer of an InfluxDB that has the points is none."""
        fresh = self._connection is None
        try:
            return self._post(body)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if fresh:
                raise NotTakenError(f"{self._where}: {_describe(error)}") from error
        except (http.client.HTTPException, OSError, ValueError) as error:
            self.close()
            if isinstance(error, TimeoutError):  # a slow server may need longer for a batch
                self._timeout_s = min(self._timeout_s * 2, LONGEST_TIMEOUT_S)
            raise NotTakenError(f"{self._where}: {_describe(error)}") from error
        return self.write(body)  # the server had closed a connection that was idle

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _where(self) -> str:
        return f"{self._parts.hostname}:{self._parts.port or self._usual_port}"

    @property
    def _usual_port(self) -> int:
        return 443 if self._parts.scheme == "https" else 80

    def _post(self, body: bytes) -> int:
        connection = self._connection = self._connection or self._connect()
        # In blocks, so that the timeout is for each block.
        connection.request("POST", self._target, io.BytesIO(body), self._headers | {"Content-Length": str(len(body))})
        answer = connection.getresponse()
        text = answer.read(MAX_ANSWER)
        if answer.status == 204:
            return 0
        if answer.status != 200 or not self._parts.path.startswith("/api/v3/"):
            self.close()
            why = re.sub(r"\s+", " ", text.decode("utf-8", "replace")).strip() or answer.reason
            raise NotTakenError(f"{self._where} answers {answer.status}: {shorten(why, 300)}", _wait_s(answer.headers))
        return 0

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or re.search(r"[\x00-\x20\x7f]", url):
        raise SinkError(f"--influx: expected a URL such as {_EXAMPLE}, got `{shorten(url, 200)}`")
    if parts.username is not None or parts.password is not None or "token" in dict(parse_qsl(parts.query)):
        raise SinkError(f"--influx: a URL is no place for secrets: put the token, or user:password, into {TOKEN}")
    return parts


def _target(parts: SplitResult) -> str:
    query = dict(parse_qsl(parts.query))
    if parts.path in _LATER:
        required, added = _LATER[parts.path]
        if not query.get(required):
            raise SinkError(f"--influx: {parts.path} wants `?{required}=NAME`")
        more = {"accept_partial": "false"} if required == "db" else {}
        return f"{parts.path}?{urlencode(query | added | more)}"
    database = parts.path.strip("/")
    if not database or "/" in database:
        known = ", ".join(("/DATABASE", *_LATER))
        raise SinkError(f"--influx: expected one of {known} in the URL, such as {_EXAMPLE}; got `{parts.path}`")
    return f"/write?{urlencode(query | {'db': database, 'precision': 'ns'})}"


def _token() -> str:
    if file := os.environ.get(TOKEN_FILE):
        try:
            return read_text(Path(file), LONGEST_TOKEN).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SinkError(f"{TOKEN_FILE}: {file} cannot be read: {_describe(error)}") from None
    return os.environ.get(TOKEN, "")


def _authorization(path: str, token: str) -> dict[str, str]:
    if not token:
        return {}
    if not token.isascii() or re.search(r"[\x00-\x1f\x7f]", token):
        raise SinkError(f"{TOKEN} has characters that no token has")
    if path in _LATER:
        return {"Authorization": f"{'Token' if path.startswith('/api/v2/') else 'Bearer'} {token}"}
    if ":" in token:
        return {"Authorization": f"Basic {base64.b64encode(token.encode()).decode()}"}
    return {"Authorization": f"Token {token}"}


def _wait_s(headers: http.client.HTTPMessage) -> float:
    text = headers.get("Retry-After", "")
    return min(float(text), LONGEST_WAIT_S) if text.isdecimal() else 0.0


def _describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return shorten(getattr(error, "strerror", None) or str(error) or type(error).__name__, 300)
