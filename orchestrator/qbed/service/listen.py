# SPDX-License-Identifier: Apache-2.0
"""The sockets on which the service listens."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

from qbed.service.settings import Settings, SettingsError

_HINTS = {
    errno.EADDRINUSE: "another program listens there: choose another --port",
    errno.EACCES: "an ordinary user may not listen at this port: choose a --port above 1023",
    errno.EADDRNOTAVAIL: "expected an address of this machine, such as 127.0.0.1",
}
_NO_IPV6 = "this machine has no IPv6, or not this address: expected an address such as 127.0.0.1"


def bound_sockets(settings: Settings) -> list[socket.socket]:
    """Bind a socket to each address of the host, and to one port.

    `SettingsError` if none can be bound. A name may have an address of an IP version that this machine has not.
    """
    found, errors, port = list[socket.socket](), list[SettingsError](), settings.port
    for family, address in _addresses(settings):
        try:
            found.append(_bind(family, (address[0], port, *address[2:])))
            port = found[0].getsockname()[1]
        except OSError as error:
            errors.append(_refusal(settings, family, error))
    if not found:
        raise errors[0]
    return found


def _addresses(settings: Settings) -> list[tuple[int, tuple[Any, ...]]]:
    try:
        infos = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        if ":" in settings.host:  # an IPv6 address has none where the machine has no IPv6
            raise SettingsError(f"cannot listen at {_place(settings)}: {_NO_IPV6}") from None
        text = error.strerror if isinstance(error, OSError) else "it is no host name"
        raise SettingsError(f"cannot listen at {_place(settings)}: {text}; expected an address or a name") from None
    return list(dict.fromkeys((family, address) for family, _, _, _, address in infos))


def _bind(family: int, address: tuple[Any, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


def _refusal(settings: Settings, family: int, error: OSError) -> SettingsError:
    number = error.errno or 0
    if family == socket.AF_INET6 and number in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        hint = _NO_IPV6
    else:
        hint = _HINTS.get(number, "")
    return SettingsError(f"cannot listen at {_place(settings)}: {os.strerror(number)}{hint and f'; {hint}'}")


def _place(settings: Settings) -> str:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}, port {settings.port}"
