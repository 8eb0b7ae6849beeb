// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Arithmetic on bits, numbers and bytes.

pub(crate) mod bits;
pub(crate) mod hash;
#[cfg(test)]
mod model;
pub(crate) mod number;
pub(crate) mod wide;
