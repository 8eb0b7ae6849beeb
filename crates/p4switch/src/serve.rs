// SPDX-License-Identifier: Apache-2.0
//! P4Runtime for the switch in the guest's kernel: /dev/qp4, opened in the switch's network namespace
//! (kernel/include/uapi/qbed/qp4.h).

use std::fmt::Display;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::{fs, io, thread};

use clap::Args;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::time::{clock_gettime, ClockId};
use qbed_p4device::{self as device, Command, Device, DIGEST, PACKET};
use qbed_p4engine::control::{Answer, Refusal, Request};
use qbed_p4engine::program::Program;
use qbed_p4runtime::proto::p4::v1::ForwardingPipelineConfig;
use qbed_p4runtime::{Control, Event};
use tokio::sync::mpsc;

use crate::load;

/// Capacity of the channel to the server. When it is full, events stay in the kernel, which counts drops.
const MAX_EVENTS: usize = 1024;
const EVENTS_AT_ONCE: u32 = 256;

#[derive(Args)]
pub struct Options {
    /// Loopback address: clients are not authenticated.
    #[arg(long, default_value = "127.0.0.1:9559", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// P4Runtime device id of the switch.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub device_id: u64,
    /// The switch in the guest's kernel.
    #[arg(long, default_value = "/dev/qp4", value_name = "FILE")]
    pub switch: PathBuf,
    /// The CPU port: packets sent there become PacketIn messages, PacketOut messages arrive there.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(..=510))]
    pub cpu_port: Option<u16>,
    /// The program that the switch runs already, with its entries (PROGRAM.json, and PROGRAM.p4info.txtpb beside it).
    #[arg(long, value_name = "FILE")]
    pub running: Option<PathBuf>,
    /// A file to create when the server accepts connections.
    #[arg(long, value_name = "FILE")]
    pub ready: Option<PathBuf>,
}

/// Serve until killed or until the device is gone.
pub fn serve(options: &Options) -> Result<(), String> {
    let named = |path: &Path, error: &dyn Display| format!("{}: {error}", path.display());
    let open = || Device::open(&options.switch).map_err(|error| named(&options.switch, &error));
    let (mut switch, mut event_source) = (open()?, open()?);
    let running = options.running.as_deref().map(config).transpose()?;
    let listener =
        TcpListener::bind(options.listen).map_err(|error| format!("{}: {error}", options.listen))?;
    if let Some(port) = options.cpu_port {
        let set = switch.execute(Command::CpuPort, port.into(), &[]);
        set.map_err(|error| format!("{}: --cpu-port {port}: {error}", options.switch.display()))?;
    }
    let (sender, events) = mpsc::channel(MAX_EVENTS);
    thread::spawn(move || forward_events(&mut event_source, &sender));
    if let Some(ready) = &options.ready {
        fs::write(ready, "").map_err(|error| named(ready, &error))?; // from here on, connections wait
    }
    let served =
        qbed_p4runtime::serve(listener, options.device_id, Box::new(DeviceControl(switch)), events, running);
    served.map_err(|error| error.to_string())
}

/// The pipeline config made of p4c's output files.
fn config(program: &Path) -> Result<ForwardingPipelineConfig, String> {
    let named = |path: &Path, error: &dyn Display| format!("{}: {error}", path.display());
    let info = program.with_extension("p4info.txtpb");
    let text = fs::read_to_string(&info).map_err(|error| named(&info, &error))?;
    Ok(ForwardingPipelineConfig {
        p4info: Some(qbed_p4runtime::p4info(&text).map_err(|error| named(&info, &error))?),
        p4_device_config: fs::read(program).map_err(|error| named(program, &error))?,
        cookie: None,
    })
}

/// Send the device's events to the server until either is gone.
fn forward_events(device: &mut Device, sender: &mpsc::Sender<Event>) {
    loop {
        let mut descriptors = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        if poll(&mut descriptors, PollTimeout::NONE).is_err_and(|error| error != nix::errno::Errno::EINTR) {
            return;
        }
        let Ok(data) = device.execute(Command::Events, EVENTS_AT_ONCE, &[]) else { return };
        for event in device::events(&data) {
            let event = match event.kind {
                DIGEST => Event::Digest { id: event.id, values: event.bytes.to_vec() },
                PACKET => Event::PacketIn(event.bytes.to_vec()),
                _ => continue,
            };
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    }
}

/// The switch as the P4Runtime server controls it.
struct DeviceControl(Device);

impl Control for DeviceControl {
    fn request(&mut self, request: Request) -> Answer {
        let request = postcard::to_allocvec(&request).map_err(io::Error::other);
        let answer = request.and_then(|bytes| self.0.execute(Command::Control, 0, &bytes));
        match answer.map(|bytes| postcard::from_bytes(&bytes)) {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Refused(
                Refusal::FailedPrecondition,
                "the engine in the kernel has another version".into(),
            ),
            Err(error) => Answer::Refused(Refusal::FailedPrecondition, error.to_string()),
        }
    }

    fn compile(&self, config: &[u8]) -> Result<Program, String> {
        load::load(config).map_err(|error| error.to_string())
    }

    fn load(&mut self, program: &Program) -> Result<(), String> {
        let image = postcard::to_allocvec(program).map_err(|error| error.to_string())?;
        self.0.execute(Command::Load, 0, &image).map(drop).map_err(|error| error.to_string())
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        self.0.execute(Command::PacketOut, 0, packet).map(drop).map_err(|error| error.to_string())
    }

    fn now_us(&self) -> u64 {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from);
        now.map_or(0, |now| now.as_micros() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_switch_the_address_or_the_program() {
        let refused = |listen: &str, switch: &str, running: Option<&str>| {
            let listen = listen.parse().unwrap();
            let running = running.map(Into::into);
            serve(&Options {
                listen,
                device_id: 1,
                switch: switch.into(),
                running,
                ready: None,
                cpu_port: None,
            })
            .unwrap_err()
        };
        let why = refused("127.0.0.1:0", "/nowhere/qp4", None);
        assert!(why.starts_with("/nowhere/qp4: "), "{why}");
        let why = refused("0.0.0.0:0", "/dev/null", None);
        assert!(why.contains("expected a loopback address"), "{why}");
        let why = refused("127.0.0.1:0", "/dev/null", Some("/nowhere/mine.json"));
        assert!(why.starts_with("/nowhere/mine.p4info.txtpb: "), "{why}");
    }
}
