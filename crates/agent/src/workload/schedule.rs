// SPDX-License-Identifier: Apache-2.0
//! Expands workloads to flows (open loop): the result depends only on the plan and its seed, not on the network. The
//! id of a flow is its index.

use crate::plan::workload::{Pattern, Workload};
use crate::plan::Plan;
use crate::workload::draws::Draws;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowSpec {
    /// Index of the workload.
    pub workload: usize,
    pub src: usize,
    pub dst: usize,
    /// None: unlimited until `stop_ns`.
    pub size_bytes: Option<u64>,
    pub start_ns: u64,
    /// When the sender stops; None: at the end of the lab.
    pub stop_ns: Option<u64>,
}

/// All flows that start within the lab's duration, ordered by workload and then as listed or drawn.
pub fn flows(plan: &Plan) -> Vec<FlowSpec> {
    let mut flows = Vec::new();
    for (index, workload) in plan.workloads.iter().enumerate() {
        let mut draws = Draws::new(plan.seed, workload.id);
        let end_ns = workload.stop_ns.map_or(plan.duration_ns, |stop| stop.min(plan.duration_ns));
        expand(index, workload, &mut draws, end_ns, &mut flows);
    }
    flows
}

fn expand(index: usize, workload: &Workload, draws: &mut Draws, end_ns: u64, flows: &mut Vec<FlowSpec>) {
    match &workload.pattern {
        // Closed loop: each client schedules its next exchange at run time.
        Pattern::Exchanges { .. } => {}
        Pattern::Flows { pairs, size_bytes, spread_ns, each } => {
            for (number, &[src, dst]) in pairs.iter().enumerate() {
                let offset = if *spread_ns > 0 { draws.below(*spread_ns) } else { 0 };
                let listed = each.get(number);
                let start_ns = workload.start_ns + offset + listed.map_or(0, |(after_ns, _)| *after_ns);
                if start_ns < end_ns {
                    let size_bytes = listed.map_or(*size_bytes, |(_, bytes)| Some(*bytes));
                    let stop_ns = workload.stop_ns;
                    flows.push(FlowSpec { workload: index, src, dst, size_bytes, start_ns, stop_ns });
                }
            }
        }
        Pattern::Arrivals { pairs, interarrival, size, limit, together } => {
            let all_pairs = if *together { pairs.all() } else { Vec::new() };
            // The first arrival is one gap after the start, as in any renewal process.
            let mut start_ns = workload.start_ns.saturating_add(draws.gap_ns(*interarrival));
            let mut count = 0;
            while start_ns < end_ns && limit.is_none_or(|limit| count < limit) {
                let drawn;
                let arriving = if *together {
                    &all_pairs[..]
                } else {
                    drawn = [draws.pair(pairs)];
                    &drawn
                };
                let left = limit.map_or(u64::MAX, |limit| limit - count);
                for &[src, dst] in arriving.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
                    let size_bytes = Some(draws.size_bytes(size));
                    // `stop_ns` ends the arrivals, not the flows themselves.
                    flows.push(FlowSpec { workload: index, src, dst, size_bytes, start_ns, stop_ns: None });
                    count += 1;
                }
                start_ns = start_ns.saturating_add(draws.gap_ns(*interarrival));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::dumbbell;

    #[test]
    fn each_pair_has_one_flow_at_the_start() {
        let plan = dumbbell(|plan| {
            plan["workloads"] = serde_json::json!([plan["workloads"][0]]);
            plan["workloads"][0]["pairs"] = serde_json::json!([[0, 2], [2, 0]]);
        });
        let flows = flows(&plan);
        let starts: Vec<_> = flows.iter().map(|f| (f.src, f.dst, f.start_ns, f.size_bytes)).collect();
        assert_eq!(starts, [(0, 2, 0, Some(100_000_000)), (2, 0, 0, Some(100_000_000))]);
    }

    #[test]
    fn starts_are_drawn_within_the_spread() {
        let plan = dumbbell(|plan| {
            plan["workloads"] = serde_json::json!([plan["workloads"][0]]);
            plan["workloads"][0]["pairs"] = serde_json::json!(vec![[0, 2]; 500]);
            plan["workloads"][0]["spread_ns"] = 1_000_000.into();
        });
        let starts: Vec<u64> = flows(&plan).iter().map(|flow| flow.start_ns).collect();
        assert!(starts.iter().all(|start| *start < 1_000_000));
        assert!(starts.iter().max() > Some(&900_000) && starts.iter().min() < Some(&100_000));
    }

    #[test]
    fn flows_from_a_file_have_listed_starts_and_sizes() {
        let plan = dumbbell(|plan| {
            plan["workloads"] = serde_json::json!([plan["workloads"][0]]);
            plan["workloads"][0]["pairs"] = serde_json::json!([[0, 2], [2, 0], [0, 2]]);
            plan["workloads"][0]["each"] = serde_json::json!([[7, 100], [0, 5], [u64::MAX >> 8, 1]]);
            plan["workloads"][0]["start_ns"] = 1000.into();
        });
        let flows: Vec<_> = flows(&plan).iter().map(|f| (f.src, f.dst, f.start_ns, f.size_bytes)).collect();
        assert_eq!(
            flows,
            [(0, 2, 1007, Some(100)), (2, 0, 1000, Some(5))],
            "the third starts after the lab's end"
        );
    }

    #[test]
    fn arrivals_end_at_the_stop() {
        let plan = dumbbell(|plan| {
            plan["workloads"][1]["interarrival_ns"] = serde_json::json!({"fixed": 1_000_000})
        });
        let arrivals: Vec<_> = flows(&plan).into_iter().filter(|flow| flow.workload == 1).collect();
        assert_eq!(arrivals.len(), 499, "1 ms, 2 ms, ... 499 ms; 500 ms is the stop");
        assert!(arrivals.iter().all(|flow| flow.stop_ns.is_none()));
    }

    #[test]
    fn a_limit_ends_arrivals() {
        let plan = dumbbell(|plan| plan["workloads"][1]["limit"] = 10.into());
        assert_eq!(flows(&plan).len(), 11);
    }

    #[test]
    fn together_starts_a_flow_of_every_pair() {
        let plan = dumbbell(|plan| {
            plan["workloads"][1]["pairs"] = serde_json::json!([[0, 2], [2, 0]]);
            plan["workloads"][1]["interarrival_ns"] = serde_json::json!({"fixed": 1_000_000});
            plan["workloads"][1]["together"] = true.into();
            plan["workloads"][1]["limit"] = 5.into();
        });
        let arrivals: Vec<_> = flows(&plan).into_iter().filter(|flow| flow.workload == 1).collect();
        let found: Vec<_> = arrivals.iter().map(|f| (f.src, f.dst, f.start_ns)).collect();
        let (ms, twice) = (1_000_000, 2_000_000);
        assert_eq!(found, [(0, 2, ms), (2, 0, ms), (0, 2, twice), (2, 0, twice), (0, 2, 3 * ms)]);
        let sizes: std::collections::HashSet<_> = arrivals.iter().map(|f| f.size_bytes).collect();
        assert!(sizes.len() > 2, "each flow draws a size: {sizes:?}");
    }

    #[test]
    fn the_seed_changes_arrivals_but_not_listed_flows() {
        let with_seed = |seed: u64| flows(&dumbbell(|plan| plan["seed"] = seed.into()));
        let (first, again, two) = (with_seed(1), with_seed(1), with_seed(2));
        assert_eq!(first, again);
        assert_eq!(first[0], two[0]);
        assert_ne!(first[1..], two[1..]);
    }
}
