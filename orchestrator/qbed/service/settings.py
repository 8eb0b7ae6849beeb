# SPDX-License-Identifier: Apache-2.0
"""The owner's settings of the service: address, folder, permissions and limits of clients."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from qbed.base.errors import QbedError

MIB = 1 << 20
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
SHORTEST_TOKEN = 16


class SettingsError(QbedError):
    """Settings with which the service does not start."""

    exit_status = 2


@dataclass(frozen=True)
class Settings:
    """Settings of the service. `names`: allowed host names besides the listening address (against DNS rebinding)."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8410
    token: str | None = None
    names: tuple[str, ...] = ()
    jobs: int = 1
    """Concurrent campaigns; each uses all cores."""
    cores: int | None = None
    """Concurrent cells in a campaign; by default as many as there are cores."""
    queue: int = 100
    """Limit on waiting jobs."""
    retention: int = 1_000
    """Limit on stored jobs."""
    cell_timeout_s: float = 3600.0
    cell_space_bytes: int = 64_000_000_000
    allow_programs: bool = False
    """Clients may supply programs: controllers and P4 programs in their labs, commands on nodes."""
    allow_files: bool = False
    """Labs of clients may name files elsewhere on this machine, as with `--trust`."""
    allow_containers: bool = False
    grafana: str | None = None
    """URL of a Grafana with the dashboards, for a link on the page."""

    upload_bytes: int = 8 * MIB
    body_bytes: int = 64 << 10
    uploads: int = 32
    labs: int = 4
    streams: int = 64
    queries: int = 2
    query_s: float = 30.0
    query_bytes: int = 256 * MIB
    rate_per_s: float = 50.0
    burst: int = 400

    def check(self) -> Settings:
        """Check the settings; `SettingsError` if a remote address would need no token."""
        if self.token is not None and (len(self.token) < SHORTEST_TOKEN or not self.token.isascii()):
            raise SettingsError(f"the token is too short: expected at least {SHORTEST_TOKEN} characters of ASCII")
        if not is_loopback(self.host) and self.token is None:
            raise SettingsError(
                f"--host {self.host} is open to other machines: it needs a token (--token-file FILE, or QBED_TOKEN),"
                " and a proxy with TLS before it (docs/service.md), or the network can read the token"
            )
        return self

    @property
    def known_names(self) -> frozenset[str]:
        """The allowed values of the header Host, without a port."""
        bound = () if self.host in ("0.0.0.0", "::") else (f"[{self.host}]" if ":" in self.host else self.host,)
        return frozenset(name.lower() for name in (*LOOPBACK, *bound, *self.names))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def usual_folder() -> Path:
    """The default folder of the service's state."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "qbed" / "service"
