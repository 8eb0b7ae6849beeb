// SPDX-License-Identifier: Apache-2.0
//! What of the plan is this agent's: which nodes, on which kernel, and how time passes there. Asked once, at the start.
//! In virtual time one agent has them all; in containers each has its own node, and of the others the far ends of its
//! links (docs/formats.md §5).

use crate::plan::place::Place;
use crate::plan::Plan;

/// Where a node is, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Here,
    /// Another agent has it.
    Elsewhere(Kernel),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// With our links and taps.
    Qbed,
    /// The container host's.
    Host,
}

#[derive(Debug)]
pub struct Scope {
    /// Of each node.
    presences: Vec<Presence>,
    here: Vec<usize>,
    /// Which one carries this agent.
    kernel: Kernel,
    /// Real nanoseconds in one of paper time; None: time is virtual.
    dilation: Option<u32>,
}

impl Scope {
    /// All of the plan, or what `place` says.
    pub fn new(plan: &Plan, place: Option<&Place>) -> Self {
        let presences = (0..plan.nodes.len()).map(|node| presence(node, place)).collect::<Vec<_>>();
        let here = (0..presences.len()).filter(|node| presences[*node] == Presence::Here).collect();
        let kernel = place.map_or(Kernel::Qbed, |place| kernel(place.node, place));
        Self { presences, here, kernel, dilation: place.map(|place| place.dilation) }
    }

    /// This agent's nodes, in the plan's order.
    pub fn nodes(&self) -> impl Iterator<Item = usize> + '_ {
        self.here.iter().copied()
    }

    pub fn has(&self, node: usize) -> bool {
        self.presences[node] == Presence::Here
    }

    pub fn presence(&self, node: usize) -> Presence {
        self.presences[node]
    }

    /// Whether all of the lab is here: no link leads to another agent.
    pub fn is_whole(&self) -> bool {
        self.here.len() == self.presences.len()
    }

    /// The links with an end here.
    pub fn links<'p>(&'p self, plan: &'p Plan) -> impl Iterator<Item = usize> + 'p {
        let links = plan.links.iter().enumerate();
        links.filter(|(_, link)| link.ends().iter().any(|end| self.has(end.node))).map(|(index, _)| index)
    }

    pub fn on_host_kernel(&self) -> bool {
        self.kernel == Kernel::Host
    }

    pub fn on_wall_clock(&self) -> bool {
        self.dilation.is_some()
    }

    /// So much real time, in paper time.
    pub fn real_ns(&self, ns: u64) -> u64 {
        ns / u64::from(self.dilation.unwrap_or(1))
    }
}

fn presence(node: usize, place: Option<&Place>) -> Presence {
    match place {
        Some(place) if place.node != node => Presence::Elsewhere(kernel(node, place)),
        _ => Presence::Here,
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
    fn in_virtual_time_everything_is_here() {
        let plan = dumbbell(|_| {});
        let scope = Scope::new(&plan, None);
        assert!(scope.is_whole() && !scope.on_wall_clock() && !scope.on_host_kernel());
        assert_eq!(scope.nodes().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(scope.links(&plan).count(), plan.links.len());
        assert_eq!(scope.real_ns(1000), 1000);
    }

    #[test]
    fn a_container_has_its_node_and_the_links_that_end_there() {
        let plan = dumbbell(|plan| {
            let mut second = plan["links"][0].clone();
            second["name"] = "s1-h2".into();
            for (end, node, queue) in [("a", 1, 3), ("b", 2, 2)] {
                second[end]["node"] = node.into();
                second[end]["interface"] = "eth1".into();
                second[end]["queue"] = queue.into();
                let mut own = plan["queues"][0].clone();
                (own["node"], own["interface"]) = (node.into(), "eth1".into());
                plan["queues"].as_array_mut().unwrap().insert(2, own);
            }
            plan["links"].as_array_mut().unwrap().push(second);
        });
        let scope = |node| Scope::new(&plan, Some(&place(node, &[2], 50)));
        let host = scope(2);
        assert!(host.on_host_kernel() && host.on_wall_clock() && !host.is_whole());
        assert_eq!(
            (host.nodes().collect::<Vec<_>>(), host.links(&plan).collect::<Vec<_>>()),
            (vec![2], vec![1])
        );
        assert_eq!(host.presence(0), Presence::Elsewhere(Kernel::Qbed));
        assert_eq!(host.real_ns(1000), 20);
        let switch = scope(1);
        assert!(!switch.on_host_kernel() && switch.has(1) && !switch.has(2));
        assert_eq!(switch.presence(2), Presence::Elsewhere(Kernel::Host));
        assert_eq!(switch.links(&plan).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_lab_of_one_node_is_whole_on_any_clock() {
        let mut plan = dumbbell(|_| {});
        assert!(!Scope::new(&plan, Some(&place(0, &[], 1))).is_whole());
        plan.nodes.truncate(1);
        let alone = Scope::new(&plan, Some(&place(0, &[], 1)));
        assert!(alone.is_whole() && alone.on_wall_clock());
    }
}
