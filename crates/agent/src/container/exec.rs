// SPDX-License-Identifier: Apache-2.0
//! `qbed-agent exec -- ARGV`: runs a program in this container's node, whatever kernel it is on, and ends as it does.

use crate::container::SOCKET;
use crate::failure::{Failure, Of, Result};
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
    let bytes = decode(event["data"].as_str().unwrap_or_default());
    to.write_all(&bytes).and_then(|()| to.flush()).of(|| "output".into())
}

/// RFC 4648, section 4.
fn decode(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => Some(u32::from(letter - b'A')),
        b'a'..=b'z' => Some(u32::from(letter - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(letter - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let letters: Vec<u32> = text.bytes().filter_map(value).collect();
    let group = |letters: &[u32]| {
        let bits = letters.iter().fold(0, |bits, letter| bits << 6 | letter) << (6 * (4 - letters.len()));
        bits.to_be_bytes()[1..letters.len()].to_vec()
    };
    letters.chunks(4).flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::decode;
    use crate::gate::base64;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_the_gate_encodes_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            prop_assert_eq!(decode(&base64(&bytes)), bytes);
        }
    }
}
