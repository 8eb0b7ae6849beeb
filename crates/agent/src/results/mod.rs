// SPDX-License-Identifier: Apache-2.0
//! The files of results, but for counters and captures.

use crate::failure::{Of, Result};
use crate::plan::Plan;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::PathBuf;

/// Bytes gathered before a write: each one waits for the host.
const BUFFER: usize = 1 << 20;

pub fn out(name: &str) -> PathBuf {
    [crate::lab::boot::cell(), "out", name].iter().collect()
}

pub fn create(name: &str) -> Result<BufWriter<File>> {
    let file = File::create(out(name)).of(|| format!("out/{name}"))?;
    Ok(BufWriter::with_capacity(BUFFER, file))
}

pub fn line(to: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Complete,
    Running,
    Failed,
}

/// Times count from the epoch.
#[derive(Debug, Serialize)]
pub struct FlowRecord<'a> {
    pub flow: u32,
    pub workload: u32,
    pub label: &'a str,
    pub transport: &'static str,
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
    pub tally: Tally,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_received: Option<u64>,
}

/// What the sender's kernel counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    pub retransmits: u32,
    pub timeouts: u16,
    pub ce_marks: u32,
    pub segments_sent: u64,
    pub min_rtt_ns: Option<u64>,
    pub rtt_ns: Option<u64>,
    pub ecn: bool,
}

pub fn write_flows(mut records: Vec<FlowRecord<'_>>) -> Result<()> {
    records.sort_by_key(|record| record.flow);
    let mut file = create("flows.ndjson")?;
    let written = records.iter().try_for_each(|record| line(&mut file, record));
    written.and_then(|()| file.flush()).of(|| "out/flows.ndjson".into())
}

/// `done.json`, the last file: it appears whole or not at all.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Done {
    Complete { end_ns: i64 },
    Failed { error: String },
}

impl Done {
    pub fn write(&self) -> std::io::Result<()> {
        fs::create_dir_all(out(""))?;
        let beside = out("done.json.part");
        fs::write(&beside, serde_json::to_string(self)? + "\n")?;
        fs::rename(beside, out("done.json"))
    }
}

/// A flow's address at one end.
pub fn address(plan: &Plan, node: usize, family: crate::plan::Family) -> IpAddr {
    let addresses = &plan.nodes[node].addresses;
    let found = addresses.iter().find(|a| crate::plan::Family::of(**a) == family);
    *found.expect("validation found an address of the workload's family")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, to_value};

    #[test]
    fn done_says_its_status_first() {
        assert_eq!(
            to_value(Done::Complete { end_ns: 5 }).unwrap(),
            json!({"status": "complete", "end_ns": 5})
        );
        let failed = Done::Failed { error: "node x".into() };
        assert_eq!(serde_json::to_string(&failed).unwrap(), r#"{"status":"failed","error":"node x"}"#);
    }

    #[test]
    fn a_record_has_the_contracts_fields() {
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
            tally: Tally {
                segments_sent: 69061,
                min_rtt_ns: Some(20240),
                rtt_ns: Some(150_000),
                ecn: true,
                ..Tally::default()
            },
            segments_received: None,
        };
        let contract = include_str!("../../../../docs/formats.md");
        let example =
            contract.split("Flow record: `").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
        let example: serde_json::Value = serde_json::from_str(example).unwrap();
        assert_eq!(to_value(&record).unwrap(), example);
    }
}
