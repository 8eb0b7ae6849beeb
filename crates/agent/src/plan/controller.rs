// SPDX-License-Identifier: Apache-2.0
//! The congestion controller of a host's flows of the transport `rate`.

use crate::plan::text::Hex;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Name of the controller in the module qrate.
    pub name: String,
    /// The controller's parameters, encoded as netlink attributes.
    pub parameters: Hex,
    pub signal: Signal,
    pub unit: Unit,
    /// Width of a switch's contribution to the signal.
    pub bits: u8,
    /// Whether the signal covers the forward path only.
    pub forward: bool,
    /// For compact headers: the buffer, in `unit`, whose shares the signal has. None: full headers.
    #[serde(default)]
    pub compact: Option<u32>,
}

/// The controller's congestion signal: `enum qsignal_kind` (kernel/include/uapi/qbed/signal.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// No signal from switches.
    Rtt = 0,
    Sum = 1,
    SumSqu = 2,
    Max = 3,
    Ind = 4,
    Vector = 5,
}

/// Unit of queue occupancy: `enum qsignal_unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Packets = 0,
    Bytes = 1,
    Time = 2,
}

impl Controller {
    /// Checks what the kernel does not report clearly.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.name.is_empty() || self.name.contains('\0') {
            return Err("the name is empty or contains NUL");
        }
        if !(1..=32).contains(&self.bits) {
            return Err("bits is not in 1..32");
        }
        // The length of a netlink attribute has 16 bits.
        if self.parameters.0.len() > 60_000 {
            return Err("the parameters are too long");
        }
        Ok(())
    }
}
