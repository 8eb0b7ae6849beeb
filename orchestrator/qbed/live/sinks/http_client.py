# SPDX-License-Identifier: Apache-2.0
"""HTTP as sinks use it: one connection that is kept, and every fault of it as an error that permits a retry."""

from __future__ import annotations

import http.client
import io
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from qbed.base.terminal import shorten
from qbed.live.sinks import NotTakenError, SinkError

TIMEOUT_S = 10.0
LONGEST_TIMEOUT_S = 80.0
MAX_ANSWER = 2_000
LONGEST_WAIT_S = 60.0


@dataclass(frozen=True)
class Response:
    """A server's response: the status, the beginning of the body, and the headers."""

    status: int
    body: bytes
    headers: http.client.HTTPMessage
    reason: str


class HttpClient:
    """Posts bodies to one target of a server."""

    def __init__(self, parts: SplitResult, target: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self.target = target
        self.headers = dict(headers)
        self._parts = parts
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes) -> Response:
        """The server's response, of any status. `NotTakenError` if there is none."""
        fresh = self._connection is None
        try:
            return self._post(body)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if fresh:
                raise NotTakenError(f"{self._where}: {describe(error)}") from error
        except (http.client.HTTPException, OSError, ValueError) as error:
            self.close()
            if isinstance(error, TimeoutError):  # a slow server may need longer for a batch
                self._timeout_s = min(self._timeout_s * 2, LONGEST_TIMEOUT_S)
            raise NotTakenError(f"{self._where}: {describe(error)}") from error
        return self.post(body)  # the server had closed a connection that was idle

    def refused(self, response: Response) -> NotTakenError:
        """The error for a response that is no confirmation. The connection is closed."""
        self.close()
        why = re.sub(r"\s+", " ", response.body.decode("utf-8", "replace")).strip() or response.reason
        text = f"{self._where} answers {response.status}: {shorten(why, 300)}"
        return NotTakenError(text, _wait_s(response.headers))

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

    def _post(self, body: bytes) -> Response:
        connection = self._connection = self._connection or self._connect()
        # In blocks, so that the timeout is for each block.
        connection.request("POST", self.target, io.BytesIO(body), self.headers | {"Content-Length": str(len(body))})
        answer = connection.getresponse()
        return Response(answer.status, answer.read(MAX_ANSWER), answer.headers, answer.reason)

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)


def checked_url(url: str, option: str, example: str, secrets: str) -> SplitResult:
    """The parts of a sink's URL. `SinkError` if it is none, or has a secret; `secrets`: where to put that instead."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isascii() or re.search(r"[\x00-\x20\x7f]", url):
        raise SinkError(f"{option}: expected a URL such as {example}, got `{shorten(url, 200)}`")
    if parts.username is not None or parts.password is not None or "token" in dict(parse_qsl(parts.query)):
        raise SinkError(f"{option}: a URL is no place for secrets: put {secrets}")
    return parts


def describe(error: Exception) -> str:
    """An error of a connection in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer"
    return shorten(getattr(error, "strerror", None) or str(error) or type(error).__name__, 300)


def _wait_s(headers: http.client.HTTPMessage) -> float:
    text = headers.get("Retry-After", "")
    return min(float(text), LONGEST_WAIT_S) if text.isdecimal() else 0.0
