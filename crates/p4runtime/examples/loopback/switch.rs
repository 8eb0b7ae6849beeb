// SPDX-License-Identifier: Apache-2.0
//! A switch with loopback ports: a packet that a controller sends out of a port arrives there again. If the program
//! then sends it to the CPU port, the controller receives it.

use std::time::Instant;

use qbed_p4engine::control::{Answer, Refusal, Request};
use qbed_p4engine::packet::{Arrival, Departure, Forward, Instance, InvalidProgram, Shell};
use qbed_p4engine::program::Program;
use qbed_p4engine::{Context, Engine};
use tokio::sync::mpsc;

use super::{Control, Event};

pub const CPU_PORT: u16 = 510;

pub struct Loopback {
    engine: Option<Engine>,
    events: mpsc::Sender<Event>,
    began: Instant,
}

/// Sends the program's digests to the controller.
struct EventShell<'a>(&'a mpsc::Sender<Event>);

impl Shell for EventShell<'_> {
    fn random(&mut self) -> u64 {
        4
    }
    fn digest(&mut self, id: u32, values: &[u8]) {
        let _ = self.0.try_send(Event::Digest { id, values: values.to_vec() });
    }
    fn log(&mut self, _: &str, _: &[i128]) {}
    fn failed(&mut self, _: &str) {}
}

impl Loopback {
    pub fn new(events: mpsc::Sender<Event>) -> Loopback {
        Loopback { engine: None, events, began: Instant::now() }
    }

    /// Process a packet. Returns the packets sent with their ports.
    fn pass(&mut self, packet: &[u8], port: u16) -> Vec<(u16, Vec<u8>)> {
        let now_us = self.now_us();
        let Some(engine) = self.engine.as_mut() else { return vec![] };
        let mut shell = EventShell(&self.events);
        let mut context = engine.context();
        let length = packet.len() as u32;
        let arrival =
            Arrival { port, length, now_us, instance: Instance::Normal, preserved: None, checksum: None };
        let decision = engine.ingress(&mut context, packet, &arrival, &mut shell);
        let mut sent = vec![];
        if let Some(session) = decision.clone.and_then(|session| engine.session(session)).cloned() {
            let preserved = context.clone_fields().clone();
            for replica in session.replicas {
                let mut copy = engine.context();
                let arrival =
                    Arrival { instance: Instance::IngressClone, preserved: Some(&preserved), ..arrival };
                engine.parse_clone(&mut copy, packet, &arrival, &mut shell);
                sent.extend(leave(engine, &mut copy, packet, replica.port, now_us, &mut shell));
            }
        }
        match decision.forward {
            Forward::Drop => {}
            Forward::Unicast { port, .. } => {
                sent.extend(leave(engine, &mut context, packet, port, now_us, &mut shell));
            }
            Forward::Multicast { group } => {
                for replica in engine.group(group).unwrap_or_default().to_vec() {
                    let mut copy = engine.context();
                    engine.copy(&context, &mut copy, Instance::Replicated, replica.instance);
                    sent.extend(leave(engine, &mut copy, packet, replica.port, now_us, &mut shell));
                }
            }
        }
        sent
    }
}

fn leave(
    engine: &mut Engine,
    context: &mut Context,
    packet: &[u8],
    port: u16,
    now_us: u64,
    shell: &mut EventShell,
) -> Option<(u16, Vec<u8>)> {
    let departure = Departure { port, now_us, enqueued_us: now_us, enqueued_depth: 0, dequeued_depth: 0 };
    let emission = engine.egress(context, packet, &departure, shell);
    let rest = packet.get(emission.replaced as usize..).unwrap_or_default();
    (!emission.drop).then(|| (port, [context.headers(), rest].concat()))
}

impl Control for Loopback {
    fn request(&mut self, request: Request) -> Answer {
        match self.engine.as_mut() {
            Some(engine) => engine.control(&request),
            None => Answer::Refused(Refusal::FailedPrecondition, "no program".into()),
        }
    }

    fn compile(&self, config: &[u8]) -> Result<Program, String> {
        qbed_p4switch::load::load(config).map_err(|refused| refused.to_string())
    }

    fn load(&mut self, program: &Program) -> Result<(), String> {
        self.engine = Some(Engine::load(program.clone()).map_err(|InvalidProgram(why)| why)?);
        Ok(())
    }

    fn inject(&mut self, packet: &[u8]) -> Result<(), String> {
        for (port, packet) in self.pass(packet, CPU_PORT) {
            for (port, packet) in self.pass(&packet, port) {
                if port == CPU_PORT {
                    let _ = self.events.try_send(Event::PacketIn(packet));
                }
            }
        }
        Ok(())
    }

    fn now_us(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }
}
