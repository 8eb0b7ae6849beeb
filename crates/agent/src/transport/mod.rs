// SPDX-License-Identifier: Apache-2.0
//! How flows cross the network. A transport is a file or a folder here and a line in `KINDS`: it takes the flows of the
//! workloads that name it, asks the world for topics of its own, and is told of what it watches and of its deadlines.

mod cbr;
mod tcp;

use crate::failure::{Failure, Result};
use crate::plan::workload::Workload;
use crate::plan::Plan;
use crate::results::flows::FlowRecord;
use crate::workload::schedule::{self, FlowSpec};
use crate::world::token::{Part, Token};
use crate::world::World;
use nix::sys::epoll::EpollFlags;

/// A transport may send this long ahead of the workloads' start (`connect: before`).
pub const AHEAD_NS: u64 = 1_000_000_000;

pub trait Transport {
    /// Puts its flows on the agenda. Their times count from `base_ns` (CLOCK_MONOTONIC).
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64);

    /// Something that it watches under this token is ready.
    fn on_ready(&mut self, world: &mut World<'_>, token: Token, events: EpollFlags) -> Result<()>;

    /// A deadline of its own has come.
    fn on_timer(&mut self, world: &mut World<'_>, token: Token, due_ns: u64) -> Result<()>;

    /// The lab is at its end: reads what waits, closes what is open.
    fn finish(&mut self, world: &World<'_>) -> Result<()>;

    /// Of each flow with an end here, what is known here.
    fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>>;
}

/// A flow, and its number among all flows of the lab.
type Numbered = (u32, FlowSpec);

/// Takes the flows that are its; what it asks the world for, it asks for as this part.
type Open = fn(&mut World<'_>, Part, Vec<Numbered>) -> Result<Box<dyn Transport>>;

struct Kind {
    /// As the plan calls it.
    name: &'static str,
    /// What is wrong with a workload, as far as only its transport can tell.
    check: fn(&Workload) -> std::result::Result<(), String>,
    open: Open,
}

/// What they do at one instant they do in this order.
const KINDS: [Kind; 2] = [tcp::KIND, cbr::KIND];

fn kind_of(workload: &Workload) -> Option<usize> {
    KINDS.iter().position(|kind| kind.name == workload.transport)
}

/// What the plan's own check leaves to the transports.
pub fn check(plan: &Plan) -> Result<()> {
    plan.workloads.iter().try_for_each(|workload| {
        let known = || KINDS.map(|kind| kind.name).join(", ");
        let no_such = || format!("no transport {:?}, only {}", workload.transport, known());
        let checked = kind_of(workload).ok_or_else(no_such).and_then(|kind| (KINDS[kind].check)(workload));
        let here = |what| Failure::new(format!("workload {} ({}): {what}", workload.id, workload.label));
        checked.map_err(here)
    })
}

/// All transports, by their number in `Part::Transport`.
pub fn open(world: &mut World<'_>) -> Result<Vec<Box<dyn Transport>>> {
    let mut flows = KINDS.map(|_| Vec::new());
    for (id, spec) in (0..).zip(schedule::flows(world.plan)) {
        let kind = kind_of(&world.plan.workloads[spec.workload]).expect("`check` knows every transport");
        flows[kind].push((id, spec));
    }
    let opened = KINDS.iter().zip(flows).enumerate();
    opened.map(|(number, (kind, flows))| (kind.open)(world, Part::Transport(number), flows)).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::refusal;
    use serde_json::json;

    /// The first workload, as one of constant bit rate.
    fn cbr_refusal(settings: &[(&str, serde_json::Value)]) -> String {
        refusal(|plan| {
            let workload = &mut plan["workloads"][0];
            workload["transport"] = json!("udp");
            settings.iter().for_each(|(field, value)| workload[field] = value.clone());
        })
    }

    #[test]
    fn a_transport_reads_its_own_settings_and_refuses_others() {
        let rate = ("rate_bps", json!(1_000_000));
        let packet = ("packet_bytes", json!(1000));
        for (message, says) in [
            (cbr_refusal(&[]), "workload 0 (bulk): missing field `rate_bps`"),
            (cbr_refusal(std::slice::from_ref(&rate)), "missing field `packet_bytes`"),
            (cbr_refusal(&[("rate_bps", json!(0)), packet.clone()]), "workload 0 (bulk): rate_bps is 0"),
            (cbr_refusal(&[rate.clone(), ("packet_bytes", json!(65_001))]), "not in 1..65000"),
            (cbr_refusal(&[rate.clone(), packet, ("burst", json!(3))]), "unknown field `burst`"),
            (refusal(|plan| plan["workloads"][0]["rate_bps"] = json!(1)), "unknown field `rate_bps`"),
            (
                refusal(|plan| plan["workloads"][0]["transport"] = json!("sctp")),
                "no transport \"sctp\", only tcp, udp",
            ),
        ] {
            assert!(message.contains(says), "{message:?} does not say {says:?}");
        }
    }

    #[test]
    fn a_setting_that_is_null_is_none() {
        crate::testing::dumbbell(|plan| plan["workloads"][0]["rate_bps"] = json!(null));
    }
}
