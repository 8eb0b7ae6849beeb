# SPDX-License-Identifier: Apache-2.0
"""Admission of requests, before any route is looked up.

* Host: only known names of the service are admitted. Otherwise a page whose DNS name resolves to this machine would
  have the same origin as the service (DNS rebinding).
* Origin, Sec-Fetch-Site: requests of pages of other sites are refused.
* The token, if there is one, is compared in constant time. The files of the page need none: they contain no data.
* Sizes are counted as bodies are received, independently of Content-Length. A body that stalls times out.
* The rate of requests of one address is limited.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import OrderedDict

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from qbed.service.settings import Settings

MAX_ADDRESSES = 4_096
BODY_S = 30.0
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class RefusalError(HTTPException):
    """A request that the guard refuses."""

    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(status, text, headers)


class Rates:
    """A bucket of requests for each address, filled at a rate."""

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s, self._burst = per_s, float(burst)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, now: float) -> float:
        """Take a request out; returns 0 if it is allowed, otherwise the seconds to wait."""
        left, seen = self._left.pop(address, (self._burst, now))
        left = min(self._burst, left + (now - seen) * self._per_s)
        allowed = left >= 1
        self._left[address] = (left - 1 if allowed else left, now)
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_s


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._names = settings.known_names
        self._token = settings.token.encode() if settings.token is not None else None
        self._rates = Rates(settings.rate_per_s, settings.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        begun = False

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message.setdefault("headers", [])
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._admit(scope)
            await self._app(scope, _counted(receive, self._max_bytes(scope)), answer)
        except RefusalError as refusal:
            if begun:
                raise
            response = JSONResponse({"errors": [refusal.detail]}, refusal.status_code, refusal.headers)
            await response(scope, receive, answer)

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        address = (scope.get("client") or ("?",))[0]
        wait = self._rates.take(address, time.monotonic())
        if wait:
            raise RefusalError(429, "too many requests: wait a moment", **{"retry-after": str(int(wait) + 1)})
        host = headers.get("host", "").lower()
        if _name(host) not in self._names:
            raise RefusalError(421, "unknown host name of the service: `qbed serve --name NAME` allows it")
        if not scope["path"].startswith("/api/"):
            return
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] != host:
            raise RefusalError(403, "a page of another origin may not send requests to this service")
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise RefusalError(403, "a page of another site may not send requests to this service")
        if self._token is not None:
            kind, _, given = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
                raise RefusalError(
                    401, "expected the service's token (Authorization: Bearer TOKEN)", **{"www-authenticate": "Bearer"}
                )

    def _max_bytes(self, scope: Scope) -> int:
        return self._settings.upload_bytes if scope["path"] == "/api/uploads" else self._settings.body_bytes


def _name(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _counted(receive: Receive, max_bytes: int) -> Receive:
    """Receive a body of at most `most` bytes."""
    received, complete = 0, False

    async def counted() -> Message:
        nonlocal received, complete
        if complete:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), BODY_S)
        except TimeoutError:
            raise RefusalError(408, "the request body timed out") from None
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if received > max_bytes:
                raise RefusalError(413, f"expected at most {max_bytes} bytes", connection="close")
        return message

    return counted
