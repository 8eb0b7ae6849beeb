# SPDX-License-Identifier: Apache-2.0
"""The sysctls that a lab file may set: those of one network namespace, which is a node's own, and no others.

Whatever else is under /proc/sys belongs to a whole kernel, in containers perhaps to the machine's, and some of it names
programs that the kernel starts (`kernel/modprobe`, `kernel/core_pattern`). So it is a list, and what is not in it is
refused; a sysctl that a lab needs besides is added here by its name. tests/attacks/test_sysctls.py compares it with
what the lab's kernel shows inside a node.
"""

import re

from qbed.base.errors import nearest

_INTERFACE = re.compile(r"all|default|lo|eth[0-9]{1,4}")
_VALUE = re.compile(r"[ -~\t]{1,200}")
_PER_INTERFACE = ("conf", "neigh")
_ANY = "*"

_NAMES = {
    "net/core": """
        optmem_max somaxconn txrehash
    """,
    "net/ipv4/conf/*": """
        accept_local accept_redirects accept_source_route arp_accept arp_announce arp_evict_nocarrier arp_filter
        arp_ignore arp_notify bc_forwarding bootp_relay disable_policy disable_xfrm drop_gratuitous_arp
        drop_unicast_in_l2_multicast force_igmp_version forwarding igmpv2_unsolicited_report_interval
        igmpv3_unsolicited_report_interval ignore_routes_with_linkdown log_martians medium_id promote_secondaries
        proxy_arp proxy_arp_pvlan route_localnet rp_filter secure_redirects send_redirects shared_media src_valid_mark
        tag
    """,
    "net/ipv4": """
        fib_multipath_hash_fields fib_multipath_hash_policy fib_multipath_hash_seed fib_multipath_use_neigh
        fib_notify_on_flag_change fwmark_reflect icmp_echo_enable_probe icmp_echo_ignore_all icmp_echo_ignore_broadcasts
        icmp_errors_use_inbound_ifaddr icmp_ignore_bogus_error_responses icmp_msgs_burst icmp_msgs_per_sec
        icmp_ratelimit icmp_ratemask igmp_link_local_mcast_reports igmp_max_memberships igmp_max_msf igmp_qrv
        ip_autobind_reuse ip_default_ttl ip_dynaddr ip_early_demux ip_forward ip_forward_update_priority
        ip_forward_use_pmtu ip_local_port_range ip_local_reserved_ports ip_no_pmtu_disc ip_nonlocal_bind
        ip_unprivileged_port_start ipfrag_high_thresh ipfrag_low_thresh ipfrag_max_dist ipfrag_time nexthop_compat_mode
        ping_group_range raw_l3mdev_accept tcp_abort_on_overflow tcp_adv_win_scale tcp_app_win tcp_autocorking
        tcp_backlog_ack_defer tcp_base_mss tcp_challenge_ack_limit tcp_comp_sack_delay_ns tcp_comp_sack_nr
        tcp_comp_sack_slack_ns tcp_dsack tcp_early_demux tcp_early_retrans tcp_ecn tcp_ecn_fallback tcp_fack
        tcp_fastopen tcp_fastopen_blackhole_timeout_sec tcp_fastopen_key tcp_fin_timeout tcp_frto tcp_fwmark_accept
        tcp_invalid_ratelimit tcp_keepalive_intvl tcp_keepalive_probes tcp_keepalive_time tcp_l3mdev_accept
        tcp_limit_output_bytes tcp_max_reordering tcp_max_syn_backlog tcp_max_tw_buckets tcp_migrate_req
        tcp_min_rtt_wlen tcp_min_snd_mss tcp_min_tso_segs tcp_moderate_rcvbuf tcp_mtu_probe_floor tcp_mtu_probing
        tcp_no_metrics_save tcp_no_ssthresh_metrics_save tcp_notsent_lowat tcp_orphan_retries tcp_pacing_ca_ratio
        tcp_pacing_ss_ratio tcp_pingpong_thresh tcp_plb_cong_thresh tcp_plb_enabled tcp_plb_idle_rehash_rounds
        tcp_plb_rehash_rounds tcp_plb_suspend_rto_sec tcp_probe_interval tcp_probe_threshold tcp_recovery
        tcp_reflect_tos tcp_reordering tcp_retrans_collapse tcp_retries1 tcp_retries2 tcp_rfc1337 tcp_rmem
        tcp_rto_min_us tcp_sack tcp_shrink_window tcp_slow_start_after_idle tcp_stdurg tcp_syn_linear_timeouts
        tcp_syn_retries tcp_synack_retries tcp_syncookies tcp_thin_linear_timeouts tcp_timestamps tcp_tso_rtt_log
        tcp_tso_win_divisor tcp_tw_reuse tcp_window_scaling tcp_wmem tcp_workaround_signed_windows udp_early_demux
        udp_l3mdev_accept udp_rmem_min udp_wmem_min
    """,
    "net/ipv4/neigh/*": """
        anycast_delay app_solicit base_reachable_time base_reachable_time_ms delay_first_probe_time gc_stale_time
        interval_probe_time_ms locktime mcast_resolicit mcast_solicit proxy_delay proxy_qlen retrans_time
        retrans_time_ms ucast_solicit unres_qlen unres_qlen_bytes
    """,
    "net/ipv4/route": """
        min_adv_mss min_pmtu mtu_expires
    """,
    "net/ipv6": """
        anycast_src_echo_reply auto_flowlabels bindv6only fib_multipath_hash_fields fib_multipath_hash_policy
        fib_notify_on_flag_change flowlabel_consistency flowlabel_reflect flowlabel_state_ranges fwmark_reflect
        idgen_delay idgen_retries ioam6_id ioam6_id_wide ip6frag_high_thresh ip6frag_low_thresh ip6frag_time
        ip_nonlocal_bind max_dst_opts_length max_dst_opts_number max_hbh_length max_hbh_opts_number seg6_flowlabel
    """,
    "net/ipv6/conf/*": """
        accept_dad accept_ra accept_ra_defrtr accept_ra_from_local accept_ra_min_hop_limit accept_ra_min_lft
        accept_ra_mtu accept_ra_pinfo accept_redirects accept_source_route accept_untracked_na addr_gen_mode autoconf
        dad_transmits disable_ipv6 disable_policy drop_unicast_in_l2_multicast drop_unsolicited_na enhanced_dad
        force_mld_version force_tllao forwarding hop_limit ignore_routes_with_linkdown ioam6_enabled ioam6_id
        ioam6_id_wide keep_addr_on_down max_addresses max_desync_factor mldv1_unsolicited_report_interval
        mldv2_unsolicited_report_interval mtu ndisc_evict_nocarrier ndisc_notify ndisc_tclass proxy_ndp ra_defrtr_metric
        ra_honor_pio_life ra_honor_pio_pflag regen_max_retry regen_min_advance router_solicitation_delay
        router_solicitation_interval router_solicitation_max_interval router_solicitations rpl_seg_enabled seg6_enabled
        stable_secret suppress_frag_ndisc temp_prefered_lft temp_valid_lft use_oif_addrs_only use_tempaddr
    """,
    "net/ipv6/icmp": """
        echo_ignore_all echo_ignore_anycast echo_ignore_multicast error_anycast_as_unicast ratelimit ratemask
    """,
    "net/ipv6/neigh/*": """
        anycast_delay app_solicit base_reachable_time base_reachable_time_ms delay_first_probe_time gc_stale_time
        interval_probe_time_ms locktime mcast_resolicit mcast_solicit proxy_delay proxy_qlen retrans_time
        retrans_time_ms ucast_solicit unres_qlen unres_qlen_bytes
    """,
    "net/ipv6/route": """
        gc_elasticity gc_interval gc_min_interval gc_min_interval_ms gc_thresh gc_timeout max_size min_adv_mss
        mtu_expires skip_notify_on_dev_down
    """,
    "net/unix": """
        max_dgram_qlen
    """,
    "net/vrf": """
        strict_mode
    """,
}

SYSCTLS = frozenset(f"{folder}/{name}" for folder, found in _NAMES.items() for name in found.split())
"""Paths under /proc/sys; `*` stands for an interface, `all` or `default`."""


def sysctl_path(name: str) -> str:
    """A name in either spelling, `net.ipv4.tcp_sack` or `net/ipv4/tcp_sack`, as a path. ValueError if a lab may not set
    it.
    """
    path = _slashed(name)
    parts = path.split("/")
    if path == "net/ipv4/tcp_congestion_control":
        raise ValueError("expected the field `tcp` for a host's congestion control")
    if parts[0] != "net":
        raise ValueError("a lab sets a node's own sysctls only, which are under `net/`, such as `net/ipv4/tcp_sack`")
    if _general(parts) not in SYSCTLS:
        raise ValueError(f"no sysctl that a node has for itself is called so{nearest(path, _examples(parts))}")
    return path


def _slashed(name: str) -> str:
    return name if "/" in name else name.replace(".", "/")


def _general(parts: list[str]) -> str:
    """The path with `*` for its interface; nothing for what is none."""
    if len(parts) == 5 and parts[2] in _PER_INTERFACE:
        return "/".join([*parts[:3], _ANY, parts[4]]) if _INTERFACE.fullmatch(parts[3]) else ""
    return "/".join(parts)


def _examples(parts: list[str]) -> list[str]:
    """All names, with the interface that was meant."""
    interface = parts[3] if len(parts) == 5 and _INTERFACE.fullmatch(parts[3]) else "all"
    return [name.replace(_ANY, interface) for name in SYSCTLS]


def sysctl_value(value: str | int) -> str | int:
    """A value as it is; ValueError if it is no short line of text."""
    if isinstance(value, str) and not _VALUE.fullmatch(value):
        raise ValueError("expected a line of at most 200 plain characters")
    return value


def once(values: object) -> object:
    """Sysctls as they are; ValueError if one is given in both spellings."""
    names: dict[str, str] = {}
    for name in values if isinstance(values, dict) else ():
        before = names.setdefault(_slashed(name), name)
        if before != name:
            raise ValueError(f"`{before}` and `{name}` are the same sysctl")
    return values
