// SPDX-License-Identifier: Apache-2.0
//! Frame counters between the container's interfaces and the node's kernel. Frames can be lost at three places that no
//! queue of the plan counts: the interface, the packet socket of a guest, and the guest's device.

use crate::failure::{Context, Result};
use crate::netlink::link::{self, Statistics};
use crate::netlink::Netlink;
use crate::results::files::{out_path, write_line};
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

/// Lost frames of one interface since the node's start.
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
    /// Counters at the node's start.
    baseline: HashMap<String, Statistics>,
    /// Duplicates of the guest's packet sockets, by interface index. They stay readable after the guest's end.
    sockets: HashMap<u32, OwnedFd>,
    /// Content of the last `devices` event.
    devices: Value,
    late_ns: Value,
    log: File,
    /// The last row by interface.
    last_rows: HashMap<String, Lost>,
    next_sample: Instant,
}

impl Frames {
    pub fn start(node: usize) -> Result<Self> {
        let netlink = Netlink::open(libc::NETLINK_ROUTE).with_context(|| "rtnetlink".into())?;
        let baseline = link::statistics(&netlink).with_context(|| "interfaces".into())?;
        let log = File::create(out_path(FILE)).with_context(|| format!("out/{FILE}"))?;
        Ok(Self {
            netlink,
            node,
            baseline,
            sockets: HashMap::new(),
            devices: Value::Null,
            late_ns: Value::Null,
            log,
            last_rows: HashMap::new(),
            next_sample: Instant::now() + INTERVAL,
        })
    }

    /// Duplicates the packet sockets of a guest. To be called when the guest is ready.
    pub fn find_sockets(&mut self, pid: i32) -> io::Result<()> {
        let process = socket::open_process(pid)?;
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let (Some(number), Ok(target)) = (number, fs::read_link(entry.path())) else { continue };
            if !target.to_string_lossy().starts_with("socket:") {
                continue;
            }
            let descriptor = socket::duplicate(&process, number)?;
            if let Some(index) = socket::bound_interface(&descriptor)? {
                self.sockets.insert(index, descriptor);
            }
        }
        Ok(())
    }

    /// Stores a `devices` event. Returns whether the event is one.
    pub fn on_event(&mut self, event: &Value) -> bool {
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
        self.next_sample.saturating_duration_since(Instant::now())
    }

    /// Counters by interface, in the format of `host.json`.
    pub fn counters(&self, interfaces: &[String]) -> Result<HashMap<String, Value>> {
        let found = self.read()?;
        let counters = interfaces.iter().map(|name| {
            let statistics = found.get(name).copied().unwrap_or_default();
            let values = json!({
                "rx_packets": statistics.rx_packets, "tx_packets": statistics.tx_packets,
                "rx_dropped": statistics.rx_dropped, "tx_dropped": statistics.tx_dropped,
                "socket_dropped": self.socket_dropped(statistics.index), "kernel": self.devices.get(name),
            });
            (name.clone(), values)
        });
        Ok(counters.collect())
    }

    /// Writes a row for each interface that has lost frames since its last row, or has none yet.
    pub fn sample(&mut self, interfaces: &[String], time_ns: i64) -> Result<()> {
        self.next_sample = Instant::now() + INTERVAL;
        let found = self.read()?;
        for interface in interfaces {
            // The interface may have been removed.
            let Some(statistics) = found.get(interface) else { continue };
            let lost = Lost {
                interface_dropped: statistics.rx_dropped + statistics.tx_dropped,
                socket_dropped: self.socket_dropped(statistics.index).unwrap_or(0).into(),
                device_dropped: self.devices[interface]["dropped"].as_u64().unwrap_or(0),
            };
            if self.last_rows.insert(interface.clone(), lost) != Some(lost) {
                let row = Row { time_ns, node: self.node, interface, lost };
                write_line(&mut self.log, &row).with_context(|| format!("out/{FILE}"))?;
            }
        }
        Ok(())
    }

    /// Statistics of all interfaces since the node's start.
    fn read(&self) -> Result<HashMap<String, Statistics>> {
        let mut found = link::statistics(&self.netlink).with_context(|| "interfaces".into())?;
        for (name, now) in &mut found {
            if let Some(baseline) = self.baseline.get(name) {
                *now = now.since(baseline);
            }
        }
        Ok(found)
    }

    fn socket_dropped(&self, index: u32) -> Option<u32> {
        socket::dropped_packets(self.sockets.get(&index)?).ok()
    }
}

/// Replaces a file of `out/` atomically.
pub fn replace(name: &str, value: &Value) -> Result<()> {
    let temporary = out_path(&format!("{name}.part"));
    let written =
        fs::write(&temporary, format!("{value}\n")).and_then(|()| fs::rename(&temporary, out_path(name)));
    match written {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()), // the lab's folder has been removed
        result => result.with_context(|| format!("out/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn packets_dropped_by_a_full_socket_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        let number = receiver.as_raw_fd();
        let process = socket::open_process(std::process::id() as i32).unwrap();
        let duplicate = socket::duplicate(&process, number).unwrap();
        assert_eq!(socket::bound_interface(&duplicate).unwrap(), None);
        socket::set(&duplicate, libc::SOL_SOCKET, libc::SO_RCVBUF, 1i32).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..50 {
            sender.send_to(&[0; 1000], to).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        let taken = std::iter::from_fn(|| receiver.recv(&mut [0; 1000]).ok()).count();
        assert!(taken < 50);
        assert_eq!(socket::dropped_packets(&duplicate).unwrap() as usize, 50 - taken);
        drop(receiver);
        assert_eq!(socket::dropped_packets(&duplicate).unwrap() as usize, 50 - taken);
    }
}
