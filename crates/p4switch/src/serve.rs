// SPDX-License-Identifier: Apache-2.0
//! P4Runtime for the switch in the guest's kernel: /dev/qp4, which means the network namespace of who opens it
//! (kernel/include/uapi/qbed/qp4.h).

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::time::{clock_gettime, ClockId};
use qbed_p4engine::control::{Answer, Refusal, Request};
use qbed_p4engine::program::Program;
use qbed_p4runtime::{Control, Event};
use tokio::sync::mpsc;

use crate::device::{self, Command, Device, DIGEST, PACKET};
use crate::load;

/// Messages of the program that wait for the server; of more, the kernel counts those it drops.
const MOST_EVENTS: usize = 1024;
const EVENTS_AT_ONCE: u32 = 256;

/// Until it is killed, or the switch's device is gone.
pub fn serve(listen: SocketAddr, device_id: u64, device: &Path) -> Result<(), String> {
    let open = || Device::open(device).map_err(|error| format!("{}: {error}", device.display()));
    let (switch, mut telling) = (open()?, open()?);
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    let (told, events) = mpsc::channel(MOST_EVENTS);
    thread::spawn(move || tell(&mut telling, &told));
    qbed_p4runtime::serve(listener, device_id, Box::new(switch), events).map_err(|error| error.to_string())
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
        let listen = "127.0.0.1:0".parse().unwrap();
        let refused = serve(listen, 1, Path::new("/nowhere/qp4")).unwrap_err();
        assert!(refused.starts_with("/nowhere/qp4: "), "{refused}");
        let refused = serve("0.0.0.0:0".parse().unwrap(), 1, Path::new("/dev/null")).unwrap_err();
        assert!(refused.contains("expected a loopback address"), "{refused}");
    }
}
