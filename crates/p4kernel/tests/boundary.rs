// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The engine as the module's C calls it (kernel/modules/qp4/core.h): what it does with memory that both sides see.

#[path = "../../p4engine/tests/build/mod.rs"]
mod build;

use std::ffi::c_void;
use std::{ptr, slice};

use build::{entry_of_everything, everything};
use qbed_p4engine::control::{Answer, CloneSession, Replica, Request};
use qbed_p4engine::Context;
use qbed_p4kernel::*;

const NOTHING: Bytes = Bytes { data: ptr::null_mut(), length: 0, capacity: 0 };

#[no_mangle]
extern "C" fn qp4_random_u32() -> u32 {
    7
}

/// The owner is a number of bytes here.
///
/// # Safety
/// As core.h says.
#[no_mangle]
unsafe extern "C" fn qp4_event(owner: *mut c_void, _: u32, _: u32, bytes: *const u8, length: usize) {
    // SAFETY: `told` of the test, which outlives the engine; and the bytes that are told.
    unsafe { *owner.cast::<usize>() += slice::from_raw_parts(bytes, length).len() };
}

/// What was given, taken over and given back.
fn taken(mut given: Bytes) -> Vec<u8> {
    // SAFETY: of the engine, which has written all three of its parts, and given back once.
    unsafe {
        let bytes = slice::from_raw_parts(given.data, given.length).to_vec();
        qp4_bytes_free(&raw mut given);
        bytes
    }
}

fn ask(engine: *mut Loaded, request: &Request) -> Answer {
    let (request, mut answer) = (postcard::to_allocvec(request).unwrap(), NOTHING);
    // SAFETY: as core.h says.
    let known = unsafe { qp4_engine_control(engine, request.as_ptr(), request.len(), &raw mut answer) };
    assert!(known);
    postcard::from_bytes(&taken(answer)).unwrap()
}

fn ingress(engine: *mut Loaded, context: *mut Context, packet: &[u8], from: *const Context) -> CDecision {
    let (length, instance) = (packet.len() as u32, if from.is_null() { 0 } else { 4 });
    let (arrival, mut decision) = (CArrival { now_us: 5, length, port: 1, instance }, CDecision::default());
    // SAFETY: as core.h says; `from` is not `context`.
    unsafe {
        let (arrival, decision) = (&raw const arrival, &raw mut decision);
        qp4_engine_ingress(engine, context, packet.as_ptr(), packet.len(), arrival, from, decision);
    }
    decision
}

/// What leaves, and its headers as long as the context has them.
fn egress(engine: *mut Loaded, context: *mut Context, packet: &[u8]) -> (CEmission, Vec<u8>) {
    let departure = CDeparture { now_us: 6, enqueued_us: 5, enqueued_depth: 1, dequeued_depth: 0, port: 3 };
    let mut emission = std::mem::MaybeUninit::<CEmission>::uninit();
    // SAFETY: as core.h says; the engine writes all of it.
    unsafe {
        let (departure, emitted) = (&raw const departure, emission.as_mut_ptr());
        qp4_engine_egress(engine, context, packet.as_ptr(), packet.len(), departure, emitted);
        let emission = emission.assume_init();
        let headers = slice::from_raw_parts(emission.headers, emission.headers_bytes as usize).to_vec();
        (emission, headers)
    }
}

fn fill(engine: *mut Loaded) {
    assert_eq!(ask(engine, &entry_of_everything()), Answer::Done);
    let clone = CloneSession { replicas: vec![Replica { port: 1, instance: 1 }], truncate_bytes: 40 };
    assert_eq!(ask(engine, &Request::SetCloneSession { session: 3, clone: Some(clone) }), Answer::Done);
}

#[test]
fn what_is_no_program_is_refused_with_words() {
    let mut why = NOTHING;
    // SAFETY: as core.h says.
    let engine = unsafe { qp4_engine_load(b"x".as_ptr(), 1, ptr::null_mut(), &raw mut why) };
    assert!(engine.is_null() && !taken(why).is_empty());
}

#[test]
fn a_packet_and_its_copies() {
    let image = postcard::to_allocvec(&everything()).unwrap();
    let (mut told, mut why, packet) = (0usize, NOTHING, [1u8; 64]);
    // SAFETY: as core.h says; each context and the engine are given back below, once.
    unsafe {
        let owner = (&raw mut told).cast();
        let engine = qp4_engine_load(image.as_ptr(), image.len(), owner, &raw mut why);
        assert!(!engine.is_null());
        fill(engine);
        let [first, second, third] = [(); 3].map(|()| qp4_context_new(engine));
        let decision = ingress(engine, first, &packet, ptr::null());
        assert!(
            decision.clone && decision.session == 3 && qp4_context_parsed(first) <= qp4_engine_reach(engine)
        );
        let (mut replica, mut truncate) = (CReplica { port: 0, instance: 0 }, 0u32);
        let replica_at = &raw mut replica;
        assert!(qp4_engine_session(engine, 3, 0, replica_at, &raw mut truncate));
        assert_eq!((replica.port, replica.instance, truncate), (1, 1, 40));
        assert!(!qp4_engine_session(engine, 3, 1, replica_at, &raw mut truncate));
        assert!(!qp4_engine_group(engine, 1, 0, replica_at));
        let cloned = CArrival { now_us: 5, length: 64, port: 1, instance: 1 };
        qp4_engine_parse_clone(engine, second, packet.as_ptr(), packet.len(), &raw const cloned, first);
        egress(engine, second, &packet);
        qp4_context_duplicate(first, third);
        let (emission, headers) = egress(engine, first, &packet);
        assert!(emission.recirculate && emission.clone && headers.len() >= 12);
        assert_eq!(egress(engine, third, &packet).1, headers);
        qp4_context_copy(engine, first, second, 2, 1);
        egress(engine, second, &packet);
        ingress(engine, third, &packet, first);
        for context in [first, second, third] {
            qp4_context_free(context);
        }
        qp4_engine_free(engine);
    }
    assert!(told > 0, "the program logs and sends digests");
}
