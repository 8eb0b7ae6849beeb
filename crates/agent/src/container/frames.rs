// SPDX-License-Identifier: Apache-2.0
//! Frames between the container's interfaces and the node's kernel: those that passed, and those that were lost. Three
//! places can lose a frame, and no queue of the plan counts it: the interface, the packet socket through which a guest
//! receives, and the guest's own device.

use crate::failure::{Of, Result};
use crate::netlink::link::{self, Statistics};
use crate::netlink::Netlink;
use crate::results::files::{line, out};
use crate::socket;
use serde::Serialize;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const FILE: &str = "frames.ndjson";
const INTERVAL: Duration = Duration::from_secs(1);

/// Frames of one interface that were lost since the node began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Lost {
    interface_dropped: u64,
    socket_dropped: u64,
    device_dropped: u64,
}

#[derive(Serialize)]
struct Row<'a> {
    time_ns: i64,
    node: usize,
    interface: &'a str,
    #[serde(flatten)]
    lost: Lost,
}

pub struct Frames {
    netlink: Netlink,
    node: usize,
    /// Counters as they were when the node began.
    before: HashMap<String, Statistics>,
    /// The guest's receiving sockets, by the index of their interface. Duplicates: they can be read when it has ended.
    sockets: HashMap<u32, OwnedFd>,
    /// The last report of the node's kernel: its devices, by interface, and its lateness.
    devices: Value,
    late_ns: Value,
    log: File,
    /// The last row of each interface.
    written: HashMap<String, Lost>,
    due: Instant,
}

impl Frames {
    pub fn start(node: usize) -> Result<Self> {
        let netlink = Netlink::open(libc::NETLINK_ROUTE).of(|| "rtnetlink".into())?;
        let before = link::statistics(&netlink).of(|| "interfaces".into())?;
        let log = File::create(out(FILE)).of(|| format!("out/{FILE}"))?;
        Ok(Self {
            netlink,
            node,
            before,
            sockets: HashMap::new(),
            devices: Value::Null,
            late_ns: Value::Null,
            log,
            written: HashMap::new(),
            due: Instant::now() + INTERVAL,
        })
    }

    /// Takes over the packet sockets of a guest that is ready.
    pub fn find_sockets(&mut self, pid: i32) -> io::Result<()> {
        let process = socket::process(pid)?;
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let (Some(number), Ok(target)) = (number, fs::read_link(entry.path())) else { continue };
            if !target.to_string_lossy().starts_with("socket:") {
                continue;
            }
            let descriptor = socket::duplicate(&process, number)?;
            if let Some(index) = socket::received_from(&descriptor)? {
                self.sockets.insert(index, descriptor);
            }
        }
        Ok(())
    }

    /// Takes a report of the node's kernel; returns whether the event is one.
    pub fn take(&mut self, event: &Value) -> bool {
        let is_report = event["event"] == "devices";
        if is_report {
            self.devices = event["devices"].clone();
            self.late_ns = event["late_ns"].clone();
        }
        is_report
    }

    pub fn late_ns(&self) -> &Value {
        &self.late_ns
    }

    /// Real time until the next sample.
    pub fn remaining(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// The counters of an interface, as `host.json` has them.
    pub fn counters(&self, interfaces: &[String]) -> Result<HashMap<String, Value>> {
        let found = self.read()?;
        let counters = interfaces.iter().map(|name| {
            let seen = found.get(name).copied().unwrap_or_default();
            let counted = json!({
                "rx_packets": seen.rx_packets, "tx_packets": seen.tx_packets,
                "rx_dropped": seen.rx_dropped, "tx_dropped": seen.tx_dropped,
                "socket_dropped": self.socket_dropped(seen.index), "kernel": self.devices.get(name),
            });
            (name.clone(), counted)
        });
        Ok(counters.collect())
    }

    /// Adds a row for each interface that has lost frames since its last row; its first row comes at once.
    pub fn sample(&mut self, interfaces: &[String], time_ns: i64) -> Result<()> {
        self.due = Instant::now() + INTERVAL;
        let found = self.read()?;
        for interface in interfaces {
            // An interface that has gone counts nothing any more.
            let Some(seen) = found.get(interface) else { continue };
            let lost = Lost {
                interface_dropped: seen.rx_dropped + seen.tx_dropped,
                socket_dropped: self.socket_dropped(seen.index).unwrap_or(0).into(),
                device_dropped: self.devices[interface]["dropped"].as_u64().unwrap_or(0),
            };
            if self.written.insert(interface.clone(), lost) != Some(lost) {
                let row = Row { time_ns, node: self.node, interface, lost };
                line(&mut self.log, &row).of(|| format!("out/{FILE}"))?;
            }
        }
        Ok(())
    }

    fn read(&self) -> Result<HashMap<String, Statistics>> {
        let mut found = link::statistics(&self.netlink).of(|| "interfaces".into())?;
        for (name, now) in &mut found {
            if let Some(before) = self.before.get(name) {
                *now = now.since(before);
            }
        }
        Ok(found)
    }

    fn socket_dropped(&self, index: u32) -> Option<u32> {
        socket::dropped(self.sockets.get(&index)?).ok()
    }
}

/// Replaces a file of `out/` at once: whoever reads it finds it whole.
pub fn replace(name: &str, value: &Value) -> Result<()> {
    let beside = out(&format!("{name}.part"));
    let written = fs::write(&beside, format!("{value}\n")).and_then(|()| fs::rename(&beside, out(name)));
    match written {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()), // the folder of a lab that is taken down
        result => result.of(|| format!("out/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_a_socket_has_no_room_for_is_counted_and_reading_resets_nothing() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        let number = receiver.as_raw_fd();
        let process = socket::process(std::process::id() as i32).unwrap();
        let duplicate = socket::duplicate(&process, number).unwrap();
        assert_eq!(socket::received_from(&duplicate).unwrap(), None);
        socket::set(&duplicate, libc::SOL_SOCKET, libc::SO_RCVBUF, 1i32).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..50 {
            sender.send_to(&[0; 1000], to).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        let taken = std::iter::from_fn(|| receiver.recv(&mut [0; 1000]).ok()).count();
        assert!(taken < 50);
        assert_eq!(socket::dropped(&duplicate).unwrap() as usize, 50 - taken);
        drop(receiver);
        assert_eq!(socket::dropped(&duplicate).unwrap() as usize, 50 - taken);
    }
}
