// SPDX-License-Identifier: Apache-2.0
//! Programs of the machine that the agent itself needs: `tc`, `ip`, `ethtool`.

use crate::failure::{Failure, Of, Result};
use std::io::Write;
use std::process::{Command, Stdio};

/// Debian's, for root.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a program of the machine to its end, in the namespace where the thread is.
pub fn run(program: &str, arguments: &[&str], input: &str) -> Result<()> {
    let here = || format!("{program} {}", arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", PATH);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().of(here)?;
    let mut stdin = child.stdin.take().ok_or_else(|| Failure::new(format!("{}: no stdin", here())))?;
    stdin.write_all(input.as_bytes()).of(here)?;
    drop(stdin);
    let output = child.wait_with_output().of(here)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("{}: {}", here(), String::from_utf8_lossy(&output.stderr).trim())))
}
