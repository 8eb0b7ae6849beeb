// SPDX-License-Identifier: Apache-2.0
//! Messages of the control channel: commands from the host, events to it.

use crate::plan::{LinkChange, LinkEvent};
use base64::engine::general_purpose::STANDARD;
use base64::{DecodeError, Engine};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

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
        #[serde(serialize_with = "serialize_base64")]
        data: Vec<u8>,
    },
    Stderr {
        id: u64,
        #[serde(serialize_with = "serialize_base64")]
        data: Vec<u8>,
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
    /// State of a program's terminal: `raw` if it is not in canonical mode, `prompt` if a shell waits for a command.
    Terminal {
        id: u64,
        raw: bool,
        prompt: bool,
    },
    /// Counters of the node's devices by interface of the container, and the lateness of deadlines in real time. The
    /// container's supervisor consumes it; clients do not get it.
    Devices {
        devices: Value,
        late_ns: Value,
    },
    Error {
        error: String,
    },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Command {
    Exec(ExecRequest),
    Background(ExecRequest),
    /// Lets `ns` pass, but stops when one of the programs in `until` has ended or shows a shell prompt.
    Advance {
        id: u64,
        ns: u64,
        #[serde(default)]
        until: Vec<u64>,
    },
    /// Starts the workloads. `base_ns` (CLOCK_MONOTONIC) is time 0 of the workloads; several nodes agree on it.
    Workloads {
        id: u64,
        #[serde(default)]
        base_ns: Option<u64>,
    },
    /// Changes links at once: their transmitters' settings, and whether they are up.
    Change {
        id: u64,
        #[serde(default)]
        links: Vec<LinkChange>,
        #[serde(default)]
        states: Vec<LinkEvent>,
    },
    /// Input for a program's terminal.
    Input {
        id: u64,
        #[serde(deserialize_with = "deserialize_base64")]
        data: Vec<u8>,
    },
    Resize {
        id: u64,
        #[serde(flatten)]
        size: TerminalSize,
    },
    /// Terminates the program with this id: its client has disconnected.
    End {
        id: u64,
    },
    Stop,
}

/// A program to run in a node.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct ExecRequest {
    pub id: u64,
    pub node: String,
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub cwd: Option<String>,
    /// Size of the program's pseudo-terminal; None: pipes.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// The program is a shell: its prompt ends an `advance` early.
    #[serde(default)]
    pub shell: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// Decodes base64 (RFC 4648, section 4).
pub fn decode_base64(text: &str) -> Result<Vec<u8>, DecodeError> {
    STANDARD.decode(text)
}

fn serialize_base64<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

fn deserialize_base64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    decode_base64(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        #[test]
        fn base64_round_trips(data in prop::collection::vec(any::<u8>(), 0..50), noise in ".{0,30}") {
            let event = serde_json::to_value(Event::Stdout { id: 1, data: data.clone() }).unwrap();
            let command = json!({"command": "input", "id": 1, "data": event["data"]});
            prop_assert_eq!(serde_json::from_value::<Command>(command).unwrap(), Command::Input { id: 1, data });
            let _ = decode_base64(&noise);
        }
    }

    #[test]
    fn base64_matches_the_rfc_4648_test_vectors() {
        let vectors = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in vectors {
            let event = Event::Stderr { id: 2, data: plain.into() };
            assert_eq!(serde_json::to_value(&event).unwrap()["data"], coded);
        }
        let invalid = r#"{"command": "input", "id": 1, "data": "Zg!="}"#;
        assert!(serde_json::from_str::<Command>(invalid).unwrap_err().to_string().contains("Invalid symbol"));
    }

    #[test]
    fn commands_are_parsed_as_documented() {
        let text =
            r#"{"command": "exec", "id": 1, "node": "h1", "argv": ["ping", "h2"], "env": {}, "cwd": "/"}"#;
        let Command::Exec(request) = serde_json::from_str(text).unwrap() else { panic!("not exec") };
        assert_eq!((request.id, request.node.as_str(), request.argv.len()), (1, "h1", 2));
        assert_eq!(serde_json::from_str::<Command>(r#"{"command": "stop"}"#).unwrap(), Command::Stop);
        let resize = r#"{"command": "resize", "id": 3, "rows": 24, "columns": 80}"#;
        let size = TerminalSize { rows: 24, columns: 80 };
        assert_eq!(serde_json::from_str::<Command>(resize).unwrap(), Command::Resize { id: 3, size });
        let change = r#"{"command": "change", "id": 4, "links": [{"link": 2, "end": "b", "loss": 0.5}]}"#;
        let Command::Change { links, states, .. } = serde_json::from_str(change).unwrap() else {
            panic!("not change")
        };
        assert_eq!((links[0].link, links[0].loss, links[0].rate_bps), (2, Some(0.5), None));
        assert!(states.is_empty());
        let advance = serde_json::from_str::<Command>(r#"{"command": "advance", "id": 2, "ns": 5}"#).unwrap();
        assert_eq!(advance, Command::Advance { id: 2, ns: 5, until: Vec::new() });
    }
}
