// SPDX-License-Identifier: Apache-2.0
//! Transports carry flows across the network. A transport is a file or a folder in this module and a line in `ALL`. It
//! gets the flows of the workloads that name it, allocates topics, and handles the events and deadlines of its topics.

mod cbr;
mod datagram;
mod exchanges;
mod probe;
mod rate;
mod tcp;

use crate::failure::{Failure, Result};
use crate::plan::workload::{Family, Pattern, Workload};
use crate::plan::Plan;
use crate::results::flows::FlowRecord;
use crate::socket;
use crate::workload::schedule::{self, FlowSpec};
use crate::world::token::{Part, Token};
use crate::world::World;
use nix::sys::epoll::EpollFlags;
use std::io;
use std::os::fd::OwnedFd;

/// How long before the workloads' start connections may be opened (`connect: before`).
pub const LEAD_TIME_NS: u64 = 1_000_000_000;
/// Connections with `connect: before` are opened in the first part of the lead time, evenly spaced so that their SYNs
/// find empty queues.
const CONNECT_WINDOW_NS: u64 = LEAD_TIME_NS / 2;

pub trait Transport {
    /// Schedules its flows. `base_ns` (CLOCK_MONOTONIC) is time 0 of the workloads.
    fn schedule(&mut self, world: &mut World<'_>, base_ns: u64);

    /// Handles an epoll event of a token.
    fn on_ready(&mut self, world: &mut World<'_>, token: Token, events: EpollFlags) -> Result<()>;

    /// Handles a deadline of a token.
    fn on_timer(&mut self, world: &mut World<'_>, token: Token, due_ns: u64) -> Result<()>;

    /// Flow ids and currently received bytes of flows with a local receiver that were active at `at_ns` (since the
    /// epoch). The result may include flows that had ended.
    fn received_bytes(&mut self, world: &World<'_>, at_ns: i64) -> Result<Vec<(u32, u64)>>;

    /// Sets a host's congestion control, also for active flows if their workload does not name one.
    fn set_congestion_control(&mut self, _world: &World<'_>, _node: usize, _name: &str) -> Result<()> {
        Ok(())
    }

    /// Ends all flows at the end of the lab: reads pending data and closes sockets.
    fn finish(&mut self, world: &mut World<'_>) -> Result<()>;

    /// Records of all flows with a local end.
    fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>>;
}

/// A flow with its number among all flows of the lab.
type NumberedFlow = (u32, FlowSpec);

/// Creates a transport for its flows. `Part` owns the topics that it allocates.
type Open = fn(&mut World<'_>, Part, Vec<NumberedFlow>) -> Result<Box<dyn Transport>>;

struct TransportKind {
    /// Name in the plan.
    name: &'static str,
    /// Checks the transport-specific settings of a workload.
    check: fn(&Plan, &Workload) -> std::result::Result<(), String>,
    open: Open,
}

/// A list of transports.
pub struct TransportKinds(&'static [TransportKind]);

/// All transports. At one instant they act in this order.
pub const ALL: TransportKinds =
    TransportKinds(&[tcp::KIND, cbr::KIND, rate::KIND, probe::KIND, exchanges::KIND]);

/// Sets the workload's DSCP on a socket, if it has one. The ECN bits are not changed.
fn set_dscp(socket: &OwnedFd, workload: &Workload) -> io::Result<()> {
    let Some(dscp) = workload.dscp else { return Ok(()) };
    let (level, name) = match workload.family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_TOS),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    };
    socket::set(socket, level, name, i32::from(dscp) << 2)
}

impl TransportKinds {
    fn index_of(&self, workload: &Workload) -> Option<usize> {
        self.0.iter().position(|kind| kind.name == workload.transport)
    }

    /// Checks that every workload has a known transport and valid settings for it.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        plan.workloads.iter().try_for_each(|workload| {
            let names = || self.0.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
            let unknown = || format!("no transport {:?}, only {}", workload.transport, names());
            let index = self.index_of(workload).ok_or_else(unknown);
            let matches_kind = matches!(workload.pattern, Pattern::Exchanges { .. })
                == (workload.transport == exchanges::KIND.name);
            let mismatch = || "its kind needs another transport".to_owned();
            let index = index.and_then(|index| matches_kind.then_some(index).ok_or_else(mismatch));
            let error =
                |problem| Failure::new(format!("workload {} ({}): {problem}", workload.id, workload.label));
            index.and_then(|index| (self.0[index].check)(plan, workload)).map_err(error)
        })
    }

    /// Creates all transports, each with its flows. The index is the number in `Part::Transport`.
    pub fn open(&self, world: &mut World<'_>) -> Result<Vec<Box<dyn Transport>>> {
        let mut flows: Vec<Vec<NumberedFlow>> = self.0.iter().map(|_| Vec::new()).collect();
        for (id, spec) in (0..).zip(schedule::flows(world.plan)) {
            let index =
                self.index_of(&world.plan.workloads[spec.workload]).expect("`check` has found the transport");
            flows[index].push((id, spec));
        }
        let kinds = self.0.iter().zip(flows).enumerate();
        kinds.map(|(number, (kind, flows))| (kind.open)(world, Part::Transport(number), flows)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::lab_clock::TimeScale;
    use crate::lab::namespaces::Namespaces;
    use crate::lab::Lab;
    use crate::pipeline::Programs;
    use crate::placement::Placement;
    use crate::testing::{dumbbell, place, refusal};
    use crate::workload::ports::{self, LocalFlow};
    use crate::world::token::Topic;
    use crate::world::READABLE;
    use nix::sys::epoll::{EpollEvent, EpollTimeout};
    use serde_json::json;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    /// A test transport that sends one byte per flow at its start, over a Unix socket pair.
    struct Byte {
        starts: Topic,
        arrivals: Topic,
        flows: Vec<Flow>,
    }

    struct Flow {
        local: LocalFlow,
        sender: UnixStream,
        receiver: UnixStream,
        sent: u64,
        received: u64,
    }

    const fn byte(name: &'static str) -> TransportKind {
        let open: Open = |world, part, flows| {
            let (starts, arrivals) = (world.topic(part), world.topic(part));
            let local = ports::local_flows(world.placement, flows, 10_000).into_iter();
            let flows = local.map(|local| {
                let (sender, receiver) = UnixStream::pair().unwrap();
                Flow { local, sender, receiver, sent: 0, received: 0 }
            });
            Ok(Box::new(Byte { starts, arrivals, flows: flows.collect() }))
        };
        TransportKind { name, check: |_, _| Ok(()), open }
    }

    impl Transport for Byte {
        fn schedule(&mut self, world: &mut World<'_>, base_ns: u64) {
            for (index, flow) in (0..).zip(&self.flows) {
                world.watch(&flow.receiver, self.arrivals.at(index), READABLE).unwrap();
                world.agenda.add(base_ns + flow.local.spec.start_ns, self.starts.at(index));
            }
        }

        fn on_ready(&mut self, _world: &mut World<'_>, token: Token, events: EpollFlags) -> Result<()> {
            assert_eq!((token.topic, events), (self.arrivals, EpollFlags::EPOLLIN));
            self.flows[token.index as usize].received += 1;
            Ok(())
        }

        fn on_timer(&mut self, world: &mut World<'_>, token: Token, due_ns: u64) -> Result<()> {
            assert!(token.topic == self.starts && world.now_ns() >= due_ns);
            let flow = &mut self.flows[token.index as usize];
            flow.sent += flow.sender.write(&[1]).unwrap() as u64;
            Ok(())
        }

        fn received_bytes(&mut self, _world: &World<'_>, _at_ns: i64) -> Result<Vec<(u32, u64)>> {
            Ok(self.flows.iter().map(|flow| (flow.local.id, flow.received)).collect())
        }

        fn finish(&mut self, _world: &mut World<'_>) -> Result<()> {
            Ok(())
        }

        fn records<'a>(&'a self, world: &World<'a>) -> Vec<FlowRecord<'a>> {
            let record = |flow: &'a Flow| FlowRecord {
                sent_bytes: flow.sent,
                received_bytes: flow.received,
                ..FlowRecord::new(world.plan, &flow.local, 0)
            };
            self.flows.iter().map(record).collect()
        }
    }

    /// Runs a minimal engine until every flow has received its byte.
    fn run(world: &mut World<'_>, transports: &mut [Box<dyn Transport>]) {
        let part = |world: &World<'_>, token| match world.part(token) {
            Part::Transport(number) => number,
            part => panic!("{part:?} has no topics"),
        };
        let mut events = [EpollEvent::empty(); 4];
        for _ in 0..2_000 {
            world.clock.invalidate();
            while let Some((due_ns, token)) = world.agenda.pop_due(world.now_ns()) {
                let number = part(world, token);
                transports[number].on_timer(world, token, due_ns).unwrap();
            }
            let count = world.epoll.wait(&mut events, EpollTimeout::from(1u8)).unwrap();
            for event in &events[..count] {
                let token = Token::from(event.data());
                let number = part(world, token);
                transports[number].on_ready(world, token, event.events()).unwrap();
            }
            let mut records = transports.iter().flat_map(|transport| transport.records(world));
            if records.all(|record| record.received_bytes == 1) {
                return;
            }
        }
    }

    #[test]
    fn each_transport_gets_its_flows_events_and_deadlines() {
        let mut plan = dumbbell(|plan| {
            plan["workloads"][0]["pairs"] = json!([[0, 2], [0, 1], [2, 1]]);
            plan["workloads"][1]["pairs"] = json!([[0, 2]]);
            plan["workloads"][1]["interarrival_ns"] = json!({"fixed": 1_000_000});
            plan["workloads"][1]["start_ns"] = json!(0);
            plan["workloads"][1]["limit"] = json!(3);
        });
        plan.workloads[1].transport = "third".into();
        plan.nodes[0].sysctls.clear();
        const KINDS: TransportKinds = TransportKinds(&[byte("tcp"), byte("udp"), byte("third")]);
        KINDS.check(&plan).unwrap();
        let placement = Placement::new(&plan, Some(&place(0, &[0], 1)));
        let namespaces = Namespaces::create(&plan, &placement).unwrap();
        let lab =
            Lab { namespaces, interfaces: Vec::new(), views: Vec::new(), programs: Programs::default() };
        let mut world = World::new(&plan, &placement, &lab, TimeScale::IDENTITY).unwrap();
        let mut transports = KINDS.open(&mut world).unwrap();
        let base_ns = world.now_ns();
        transports.iter_mut().for_each(|transport| transport.schedule(&mut world, base_ns));
        run(&mut world, &mut transports);
        let flows: Vec<Vec<_>> = transports
            .iter()
            .map(|transport| {
                let rows = transport.records(&world).into_iter();
                rows.map(|row| (row.flow, row.transport, row.dst, row.sent_bytes, row.received_bytes))
                    .collect()
            })
            .collect();
        // The flow from node 2 to node 1 has no local end.
        assert_eq!(flows[0], [(0, "tcp", 2, 1, 1), (1, "tcp", 1, 1, 1)]);
        assert!(flows[1].is_empty());
        assert_eq!(flows[2], [3, 4, 5].map(|flow| (flow, "third", 2, 1, 1)));
    }

    /// The error for the first workload with the transport `udp`.
    fn cbr_refusal(settings: &[(&str, serde_json::Value)]) -> String {
        refusal(|plan| {
            let workload = &mut plan["workloads"][0];
            workload["transport"] = json!("udp");
            settings.iter().for_each(|(field, value)| workload[field] = value.clone());
        })
    }

    #[test]
    fn a_transport_rejects_unknown_settings() {
        let rate = ("rate_bps", json!(1_000_000));
        let packet = ("packet_bytes", json!(1000));
        for (message, expected) in [
            (cbr_refusal(&[]), "workload 0 (bulk): missing field `rate_bps`"),
            (cbr_refusal(std::slice::from_ref(&rate)), "missing field `packet_bytes`"),
            (cbr_refusal(&[("rate_bps", json!(0)), packet.clone()]), "workload 0 (bulk): rate_bps is 0"),
            (cbr_refusal(&[rate.clone(), ("packet_bytes", json!(65_001))]), "not in 1..65000"),
            (cbr_refusal(&[rate.clone(), packet, ("burst", json!(3))]), "unknown field `burst`"),
            (refusal(|plan| plan["workloads"][0]["rate_bps"] = json!(1)), "unknown field `rate_bps`"),
            (
                refusal(|plan| plan["workloads"][0]["transport"] = json!("sctp")),
                "no transport \"sctp\", only tcp, udp, rate, probe, exchanges",
            ),
        ] {
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn probes_need_an_interval_and_space_for_their_header() {
        let with = |field: &str, value: serde_json::Value| {
            refusal(|plan| {
                let workload = &mut plan["workloads"][0];
                workload["transport"] = json!("probe");
                (workload["interval_ns"], workload["packet_bytes"]) = (json!(1_000_000), json!(64));
                workload[field] = value;
            })
        };
        for (message, expected) in [
            (with("interval_ns", json!(null)), "workload 0 (bulk): missing field `interval_ns`"),
            (with("interval_ns", json!(0)), "workload 0 (bulk): interval_ns 0 is too short"),
            (with("packet_bytes", json!(31)), "packet_bytes is not in 32..65000"),
            (with("packet_bytes", json!(65_001)), "packet_bytes is not in 32..65000"),
            (with("timeout_ns", json!(1)), "unknown field `timeout_ns`"),
        ] {
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }

    /// Gives the first workload the transport `rate` and its host a controller.
    fn rate_plan(plan: &mut serde_json::Value, controller: serde_json::Value) {
        plan["nodes"][0]["controller"] = controller;
        plan["workloads"][0]["transport"] = json!("rate");
        plan["workloads"][0]["port"] = json!(6190);
        plan["workloads"][0]["payload_bytes"] = json!(1384);
    }

    #[test]
    fn a_rate_flow_needs_a_valid_controller() {
        let controller = json!({
            "name": "timely", "parameters": "0800010005000000", "signal": "sum_squ", "unit": "time", "bits": 4,
            "forward": true,
        });
        dumbbell(|plan| rate_plan(plan, controller.clone()));
        let with = |field: &str, value: serde_json::Value| {
            refusal(|plan| {
                rate_plan(plan, controller.clone());
                plan["nodes"][0]["controller"][field] = value;
            })
        };
        let workload = |field: &str, value: serde_json::Value| {
            refusal(|plan| {
                rate_plan(plan, controller.clone());
                plan["workloads"][0][field] = value;
            })
        };
        for (message, expected) in [
            (refusal(|plan| rate_plan(plan, json!(null))), "workload 0 (bulk): node h1 has no controller"),
            (with("bits", json!(0)), "node h1: controller: bits is not in 1..32"),
            (with("bits", json!(33)), "bits is not in 1..32"),
            (with("name", json!("a\0b")), "the name is empty or contains NUL"),
            (with("signal", json!("mean")), "unknown variant `mean`"),
            (with("gain", json!(1)), "unknown field `gain`"),
            (workload("payload_bytes", json!(0)), "payload_bytes is not in 1..65487"),
            (workload("connect", json!("before")), "only TCP"),
            (workload("dscp", json!(46)), "dscp is not supported"),
        ] {
            assert!(message.contains(expected), "{message:?} does not contain {expected:?}");
        }
    }

    #[test]
    fn a_null_setting_is_absent() {
        dumbbell(|plan| plan["workloads"][0]["rate_bps"] = json!(null));
    }
}
