# SPDX-License-Identifier: Apache-2.0
"""The sockets on which the service listens."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from qbed.service.listen import bound_sockets
from qbed.service.settings import Settings, SettingsError


def test_all_addresses_of_a_name_get_one_port(tmp_path: Path) -> None:
    bound = bound_sockets(Settings(tmp_path, "localhost", 0))
    ports = {made.getsockname()[1] for made in bound}
    for made in bound:
        made.close()
    assert len(ports) == 1 and ports != {0}


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("192.0.2.1", r"192\.0\.2\.1, port 0: Cannot assign requested address; expected an address of this machine"),
        ("2001:db8::1", r"\[2001:db8::1\], port 0: .*this machine has no IPv6, or not this address"),
        ("x" * 64, "port 0: it is no host name; expected an address or a name"),
    ],
)
def test_an_address_that_this_machine_has_not(tmp_path: Path, host: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        bound_sockets(Settings(tmp_path, host, 0))


def test_a_port_on_which_another_program_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=f"127.0.0.1, port {port}: Address already in use; .*--port"):
            bound_sockets(Settings(tmp_path, "127.0.0.1", port))
