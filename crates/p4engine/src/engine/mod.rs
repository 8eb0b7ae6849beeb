// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The engine: a program with its state, and the way of a packet through it as `simple_switch` has it.

mod arrays;
mod entries;
mod profiles;
mod requests;

use alloc::vec::Vec;

use crate::control::{CloneSession, Replica};
use crate::exec::context::{self, Asked, Context};
use crate::exec::externs::DROP_PORT;
use crate::exec::interpreter::Run;
use crate::exec::packet::{Arrival, Decision, Departure, Emission, Forward, Instance, Shell};
use crate::exec::state::{self, State};
use crate::ir::Program;
use crate::lower::Code;
use crate::verify::Unfit;

/// A program that runs.
#[derive(Debug)]
pub struct Engine {
    pub(crate) program: Program,
    pub(crate) code: Code,
    pub(crate) state: State,
    /// The most bytes that a deparser emits, and that a list of fields keeps.
    emitted: usize,
    kept: usize,
    reach: Option<u32>,
}

impl Engine {
    /// With the program's own entries; what cannot run is refused, with the reason.
    pub fn load(program: Program) -> Result<Engine, Unfit> {
        let sizes = program.checked()?;
        let code = Code::new(&program);
        let state = State::new(&program, &code, sizes.buffer)?;
        let reach = program.reach();
        let mut engine = Engine { program, code, state, emitted: sizes.emitted, kept: sizes.kept, reach };
        engine.insert_own_entries()?;
        Ok(engine)
    }

    /// Of a program as bytes (postcard).
    pub fn from_bytes(image: &[u8]) -> Result<Engine, Unfit> {
        let program = postcard::from_bytes(image)
            .map_err(|_| Unfit("its bytes are no program of this version".into()))?;
        Engine::load(program)
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// How many bytes of a packet's front must be shown; none: all of it, since no fewer are known to do.
    pub fn reach(&self) -> Option<u32> {
        self.reach
    }

    /// Allocates; the shell pools them.
    pub fn context(&self) -> Context {
        Context::new(&self.code, self.emitted, self.kept)
    }

    pub fn group(&self, group: u16) -> Option<&[Replica]> {
        self.state.groups.get(&group).map(Vec::as_slice)
    }

    pub fn session(&self, session: u16) -> Option<&CloneSession> {
        self.state.sessions.get(&session)
    }

    /// The parser, the verification of checksums, ingress.
    pub fn ingress<S: Shell>(
        &mut self,
        context: &mut Context,
        packet: &[u8],
        arrival: &Arrival,
        shell: &mut S,
    ) -> Decision {
        self.parse(context, packet, arrival, shell);
        let totals = &mut self.state.totals;
        totals.ingress = totals.ingress.wrapping_add(1);
        let mut run = Run::new(&self.code, &mut self.state, context, packet, shell);
        run.run(self.code.entry.ingress, state::INGRESS);
        self.decide(context, shell)
    }

    /// For a clone: the packet is parsed anew, egress follows.
    pub fn parse_clone<S: Shell>(
        &mut self,
        context: &mut Context,
        packet: &[u8],
        arrival: &Arrival,
        shell: &mut S,
    ) {
        self.parse(context, packet, arrival, shell);
        context.reset_metadata(&self.code);
        if let Some(kept) = arrival.kept {
            context.restore(&self.code, kept);
        }
        context.put(self.code.standard.instance_type, arrival.instance as u64);
    }

    fn parse<S: Shell>(&mut self, context: &mut Context, packet: &[u8], arrival: &Arrival, shell: &mut S) {
        let standard = self.code.standard;
        self.state.now_us = self.state.now_us.max(arrival.now_us);
        context.begin(arrival.length);
        // What a clone keeps comes behind its parser.
        if let Some(kept) = arrival.kept.filter(|_| arrival.instance != Instance::IngressClone) {
            context.restore(&self.code, kept);
        }
        context.put(standard.packet_length, arrival.length.into());
        context.put(standard.instance_type, arrival.instance as u64);
        match arrival.instance {
            Instance::Normal => {
                context.put(standard.ingress_port, arrival.port.into());
                context.put(standard.ingress_global_timestamp, arrival.now_us);
            }
            // The parser of a clone sees the port; egress sees it if it was kept.
            Instance::IngressClone => context.put(standard.ingress_port, arrival.port.into()),
            _ => {}
        }
        let mut run = Run::new(&self.code, &mut self.state, context, packet, shell);
        let error = run.parse();
        run.context.put(standard.checksum_error, 0);
        run.run(self.code.entry.verify, state::INGRESS);
        let totals = &mut self.state.totals;
        if let Some(error) = error {
            totals.parser_errors = totals.parser_errors.wrapping_add(1);
            context.put(standard.parser_error, error.into());
        } else {
            context.put(standard.parser_error, self.code.errors.none.into());
        }
        let wrong = u64::from(context.get(standard.checksum_error) != 0);
        totals.checksum_errors = totals.checksum_errors.wrapping_add(wrong);
    }

    fn decide<S: Shell>(&mut self, context: &mut Context, shell: &mut S) -> Decision {
        let code = &self.code;
        let asked = core::mem::take(&mut context.asked);
        // Of what ingress asked for, egress finds the recirculation only.
        context.asked = Asked { recirculate: asked.recirculate, ..Asked::default() };
        let clone = asked.clone.filter(|(session, _)| self.state.sessions.contains_key(session));
        if let Some((_, list)) = clone {
            context::keep(code, &context.area, list, &mut context.clone_kept);
            self.state.totals.cloned = self.state.totals.cloned.wrapping_add(1);
        }
        if let Some((id, fields)) = asked.digest.and_then(|digest| code.digests.get(usize::from(digest))) {
            self.state.buffer.clear();
            for field in fields {
                let field = code.field(*field);
                context::push_bytes(&context.area, field.at, field.width, &mut self.state.buffer);
            }
            self.state.totals.digests = self.state.totals.digests.wrapping_add(1);
            shell.digest(*id, &self.state.buffer);
        }
        if let Some(list) = asked.resubmit {
            context::keep(code, &context.area, list, &mut context.again_kept);
            self.state.totals.resubmitted = self.state.totals.resubmitted.wrapping_add(1);
        }
        let clone = clone.map(|(session, _)| session);
        let resubmit = asked.resubmit.is_some();
        let forward = if resubmit { Forward::Drop } else { self.forward(context) };
        context.dropper = None;
        Decision { clone, resubmit, forward, truncate_bytes: context.truncate }
    }

    fn forward(&mut self, context: &mut Context) -> Forward {
        let standard = self.code.standard;
        let group = context.get(standard.mcast_grp) as u16;
        if group != 0 {
            context.put(standard.instance_type, Instance::Replicated as u64);
            if self.state.groups.get(&group).is_some_and(|replicas| !replicas.is_empty()) {
                self.state.totals.replicated = self.state.totals.replicated.wrapping_add(1);
                return Forward::Multicast { group };
            }
            self.state.count_drop(state::NO_GROUP);
            return Forward::Drop;
        }
        let port = context.get(standard.egress_spec);
        if port == DROP_PORT {
            self.state.count_drop(context.dropper.unwrap_or(state::INGRESS));
            return Forward::Drop;
        }
        context.put(standard.instance_type, Instance::Normal as u64);
        Forward::Unicast { port: port as u16, priority: self.priority(context) }
    }

    /// Of the queues of its port, the one that a packet wants, a copy too: v1model's `priority`.
    pub fn priority(&self, context: &Context) -> u8 {
        context.get(self.code.standard.priority) as u8
    }

    /// A packet for another port: replicas of a group, the clones of a session. `to` was this engine's context too.
    pub fn copy(&self, from: &Context, to: &mut Context, instance: Instance, rid: u16) {
        let standard = self.code.standard;
        let area = if instance == Instance::EgressClone { &from.saved } else { &from.area };
        to.area.clone_from(area);
        to.headers.clear();
        (to.parsed, to.arrived, to.length) = (from.parsed, from.arrived, from.length);
        (to.truncate, to.asked, to.dropper) = (from.truncate, Asked::default(), None);
        if instance == Instance::EgressClone {
            to.truncate = None;
            to.reset_metadata(&self.code);
            to.restore(&self.code, &from.clone_kept);
        }
        to.put(standard.instance_type, instance as u64);
        to.put(standard.egress_rid, rid.into());
    }

    /// Egress, the update of checksums, the deparser.
    pub fn egress<S: Shell>(
        &mut self,
        context: &mut Context,
        packet: &[u8],
        departure: &Departure,
        shell: &mut S,
    ) -> Emission {
        self.depart(context, departure);
        let code = &self.code;
        let mut run = Run::new(code, &mut self.state, context, packet, shell);
        run.run(code.entry.egress, state::EGRESS);
        let asked = core::mem::take(&mut context.asked);
        let totals = &mut self.state.totals;
        totals.egress = totals.egress.wrapping_add(1);
        let clone = asked.clone.filter(|(session, _)| self.state.sessions.contains_key(session));
        if let Some((_, list)) = clone {
            context::keep(code, &context.area, list, &mut context.clone_kept);
            context.saved.clone_from(&context.area);
            totals.cloned = totals.cloned.wrapping_add(1);
        }
        let mut emission = Emission {
            clone: clone.map(|(session, _)| session),
            recirculate: false,
            drop: true,
            replaced: context.parsed,
            truncate_bytes: context.truncate,
        };
        if context.get(code.standard.egress_spec) == DROP_PORT {
            self.state.count_drop(context.dropper.unwrap_or(state::EGRESS));
            return emission;
        }
        let mut run = Run::new(code, &mut self.state, context, packet, shell);
        run.run(code.entry.update, state::EGRESS);
        run.run(code.entry.deparser, state::EGRESS);
        let totals = &mut self.state.totals;
        match asked.recirculate {
            Some(list) => {
                context::keep(code, &context.area, list, &mut context.again_kept);
                totals.recirculated = totals.recirculated.wrapping_add(1);
            }
            None => totals.sent = totals.sent.wrapping_add(1),
        }
        emission.drop = false;
        emission.recirculate = asked.recirculate.is_some();
        emission.truncate_bytes = context.truncate;
        emission
    }

    /// What egress finds in its metadata.
    fn depart(&mut self, context: &mut Context, departure: &Departure) {
        let standard = self.code.standard;
        self.state.now_us = self.state.now_us.max(departure.now_us);
        context.headers.clear();
        context.dropper = None;
        context.put(standard.egress_global_timestamp, departure.now_us);
        context.put(standard.enq_timestamp, departure.enqueued_us);
        context.put(standard.enq_qdepth, departure.enqueued_depth.into());
        context.put(standard.deq_timedelta, departure.now_us.saturating_sub(departure.enqueued_us));
        context.put(standard.deq_qdepth, departure.dequeued_depth.into());
        context.put(standard.qid, context.get(standard.priority));
        context.put(standard.egress_port, departure.port.into());
        // BMv2: anything but the port of dropped packets.
        context.put(standard.egress_spec, DROP_PORT + 1);
        context.put(standard.packet_length, context.length.into());
    }
}
