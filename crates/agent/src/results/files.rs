// SPDX-License-Identifier: Apache-2.0
//! Where results go, and the last of them, `done.json`.

use crate::failure::{Of, Result};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Where the guest sees the cell folder.
pub const CELL: &str = "/mnt";
/// Where a container sees its node's.
pub const NODE: &str = "/qbed";

static FOLDER: OnceLock<&str> = OnceLock::new();

/// To be called first where the agent is no guest's.
pub fn are_in(folder: &'static str) {
    FOLDER.get_or_init(|| folder);
}

/// The folder that has the plan and gets the results.
pub fn folder() -> &'static str {
    FOLDER.get().copied().unwrap_or(CELL)
}

/// Bytes gathered before a write: each one waits for the host.
const BUFFER: usize = 1 << 20;

pub fn out(name: &str) -> PathBuf {
    [folder(), "out", name].iter().collect()
}

pub fn create(name: &str) -> Result<BufWriter<File>> {
    let file = File::create(out(name)).of(|| format!("out/{name}"))?;
    Ok(BufWriter::with_capacity(BUFFER, file))
}

pub fn line(to: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
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
}
