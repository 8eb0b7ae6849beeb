// SPDX-License-Identifier: Apache-2.0
//! `qbed-agent exec -- ARGV`: runs a program in this container's node, whatever kernel it is on, and ends as it does.

use crate::container::SOCKET;
use crate::failure::{Failure, Of, Result};
use crate::gate::unbase64;
use serde_json::{json, Value};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

const NOT_REACHED: u8 = 125;

pub fn main(argv: &[&str]) -> ExitCode {
    match run(argv) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("qbed-agent: {failure}");
            ExitCode::from(NOT_REACHED)
        }
    }
}

fn run(argv: &[&str]) -> Result<u8> {
    let here = || SOCKET.to_owned();
    let stream = UnixStream::connect(SOCKET).of(here)?;
    let mut lines = BufReader::new(stream.try_clone().of(here)?).lines();
    let mut next = || -> Result<Value> {
        let line = lines.next().ok_or_else(|| Failure::new("the node has gone"))?.of(here)?;
        serde_json::from_str(&line).of(here)
    };
    let hello = next()?;
    if hello["state"] != "running" {
        return Err(Failure::new(format!("the node is {}, not running", hello["state"])));
    }
    let command = json!({"command": "exec", "id": 1, "node": hello["node"], "argv": argv});
    writeln!(&stream, "{command}").of(here)?;
    loop {
        let event = next()?;
        let mine = event["id"] == 1;
        match event["event"].as_str() {
            Some("stdout") if mine => print_bytes(&mut std::io::stdout(), &event)?,
            Some("stderr") if mine => print_bytes(&mut std::io::stderr(), &event)?,
            Some("exit") if mine => return Ok(event["code"].as_i64().unwrap_or(1) as u8),
            Some("hello") if event["state"] == "ended" => return Err(Failure::new("the node has ended")),
            _ => {}
        }
    }
}

fn print_bytes(to: &mut impl Write, event: &Value) -> Result<()> {
    let bytes = unbase64(event["data"].as_str().unwrap_or_default());
    to.write_all(&bytes).and_then(|()| to.flush()).of(|| "output".into())
}
