// SPDX-License-Identifier: Apache-2.0
//! Locations of result files, and `done.json`, which is written last.

use crate::failure::{Context, Result};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Mount point of the cell folder in a guest.
pub const CELL: &str = "/mnt";
/// Mount point of the node's folder in a container.
pub const NODE: &str = "/qbed";

static FOLDER: OnceLock<&str> = OnceLock::new();

/// Replaces the default folder `CELL`. To be called before any other function of this module.
pub fn set_folder(folder: &'static str) {
    FOLDER.get_or_init(|| folder);
}

/// The folder of the plan and the results.
pub fn folder() -> &'static str {
    FOLDER.get().copied().unwrap_or(CELL)
}

/// Size of write buffers: each write is a round trip to the host.
const BUFFER_BYTES: usize = 1 << 20;

/// Path of a file in `out/`.
pub fn out_path(name: &str) -> PathBuf {
    [folder(), "out", name].iter().collect()
}

pub fn create_file(name: &str) -> Result<File> {
    File::create(out_path(name)).with_context(|| format!("out/{name}"))
}

pub fn create(name: &str) -> Result<BufWriter<File>> {
    Ok(BufWriter::with_capacity(BUFFER_BYTES, create_file(name)?))
}

/// Writes a value as one line of JSON.
pub fn write_line(to: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, value)?;
    to.write_all(b"\n")
}

/// Content of `done.json`, the last file. It is replaced atomically.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Done {
    Complete { end_ns: i64 },
    Failed { error: String },
}

impl Done {
    pub fn write(&self) -> std::io::Result<()> {
        fs::create_dir_all(out_path(""))?;
        let temporary = out_path("done.json.part");
        fs::write(&temporary, serde_json::to_string(self)? + "\n")?;
        fs::rename(temporary, out_path("done.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, to_value};

    #[test]
    fn status_is_the_first_field() {
        assert_eq!(
            to_value(Done::Complete { end_ns: 5 }).unwrap(),
            json!({"status": "complete", "end_ns": 5})
        );
        let failed = Done::Failed { error: "node x".into() };
        assert_eq!(serde_json::to_string(&failed).unwrap(), r#"{"status":"failed","error":"node x"}"#);
    }
}
