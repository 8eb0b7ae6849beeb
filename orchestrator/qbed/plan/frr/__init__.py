# SPDX-License-Identifier: Apache-2.0
"""FRR as a lab's routing: the daemons of every switch, and their configuration.

The plan has them as programs, files and expectations; the agent has no code for FRR. The shortest paths with ECMP are
those of the compiler (`network.routes`): FRR computes them itself, and others after a link failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from qbed.lab.frr import MILLISECOND, SECOND, FrrSettings
from qbed.plan.workload import Program

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = "/run/frr"
"""The node's folder for the daemons' files."""
UNPACKED = "/run/qbed/tools/frr"
"""Debian's package as `tools/frr` unpacks it; where it is installed (a container), this folder does not exist."""
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DAEMONS = {"bgp": "bgpd", "ospf": "ospfd"}
# FRR insists on this group, and on its user being a member.
_GROUPS = "root:x:0:\nfrrvty:x:92:root\n"
_VTYSH = f"""#!/bin/sh
# vtysh of the node that this runs in.
for folder in {UNPACKED}/usr/bin /usr/bin; do
    [ ! -x "$folder/vtysh" ] || exec "$folder/vtysh" --config_dir {FOLDER}/ --vty_socket {FOLDER} "$@"
done
echo "vtysh: FRR is not here" >&2
exit 127
"""


@dataclass(frozen=True)
class Port:
    """A router's interface and the node at its other end. `fabric`: that node is another router."""

    interface: str
    peer: str
    fabric: bool


@dataclass(frozen=True)
class Router:
    """The template variables of a switch. `prefixes`: those of its hosts, by family (`ipv4`, `ipv6`)."""

    name: str
    identifier: str
    system: int
    ports: tuple[Port, ...]
    prefixes: dict[str, list[str]]

    @property
    def families(self) -> list[str]:
        return list(self.prefixes)


def programs(settings: FrrSettings) -> list[Program]:
    """The daemons, in the order of their start: zebra first, since a protocol's daemon that misses it waits long.

    Before it FRR 9 and later have mgmtd. They do without as far as labs go, but zebra then looks for it every 5 ms.
    """
    protocol = _DAEMONS[settings.protocol]
    return [
        Program(argv=["mgmtd", *_usual("mgmtd")], ready=f"{FOLDER}/mgmtd_be.sock", optional=True),
        _daemon("zebra", "zserv.api"),
        _daemon(protocol, f"{protocol}.vty"),
    ]


def _daemon(name: str, ready: str) -> Program:
    argv = [name, "--config_file", f"{FOLDER}/{name}.conf", *_usual(name)]
    return Program(argv=argv, ready=f"{FOLDER}/{ready}", optional=False)


def _usual(name: str) -> list[str]:
    argv = ["--user", "root", "--group", "root", "--pid_file", f"{FOLDER}/{name}.pid"]
    argv += ["--socket", f"{FOLDER}/zserv.api", "--vty_socket", FOLDER, "--vty_addr", "127.0.0.1", "--vty_port", "0"]
    return [*argv, "--log", "stdout", "--log-level", "notifications"]


def environment() -> dict[str, str]:
    """Return the environment of all programs in a router: FRR is either unpacked or installed."""
    return {
        "PATH": f"{FOLDER}/bin:{UNPACKED}/usr/lib/frr:/usr/lib/frr:{_STANDARD_PATH}",
        "LD_LIBRARY_PATH": f"{UNPACKED}/{_LIBRARIES}/frr:{UNPACKED}/{_LIBRARIES}",
    }


def files(settings: FrrSettings, router: Router) -> dict[str, str]:
    """A router's configuration, and what FRR needs of a system."""
    daemon = _DAEMONS[settings.protocol]
    configurations = {f"{FOLDER}/{name}.conf": _render(name, settings, router) for name in ("zebra", daemon, "vtysh")}
    return {"/etc/group": _GROUPS, f"{FOLDER}/bin/vtysh": _VTYSH, **configurations}


def _render(name: str, settings: FrrSettings, router: Router) -> str:
    template = _templates().get_template(f"{name}.conf.j2")
    return template.render(router=router, settings=settings, second=SECOND, millisecond=MILLISECOND)


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    return Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )


def sysctls(settings: FrrSettings, router: Router) -> dict[str, str]:
    """Return a router's sysctls. Unnumbered BGP links need IPv6 link-local addresses, whatever the lab's addressing.

    OSPF's multicast stays on the link, so IGMP is not needed.
    """
    if settings.protocol == "ospf":
        return {"net/ipv4/igmp_link_local_mcast_reports": "0"}
    found: dict[str, object] = {"net/ipv6/conf/all/forwarding": 1}
    for port in router.ports:
        if port.fabric:
            values = {"accept_dad": 0, "accept_ra": 0, "addr_gen_mode": 0, "dad_transmits": 0, "disable_ipv6": 0}
            found |= {f"net/ipv6/conf/{port.interface}/{name}": value for name, value in values.items()}
    return {name: str(value) for name, value in found.items()}
