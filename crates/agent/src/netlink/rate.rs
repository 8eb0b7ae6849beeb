// SPDX-License-Identifier: Apache-2.0
//! Requests to the kernel module `qrate` and its replies (kernel/include/uapi/qbed/qrate.h). Requests apply to the
//! network namespace of the socket.

use crate::failure::Result;
use crate::netlink::{attributes, generic, u32_at, u64_at, Batch, Netlink};
use crate::plan::controller::Controller;
use std::io;
use std::net::IpAddr;

pub const MODULE: &str = "qrate";
const VERSION: u8 = 1;

const LISTEN: u8 = 1;
const FLOW_NEW: u8 = 2;
const FLOW_GET: u8 = 3;

mod attribute {
    pub const FLOW: u16 = 2;
    pub const SOURCE: u16 = 3;
    pub const DESTINATION: u16 = 4;
    pub const SOURCE_PORT: u16 = 5;
    pub const DESTINATION_PORT: u16 = 6;
    pub const SIZE: u16 = 7;
    pub const STOP_TIME: u16 = 8;
    pub const PAYLOAD: u16 = 9;
    pub const CONTROLLER: u16 = 10;
    pub const PARAMETERS: u16 = 11;
    pub const SIGNAL: u16 = 12;
    pub const UNIT: u16 = 13;
    pub const BITS: u16 = 14;
    pub const FORWARD: u16 = 15;
    pub const REFLECT: u16 = 16;
    pub const RUNNING: u16 = 17;
    pub const ROLE: u16 = 18;
    pub const ENDED: u16 = 19;
    pub const END_TIME: u16 = 21;
    pub const RATE: u16 = 22;
    pub const RTT: u16 = 23;
    pub const MIN_RTT: u16 = 24;
    pub const LAST_SIGNAL: u16 = 25;
    pub const FEEDBACKS: u16 = 26;
    pub const SENT_BYTES: u16 = 27;
    pub const SENT_PACKETS: u16 = 28;
    pub const ACKED_BYTES: u16 = 29;
    pub const RECEIVED_BYTES: u16 = 30;
    pub const RECEIVED_PACKETS: u16 = 31;
    pub const LOST_PACKETS: u16 = 32;
    pub const TIMEOUTS: u16 = 33;
    pub const INFLIGHT: u16 = 34;
    pub const COMPACT: u16 = 35;
}

/// A flow to be started.
pub struct NewFlow<'a> {
    pub flow: u32,
    pub addresses: [IpAddr; 2],
    pub ports: [u16; 2],
    /// None: unlimited.
    pub size_bytes: Option<u64>,
    /// CLOCK_MONOTONIC.
    pub stop_ns: Option<u64>,
    pub payload_bytes: u32,
    pub controller: &'a Controller,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
}

/// State of a flow at one of its ends; attributes that the reply does not have are zero. Times are CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowState {
    pub flow: u32,
    pub ended: bool,
    pub end_ns: Option<u64>,
    pub rate_bps: u64,
    pub rtt_ns: Option<u64>,
    pub min_rtt_ns: Option<u64>,
    pub signal: Option<u64>,
    pub feedbacks: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
    pub acked_bytes: u64,
    pub received_bytes: u64,
    pub received_packets: u64,
    pub lost_packets: u64,
    pub timeouts: u32,
    pub inflight_bytes: u64,
}

/// Handle of the module: its netlink family.
#[derive(Debug, Clone, Copy)]
pub struct Qrate(u16);

impl Qrate {
    pub fn find() -> Result<Self> {
        generic::family(MODULE).map(Self)
    }

    fn request(self, batch: &mut Batch, command: u8, flags: i32, object: String) -> &mut Batch {
        batch.request(self.0, flags, &[command, VERSION, 0, 0], object)
    }

    /// Requests reception on a port. `reflect`: probability that a data packet is reflected to its sender.
    pub fn listen(self, batch: &mut Batch, port: u16, reflect: f64, object: String) {
        // The cast saturates: 1 becomes 2^32 - 1.
        let reflect = (reflect * 2f64.powi(32)) as u32;
        self.request(batch, LISTEN, 0, object)
            .attribute(attribute::SOURCE_PORT, &port.to_ne_bytes())
            .u32(attribute::REFLECT, reflect);
    }

    /// Requests the start of a flow.
    pub fn start(self, batch: &mut Batch, new: &NewFlow<'_>, object: String) {
        let Controller { name, parameters, signal, unit, bits, forward, compact } = new.controller;
        let nested = attribute::PARAMETERS | libc::NLA_F_NESTED as u16;
        let batch = self.request(batch, FLOW_NEW, 0, object);
        batch.u32(attribute::FLOW, new.flow);
        for (number, address) in [attribute::SOURCE, attribute::DESTINATION].into_iter().zip(new.addresses) {
            match address {
                IpAddr::V4(address) => batch.attribute(number, &address.octets()),
                IpAddr::V6(address) => batch.attribute(number, &address.octets()),
            };
        }
        for (number, port) in [attribute::SOURCE_PORT, attribute::DESTINATION_PORT].into_iter().zip(new.ports)
        {
            batch.attribute(number, &port.to_ne_bytes());
        }
        for (number, value) in [(attribute::SIZE, new.size_bytes), (attribute::STOP_TIME, new.stop_ns)] {
            if let Some(value) = value {
                batch.u64(number, value);
            }
        }
        batch
            .u32(attribute::PAYLOAD, new.payload_bytes)
            .text(attribute::CONTROLLER, name)
            .attribute(nested, &parameters.0)
            .attribute(attribute::SIGNAL, &[*signal as u8])
            .attribute(attribute::UNIT, &[*unit as u8])
            .attribute(attribute::BITS, &[*bits]);
        if *forward {
            batch.attribute(attribute::FORWARD, &[]);
        }
        if let Some(buffer) = compact {
            batch.u32(attribute::COMPACT, *buffer);
        }
    }

    /// Reads the state of all flows with an end in the socket's namespace. `running`: only of senders that have not
    /// ended.
    pub fn flows(
        self,
        netlink: &Netlink,
        running: bool,
        mut each: impl FnMut(Role, FlowState),
    ) -> io::Result<()> {
        let mut query = Batch::default();
        let request = self.request(&mut query, FLOW_GET, libc::NLM_F_DUMP, "flows".into());
        if running {
            request.attribute(attribute::RUNNING, &[]);
        }
        netlink.dump(query, |kind, message| {
            if let Some((role, state)) = flow_state(message).filter(|_| kind == self.0) {
                each(role, state);
            }
        })
    }
}

/// Parses a message of `FLOW_GET`; None if it has no flow.
fn flow_state(message: &[u8]) -> Option<(Role, FlowState)> {
    let (mut flow, mut role, mut state) = (None, Role::Sender, FlowState::default());
    for (number, value) in attributes(message.get(generic::HEADER_LEN..)?) {
        let long = || u64_at(value, 0);
        let nonzero = || long().filter(|value| *value > 0);
        match number {
            attribute::FLOW => flow = u32_at(value, 0),
            attribute::ROLE if value.first() == Some(&1) => role = Role::Receiver,
            attribute::ENDED => state.ended = true,
            attribute::END_TIME => state.end_ns = nonzero(),
            attribute::RATE => state.rate_bps = long()?,
            attribute::RTT => state.rtt_ns = nonzero(),
            attribute::MIN_RTT => state.min_rtt_ns = nonzero(),
            attribute::LAST_SIGNAL => state.signal = long(),
            attribute::FEEDBACKS => state.feedbacks = long()?,
            attribute::SENT_BYTES => state.sent_bytes = long()?,
            attribute::SENT_PACKETS => state.sent_packets = long()?,
            attribute::ACKED_BYTES => state.acked_bytes = long()?,
            attribute::RECEIVED_BYTES => state.received_bytes = long()?,
            attribute::RECEIVED_PACKETS => state.received_packets = long()?,
            attribute::LOST_PACKETS => state.lost_packets = long()?,
            attribute::TIMEOUTS => state.timeouts = u32_at(value, 0)?,
            attribute::INFLIGHT => state.inflight_bytes = long()?,
            _ => {}
        }
    }
    Some((role, FlowState { flow: flow?, ..state }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::controller::{Signal, Unit};
    use crate::plan::text::Hex;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The names of a C enum, by their values.
    fn enum_names(header: &str, name: &str) -> BTreeMap<u16, String> {
        let start = format!("enum {name} {{");
        let body = header.split(&start).nth(1).unwrap().split("};").next().unwrap();
        // Comments may contain commas.
        let code: String = body
            .split("/*")
            .enumerate()
            .map(|(i, part)| if i == 0 { part } else { part.split("*/").nth(1).unwrap() })
            .collect();
        (0..)
            .zip(code.split(',').map(|word| word.trim().to_owned()))
            .filter(|(_, word)| !word.is_empty())
            .collect()
    }

    #[test]
    fn the_numbers_match_the_header() {
        let header = include_str!("../../../../kernel/include/uapi/qbed/qrate.h");
        let commands = enum_names(header, "qrate_command");
        for (number, name) in [(LISTEN, "LISTEN"), (FLOW_NEW, "FLOW_NEW"), (FLOW_GET, "FLOW_GET")] {
            assert_eq!(commands[&u16::from(number)], format!("QRATE_CMD_{name}"));
        }
        use attribute::*;
        #[rustfmt::skip]
        let expected = [
            (FLOW, "FLOW"), (SOURCE, "SOURCE"), (DESTINATION, "DESTINATION"), (SOURCE_PORT, "SOURCE_PORT"),
            (DESTINATION_PORT, "DESTINATION_PORT"), (SIZE, "SIZE"), (STOP_TIME, "STOP_TIME"), (PAYLOAD, "PAYLOAD"),
            (CONTROLLER, "CONTROLLER"), (PARAMETERS, "PARAMETERS"), (SIGNAL, "SIGNAL"), (UNIT, "UNIT"),
            (BITS, "BITS"), (FORWARD, "FORWARD"), (REFLECT, "REFLECT"), (RUNNING, "RUNNING"), (ROLE, "ROLE"),
            (ENDED, "ENDED"), (END_TIME, "END_TIME"), (RATE, "RATE"), (RTT, "RTT"), (MIN_RTT, "MIN_RTT"),
            (LAST_SIGNAL, "LAST_SIGNAL"), (FEEDBACKS, "FEEDBACKS"), (SENT_BYTES, "SENT_BYTES"),
            (SENT_PACKETS, "SENT_PACKETS"), (ACKED_BYTES, "ACKED_BYTES"), (RECEIVED_BYTES, "RECEIVED_BYTES"),
            (RECEIVED_PACKETS, "RECEIVED_PACKETS"), (LOST_PACKETS, "LOST_PACKETS"), (TIMEOUTS, "TIMEOUTS"),
            (INFLIGHT, "INFLIGHT"), (COMPACT, "COMPACT"),
        ];
        let attributes = enum_names(header, "qrate_attribute");
        for (number, name) in expected {
            assert_eq!(attributes[&number], format!("QRATE_A_{name}"));
        }
    }

    fn attributes_of(batch: &Batch) -> BTreeMap<u16, Vec<u8>> {
        attributes(&batch.body()[generic::HEADER_LEN..])
            .map(|(number, value)| (number, value.to_vec()))
            .collect()
    }

    #[test]
    fn a_new_flow_has_the_attributes_of_the_plan() {
        let controller = Controller {
            name: "timely".into(),
            parameters: Hex(vec![8, 0, 1, 0, 7, 0, 0, 0]),
            signal: Signal::Max,
            unit: Unit::Time,
            bits: 4,
            forward: true,
            compact: Some(200),
        };
        let new = NewFlow {
            flow: 7,
            addresses: ["10.0.0.1", "10.0.0.5"].map(|text| text.parse().unwrap()),
            ports: [10_000, 6190],
            size_bytes: Some(1_000_000),
            stop_ns: None,
            payload_bytes: 1384,
            controller: &controller,
        };
        let mut batch = Batch::default();
        Qrate(30).start(&mut batch, &new, "flow 7".into());
        let sent = attributes_of(&batch);
        assert_eq!(sent[&attribute::SOURCE], [10, 0, 0, 1]);
        assert_eq!(sent[&attribute::DESTINATION_PORT], 6190u16.to_ne_bytes());
        assert_eq!(sent[&attribute::SIZE], 1_000_000u64.to_ne_bytes());
        assert_eq!(sent[&attribute::CONTROLLER], b"timely\0");
        assert_eq!(sent[&attribute::PARAMETERS], controller.parameters.0);
        assert_eq!(
            [attribute::SIGNAL, attribute::UNIT, attribute::BITS].map(|number| sent[&number][0]),
            [3, 2, 4]
        );
        assert_eq!(sent[&attribute::COMPACT], 200u32.to_ne_bytes());
        assert!(sent.contains_key(&attribute::FORWARD) && !sent.contains_key(&attribute::STOP_TIME));
    }

    #[test]
    fn a_probability_of_one_is_saturated() {
        for (reflect, expected) in [(0.0, 0), (0.025, 107_374_182), (1.0, u32::MAX)] {
            let mut batch = Batch::default();
            Qrate(30).listen(&mut batch, 6190, reflect, "h1".into());
            assert_eq!(attributes_of(&batch)[&attribute::REFLECT], expected.to_ne_bytes());
        }
    }

    #[test]
    fn a_flow_state_is_parsed() {
        let mut batch = Batch::default();
        batch
            .request(30, 0, &[FLOW_GET, VERSION, 0, 0], "")
            .u32(attribute::FLOW, 7)
            .attribute(attribute::ROLE, &[1])
            .attribute(attribute::ENDED, &[])
            .u64(attribute::END_TIME, 5_000)
            .u64(attribute::RECEIVED_BYTES, 1_000_000);
        let expected = FlowState {
            flow: 7,
            ended: true,
            end_ns: Some(5_000),
            received_bytes: 1_000_000,
            ..FlowState::default()
        };
        assert_eq!(flow_state(batch.body()), Some((Role::Receiver, expected)));
        assert_eq!(flow_state(&batch.body()[..4]), None);
    }

    proptest! {
        #[test]
        fn invalid_messages_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            flow_state(&bytes);
        }
    }
}
