# SPDX-License-Identifier: Apache-2.0
"""A client of the Docker engine: its version, images and containers.

Containerlab deploys and destroys labs. This client provides the checks before a deployment and after a failed one. It
uses the engine's HTTP interface over its socket, since a client library would be larger than these calls need.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from qbed.substrates import SubstrateError

SOCKET = "/var/run/docker.sock"
LAB_LABEL, NODE_LABEL = "containerlab", "clab-node-name"
TIMEOUT_S = 60.0


class EngineError(SubstrateError):
    """The Docker engine does not answer, or refuses a request; the message has a remedy."""


@dataclass(frozen=True)
class Container:
    """A container of a lab. `state`: `running`, `exited`, ..."""

    id: str
    name: str
    node: str
    state: str
    status: str


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Engine:
    """The Docker engine behind `$DOCKER_HOST` (a `unix://` address), or the machine's default engine."""

    def __init__(self, path: str | None = None) -> None:
        host = os.environ.get("DOCKER_HOST", "")
        if path is None and host and not host.startswith("unix://"):
            raise EngineError(
                f"DOCKER_HOST is {host}: the labs' links are made on this machine; expected its own engine (unix://...)"
            )
        self.path = path or host.removeprefix("unix://") or SOCKET

    def check(self) -> str:
        """The engine's version; `EngineError` if it cannot be used."""
        return str(self._call("GET", "/version").get("Version", "unknown"))

    def has_image(self, name: str) -> bool:
        """Whether the machine has the image."""
        status, _ = self._request("GET", f"/images/{quote(name, safe='/:@')}/json")
        return status == 200

    def containers(self, lab: str | None = None) -> list[Container]:
        """The containers of a lab (of all labs), running or not."""
        label = LAB_LABEL if lab is None else f"{LAB_LABEL}={lab}"
        filters = quote(json.dumps({"label": [label]}))
        return [
            Container(
                id=str(container["Id"]),
                name=str(container["Names"][0]).lstrip("/"),
                node=str(container["Labels"].get(NODE_LABEL, "")),
                state=str(container["State"]),
                status=str(container["Status"]),
            )
            for container in self._call("GET", f"/containers/json?all=true&filters={filters}")
        ]

    def remove(self, container: Container) -> None:
        """Remove a container by force; ignore a container that no longer exists."""
        status, answer = self._request("DELETE", f"/containers/{container.id}?force=true&v=true")
        if status not in (204, 404, 409):
            raise EngineError(f"the container {container.name} cannot be removed: {answer.get('message')}")

    def start_error(self, container: Container) -> str:
        """Why the engine could not start a container; empty if it did."""
        status, answer = self._request("GET", f"/containers/{container.id}/json")
        return str(answer["State"].get("Error", "")) if status == 200 else ""

    def try_image(self, image: str) -> None:
        """Start a container of an image without network, and remove it. EngineError if it does not start."""
        request = {"Image": image, "Entrypoint": ["/bin/true"], "HostConfig": {"NetworkMode": "none"}}
        identity = self._call("POST", "/containers/create", request)["Id"]
        try:
            status, answer = self._request("POST", f"/containers/{identity}/start")
            if status != 204:
                raise EngineError(f"a container of {image} does not start: {answer.get('message', status)}")
        finally:
            self._request("DELETE", f"/containers/{identity}?force=true&v=true")

    def logs(self, container: Container, lines: int = 8) -> list[str]:
        """The last lines of output of a container's first process."""
        path = f"/containers/{container.id}/logs?stdout=true&stderr=true&tail={lines}"
        try:
            raw = self._raw("GET", path)[1]
        except OSError:
            return []
        return [line for line in _demultiplex(raw).splitlines() if line.strip()]

    def run(self, container: Container, argv: list[str]) -> str:
        """Run a program in a container and return its output."""
        request = {"AttachStdout": True, "AttachStderr": True, "Cmd": argv}
        identity = self._call("POST", f"/containers/{container.id}/exec", request)["Id"]
        try:
            return _demultiplex(self._raw("POST", f"/exec/{identity}/start", {"Detach": False, "Tty": False})[1])
        except OSError as error:
            raise EngineError(_explain(error, self.path)) from error

    def _call(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self._request(method, path, body)
        if status not in (200, 201):
            raise EngineError(f"the Docker engine refuses {path.partition('?')[0]}: {answer.get('message', status)}")
        return answer

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        try:
            status, data = self._raw(method, path, body)
            return status, json.loads(data) if data else {}
        except OSError as error:
            raise EngineError(_explain(error, self.path)) from error
        except (ValueError, http.client.HTTPException) as error:
            raise EngineError(f"the server at {self.path} is not a Docker engine: {error}") from error

    def _raw(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        connection = _Connection(self.path)
        try:
            if body is None:
                connection.request(method, path)
            else:
                connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def _demultiplex(raw: bytes) -> str:
    """Decode the engine's stream: each chunk has a header of 8 bytes with its length in the last four."""
    text, at = b"", 0
    while at + 8 <= len(raw):
        length = int.from_bytes(raw[at + 4 : at + 8], "big")
        text += raw[at + 8 : at + 8 + length]
        at += 8 + length
    return text.decode("utf-8", "replace")


def _explain(error: OSError, path: str) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"no permission to talk to Docker at {path}: use sudo, or join the group docker (and log in again)"
    if error.errno in (errno.ENOENT, errno.ECONNREFUSED):
        return f"Docker is not running (nothing answers at {path}): start it (`systemctl start docker`), or install it"
    if isinstance(error, TimeoutError):
        return f"the Docker engine at {path} does not answer within {TIMEOUT_S:g} s: look at its log, restart it"
    return f"the Docker engine at {path} cannot be reached: {error.strerror or error}"
