// SPDX-License-Identifier: Apache-2.0
//! `qbed-agent exec -- ARGV`: runs a program in this container's node, on either kernel, and exits with its status.

use crate::container::SOCKET;
use crate::control::message::decode_base64;
use crate::failure::{Context, Failure, Result};
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// Exit status if the node cannot be reached.
const EXIT_NOT_REACHED: u8 = 125;

pub fn main(argv: &[&str]) -> ExitCode {
    match run(argv) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("qbed-agent: {failure}");
            ExitCode::from(EXIT_NOT_REACHED)
        }
    }
}

fn run(argv: &[&str]) -> Result<u8> {
    let context = || SOCKET.to_owned();
    let stream = UnixStream::connect(SOCKET).with_context(context)?;
    let mut lines = BufReader::new(stream.try_clone().with_context(context)?).lines();
    let mut next = || -> Result<Value> {
        let line = lines
            .next()
            .ok_or_else(|| Failure::new("the node has closed the connection"))?
            .with_context(context)?;
        serde_json::from_str(&line).with_context(context)
    };
    let hello = next()?;
    if hello["state"] != "running" {
        return Err(Failure::new(format!("the node is {}, not running", hello["state"])));
    }
    let command = json!({"command": "exec", "id": 1, "node": hello["node"], "argv": argv});
    writeln!(&stream, "{command}").with_context(context)?;
    loop {
        let event = next()?;
        let is_reply = event["id"] == 1;
        match event["event"].as_str() {
            Some("stdout") if is_reply => print_bytes(&mut std::io::stdout(), &event)?,
            Some("stderr") if is_reply => print_bytes(&mut std::io::stderr(), &event)?,
            Some("exit") if is_reply => return Ok(event["code"].as_i64().unwrap_or(1) as u8),
            Some("hello") if event["state"] == "ended" => return Err(Failure::new("the node has ended")),
            _ => {}
        }
    }
}

fn print_bytes(to: &mut impl Write, event: &Value) -> Result<()> {
    let bytes = decode_base64(event["data"].as_str().unwrap_or_default()).with_context(|| "output".into())?;
    to.write_all(&bytes).and_then(|()| to.flush()).with_context(|| "output".into())
}
