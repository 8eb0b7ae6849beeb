// SPDX-License-Identifier: Apache-2.0
//! The gate to the host: JSON lines over /dev/qgate (docs/formats.md §2). A read stops the whole guest, in the host,
//! until the host answers; no virtual time passes meanwhile.

use crate::failure::{Failure, Of, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};

const DEVICE: &str = "/dev/qgate";

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    Progress { time_ns: i64 },
    Ready { setup_nodes: usize },
    Stdout { id: u64, data: String },
    Stderr { id: u64, data: String },
    Exit { id: u64, code: i32, time_ns: i64 },
    Error { error: String },
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Command {
    Exec(Program),
    Background(Program),
    Advance { id: u64, ns: u64 },
    Workloads { id: u64 },
    Stop,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct Program {
    pub id: u64,
    pub node: String,
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub cwd: Option<String>,
}

pub struct Gate {
    lines: BufReader<File>,
}

impl Gate {
    pub fn open() -> Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE).of(|| DEVICE.into())?;
        Ok(Self { lines: BufReader::new(device) })
    }

    pub fn send(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_vec(event).of(|| DEVICE.into())?;
        line.push(b'\n');
        self.lines.get_mut().write_all(&line).of(|| format!("{DEVICE}: writing"))
    }

    /// The host's next command, or why it is none. The end of the stream is `stop`: nobody is left to command.
    pub fn receive(&mut self) -> Result<std::result::Result<Command, String>> {
        let mut line = String::new();
        let length =
            self.lines.read_line(&mut line).map_err(|e| Failure::new(format!("{DEVICE}: reading: {e}")))?;
        if length == 0 {
            return Ok(Ok(Command::Stop));
        }
        Ok(serde_json::from_str(&line)
            .map_err(|error| format!("not a command: {error}: {}", line.trim_end())))
    }
}

/// RFC 4648, section 4.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= group.len() { letter.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfcs_test_vectors() {
        let vectors = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        assert!(vectors.iter().all(|(plain, coded)| base64(plain.as_bytes()) == *coded));
    }

    #[test]
    fn commands_are_read_as_the_contract_writes_them() {
        let text =
            r#"{"command": "exec", "id": 1, "node": "h1", "argv": ["ping", "h2"], "env": {}, "cwd": "/"}"#;
        let Command::Exec(program) = serde_json::from_str(text).unwrap() else { panic!("not exec") };
        assert_eq!((program.id, program.node.as_str(), program.argv.len()), (1, "h1", 2));
        assert_eq!(serde_json::from_str::<Command>(r#"{"command": "stop"}"#).unwrap(), Command::Stop);
        let advance = serde_json::from_str::<Command>(r#"{"command": "advance", "id": 2, "ns": 5}"#).unwrap();
        assert_eq!(advance, Command::Advance { id: 2, ns: 5 });
    }
}
