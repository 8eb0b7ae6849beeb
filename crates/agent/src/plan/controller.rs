// SPDX-License-Identifier: Apache-2.0
//! How a host finds the rate of what it sends by the transport `rate`.

use crate::plan::text::Hex;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// As the module qrate knows it.
    pub name: String,
    /// What its declaration makes of the lab's parameters: netlink attributes.
    pub parameters: Hex,
    pub signal: Signal,
    pub unit: Unit,
    /// In so many bits a switch may say its part of the signal.
    pub bits: u8,
    /// Whether queues on the way back are left out.
    pub forward: bool,
}

/// What it goes by; the numbers are those of `enum qsignal_kind` (kernel/include/uapi/qbed/signal.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// It asks the switches for nothing.
    Rtt = 0,
    Sum = 1,
    SumSqu = 2,
    Max = 3,
    Ind = 4,
}

/// What queues are counted in: `enum qsignal_unit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    Packets = 0,
    Bytes = 1,
    Time = 2,
}

impl Controller {
    /// What is wrong with it, as far as the kernel could not say it as well.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.name.is_empty() || self.name.contains('\0') {
            return Err("it has no name");
        }
        if !(1..=32).contains(&self.bits) {
            return Err("bits is not in 1..32");
        }
        // An attribute's length has 16 bits.
        if self.parameters.0.len() > 60_000 {
            return Err("its parameters are too long");
        }
        Ok(())
    }
}
