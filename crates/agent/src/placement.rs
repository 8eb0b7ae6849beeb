// SPDX-License-Identifier: Apache-2.0
//! Placement of the plan's nodes: which nodes this agent runs, on which kernel and on which clock. In virtual time one
//! agent runs all nodes, or those of one part of the lab (docs/formats.md §2). In containers each agent runs one node.
//! Links to nodes of other agents end in stubs.

use crate::failure::{Failure, Result};
use crate::plan::place::Place;
use crate::plan::Plan;

/// Location of a node relative to this agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    Local,
    /// Another agent runs it, on this kernel.
    Remote(Kernel),
    /// The agent of this part of the lab runs it.
    InPart(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// The lab's kernel, with qlink and qtap.
    Qbed,
    /// The kernel of the container host.
    Host,
}

#[derive(Debug)]
pub struct Placement {
    /// By node.
    locations: Vec<Location>,
    local: Vec<usize>,
    /// The kernel of this agent.
    kernel: Kernel,
    /// Real nanoseconds per nanosecond of lab time; None: virtual time.
    dilation: Option<u32>,
    /// Whether frames of a TCP stream cross between containers as one GSO packet.
    gso: bool,
}

impl Placement {
    /// All nodes are local without a `place`.
    pub fn new(plan: &Plan, place: Option<&Place>) -> Self {
        let locations = (0..plan.nodes.len()).map(|node| location(node, place)).collect::<Vec<_>>();
        let local = (0..locations.len()).filter(|node| locations[*node] == Location::Local).collect();
        let kernel = place.map_or(Kernel::Qbed, |place| kernel(place.node, place));
        let dilation = place.map(|place| place.dilation);
        Self { locations, local, kernel, dilation, gso: place.is_some_and(|place| place.gso) }
    }

    /// The nodes of a part of the lab are local.
    pub fn of_part(plan: &Plan, part: u32) -> Result<Self> {
        let location =
            |of_node: &u32| if *of_node == part { Location::Local } else { Location::InPart(*of_node) };
        let locations = plan.parts.iter().map(location).collect::<Vec<_>>();
        let local: Vec<_> = (0..locations.len()).filter(|node| locations[*node] == Location::Local).collect();
        if local.is_empty() {
            return Err(Failure::new(format!("the plan has no part {part}")));
        }
        Ok(Self { locations, local, kernel: Kernel::Qbed, dilation: None, gso: false })
    }

    /// Local nodes, in the plan's order.
    pub fn local_nodes(&self) -> impl Iterator<Item = usize> + '_ {
        self.local.iter().copied()
    }

    pub fn is_local(&self, node: usize) -> bool {
        self.locations[node] == Location::Local
    }

    pub fn location(&self, node: usize) -> Location {
        self.locations[node]
    }

    /// Whether all nodes are local, so that no link leads to another agent.
    pub fn is_complete(&self) -> bool {
        self.local.len() == self.locations.len()
    }

    /// Whether links lead to other agents through interfaces of the container.
    pub fn is_container(&self) -> bool {
        self.on_wall_clock() && !self.is_complete()
    }

    /// Links with at least one local end.
    pub fn local_links<'p>(&'p self, plan: &'p Plan) -> impl Iterator<Item = usize> + 'p {
        let links = plan.links.iter().enumerate();
        links
            .filter(|(_, link)| link.ends().iter().any(|end| self.is_local(end.node)))
            .map(|(index, _)| index)
    }

    pub fn on_host_kernel(&self) -> bool {
        self.kernel == Kernel::Host
    }

    pub fn on_wall_clock(&self) -> bool {
        self.dilation.is_some()
    }

    pub fn merges_frames(&self) -> bool {
        self.gso
    }

    /// Converts a duration from real time to lab time.
    pub fn to_lab_ns(&self, real_ns: u64) -> u64 {
        real_ns / u64::from(self.dilation.unwrap_or(1))
    }
}

fn location(node: usize, place: Option<&Place>) -> Location {
    match place {
        Some(place) if place.node != node => Location::Remote(kernel(node, place)),
        _ => Location::Local,
    }
}

fn kernel(node: usize, place: &Place) -> Kernel {
    if place.host_kernel.contains(&node) {
        Kernel::Host
    } else {
        Kernel::Qbed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{dumbbell, place};

    #[test]
    fn in_virtual_time_all_nodes_are_local() {
        let plan = dumbbell(|_| {});
        let placement = Placement::new(&plan, None);
        assert!(placement.is_complete() && !placement.on_wall_clock() && !placement.on_host_kernel());
        assert_eq!(placement.local_nodes().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(placement.local_links(&plan).count(), plan.links.len());
        assert_eq!(placement.to_lab_ns(1000), 1000);
    }

    #[test]
    fn a_container_has_one_node_and_its_links() {
        let plan = dumbbell(|plan| {
            let mut second = plan["links"][0].clone();
            second["name"] = "s1-h2".into();
            for (end, node, queue) in [("a", 1, 3), ("b", 2, 2)] {
                second[end]["node"] = node.into();
                second[end]["interface"] = "eth1".into();
                second[end]["queue"] = queue.into();
                let mut copy = plan["queues"][0].clone();
                (copy["node"], copy["interface"]) = (node.into(), "eth1".into());
                plan["queues"].as_array_mut().unwrap().insert(2, copy);
            }
            plan["links"].as_array_mut().unwrap().push(second);
        });
        let of_node = |node| Placement::new(&plan, Some(&place(node, &[2], 50)));
        let host = of_node(2);
        assert!(host.on_host_kernel() && host.on_wall_clock() && !host.is_complete());
        assert_eq!(
            (host.local_nodes().collect::<Vec<_>>(), host.local_links(&plan).collect::<Vec<_>>()),
            (vec![2], vec![1])
        );
        assert_eq!(host.location(0), Location::Remote(Kernel::Qbed));
        assert_eq!(host.to_lab_ns(1000), 20);
        let switch = of_node(1);
        assert!(!switch.on_host_kernel() && switch.is_local(1) && !switch.is_local(2));
        assert_eq!(switch.location(2), Location::Remote(Kernel::Host));
        assert_eq!(switch.local_links(&plan).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_part_has_its_nodes_and_their_links() {
        let plan = dumbbell(|plan| plan["parts"] = serde_json::json!([0, 0, 1]));
        let second = Placement::of_part(&plan, 1).unwrap();
        assert_eq!(second.local_nodes().collect::<Vec<_>>(), [2]);
        assert_eq!(second.location(1), Location::InPart(0));
        assert!(!second.is_complete() && !second.is_container() && !second.on_wall_clock());
        let refusal = Placement::of_part(&plan, 2).unwrap_err().to_string();
        assert_eq!(refusal, "the plan has no part 2");
    }

    #[test]
    fn a_lab_of_one_node_is_complete_on_any_clock() {
        let mut plan = dumbbell(|_| {});
        assert!(!Placement::new(&plan, Some(&place(0, &[], 1))).is_complete());
        plan.nodes.truncate(1);
        let alone = Placement::new(&plan, Some(&place(0, &[], 1)));
        assert!(alone.is_complete() && alone.on_wall_clock());
    }
}
