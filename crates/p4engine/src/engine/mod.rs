// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The engine: a program with its state, and the path of a packet through it as in `simple_switch`.

mod arrays;
mod entries;
mod profiles;
mod requests;

use alloc::vec::Vec;

use crate::control::{CloneSession, Replica};
use crate::exec::context::{self, Context, Pending};
use crate::exec::externs::DROP_PORT;
use crate::exec::interpreter::Interpreter;
use crate::exec::packet::{Arrival, Decision, Departure, Emission, Forward, Instance, Shell};
use crate::exec::state::{self, State};
use crate::ir::Program;
use crate::lower::metadata::METADATA_ARGUMENTS;
use crate::lower::Code;
use crate::native::{Executable, Native};
use crate::verify::InvalidProgram;

/// A loaded program with its state.
#[derive(Debug)]
pub struct Engine {
    pub(crate) program: Program,
    pub(crate) code: Code,
    pub(crate) state: State,
    /// Limit on the bytes that the deparser emits.
    max_emitted_bytes: usize,
    /// Limit on the bytes of a field list.
    max_kept_bytes: usize,
    lookahead_bytes: Option<u32>,
}

impl Engine {
    /// Checks and loads a program with its constant entries.
    pub fn load(program: Program) -> Result<Engine, InvalidProgram> {
        let sizes = program.check_with_sizes()?;
        let code = Code::new(&program);
        let state = State::new(&program, &code, sizes.buffer)?;
        let lookahead_bytes = program.lookahead_bytes();
        let mut engine = Engine {
            program,
            code,
            state,
            max_emitted_bytes: sizes.emitted,
            max_kept_bytes: sizes.kept,
            lookahead_bytes,
        };
        engine.insert_constant_entries()?;
        Ok(engine)
    }

    /// Loads a program from bytes (postcard).
    pub fn from_bytes(image: &[u8]) -> Result<Engine, InvalidProgram> {
        let program = postcard::from_bytes(image)
            .map_err(|_| InvalidProgram("the image is not a program of this version".into()))?;
        Engine::load(program)
    }

    /// Translates the program to machine code, which runs instead of the interpreter with the same results. `place`
    /// copies it to executable memory. Without a translation, or if `place` returns None, the interpreter runs.
    pub fn translate(&mut self, place: impl FnOnce(&[u8]) -> Option<Executable>) {
        self.code.native = Native::new(&self.program, &self.code, &mut self.state, place);
    }

    /// Whether machine code runs the program.
    pub fn is_translated(&self) -> bool {
        self.code.native.is_some()
    }

    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Upper bound on the first bytes of a packet that the engine accesses, at first or through `Shell::extend`. None:
    /// the engine needs the whole packet at once.
    pub fn lookahead_bytes(&self) -> Option<u32> {
        self.lookahead_bytes
    }

    /// Whether the program can process packets with `Arrival::checksum`.
    pub fn defers_checksums(&self) -> bool {
        self.code.defers_checksums && self.lookahead_bytes.is_some()
    }

    /// Completes the checksum of a packet with `Context::defers_checksum`. After egress, the deparser runs again.
    pub fn complete_checksum<S: Shell>(&mut self, context: &mut Context, checksum: u16, shell: &mut S) {
        context.complete_checksum(checksum);
        if !context.headers().is_empty() {
            context.headers.clear();
            let mut interpreter = Interpreter::new(&self.code, &mut self.state, context, &[], shell);
            interpreter.run(self.code.entry.deparser, state::EGRESS);
        }
    }

    /// Allocates a context. A shell reuses contexts.
    pub fn context(&self) -> Context {
        Context::new(&self.code, self.max_emitted_bytes, self.max_kept_bytes)
    }

    pub fn group(&self, group: u16) -> Option<&[Replica]> {
        self.state.groups.get(&group).map(Vec::as_slice)
    }

    pub fn session(&self, session: u16) -> Option<&CloneSession> {
        self.state.sessions.get(&session)
    }

    /// Runs the parser, the verification of checksums and ingress.
    pub fn ingress<S: Shell>(
        &mut self,
        context: &mut Context,
        packet: &[u8],
        arrival: &Arrival,
        shell: &mut S,
    ) -> Decision {
        self.begin(context, arrival);
        let mut interpreter = Interpreter::new(&self.code, &mut self.state, context, packet, shell);
        interpreter.parse(arrival);
        let totals = &mut interpreter.state.totals;
        totals.ingress = totals.ingress.wrapping_add(1);
        interpreter.run(interpreter.code.entry.ingress, state::INGRESS);
        self.decide(context, shell)
    }

    /// Parses the packet of a clone, which then enters egress.
    pub fn parse_clone<S: Shell>(
        &mut self,
        context: &mut Context,
        packet: &[u8],
        arrival: &Arrival,
        shell: &mut S,
    ) {
        self.begin(context, arrival);
        Interpreter::new(&self.code, &mut self.state, context, packet, shell).parse(arrival);
        context.reset_metadata(&self.code);
        if let Some(kept) = arrival.preserved {
            context.restore(&self.code, kept);
        }
        context.put(self.code.standard.instance_type, arrival.instance as u64);
    }

    /// Resets a context for a new packet.
    fn begin(&mut self, context: &mut Context, arrival: &Arrival) {
        self.state.now_us = self.state.now_us.max(arrival.now_us);
        context.begin(arrival.length, arrival.checksum);
        // A clone's preserved fields are restored after its parser.
        if let Some(kept) = arrival.preserved.filter(|_| arrival.instance != Instance::IngressClone) {
            context.restore(&self.code, kept);
        }
    }

    fn decide<S: Shell>(&mut self, context: &mut Context, shell: &mut S) -> Decision {
        let code = &self.code;
        let pending = core::mem::take(&mut context.pending);
        // A recirculation takes effect after egress.
        context.pending = Pending { recirculate: pending.recirculate, ..Pending::default() };
        let clone = pending.clone.filter(|(session, _)| self.state.sessions.contains_key(session));
        if let Some((_, list)) = clone {
            context::keep(code, &context.phv, list, &mut context.clone_fields);
            self.state.totals.cloned = self.state.totals.cloned.wrapping_add(1);
        }
        if let Some((id, fields)) = pending.digest.and_then(|digest| code.digests.get(usize::from(digest))) {
            self.state.buffer.clear();
            for field in fields {
                let field = code.field(*field);
                context::push_bytes(&context.phv, field.at, field.width, &mut self.state.buffer);
            }
            self.state.totals.digests = self.state.totals.digests.wrapping_add(1);
            shell.digest(*id, &self.state.buffer);
        }
        if let Some(list) = pending.resubmit {
            context::keep(code, &context.phv, list, &mut context.resubmit_fields);
            self.state.totals.resubmitted = self.state.totals.resubmitted.wrapping_add(1);
        }
        let clone = clone.map(|(session, _)| session);
        let resubmit = pending.resubmit.is_some();
        let forward = if resubmit { Forward::Drop } else { self.forward(context) };
        context.drop_reason = None;
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
            self.state.count_drop(context.drop_reason.unwrap_or(state::INGRESS));
            return Forward::Drop;
        }
        context.put(standard.instance_type, Instance::Normal as u64);
        Forward::Unicast { port: port as u16, priority: self.priority(context) }
    }

    /// The queue of the port for a packet or a copy: v1model's `priority`.
    pub fn priority(&self, context: &Context) -> u8 {
        context.get(self.code.standard.priority) as u8
    }

    /// Copies a packet for another port: a replica of a group or a clone of a session. `to` is a context of this
    /// engine.
    pub fn copy(&self, from: &Context, to: &mut Context, instance: Instance, rid: u16) {
        let standard = self.code.standard;
        let phv = if instance == Instance::EgressClone { &from.saved } else { &from.phv };
        to.phv.clone_from(phv);
        to.headers.clear();
        (to.parsed, to.arrived, to.length) = (from.parsed, from.arrived, from.length);
        (to.truncate, to.pending, to.drop_reason) = (from.truncate, Pending::default(), None);
        (to.deferred, to.checksum) = (from.deferred, from.checksum);
        if instance == Instance::EgressClone {
            to.truncate = None;
            to.reset_metadata(&self.code);
            to.restore(&self.code, &from.clone_fields);
        }
        to.put(standard.instance_type, instance as u64);
        to.put(standard.egress_rid, rid.into());
    }

    /// Runs egress, the update of checksums and the deparser.
    pub fn egress<S: Shell>(
        &mut self,
        context: &mut Context,
        packet: &[u8],
        departure: &Departure,
        shell: &mut S,
    ) -> Emission {
        self.state.now_us = self.state.now_us.max(departure.now_us);
        context.headers.clear();
        context.drop_reason = None;
        self.state.set_arguments(departure_metadata(departure, context.length));
        let code = &self.code;
        let mut interpreter = Interpreter::new(code, &mut self.state, context, packet, shell);
        interpreter.run_both(code.preludes.egress, code.entry.egress, state::EGRESS);
        let (context, state) = (&mut *interpreter.context, &mut *interpreter.state);
        let pending = core::mem::take(&mut context.pending);
        let totals = &mut state.totals;
        totals.egress = totals.egress.wrapping_add(1);
        let clone = pending.clone.filter(|(session, _)| state.sessions.contains_key(session));
        if let Some((_, list)) = clone {
            context::keep(code, &context.phv, list, &mut context.clone_fields);
            context.saved.clone_from(&context.phv);
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
            state.count_drop(context.drop_reason.unwrap_or(state::EGRESS));
            return emission;
        }
        interpreter.deparse();
        let (context, totals) = (&mut *interpreter.context, &mut interpreter.state.totals);
        match pending.recirculate {
            Some(list) => {
                context::keep(code, &context.phv, list, &mut context.resubmit_fields);
                totals.recirculated = totals.recirculated.wrapping_add(1);
            }
            None => totals.sent = totals.sent.wrapping_add(1),
        }
        emission.drop = false;
        emission.recirculate = pending.recirculate.is_some();
        emission.truncate_bytes = context.truncate;
        emission
    }
}

/// The arguments of the prelude of egress.
fn departure_metadata(departure: &Departure, length: u32) -> [u64; METADATA_ARGUMENTS] {
    [
        departure.now_us,
        departure.enqueued_us,
        departure.enqueued_depth.into(),
        departure.now_us.saturating_sub(departure.enqueued_us),
        departure.dequeued_depth.into(),
        departure.port.into(),
        // As in BMv2, any value other than the drop port.
        DROP_PORT + 1,
        length.into(),
    ]
}
