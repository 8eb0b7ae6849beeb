// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Carries out requests for registers, counters and meters.

use alloc::format;
use alloc::vec::Vec;

use crate::arith::bits::{load_limbs, ones, PADDING};
use crate::control::refusal::{missing, refuse, Done, Refused};
use crate::control::{Answer, Count, Rates, Refusal};
use crate::engine::Engine;
use crate::tables::meter::Meter;

/// Values in one answer.
pub(crate) const AT_MOST: usize = 1 << 16;

impl Engine {
    pub(super) fn read_register(&self, array: u16, from: u32, count: u32) -> Done {
        let Some(array) = self.state.arrays.get(usize::from(array)) else {
            return missing("register", array);
        };
        let bytes = array.width.div_ceil(8) as usize;
        let value = |index: usize| {
            let limbs = array.value(index as i128).unwrap_or(&[]);
            let all: Vec<u8> = limbs.iter().rev().flat_map(|limb| limb.to_be_bytes()).collect();
            all.get(all.len().saturating_sub(bytes)..).unwrap_or(&[]).to_vec()
        };
        Ok(Answer::Values(range(array.size as usize, from, count)?.map(value).collect()))
    }

    pub(super) fn write_register(&mut self, array: u16, index: u32, value: &[u8]) -> Done {
        let Some(array) = self.state.arrays.get_mut(usize::from(array)) else {
            return missing("register", array);
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
        self.state.counters.get_mut(usize::from(counter)).map_or_else(|| missing("counter", counter), Ok)
    }

    pub(super) fn meter(&mut self, meter: u16, index: u32) -> Result<&mut Option<Meter>, Refused> {
        let Some(meters) = self.state.meters.get_mut(usize::from(meter)) else {
            return missing("meter", meter);
        };
        meters.meters.get_mut(index as usize).ok_or_else(out_of_range)
    }
}

pub(super) fn out_of_range() -> Refused {
    (Refusal::OutOfRange, "the index is out of range".into())
}

/// A count of 0 means all that follow.
pub(super) fn range(size: usize, from: u32, count: u32) -> Result<core::ops::Range<usize>, Refused> {
    let from = from as usize;
    let count = if count == 0 { size.saturating_sub(from) } else { count as usize };
    match from.checked_add(count.min(AT_MOST)) {
        Some(end) if end <= size => Ok(from..end),
        _ => Err(out_of_range()),
    }
}

/// RFC 2698 section 2: the peak is not below the committed rate.
pub(super) fn fit(rates: Option<Rates>) -> Result<Option<Meter>, Refused> {
    match rates {
        Some(rates) if rates.peak < rates.committed => {
            refuse(Refusal::InvalidArgument, "the peak rate is below the committed one")
        }
        rates => Ok(rates.map(Meter::new)),
    }
}
