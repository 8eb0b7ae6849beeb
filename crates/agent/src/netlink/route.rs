// SPDX-License-Identifier: Apache-2.0
//! Requests for routes with one or several next hops (ECMP) and metrics.

use crate::netlink::address::{family, octets};
use crate::netlink::Batch;
use crate::plan::{Hop, Metrics, Route};
use std::collections::HashMap;
use std::net::IpAddr;

/// linux/rtnetlink.h: RTAX_*
mod rtax {
    pub const LOCK: u16 = 1;
    pub const INITCWND: u16 = 11;
    pub const FEATURES: u16 = 12;
    pub const RTO_MIN: u16 = 13;
    pub const INITRWND: u16 = 14;
    pub const QUICKACK: u16 = 15;
    pub const CC_ALGO: u16 = 16;
}

/// RTA_VIA: a gateway of another address family than the destination.
const RTA_VIA: u16 = 18;
/// IP6_RT_PRIO_ADDRCONF: metric of the kernel's routes to connected IPv6 prefixes.
const CONNECTED_V6_METRIC: u32 = 256;

pub fn request(batch: &mut Batch, route: &Route, interfaces: &HashMap<String, u32>, object: String) {
    let to = route.to.address;
    let gateways = route.via.iter().any(|hop| hop.gateway.is_some());
    let scope = if gateways || to.is_ipv6() { libc::RT_SCOPE_UNIVERSE } else { libc::RT_SCOPE_LINK };
    let mut header = [0u8; 12]; // rtmsg
    header[0] = family(to);
    header[1] = route.to.length;
    header[4] = libc::RT_TABLE_MAIN;
    header[5] = libc::RTPROT_STATIC;
    header[6] = scope;
    header[7] = libc::RTN_UNICAST;
    batch.request(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, &header, object);
    if route.to.length > 0 {
        batch.attribute(libc::RTA_DST, &octets(to));
    }
    if to.is_ipv6() && !gateways {
        // Equal metric, so that the kernel's route to the prefix is replaced.
        batch.u32(libc::RTA_PRIORITY, CONNECTED_V6_METRIC);
    }
    if let [hop] = &route.via[..] {
        batch.u32(libc::RTA_OIF, interfaces[&hop.interface]);
        gateway(batch, hop, to);
    } else {
        let hops = batch.begin(libc::RTA_MULTIPATH);
        for hop in &route.via {
            let mut next = Batch::default();
            gateway(&mut next, hop, to);
            batch.next_hop(interfaces[&hop.interface], &next);
        }
        batch.end(hops);
    }
    metrics(batch, &route.metrics);
}

fn gateway(batch: &mut Batch, hop: &Hop, to: IpAddr) {
    match hop.gateway {
        None => {}
        Some(gateway) if gateway.is_ipv4() == to.is_ipv4() => {
            batch.attribute(libc::RTA_GATEWAY, &octets(gateway));
        }
        Some(gateway) => {
            let mut via = u16::from(family(gateway)).to_ne_bytes().to_vec();
            via.extend(octets(gateway));
            batch.attribute(RTA_VIA, &via);
        }
    }
}

fn metrics(batch: &mut Batch, metrics: &Metrics) {
    if *metrics == Metrics::default() {
        return;
    }
    let nest = batch.begin(libc::RTA_METRICS);
    if metrics.rto_min_ms.is_some() {
        // tcp_rto_min() uses the metric only if it is locked.
        batch.u32(rtax::LOCK, 1 << rtax::RTO_MIN);
    }
    let numbers = [
        (rtax::INITCWND, metrics.initcwnd),
        (rtax::FEATURES, metrics.features),
        (rtax::RTO_MIN, metrics.rto_min_ms),
        (rtax::INITRWND, metrics.initrwnd),
        (rtax::QUICKACK, metrics.quickack),
    ];
    for (kind, value) in numbers {
        if let Some(value) = value {
            batch.u32(kind, value);
        }
    }
    if let Some(name) = &metrics.congctl {
        batch.text(rtax::CC_ALGO, name);
    }
    batch.end(nest);
}
