// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! C interface of the P4 engine (crates/p4engine) for the kernel module `qp4`. kernel/modules/qp4/core.h declares each
//! function. All unsafe code of the engine is in this crate.
//!
//! kernel/rust-object.sh builds the crate for the kernel with the feature `kernel`, without a standard library. The
//! examples, the tests and clippy use it as an ordinary library.
//!
//! The contract of core.h, to which SAFETY comments refer, consists of guarantees of the C code. A pointer has its
//! declared type and is valid during the call. It is not null unless core.h allows it. No other code accesses its
//! target during the call (one CPU, bottom halves off). A length belongs to the pointer before it. Engines, contexts
//! and bytes were created by this crate and are freed once.
#![cfg_attr(feature = "kernel", no_std)]

extern crate alloc;

#[cfg(feature = "kernel")]
mod kernel;
mod shell;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use qbed_p4engine::control::Request;
use qbed_p4engine::packet::{Arrival, Departure, Forward, Instance};
use qbed_p4engine::{Context, Engine};

#[cfg(feature = "kernel")]
use kernel::translate;
#[cfg(not(feature = "kernel"))]
use qbed_p4native::translate;
use shell::Owner;

/// An engine and the switch that gets its digests and messages.
pub struct Loaded {
    engine: Engine,
    owner: Owner,
}

/// The engine that runs or ran last. A panic's message contains the name of its program.
static RUNNING: AtomicPtr<Loaded> = AtomicPtr::new(core::ptr::null_mut());

/// `struct qp4_bytes`
#[repr(C)]
pub struct Bytes {
    pub data: *mut u8,
    pub length: usize,
    pub capacity: usize,
}

/// `struct qp4_arrival`
#[repr(C)]
pub struct CArrival {
    pub now_us: u64,
    pub length: u32,
    pub checksum: u32,
    pub port: u16,
    pub instance: u8,
}

/// `struct qp4_decision`
#[repr(C)]
#[derive(Default)]
pub struct CDecision {
    pub truncate_bytes: u32,
    pub session: u16,
    pub to: u16,
    pub forward: u8,
    pub priority: u8,
    pub clone: bool,
    pub resubmit: bool,
}

/// `struct qp4_departure`
#[repr(C)]
pub struct CDeparture {
    pub now_us: u64,
    pub enqueued_us: u64,
    pub enqueued_depth: u32,
    pub dequeued_depth: u32,
    pub port: u16,
}

/// `struct qp4_emission`
#[repr(C)]
pub struct CEmission {
    pub headers: *const u8,
    pub headers_bytes: u32,
    pub replaced: u32,
    pub truncate_bytes: u32,
    pub session: u16,
    pub clone: bool,
    pub recirculate: bool,
    pub drop: bool,
}

/// `struct qp4_replica`
#[repr(C)]
pub struct CReplica {
    pub port: u16,
    pub instance: u16,
}

const DROP: u8 = 0;
const UNICAST: u8 = 1;
const MULTICAST: u8 = 2;

impl Bytes {
    fn from_vec(bytes: Vec<u8>) -> Bytes {
        let mut bytes = ManuallyDrop::new(bytes);
        Bytes { data: bytes.as_mut_ptr(), length: bytes.len(), capacity: bytes.capacity() }
    }
}

/// Returns the engine of a pointer and records that it runs.
///
/// # Safety
/// The contract of core.h applies.
unsafe fn enter<'a>(engine: *mut Loaded) -> &'a mut Loaded {
    RUNNING.store(engine, Ordering::Relaxed);
    // SAFETY: by the contract of core.h.
    unsafe { &mut *engine }
}

/// The name of the running program for a panic's message. Allocates no memory.
#[cfg(feature = "kernel")]
fn running_name() -> &'static str {
    // SAFETY: an engine is not freed while it runs, and qp4_engine_free resets the pointer.
    unsafe { RUNNING.load(Ordering::Relaxed).as_ref() }
        .map_or("no program", |loaded| &loaded.engine.program().name)
}

fn instance(number: u8) -> Instance {
    match number {
        1 => Instance::IngressClone,
        2 => Instance::EgressClone,
        4 => Instance::Recirculated,
        5 => Instance::Replicated,
        6 => Instance::Resubmitted,
        _ => Instance::Normal,
    }
}

/// A position in a packet. `u32::MAX`: none.
fn position(position: u32) -> Option<u32> {
    (position != u32::MAX).then_some(position)
}

/// The bytes that C code passes.
///
/// # Safety
/// The contract of core.h applies; `bytes` may be null if there are none.
unsafe fn slice_of<'a>(bytes: *const u8, length: usize) -> &'a [u8] {
    if bytes.is_null() {
        return &[];
    }
    // SAFETY: the pointer has `length` bytes by the contract of core.h.
    unsafe { slice::from_raw_parts(bytes, length) }
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_load(
    image: *const u8,
    length: usize,
    owner: *mut c_void,
    error: *mut Bytes,
) -> *mut Loaded {
    // SAFETY: by the contract of core.h.
    let image = unsafe { slice_of(image, length) };
    match Engine::from_bytes(image) {
        Ok(mut engine) => {
            translate(&mut engine);
            Box::into_raw(Box::new(Loaded { engine, owner: Owner(owner) }))
        }
        Err(invalid) => {
            // SAFETY: by the contract of core.h; the old value is plain data.
            unsafe { error.write(Bytes::from_vec(invalid.0.into_bytes())) };
            core::ptr::null_mut()
        }
    }
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_free(engine: *mut Loaded) {
    let _ = RUNNING.compare_exchange(engine, core::ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
    // SAFETY: qp4_engine_load returned the pointer, and it is freed once.
    drop(unsafe { Box::from_raw(engine) });
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_lookahead_bytes(engine: *const Loaded) -> u32 {
    // SAFETY: by the contract of core.h.
    unsafe { &*engine }.engine.lookahead_bytes().unwrap_or(u32::MAX)
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_defers_checksums(engine: *const Loaded) -> bool {
    // SAFETY: by the contract of core.h.
    unsafe { &*engine }.engine.defers_checksums()
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_deferred_checksum(context: *const Context) -> u32 {
    // SAFETY: by the contract of core.h.
    unsafe { &*context }.deferred_checksum().unwrap_or(u32::MAX)
}

/// # Safety
/// The contract of core.h applies; `emission` may be null.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_complete_checksum(
    engine: *mut Loaded,
    context: *mut Context,
    checksum: u16,
    emission: *mut CEmission,
) {
    // SAFETY: by the contract of core.h.
    let (loaded, context, emission) = unsafe { (enter(engine), &mut *context, emission.as_mut()) };
    loaded.engine.complete_checksum(context, checksum, &mut loaded.owner);
    if let Some(emission) = emission {
        let headers = context.headers();
        (emission.headers, emission.headers_bytes) = (headers.as_ptr(), headers.len() as u32);
    }
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_new(engine: *const Loaded) -> *mut Context {
    // SAFETY: by the contract of core.h.
    Box::into_raw(Box::new(unsafe { &*engine }.engine.context()))
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_free(context: *mut Context) {
    // SAFETY: qp4_context_new returned the pointer, and it is freed once.
    drop(unsafe { Box::from_raw(context) });
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_parsed(context: *const Context) -> u32 {
    // SAFETY: by the contract of core.h.
    unsafe { &*context }.parsed()
}

/// # Safety
/// The contract of core.h applies; `data` may be null.
#[no_mangle]
pub unsafe extern "C" fn qp4_bytes_free(bytes: *mut Bytes) {
    // SAFETY: by the contract of core.h; the remaining value is plain data that is not used again.
    let bytes = unsafe { bytes.read() };
    if !bytes.data.is_null() {
        // SAFETY: Bytes::from_vec got the parts from a vector, and they are freed once.
        drop(unsafe { Vec::from_raw_parts(bytes.data, bytes.length, bytes.capacity) });
    }
}

/// # Safety
/// The contract of core.h applies; `from` may be null.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_ingress(
    engine: *mut Loaded,
    context: *mut Context,
    packet: *const u8,
    length: usize,
    arrival: *const CArrival,
    from: *const Context,
    decision: *mut CDecision,
) {
    // SAFETY: by the contract of core.h; `from` is not `context`.
    let (loaded, context, packet, c_arrival, from) =
        unsafe { (enter(engine), &mut *context, slice_of(packet, length), &*arrival, from.as_ref()) };
    let arrival = Arrival {
        port: c_arrival.port,
        length: c_arrival.length,
        now_us: c_arrival.now_us,
        instance: instance(c_arrival.instance),
        preserved: from.map(Context::resubmit_fields),
        checksum: position(c_arrival.checksum),
    };
    let decided = loaded.engine.ingress(context, packet, &arrival, &mut loaded.owner);
    let (forward, to, priority) = match decided.forward {
        Forward::Drop => (DROP, 0, 0),
        Forward::Unicast { port, priority } => (UNICAST, port, priority),
        Forward::Multicast { group } => (MULTICAST, group, 0),
    };
    let decided = CDecision {
        truncate_bytes: decided.truncate_bytes.unwrap_or(u32::MAX),
        session: decided.clone.unwrap_or(0),
        to,
        forward,
        priority,
        clone: decided.clone.is_some(),
        resubmit: decided.resubmit,
    };
    // SAFETY: by the contract of core.h.
    unsafe { decision.write(decided) };
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_parse_clone(
    engine: *mut Loaded,
    context: *mut Context,
    packet: *const u8,
    length: usize,
    arrival: *const CArrival,
    from: *const Context,
) {
    // SAFETY: by the contract of core.h; `from` is not `context`.
    let (loaded, context, packet, c_arrival, from) =
        unsafe { (enter(engine), &mut *context, slice_of(packet, length), &*arrival, &*from) };
    let arrival = Arrival {
        port: c_arrival.port,
        length: c_arrival.length,
        now_us: c_arrival.now_us,
        instance: instance(c_arrival.instance),
        preserved: Some(from.clone_fields()),
        checksum: position(c_arrival.checksum),
    };
    loaded.engine.parse_clone(context, packet, &arrival, &mut loaded.owner);
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_egress(
    engine: *mut Loaded,
    context: *mut Context,
    packet: *const u8,
    length: usize,
    departure: *const CDeparture,
    emission: *mut CEmission,
) {
    // SAFETY: by the contract of core.h.
    let (loaded, context, packet, c_departure) =
        unsafe { (enter(engine), &mut *context, slice_of(packet, length), &*departure) };
    let departure = Departure {
        port: c_departure.port,
        now_us: c_departure.now_us,
        enqueued_us: c_departure.enqueued_us,
        enqueued_depth: c_departure.enqueued_depth,
        dequeued_depth: c_departure.dequeued_depth,
    };
    let emitted = loaded.engine.egress(context, packet, &departure, &mut loaded.owner);
    let headers = context.headers();
    let emitted = CEmission {
        headers: headers.as_ptr(),
        headers_bytes: headers.len() as u32,
        replaced: emitted.replaced,
        truncate_bytes: emitted.truncate_bytes.unwrap_or(u32::MAX),
        session: emitted.clone.unwrap_or(0),
        clone: emitted.clone.is_some(),
        recirculate: emitted.recirculate,
        drop: emitted.drop,
    };
    // SAFETY: by the contract of core.h.
    unsafe { emission.write(emitted) };
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_copy(
    engine: *const Loaded,
    from: *const Context,
    to: *mut Context,
    number: u8,
    rid: u16,
) {
    // SAFETY: by the contract of core.h; `from` is not `to`.
    let (loaded, from, to) = unsafe { (&*engine, &*from, &mut *to) };
    loaded.engine.copy(from, to, instance(number), rid);
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_duplicate(from: *const Context, to: *mut Context) {
    // SAFETY: by the contract of core.h; `from` is not `to`.
    let (from, to) = unsafe { (&*from, &mut *to) };
    to.clone_from(from);
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_group(
    engine: *const Loaded,
    group: u16,
    index: u32,
    replica: *mut CReplica,
) -> bool {
    // SAFETY: by the contract of core.h.
    let loaded = unsafe { &*engine };
    let Some(found) = loaded.engine.group(group).and_then(|replicas| replicas.get(index as usize)) else {
        return false;
    };
    // SAFETY: by the contract of core.h.
    unsafe { replica.write(CReplica { port: found.port, instance: found.instance }) };
    true
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_session(
    engine: *const Loaded,
    session: u16,
    index: u32,
    replica: *mut CReplica,
    truncate_bytes: *mut u32,
) -> bool {
    // SAFETY: by the contract of core.h.
    let loaded = unsafe { &*engine };
    let Some(session) = loaded.engine.session(session) else { return false };
    let Some(found) = session.replicas.get(index as usize) else { return false };
    // SAFETY: by the contract of core.h.
    unsafe {
        replica.write(CReplica { port: found.port, instance: found.instance });
        truncate_bytes.write(session.truncate_bytes);
    }
    true
}

/// # Safety
/// The contract of core.h applies.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_control(
    engine: *mut Loaded,
    request: *const u8,
    length: usize,
    answer: *mut Bytes,
) -> bool {
    // SAFETY: by the contract of core.h.
    let (loaded, request) = unsafe { (enter(engine), slice_of(request, length)) };
    let Ok(request) = postcard::from_bytes::<Request>(request) else { return false };
    let Ok(encoded) = postcard::to_allocvec(&loaded.engine.control(&request)) else { return false };
    // SAFETY: by the contract of core.h; the old value is plain data.
    unsafe { answer.write(Bytes::from_vec(encoded)) };
    true
}
