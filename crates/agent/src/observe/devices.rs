// SPDX-License-Identifier: Apache-2.0
//! Frames that the node's kernel exchanges with its container's interfaces: a guest by devices of its own (`vec0`, ...),
//! the host's kernel at the interfaces themselves. A guest's device or its queue that drops a frame is a loss that no
//! queue of the plan counts.

use crate::failure::{Of, Result};
use crate::lab::far;
use crate::netlink::{link, Netlink};
use crate::observe::counters;
use crate::world::token::{Part, Topic};
use crate::world::World;
use serde::Serialize;
use std::collections::BTreeMap;

/// Real time between two reports of a lab that is up.
const INTERVAL_NS: u64 = 1_000_000_000;

/// Counters of one device. `dropped`: by a guest's device or its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Device {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub dropped: u64,
}

pub struct Devices {
    /// By number.
    reports: Topic,
    /// None: no link leads out of this kernel.
    home: Option<Netlink>,
    /// Of each device: its name, and that of the container's interface.
    names: Vec<(String, String)>,
    is_guest: bool,
}

impl Devices {
    pub fn open(world: &mut World<'_>) -> Result<Self> {
        let reports = world.topic(Part::Devices);
        let (plan, scope) = (world.plan, world.scope);
        let is_guest = !scope.on_host_kernel();
        if scope.is_whole() {
            return Ok(Self { reports, home: None, names: Vec::new(), is_guest });
        }
        world.lab.namespaces.go_home()?;
        let home = Netlink::open(libc::NETLINK_ROUTE).of(|| "devices".into())?;
        let names = far::devices(plan, scope).filter_map(|(device, link)| {
            let end = plan.links[link].ends().into_iter().find(|end| scope.has(end.node))?;
            let interface = end.interface.clone();
            Some((if is_guest { device } else { interface.clone() }, interface))
        });
        Ok(Self { reports, home: Some(home), names: names.collect(), is_guest })
    }

    /// Asks for this report of a lab that is up, a second of real time from now.
    pub fn schedule(&self, world: &mut World<'_>, number: u32) {
        world.agenda.add(world.now_ns() + world.scope.real_ns(INTERVAL_NS), self.reports.at(number));
    }

    /// The counters, by the container's interface.
    pub fn read(&self) -> Result<BTreeMap<String, Device>> {
        let Some(home) = &self.home else { return Ok(BTreeMap::new()) };
        let found = link::statistics(home).of(|| "devices".into())?;
        let queues = counters::root_qdiscs(home).of(|| "queues of devices".into())?;
        let read = self.names.iter().filter_map(|(device, interface)| {
            let seen = found.get(device)?;
            let queue_drops = queues.get(&seen.index).map_or(0, |queue| u64::from(queue.drops));
            let dropped = seen.rx_dropped + seen.tx_dropped + queue_drops;
            let dropped = if self.is_guest { dropped } else { 0 };
            let counted = Device { rx_packets: seen.rx_packets, tx_packets: seen.tx_packets, dropped };
            Some((interface.clone(), counted))
        });
        Ok(read.collect())
    }
}
