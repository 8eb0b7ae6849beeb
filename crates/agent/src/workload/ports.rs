// SPDX-License-Identifier: Apache-2.0
//! Selects the flows of a transport that have a local end, and assigns their source ports.

use crate::placement::Placement;
use crate::workload::schedule::FlowSpec;
use std::collections::HashMap;

/// A flow with at least one local end.
#[derive(Debug)]
pub struct LocalFlow {
    /// Number among all flows of the lab.
    pub id: u32,
    pub spec: FlowSpec,
    pub sends: bool,
    pub receives: bool,
    /// 0: the kernel chooses the port when the flow is opened.
    pub src_port: u16,
}

const LOWEST_PORT: u16 = 10_000;
/// The range ends below the kernel's ephemeral ports.
const PORT_COUNT: u16 = 22_000;

/// Flows with a local end. If both ends are local, the kernel chooses the source port. Otherwise the receiver's agent
/// must know the port that the sender's agent uses, so the port is computed as in `local_flows_with_ports`.
pub fn local_flows(
    placement: &Placement,
    flows: impl IntoIterator<Item = (u32, FlowSpec)>,
    first_port: u16,
) -> Vec<LocalFlow> {
    let mut flows = local_flows_with_ports(placement, flows, first_port);
    if placement.is_complete() {
        flows.iter_mut().for_each(|flow| flow.src_port = 0);
    }
    flows
}

/// Flows with a local end and a computed source port: `first_port` plus the flow's rank among the flows of its source,
/// which is the same in every agent.
pub fn local_flows_with_ports(
    placement: &Placement,
    flows: impl IntoIterator<Item = (u32, FlowSpec)>,
    first_port: u16,
) -> Vec<LocalFlow> {
    let mut ranks: HashMap<usize, u16> = HashMap::new();
    let with_ports = flows.into_iter().map(|(id, spec)| {
        let rank = ranks.entry(spec.src).or_insert(first_port - LOWEST_PORT);
        let src_port = LOWEST_PORT + *rank;
        *rank = (*rank + 1) % PORT_COUNT;
        LocalFlow {
            id,
            sends: placement.is_local(spec.src),
            receives: placement.is_local(spec.dst),
            src_port,
            spec,
        }
    });
    with_ports.filter(|flow| flow.sends || flow.receives).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{dumbbell, place};

    fn flows(pairs: &[[usize; 2]]) -> Vec<(u32, FlowSpec)> {
        let spec = |[src, dst]: [usize; 2]| FlowSpec {
            workload: 0,
            src,
            dst,
            size_bytes: None,
            start_ns: 0,
            stop_ns: None,
        };
        (0..).zip(pairs.iter().copied().map(spec)).collect()
    }

    #[test]
    fn in_virtual_time_both_ends_are_local_and_the_kernel_chooses_ports() {
        let placement = Placement::new(&dumbbell(|_| {}), None);
        let local = local_flows(&placement, flows(&[[0, 2], [2, 0]]), LOWEST_PORT);
        assert_eq!(local.len(), 2);
        assert!(local.iter().all(|flow| flow.sends && flow.receives && flow.src_port == 0));
    }

    #[test]
    fn sender_and_receiver_compute_the_same_port() {
        let plan = dumbbell(|_| {});
        let at = |node| {
            let placement = Placement::new(&plan, Some(&place(node, &[], 1)));
            let local = local_flows(&placement, flows(&[[0, 2], [2, 0], [1, 0], [0, 2]]), 10_001);
            local.iter().map(|flow| (flow.id, flow.sends, flow.receives, flow.src_port)).collect::<Vec<_>>()
        };
        let (to, from) = ((true, false), (false, true));
        let row = |id, (sends, receives): (bool, bool), port| (id, sends, receives, port);
        assert_eq!(
            at(0),
            [row(0, to, 10_001), row(1, from, 10_001), row(2, from, 10_001), row(3, to, 10_002)]
        );
        assert_eq!(at(1), [row(2, to, 10_001)]);
        assert_eq!(at(2), [row(0, from, 10_001), row(1, to, 10_001), row(3, from, 10_002)]);
    }

    #[test]
    fn computed_ports_are_also_used_in_virtual_time() {
        let placement = Placement::new(&dumbbell(|_| {}), None);
        let ports: Vec<_> = local_flows_with_ports(&placement, flows(&[[0, 2], [2, 0], [0, 1]]), 21_000)
            .iter()
            .map(|flow| flow.src_port)
            .collect();
        assert_eq!(ports, [21_000, 21_000, 21_001]);
    }

    #[test]
    fn ports_wrap_around() {
        let plan = dumbbell(|_| {});
        let placement = Placement::new(&plan, Some(&place(0, &[], 1)));
        let local = local_flows(&placement, flows(&vec![[0, 2]; 22_001]), 10_001);
        assert_eq!(
            (local[21_998].src_port, local[21_999].src_port, local[22_000].src_port),
            (31_999, 10_000, 10_001)
        );
    }
}
