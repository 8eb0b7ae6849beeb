// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Executes requests for registers, counters and meters.

use alloc::format;
use alloc::vec::Vec;

use crate::arith::bits::{load_limbs, ones, PADDING};
use crate::control::refusal::{not_found, refuse, Refused, RequestResult};
use crate::control::{Answer, Count, Rates, Refusal};
use crate::engine::Engine;
use crate::tables::meter::Meter;

/// Limit on the values in one answer.
pub(crate) const MAX_VALUES: usize = 1 << 16;

impl Engine {
    pub(super) fn read_register(&self, array: u16, from: u32, count: u32) -> RequestResult {
        let Some(array) = self.state.arrays.get(usize::from(array)) else {
            return not_found("register", array);
        };
        let bytes = array.width.div_ceil(8) as usize;
        let value = |index: usize| {
            let limbs = array.value(index as i128).unwrap_or(&[]);
            let all: Vec<u8> = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
            all.get(all.len().saturating_sub(bytes)..).unwrap_or(&[]).to_vec()
        };
        Ok(Answer::Values(range(array.size as usize, from, count)?.map(value).collect()))
    }

    pub(super) fn write_register(&mut self, array: u16, index: u32, value: &[u8]) -> RequestResult {
        let Some(array) = self.state.arrays.get_mut(usize::from(array)) else {
            return not_found("register", array);
        };
        let (width, bytes) = (array.width, array.width.div_ceil(8));
        let top = value.first().copied().map(u64::from).unwrap_or(0);
        if value.len() != bytes as usize || top & !ones(8 - (bytes * 8 - width)) != 0 {
            return Err((Refusal::InvalidArgument, format!("not a value of {width} bits")));
        }
        let mut padded = value.to_vec();
        padded.resize(value.len() + PADDING, 0);
        match array.value_mut(index.into()) {
            Some(limbs) => load_limbs(&padded, bytes * 8 - width, width, limbs),
            None => return Err(out_of_range()),
        }
        Ok(Answer::Done)
    }

    pub(super) fn counter(&mut self, counter: u16) -> Result<&mut Vec<Count>, Refused> {
        self.state.counters.get_mut(usize::from(counter)).map_or_else(|| not_found("counter", counter), Ok)
    }

    pub(super) fn meter(&mut self, meter: u16, index: u32) -> Result<&mut Option<Meter>, Refused> {
        let Some(meters) = self.state.meters.get_mut(usize::from(meter)) else {
            return not_found("meter", meter);
        };
        meters.meters.get_mut(index as usize).ok_or_else(out_of_range)
    }

    pub(super) fn read_colors(&self, meter: u16, from: u32, count: u32) -> RequestResult {
        let Some(meters) = self.state.meters.get(usize::from(meter)) else {
            return not_found("meter", meter);
        };
        let range = range(meters.colors.len(), from, count)?;
        Ok(Answer::Colors(meters.colors.get(range).unwrap_or(&[]).to_vec()))
    }
}

pub(super) fn out_of_range() -> Refused {
    (Refusal::OutOfRange, "the index is out of range".into())
}

/// The range of `count` values. A count of 0 stands for all values from `from` on.
pub(super) fn range(size: usize, from: u32, count: u32) -> Result<core::ops::Range<usize>, Refused> {
    let from = from as usize;
    let count = if count == 0 { size.saturating_sub(from) } else { count as usize };
    match from.checked_add(count.min(MAX_VALUES)) {
        Some(end) if end <= size => Ok(from..end),
        _ => Err(out_of_range()),
    }
}

/// A meter with these rates. The peak rate must not be below the committed rate (RFC 2698 section 2).
pub(super) fn new_meter(rates: Option<Rates>) -> Result<Option<Meter>, Refused> {
    match rates {
        Some(rates) if rates.peak < rates.committed => {
            refuse(Refusal::InvalidArgument, "the peak rate is below the committed rate")
        }
        rates => Ok(rates.map(Meter::new)),
    }
}
