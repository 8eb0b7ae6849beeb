// SPDX-License-Identifier: Apache-2.0
//! Frame counters of the devices between the node's kernel and the container's interfaces: the vector devices of a
//! guest (`vec0`, ...), or the interfaces themselves on the host's kernel. Frames that a vector device or its queue
//! drops are not counted by any queue of the plan.

use crate::failure::{Context, Result};
use crate::lab::peer_stub;
use crate::netlink::link::{self, Statistics};
use crate::netlink::Netlink;
use crate::observe::counters;
use crate::world::token::{Part, Topic};
use crate::world::World;
use serde::Serialize;
use std::collections::BTreeMap;

/// Interval of reports (real time) of an interactive lab.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Counters of one device. `dropped`: frames that a guest's device or its queue has dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Device {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub dropped: u64,
}

pub struct Devices {
    /// The reports, by number.
    reports: Topic,
    /// A socket of the root namespace. None: this is no container.
    netlink: Option<Netlink>,
    /// (device, interface of the container).
    names: Vec<(String, String)>,
    is_guest: bool,
}

impl Devices {
    pub fn open(world: &mut World<'_>) -> Result<Self> {
        let reports = world.topic(Part::Devices);
        let (plan, placement) = (world.plan, world.placement);
        let is_guest = !placement.on_host_kernel();
        if !placement.is_container() {
            return Ok(Self { reports, netlink: None, names: Vec::new(), is_guest });
        }
        world.lab.namespaces.enter_root()?;
        let netlink = Netlink::open(libc::NETLINK_ROUTE).with_context(|| "devices".into())?;
        let names = peer_stub::vector_devices(plan, placement).filter_map(|(device, link)| {
            let end = plan.links[link].ends().into_iter().find(|end| placement.is_local(end.node))?;
            let interface = end.interface.clone();
            Some((if is_guest { device } else { interface.clone() }, interface))
        });
        Ok(Self { reports, netlink: Some(netlink), names: names.collect(), is_guest })
    }

    /// Schedules a report, one second of real time from now.
    pub fn schedule(&self, world: &mut World<'_>, number: u32) {
        let at_ns = world.now_ns() + world.placement.to_lab_ns(INTERVAL_NS);
        world.agenda.add(at_ns, self.reports.at(number));
    }

    /// Reads the counters, by interface of the container.
    pub fn read(&self) -> Result<BTreeMap<String, Device>> {
        let Some(netlink) = &self.netlink else { return Ok(BTreeMap::new()) };
        let found = link::statistics(netlink).with_context(|| "devices".into())?;
        let queues = counters::root_qdiscs(netlink).with_context(|| "queues of devices".into())?;
        let counters = self.names.iter().filter_map(|(device, interface)| {
            let statistics = found.get(device)?;
            let queue_drops = queues.get(&statistics.index).map_or(0, |queue| u64::from(queue.drops));
            let dropped = statistics.rx_dropped + statistics.tx_dropped + queue_drops;
            let dropped = if self.is_guest { dropped } else { 0 };
            let Statistics { rx_packets, tx_packets, .. } = *statistics;
            Some((interface.clone(), Device { rx_packets, tx_packets, dropped }))
        });
        Ok(counters.collect())
    }
}
