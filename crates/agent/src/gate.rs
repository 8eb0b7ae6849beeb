// SPDX-License-Identifier: Apache-2.0
//! The gate to the host: JSON lines over /dev/qgate (docs/formats.md §2). A read stops the whole guest, in the host,
//! until the host answers; no virtual time passes meanwhile.

use crate::failure::{Failure, Of, Result};
use nix::fcntl::{fcntl, FcntlArg, FdFlag};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/qgate";

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    Progress {
        time_ns: i64,
    },
    Ready {
        setup_nodes: usize,
    },
    Stdout {
        id: u64,
        data: String,
    },
    Stderr {
        id: u64,
        data: String,
    },
    /// The program was started.
    Running {
        id: u64,
    },
    Exit {
        id: u64,
        code: i32,
        time_ns: i64,
    },
    /// Who reads the program's terminal reads keys (`raw`), or is a shell that waits for a command (`prompt`).
    Terminal {
        id: u64,
        raw: bool,
        prompt: bool,
    },
    /// Counters of the node's devices, by the container's interface, and by how much real time deadlines ran late. Not
    /// for clients: the supervisor of the container takes it.
    Devices {
        devices: Value,
        late_ns: Value,
    },
    Error {
        error: String,
    },
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Command {
    Exec(Program),
    Background(Program),
    /// `until`: no longer than until one of these programs has ended, or waits as a shell for a command.
    Advance {
        id: u64,
        ns: u64,
        #[serde(default)]
        until: Vec<u64>,
    },
    /// `base_ns` (CLOCK_MONOTONIC): what their times count from, where several nodes have to agree.
    Workloads {
        id: u64,
        #[serde(default)]
        base_ns: Option<u64>,
    },
    /// What is typed at a program's terminal. RFC 4648, section 4.
    Input {
        id: u64,
        data: String,
    },
    Resize {
        id: u64,
        #[serde(flatten)]
        size: Size,
    },
    /// Nobody listens any more to the program that was started under this number.
    End {
        id: u64,
    },
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
    /// It has a terminal of this size.
    #[serde(default)]
    pub terminal: Option<Size>,
    /// It is a shell: what time passes while it waits for a command is of no use to anybody.
    #[serde(default)]
    pub shell: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

pub struct Gate {
    lines: BufReader<File>,
    /// Of a gate that is polled: the beginning of a line.
    received: Vec<u8>,
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lines.get_ref().as_fd()
    }
}

impl Gate {
    /// The gate of a guest. On the wall clock it is polled, in virtual time a read stops the guest.
    pub fn open(polled: bool) -> Result<Self> {
        let flags = if polled { libc::O_NONBLOCK } else { 0 };
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(DEVICE)
            .of(|| DEVICE.into())?;
        Ok(Self { lines: BufReader::new(device), received: Vec::new() })
    }

    /// A stream that was inherited; programs do not inherit it in their turn: it ends with this process.
    pub fn from_descriptor(descriptor: OwnedFd) -> Result<Self> {
        fcntl(&descriptor, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).of(|| "the gate".into())?;
        Ok(Self { lines: BufReader::new(descriptor.into()), received: Vec::new() })
    }

    /// Without waiting: the commands that have come (or why a line is none).
    pub fn receive_waiting(&mut self) -> Result<Vec<std::result::Result<Command, String>>> {
        let mut piece = [0; 1 << 16];
        match self.lines.get_mut().read(&mut piece) {
            Ok(0) => return Ok(vec![Ok(Command::Stop)]),
            Ok(length) => self.received.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Vec::new()),
            Err(error) => return Err(Failure::new(format!("{DEVICE}: reading: {error}"))),
        }
        Ok(lines(&mut self.received).iter().map(|line| parse(line)).collect())
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
        Ok(parse(line.as_bytes()))
    }
}

/// Splits what came on a stream into whole lines; keeps the rest.
pub fn lines(received: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let Some(end) = received.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let rest = received.split_off(end + 1);
    let whole = std::mem::replace(received, rest);
    whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

fn parse(line: &[u8]) -> std::result::Result<Command, String> {
    let said = || String::from_utf8_lossy(line).trim_end().to_owned();
    serde_json::from_slice(line).map_err(|error| format!("not a command: {error}: {}", said()))
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

/// Of what is no letter of it nothing comes.
pub fn unbase64(text: &str) -> Vec<u8> {
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
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(bytes in prop::collection::vec(any::<u8>(), 0..50), noise in ".{0,30}") {
            prop_assert_eq!(unbase64(&base64(&bytes)), bytes);
            unbase64(&noise);
        }
    }

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
        let resize = r#"{"command": "resize", "id": 3, "rows": 24, "columns": 80}"#;
        let size = Size { rows: 24, columns: 80 };
        assert_eq!(serde_json::from_str::<Command>(resize).unwrap(), Command::Resize { id: 3, size });
        let advance = serde_json::from_str::<Command>(r#"{"command": "advance", "id": 2, "ns": 5}"#).unwrap();
        assert_eq!(advance, Command::Advance { id: 2, ns: 5, until: Vec::new() });
    }

    #[test]
    fn a_line_is_whole_or_waits() {
        let mut received = b"one\n\ntwo\nthr".to_vec();
        assert_eq!(lines(&mut received), [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(received, b"thr");
        assert!(lines(&mut received).is_empty());
    }
}
