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
import os
import re
import zlib
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlencode

from qbed.base.files import read_text
from qbed.live.points import Points
from qbed.live.sinks import SinkError
from qbed.live.sinks.http_client import TIMEOUT_S, HttpClient, checked_url, describe
from qbed.live.sinks.line_protocol import LINE_PROTOCOL

TOKEN = "QBED_INFLUX_TOKEN"
TOKEN_FILE = "QBED_INFLUX_TOKEN_FILE"
LONGEST_TOKEN = 4_096
_EXAMPLE = "http://localhost:8086/qbed"
_LATER = {"/api/v2/write": ("bucket", {"precision": "ns"}), "/api/v3/write_lp": ("db", {"precision": "nanosecond"})}
"""The paths of the interfaces of 2.x and 3.x: what their query must have, and what is added to it."""


class Influx:
    """A database of an InfluxDB. Raises `SinkError` if the URL names none."""

    def __init__(self, url: str, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._parts = checked_url(url, "--influx", _EXAMPLE, f"the token, or user:password, into {TOKEN}")
        target = _target(self._parts)
        headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "gzip"}
        headers |= _authorization(self._parts.path, token or _token())
        self.client = HttpClient(self._parts, target, headers, timeout_s)

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
        response = self.client.post(body)
        if response.status != 204 and (response.status != 200 or not self._parts.path.startswith("/api/v3/")):
            raise self.client.refused(response)
        return 0


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
            raise SinkError(f"{TOKEN_FILE}: {file} cannot be read: {describe(error)}") from None
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
