// SPDX-License-Identifier: Apache-2.0
//! `flows.ndjson`: one record per flow.

use crate::failure::{Context, Result};
use crate::plan::Plan;
use crate::results::files;
use crate::workload::ports::LocalFlow;
use serde::Serialize;
use std::io::Write;
use std::net::IpAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Complete,
    Running,
    Failed,
}

/// A row of `flows.ndjson`. Times are relative to the epoch.
#[derive(Debug, Serialize)]
pub struct FlowRecord<'a> {
    pub flow: u32,
    pub workload: u32,
    pub label: &'a str,
    pub transport: &'a str,
    pub congestion_control: Option<&'a str>,
    pub src: usize,
    pub dst: usize,
    pub src_address: IpAddr,
    pub dst_address: IpAddr,
    pub src_port: u16,
    pub dst_port: u16,
    pub size_bytes: Option<u64>,
    pub start_ns: i64,
    pub connected_ns: Option<i64>,
    pub end_ns: Option<i64>,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub status: Status,
    pub error: Option<String>,
    #[serde(flatten)]
    pub counters: SenderCounters,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_received: Option<u64>,
}

/// Counters of the sender's kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SenderCounters {
    pub retransmits: u32,
    pub timeouts: u16,
    pub ce_marks: u32,
    pub segments_sent: u64,
    pub min_rtt_ns: Option<u64>,
    pub rtt_ns: Option<u64>,
    pub ecn: bool,
}

impl FlowRecord<'_> {
    /// A record with the fields that the plan and the schedule determine. All others are zero.
    pub fn new<'a>(plan: &'a Plan, flow: &LocalFlow, start_ns: i64) -> FlowRecord<'a> {
        let LocalFlow { id, spec, src_port, .. } = flow;
        let workload = &plan.workloads[spec.workload];
        FlowRecord {
            flow: *id,
            workload: workload.id,
            label: &workload.label,
            transport: &workload.transport,
            congestion_control: None,
            src: spec.src,
            dst: spec.dst,
            src_address: plan.address(spec.src, workload.family),
            dst_address: plan.address(spec.dst, workload.family),
            src_port: *src_port,
            dst_port: workload.port,
            size_bytes: spec.size_bytes,
            start_ns,
            connected_ns: None,
            end_ns: None,
            received_bytes: 0,
            sent_bytes: 0,
            status: Status::Running,
            error: None,
            counters: SenderCounters::default(),
            dscp: workload.dscp,
            segments_received: None,
        }
    }
}

pub fn write(mut records: Vec<FlowRecord<'_>>) -> Result<()> {
    records.sort_by_key(|record| record.flow);
    let mut file = files::create("flows.ndjson")?;
    let written = records.iter().try_for_each(|record| files::write_line(&mut file, record));
    written.and_then(|()| file.flush()).with_context(|| "out/flows.ndjson".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::to_value;

    #[test]
    fn a_record_has_the_documented_fields() {
        let record = FlowRecord {
            flow: 0,
            workload: 0,
            label: "bulk",
            transport: "tcp",
            congestion_control: Some("cubic"),
            src: 0,
            dst: 2,
            src_address: "10.0.0.1".parse().unwrap(),
            dst_address: "10.0.0.5".parse().unwrap(),
            src_port: 40000,
            dst_port: 5001,
            size_bytes: Some(100_000_000),
            start_ns: 0,
            connected_ns: Some(20240),
            end_ns: Some(83_000_000),
            received_bytes: 100_000_000,
            sent_bytes: 100_000_000,
            status: Status::Complete,
            error: None,
            counters: SenderCounters {
                segments_sent: 69061,
                min_rtt_ns: Some(20240),
                rtt_ns: Some(150_000),
                ecn: true,
                ..SenderCounters::default()
            },
            dscp: None,
            segments_received: None,
        };
        let formats = include_str!("../../../../docs/formats.md");
        let example =
            formats.split("**Flow record.**").nth(1).and_then(|rest| rest.split('`').nth(1)).unwrap();
        let example: serde_json::Value = serde_json::from_str(example).unwrap();
        assert_eq!(to_value(&record).unwrap(), example);
    }
}
