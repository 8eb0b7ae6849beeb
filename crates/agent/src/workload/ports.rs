// SPDX-License-Identifier: Apache-2.0
//! What of a transport's flows is here, and the ports that they are sent from.

use crate::scope::Scope;
use crate::workload::schedule::FlowSpec;
use std::collections::HashMap;

/// A flow with an end here.
#[derive(Debug)]
pub struct LocalFlow {
    /// Its number among all flows of the lab.
    pub id: u32,
    pub spec: FlowSpec,
    pub sends: bool,
    pub receives: bool,
    /// 0: the kernel chooses, when the flow is opened.
    pub src_port: u16,
}

const LOWEST: u16 = 10_000;
/// Below the kernel's own ephemeral ports.
const COUNT: u16 = 22_000;

/// Those of a transport's flows that have an end here. Where a flow's ends are two agents', the receiver's has to know the
/// sender's port: it follows from the flow's rank among those of its source, which every agent counts alike. `first`: the
/// first one's port.
pub fn local(scope: &Scope, flows: impl IntoIterator<Item = (u32, FlowSpec)>, first: u16) -> Vec<LocalFlow> {
    let mut flows = numbered(scope, flows, first);
    if scope.is_whole() {
        flows.iter_mut().for_each(|flow| flow.src_port = 0);
    }
    flows
}

/// The same where no kernel chooses ports: each flow has its own everywhere.
pub fn numbered(
    scope: &Scope,
    flows: impl IntoIterator<Item = (u32, FlowSpec)>,
    first: u16,
) -> Vec<LocalFlow> {
    let mut ranks: HashMap<usize, u16> = HashMap::new();
    let ported = flows.into_iter().map(|(id, spec)| {
        let rank = ranks.entry(spec.src).or_insert(first - LOWEST);
        let src_port = LOWEST + *rank;
        *rank = (*rank + 1) % COUNT;
        LocalFlow { id, sends: scope.has(spec.src), receives: scope.has(spec.dst), src_port, spec }
    });
    ported.filter(|flow| flow.sends || flow.receives).collect()
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
    fn in_virtual_time_every_flow_has_both_ends_here_and_the_kernel_chooses_ports() {
        let scope = Scope::new(&dumbbell(|_| {}), None);
        let local = local(&scope, flows(&[[0, 2], [2, 0]]), LOWEST);
        assert_eq!(local.len(), 2);
        assert!(local.iter().all(|flow| flow.sends && flow.receives && flow.src_port == 0));
    }

    #[test]
    fn sender_and_receiver_count_the_same_port() {
        let plan = dumbbell(|_| {});
        let at = |node| {
            let scope = Scope::new(&plan, Some(&place(node, &[], 1)));
            let local = local(&scope, flows(&[[0, 2], [2, 0], [1, 0], [0, 2]]), 10_001);
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
    fn numbered_ports_are_there_in_virtual_time_too() {
        let scope = Scope::new(&dumbbell(|_| {}), None);
        let ports: Vec<_> = numbered(&scope, flows(&[[0, 2], [2, 0], [0, 1]]), 21_000)
            .iter()
            .map(|flow| flow.src_port)
            .collect();
        assert_eq!(ports, [21_000, 21_000, 21_001]);
    }

    #[test]
    fn after_the_last_port_comes_the_lowest() {
        let plan = dumbbell(|_| {});
        let scope = Scope::new(&plan, Some(&place(0, &[], 1)));
        let local = local(&scope, flows(&vec![[0, 2]; 22_001]), 10_001);
        assert_eq!(
            (local[21_998].src_port, local[21_999].src_port, local[22_000].src_port),
            (31_999, 10_000, 10_001)
        );
    }
}
