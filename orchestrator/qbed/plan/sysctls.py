# SPDX-License-Identifier: Apache-2.0
"""Kernel settings of nodes: paths under /proc/sys and route metrics."""

from qbed.lab.settings import Given
from qbed.plan.model import Metrics

_ECN = {"off": "0", "on": "1", "default": "2"}
_READ_MAX, _WRITE_MAX = 6291456, 4194304
_MILLISECOND_NS = 1_000_000
RTO_MIN = "net/ipv4/tcp_rto_min_us"


def global_sysctls() -> dict[str, str]:
    """Those that the kernel has only once, in the initial network namespace.

    TCP's memory is limited by its sockets' buffers alone: one kernel holds all hosts, and no real host would feel the
    others.
    """
    pages = "1073741824"
    return {
        "net/core/netdev_max_backlog": "1000000",
        "net/ipv4/tcp_max_orphans": "1000000",
        "net/ipv4/tcp_mem": f"{pages} {pages} {pages}",
        "net/ipv4/udp_mem": f"{pages} {pages} {pages}",
    }


def _common(addressing: str) -> dict[str, str]:
    found = {
        "net/ipv4/conf/all/rp_filter": "0",
        "net/ipv4/conf/default/rp_filter": "0",
        "net/ipv4/conf/all/send_redirects": "0",
        "net/ipv4/conf/default/send_redirects": "0",
        "net/ipv4/conf/all/accept_redirects": "0",
        "net/ipv4/conf/default/accept_redirects": "0",
        # Before links exist: no address of its own making, no solicitation, no wait for duplicates.
        "net/ipv6/conf/all/disable_ipv6": "1" if addressing == "ipv4" else "0",
        "net/ipv6/conf/default/disable_ipv6": "1" if addressing == "ipv4" else "0",
    }
    if addressing != "ipv4":
        for where in ("all", "default"):
            found |= {
                f"net/ipv6/conf/{where}/accept_dad": "0",
                f"net/ipv6/conf/{where}/accept_ra": "0",
                f"net/ipv6/conf/{where}/accept_redirects": "0",
                f"net/ipv6/conf/{where}/autoconf": "0",
                f"net/ipv6/conf/{where}/dad_transmits": "0",
                f"net/ipv6/conf/{where}/router_solicitations": "0",
            }
        found["net/ipv6/conf/default/addr_gen_mode"] = "1"  # none: no link-local address
    return found


def switch_sysctls(addressing: str, hash_seed: int) -> dict[str, str]:
    """A switch forwards, spreads flows by their ports as well, and reports every packet it cannot deliver."""
    found = _common(addressing) | {
        "net/ipv4/ip_forward": "1",
        "net/ipv4/icmp_ratelimit": "0",
        # No socket waits here: without these, each packet is first looked up among sockets and own addresses.
        "net/ipv4/ip_early_demux": "0",
        "net/ipv4/conf/all/accept_local": "1",
        "net/ipv4/fib_multipath_hash_policy": "1",
        "net/ipv4/fib_multipath_hash_seed": str(hash_seed),
    }
    if addressing != "ipv4":
        found |= {
            "net/ipv6/conf/all/forwarding": "1",
            "net/ipv6/fib_multipath_hash_policy": "1",
            "net/ipv6/icmp/ratelimit": "0",
        }
    return dict(sorted(found.items()))


def host_sysctls(settings: Given, addressing: str, socket_buffer_bytes: int) -> dict[str, str]:
    """A host's, from its settings; `socket_buffer_bytes` is what the longest path needs."""
    found = _common(addressing) | {
        "net/ipv4/ip_forward": "0",
        "net/ipv4/tcp_congestion_control": settings.get("tcp", "cubic"),
        "net/ipv4/tcp_ecn": _ECN[settings.get("ecn", "default")],
        # No memory of earlier flows: a flow must not depend on the ones before it.
        "net/ipv4/tcp_no_metrics_save": "1",
        "net/ipv4/tcp_rmem": f"4096 131072 {max(_READ_MAX, socket_buffer_bytes)}",
        "net/ipv4/tcp_wmem": f"4096 16384 {max(_WRITE_MAX, socket_buffer_bytes)}",
    }
    if "rto_min" in settings:
        # Route metrics count in milliseconds; this also reaches what no route's metric does.
        found[RTO_MIN] = str(max(1, settings["rto_min"] // 1000))
    found |= {path: str(value) for path, value in settings["sysctls"].items()}
    return dict(sorted(found.items()))


def usual(sysctl: str) -> bool:
    """Whether qbed gives this one to every host, whatever its settings: any kernel has it."""
    return sysctl in _USUAL


_USUAL = frozenset(host_sysctls({"sysctls": {}}, "both", 0))


def host_metrics(settings: Given) -> Metrics:
    """The metrics of a host's routes (RTAX_*)."""
    rto_min = settings.get("rto_min", 1)
    return Metrics(
        rto_min_ms=rto_min // _MILLISECOND_NS if rto_min % _MILLISECOND_NS == 0 else None,
        initcwnd=settings.get("initial_window"),
        quickack=1 if settings.get("delayed_ack") == "off" else None,
    )
