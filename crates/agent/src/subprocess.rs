// SPDX-License-Identifier: Apache-2.0
//! Runs the helper programs of the agent: `tc`, `ip`, `ethtool`.

use crate::failure::{Context, Failure, Result};
use std::io::Write;
use std::process::{Command, Stdio};

/// Debian's default PATH for root.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs a program in the thread's current network namespace and waits for its end. stderr becomes the error text.
pub fn run(program: &str, arguments: &[&str], input: &str) -> Result<()> {
    let context = || format!("{program} {}", arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", PATH);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(context)?;
    let mut stdin = child.stdin.take().ok_or_else(|| Failure::new(format!("{}: no stdin", context())))?;
    stdin.write_all(input.as_bytes()).with_context(context)?;
    drop(stdin);
    let output = child.wait_with_output().with_context(context)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("{}: {}", context(), String::from_utf8_lossy(&output.stderr).trim())))
}
