// SPDX-License-Identifier: Apache-2.0
//! P4Runtime for the switch in the guest's kernel: /dev/qp4, which means the network namespace of who opens it
//! (kernel/include/uapi/qbed/qp4.h).

use std::fmt::Display;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::{fs, io, thread};

use clap::Args;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::time::{clock_gettime, ClockId};
use qbed_p4engine::control::{Answer, Refusal, Request};
use qbed_p4engine::program::Program;
use qbed_p4runtime::proto::p4::v1::ForwardingPipelineConfig;
use qbed_p4runtime::{Control, Event};
use tokio::sync::mpsc;

use crate::device::{self, Command, Device, DIGEST, PACKET};
use crate::load;

/// Messages of the program that wait for the server; of more, the kernel counts those it drops.
const MOST_EVENTS: usize = 1024;
const EVENTS_AT_ONCE: u32 = 256;

#[derive(Args)]
pub struct Options {
    /// Of this machine: nobody is asked who they are.
    #[arg(long, default_value = "127.0.0.1:9559", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// By which controllers name the switch.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub device_id: u64,
    /// The switch in the guest's kernel.
    #[arg(long, default_value = "/dev/qp4", value_name = "FILE")]
    pub switch: PathBuf,
    /// The port that is the controllers' from now on: what the program sends there is a PacketIn, a PacketOut comes in there.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(..=510))]
    pub cpu_port: Option<u16>,
    /// The switch runs this program already (PROGRAM.json, with PROGRAM.p4info.txtpb beside it), its tables filled.
    #[arg(long, value_name = "FILE")]
    pub running: Option<PathBuf>,
    /// A file that is made when controllers can come.
    #[arg(long, value_name = "FILE")]
    pub ready: Option<PathBuf>,
}

/// Until it is killed, or the switch's device is gone.
pub fn serve(options: &Options) -> Result<(), String> {
    let named = |path: &Path, error: &dyn Display| format!("{}: {error}", path.display());
    let open = || Device::open(&options.switch).map_err(|error| named(&options.switch, &error));
    let (mut switch, mut telling) = (open()?, open()?);
    let running = options.running.as_deref().map(config).transpose()?;
    let listener =
        TcpListener::bind(options.listen).map_err(|error| format!("{}: {error}", options.listen))?;
    if let Some(port) = options.cpu_port {
        let set = switch.ask(Command::CpuPort, port.into(), &[]);
        set.map_err(|error| format!("{}: --cpu-port {port}: {error}", options.switch.display()))?;
    }
    let (told, events) = mpsc::channel(MOST_EVENTS);
    thread::spawn(move || tell(&mut telling, &told));
    if let Some(ready) = &options.ready {
        fs::write(ready, "").map_err(|error| named(ready, &error))?; // from here on, connections wait
    }
    let served = qbed_p4runtime::serve(listener, options.device_id, Box::new(switch), events, running);
    served.map_err(|error| error.to_string())
}

/// What p4c has written for a program.
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

/// What the program says, as it says it, until nobody listens any longer.
fn tell(device: &mut Device, told: &mpsc::Sender<Event>) {
    loop {
        let mut waited = [PollFd::new(device.as_fd(), PollFlags::POLLIN)];
        if poll(&mut waited, PollTimeout::NONE).is_err_and(|error| error != nix::errno::Errno::EINTR) {
            return;
        }
        let Ok(data) = device.ask(Command::Events, EVENTS_AT_ONCE, &[]) else { return };
        for said in device::events(&data) {
            let event = match said.kind {
                DIGEST => Event::Digest { id: said.id, values: said.bytes.to_vec() },
                PACKET => Event::PacketIn(said.bytes.to_vec()),
                _ => continue,
            };
            if told.blocking_send(event).is_err() {
                return;
            }
        }
    }
}

impl Control for Device {
    fn request(&mut self, request: Request) -> Answer {
        let asked = postcard::to_allocvec(&request).map_err(io::Error::other);
        let answered = asked.and_then(|bytes| self.ask(Command::Control, 0, &bytes));
        match answered.map(|bytes| postcard::from_bytes(&bytes)) {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Refused(
                Refusal::FailedPrecondition,
                "the kernel's engine is of another version".into(),
            ),
            Err(error) => Answer::Refused(Refusal::FailedPrecondition, error.to_string()),
        }
    }

    fn compile(&self, config: &[u8]) -> Result<Program, String> {
        load::load(config).map_err(|refused| refused.to_string())
    }

    fn load(&mut self, program: &Program) -> Result<(), String> {
        let image = postcard::to_allocvec(program).map_err(|error| error.to_string())?;
        self.ask(Command::Load, 0, &image).map(drop).map_err(|error| error.to_string())
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        self.ask(Command::PacketOut, 0, packet).map(drop).map_err(|error| error.to_string())
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
    fn what_is_no_switch_is_named() {
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
