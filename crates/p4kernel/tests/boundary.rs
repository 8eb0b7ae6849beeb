// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The C interface (kernel/modules/qp4/core.h) and its use of memory that Rust and C share.

#[path = "../../p4engine/tests/build/mod.rs"]
mod build;

use std::cell::Cell;
use std::ffi::c_void;
use std::{ptr, slice};

use build::{entry_of_everything, everything};
use qbed_p4engine::control::{Answer, CloneSession, Replica, Request};
use qbed_p4engine::Context;
use qbed_p4kernel::*;

thread_local! {
    /// The bytes that qp4_extend returns.
    static EXTENDED: Cell<&'static [u8]> = const { Cell::new(&[]) };
}

const EMPTY: Bytes = Bytes { data: ptr::null_mut(), length: 0, capacity: 0 };

#[no_mangle]
extern "C" fn qp4_random_u32() -> u32 {
    7
}

/// Adds the size of the event to the owner, which is a number in this test.
///
/// # Safety
/// The contract of core.h applies.
#[no_mangle]
unsafe extern "C" fn qp4_event(owner: *mut c_void, _: u32, _: u32, bytes: *const u8, length: usize) {
    // SAFETY: the owner is `event_bytes` of the test, which outlives the engine; the bytes are valid by the contract of
    // core.h.
    unsafe { *owner.cast::<usize>() += slice::from_raw_parts(bytes, length).len() };
}

#[no_mangle]
extern "C" fn qp4_checksum(_: *mut c_void) -> u16 {
    9
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
unsafe extern "C" fn qp4_extend(_: *mut c_void, length: *mut usize) -> *const u8 {
    let more = EXTENDED.get();
    // SAFETY: by the contract of core.h.
    unsafe { *length = more.len() };
    if more.is_empty() {
        ptr::null()
    } else {
        more.as_ptr()
    }
}

/// Copies and frees bytes of the engine.
fn copy_and_free(mut source: Bytes) -> Vec<u8> {
    // SAFETY: the engine has written all fields, and the bytes are freed once.
    unsafe {
        let bytes = slice::from_raw_parts(source.data, source.length).to_vec();
        qp4_bytes_free(&raw mut source);
        bytes
    }
}

fn control(engine: *mut Loaded, request: &Request) -> Answer {
    let (request, mut answer) = (postcard::to_allocvec(request).unwrap(), EMPTY);
    // SAFETY: by the contract of core.h.
    let decoded = unsafe { qp4_engine_control(engine, request.as_ptr(), request.len(), &raw mut answer) };
    assert!(decoded);
    postcard::from_bytes(&copy_and_free(answer)).unwrap()
}

fn ingress(engine: *mut Loaded, context: *mut Context, packet: &[u8], from: *const Context) -> CDecision {
    let (length, instance) = (packet.len() as u32, if from.is_null() { 0 } else { 4 });
    let (arrival, mut decision) =
        (CArrival { now_us: 5, length, checksum: u32::MAX, port: 1, instance }, CDecision::default());
    // SAFETY: by the contract of core.h; `from` is not `context`.
    unsafe {
        let (arrival, decision) = (&raw const arrival, &raw mut decision);
        qp4_engine_ingress(engine, context, packet.as_ptr(), packet.len(), arrival, from, decision);
    }
    decision
}

/// The emission, and a copy of its headers.
fn egress(engine: *mut Loaded, context: *mut Context, packet: &[u8]) -> (CEmission, Vec<u8>) {
    let departure = CDeparture { now_us: 6, enqueued_us: 5, enqueued_depth: 1, dequeued_depth: 0, port: 3 };
    let mut emission = std::mem::MaybeUninit::<CEmission>::uninit();
    // SAFETY: by the contract of core.h; the engine writes the whole emission.
    unsafe {
        let (departure, emitted) = (&raw const departure, emission.as_mut_ptr());
        qp4_engine_egress(engine, context, packet.as_ptr(), packet.len(), departure, emitted);
        let emission = emission.assume_init();
        let headers = slice::from_raw_parts(emission.headers, emission.headers_bytes as usize).to_vec();
        (emission, headers)
    }
}

fn configure(engine: *mut Loaded) {
    assert_eq!(control(engine, &entry_of_everything()), Answer::Done);
    let clone = CloneSession { replicas: vec![Replica { port: 1, instance: 1 }], truncate_bytes: 40 };
    assert_eq!(control(engine, &Request::SetCloneSession { session: 3, clone: Some(clone) }), Answer::Done);
}

#[test]
fn an_invalid_program_is_rejected_with_a_message() {
    let mut error = EMPTY;
    // SAFETY: by the contract of core.h.
    let engine = unsafe { qp4_engine_load(b"x".as_ptr(), 1, ptr::null_mut(), &raw mut error) };
    assert!(engine.is_null() && !copy_and_free(error).is_empty());
}

#[test]
fn a_packet_and_its_copies() {
    let image = postcard::to_allocvec(&everything()).unwrap();
    let (mut event_bytes, mut error, packet) = (0usize, EMPTY, [1u8; 64]);
    // SAFETY: by the contract of core.h; each context and the engine are freed once.
    unsafe {
        let owner = (&raw mut event_bytes).cast();
        let engine = qp4_engine_load(image.as_ptr(), image.len(), owner, &raw mut error);
        assert!(!engine.is_null());
        configure(engine);
        let [first, second, third] = [(); 3].map(|()| qp4_context_new(engine));
        let decision = ingress(engine, first, &packet, ptr::null());
        assert!(
            decision.clone
                && decision.session == 3
                && qp4_context_parsed(first) <= qp4_engine_lookahead_bytes(engine)
        );
        let (mut replica, mut truncate) = (CReplica { port: 0, instance: 0 }, 0u32);
        let replica_at = &raw mut replica;
        assert!(qp4_engine_session(engine, 3, 0, replica_at, &raw mut truncate));
        assert_eq!((replica.port, replica.instance, truncate), (1, 1, 40));
        assert!(!qp4_engine_session(engine, 3, 1, replica_at, &raw mut truncate));
        assert!(!qp4_engine_group(engine, 1, 0, replica_at));
        let cloned = CArrival { now_us: 5, length: 64, checksum: u32::MAX, port: 1, instance: 1 };
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
    assert!(event_bytes > 0, "the program logs and sends digests");
}

#[test]
fn the_parser_gets_more_of_a_packet() {
    static PACKET: [u8; 64] = [1; 64];
    let image = postcard::to_allocvec(&everything()).unwrap();
    let (mut event_bytes, mut error) = (0usize, EMPTY);
    // SAFETY: by the contract of core.h; the context and the engine are freed once.
    unsafe {
        let owner = (&raw mut event_bytes).cast();
        let engine = qp4_engine_load(image.as_ptr(), image.len(), owner, &raw mut error);
        let context = qp4_context_new(engine);
        let parsed = |bytes: usize, more: &'static [u8]| {
            EXTENDED.set(more);
            let (arrival, mut decision) = (
                CArrival { now_us: 5, length: 64, checksum: u32::MAX, port: 1, instance: 0 },
                CDecision::default(),
            );
            let (packet, arrival) = (PACKET.as_ptr(), &raw const arrival);
            qp4_engine_ingress(engine, context, packet, bytes, arrival, ptr::null(), &raw mut decision);
            qp4_context_parsed(context)
        };
        let whole = parsed(64, &[]);
        assert!(whole > 1);
        assert_eq!(parsed(1, &PACKET), whole);
        assert!(parsed(1, &[]) < whole);
        qp4_context_free(context);
        qp4_engine_free(engine);
    }
}
