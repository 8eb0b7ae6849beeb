// SPDX-License-Identifier: Apache-2.0
//! `flow_samples.bin`: the state of each active sender at an interval, and the statistics of its congestion control,
//! also at its end, as records of one size (docs/formats.md section 4). All transports write to one file.

use crate::failure::{Context, Result};
use crate::plan::Plan;
use crate::results::files;
use std::fs::File;
use std::io::{BufWriter, Write};

const NAME: &str = "flow_samples.bin";
const RECORD_BYTES: usize = 96;
/// Records between two writes to the host.
const BUFFERED_RECORDS: usize = 4096;
/// Encoding of an absent value.
const ABSENT: i64 = i64::MIN;

/// The values of a sample. A value above the range of i64 is saturated.
pub type Values = [Option<u64>; 10];

/// The type of a record. It determines the meaning of its values.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    Tcp = 1,
    Rate = 2,
    /// Statistics of a TCP sender's congestion control.
    Statistics = 3,
}

pub struct FlowSamples(BufWriter<File>);

impl FlowSamples {
    /// Returns None if the plan has neither an interval for flows nor congestion controls with statistics.
    pub fn open(plan: &Plan) -> Result<Option<Self>> {
        let capacity = BUFFERED_RECORDS * RECORD_BYTES;
        let open = || Ok(Self(BufWriter::with_capacity(capacity, files::create_file(NAME)?)));
        (plan.flow_interval_ns > 0 || !plan.flow_statistics.is_empty()).then(open).transpose()
    }

    pub fn write(&mut self, kind: Kind, flow: u32, time_ns: i64, values: Values) -> Result<()> {
        self.0.write_all(&encode(kind, flow, time_ns, values)).with_context(|| format!("out/{NAME}"))
    }

    pub fn flush(&mut self) -> Result<()> {
        self.0.flush().with_context(|| format!("out/{NAME}"))
    }
}

fn encode(kind: Kind, flow: u32, time_ns: i64, values: Values) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..2].copy_from_slice(&(kind as u16).to_le_bytes());
    record[2..4].copy_from_slice(&(RECORD_BYTES as u16).to_le_bytes());
    record[4..8].copy_from_slice(&flow.to_le_bytes());
    record[8..16].copy_from_slice(&time_ns.to_le_bytes());
    for (field, value) in record[16..].chunks_exact_mut(8).zip(values) {
        let number = value.map_or(ABSENT, |value| value.try_into().unwrap_or(i64::MAX));
        field.copy_from_slice(&number.to_le_bytes());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_the_documented_layout() {
        let mut values: Values = std::array::from_fn(|index| Some(index as u64));
        (values[1], values[9]) = (None, Some(u64::MAX));
        let record = encode(Kind::Rate, 0x0102_0304, -5, values);
        assert_eq!(record[..8], [2, 0, 96, 0, 4, 3, 2, 1]);
        let numbers: Vec<i64> =
            record[8..].chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(numbers, [-5, 0, i64::MIN, 2, 3, 4, 5, 6, 7, 8, i64::MAX]);
    }
}
