// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! The P4 engine (crates/p4engine) as a module of the guest's kernel calls it: each function here is a line of
//! kernel/modules/qp4/core.h. What is unsafe about it is here, and nowhere else.
//!
//! Built for the kernel by kernel/rust-object.sh, with the feature `kernel`: without a standard library. Anywhere
//! else it is a library like others, for its examples and clippy.
//!
//! What C promises, and each SAFETY comment means by *as core.h says*: pointers are of the type that they are
//! declared with, not null unless it says so, valid during the call, and nobody else uses what they point to
//! meanwhile (one CPU, bottom halves off); lengths are those of what stands before them; engines, contexts and
//! bytes come from here and are given back once.
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

use shell::Owner;

/// With whose digests and messages are told.
pub struct Loaded {
    engine: Engine,
    owner: Owner,
}

/// Whose program runs, or ran last: a fault's message names it.
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
    fn of(bytes: Vec<u8>) -> Bytes {
        let mut bytes = ManuallyDrop::new(bytes);
        Bytes { data: bytes.as_mut_ptr(), length: bytes.len(), capacity: bytes.capacity() }
    }
}

/// The engine of a pointer, which runs from now on.
///
/// # Safety
/// As core.h says.
unsafe fn running<'a>(engine: *mut Loaded) -> &'a mut Loaded {
    RUNNING.store(engine, Ordering::Relaxed);
    // SAFETY: as core.h says.
    unsafe { &mut *engine }
}

/// The program's name that a fault is told with; no memory is asked for.
#[cfg(feature = "kernel")]
fn running_name() -> &'static str {
    // SAFETY: an engine is not given back while it runs, and qp4_engine_free forgets it.
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

/// # Safety
/// As core.h says; `bytes` may be null if there are none.
unsafe fn given<'a>(bytes: *const u8, length: usize) -> &'a [u8] {
    if bytes.is_null() {
        return &[];
    }
    // SAFETY: `length` bytes stand there, as core.h says.
    unsafe { slice::from_raw_parts(bytes, length) }
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_load(
    image: *const u8,
    length: usize,
    owner: *mut c_void,
    why: *mut Bytes,
) -> *mut Loaded {
    // SAFETY: as core.h says.
    let image = unsafe { given(image, length) };
    match Engine::from_bytes(image) {
        Ok(engine) => Box::into_raw(Box::new(Loaded { engine, owner: Owner(owner) })),
        Err(unfit) => {
            // SAFETY: as core.h says; what was there is plain data.
            unsafe { why.write(Bytes::of(unfit.0.into_bytes())) };
            core::ptr::null_mut()
        }
    }
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_free(engine: *mut Loaded) {
    let _ = RUNNING.compare_exchange(engine, core::ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
    // SAFETY: from qp4_engine_load, and given back once.
    drop(unsafe { Box::from_raw(engine) });
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_reach(engine: *const Loaded) -> u32 {
    // SAFETY: as core.h says.
    unsafe { &*engine }.engine.reach().unwrap_or(u32::MAX)
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_new(engine: *const Loaded) -> *mut Context {
    // SAFETY: as core.h says.
    Box::into_raw(Box::new(unsafe { &*engine }.engine.context()))
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_free(context: *mut Context) {
    // SAFETY: from qp4_context_new, and given back once.
    drop(unsafe { Box::from_raw(context) });
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_parsed(context: *const Context) -> u32 {
    // SAFETY: as core.h says.
    unsafe { &*context }.parsed()
}

/// # Safety
/// As core.h says; all zero is no bytes.
#[no_mangle]
pub unsafe extern "C" fn qp4_bytes_free(bytes: *mut Bytes) {
    // SAFETY: as core.h says; what is left there is plain data that means nothing.
    let bytes = unsafe { bytes.read() };
    if !bytes.data.is_null() {
        // SAFETY: the parts of a vector that Bytes::of took apart, given back once.
        drop(unsafe { Vec::from_raw_parts(bytes.data, bytes.length, bytes.capacity) });
    }
}

/// # Safety
/// As core.h says; `from` may be null.
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
    // SAFETY: as core.h says; `from` is not `context`.
    let (loaded, context, packet, told, from) =
        unsafe { (running(engine), &mut *context, given(packet, length), &*arrival, from.as_ref()) };
    let arrival = Arrival {
        port: told.port,
        length: told.length,
        now_us: told.now_us,
        instance: instance(told.instance),
        kept: from.map(Context::again_kept),
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
    // SAFETY: as core.h says.
    unsafe { decision.write(decided) };
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_parse_clone(
    engine: *mut Loaded,
    context: *mut Context,
    packet: *const u8,
    length: usize,
    arrival: *const CArrival,
    from: *const Context,
) {
    // SAFETY: as core.h says; `from` is not `context`.
    let (loaded, context, packet, told, from) =
        unsafe { (running(engine), &mut *context, given(packet, length), &*arrival, &*from) };
    let arrival = Arrival {
        port: told.port,
        length: told.length,
        now_us: told.now_us,
        instance: instance(told.instance),
        kept: Some(from.clone_kept()),
    };
    loaded.engine.parse_clone(context, packet, &arrival, &mut loaded.owner);
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_egress(
    engine: *mut Loaded,
    context: *mut Context,
    packet: *const u8,
    length: usize,
    departure: *const CDeparture,
    emission: *mut CEmission,
) {
    // SAFETY: as core.h says.
    let (loaded, context, packet, told) =
        unsafe { (running(engine), &mut *context, given(packet, length), &*departure) };
    let departure = Departure {
        port: told.port,
        now_us: told.now_us,
        enqueued_us: told.enqueued_us,
        enqueued_depth: told.enqueued_depth,
        dequeued_depth: told.dequeued_depth,
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
    // SAFETY: as core.h says.
    unsafe { emission.write(emitted) };
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_copy(
    engine: *const Loaded,
    from: *const Context,
    to: *mut Context,
    number: u8,
    rid: u16,
) {
    // SAFETY: as core.h says; `from` is not `to`.
    let (loaded, from, to) = unsafe { (&*engine, &*from, &mut *to) };
    loaded.engine.copy(from, to, instance(number), rid);
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_context_duplicate(from: *const Context, to: *mut Context) {
    // SAFETY: as core.h says; `from` is not `to`.
    let (from, to) = unsafe { (&*from, &mut *to) };
    to.clone_from(from);
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_group(
    engine: *const Loaded,
    group: u16,
    index: u32,
    replica: *mut CReplica,
) -> bool {
    // SAFETY: as core.h says.
    let loaded = unsafe { &*engine };
    let Some(found) = loaded.engine.group(group).and_then(|replicas| replicas.get(index as usize)) else {
        return false;
    };
    // SAFETY: as core.h says.
    unsafe { replica.write(CReplica { port: found.port, instance: found.instance }) };
    true
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_session(
    engine: *const Loaded,
    session: u16,
    index: u32,
    replica: *mut CReplica,
    truncate_bytes: *mut u32,
) -> bool {
    // SAFETY: as core.h says.
    let loaded = unsafe { &*engine };
    let Some(session) = loaded.engine.session(session) else { return false };
    let Some(found) = session.replicas.get(index as usize) else { return false };
    // SAFETY: as core.h says.
    unsafe {
        replica.write(CReplica { port: found.port, instance: found.instance });
        truncate_bytes.write(session.truncate_bytes);
    }
    true
}

/// # Safety
/// As core.h says.
#[no_mangle]
pub unsafe extern "C" fn qp4_engine_control(
    engine: *mut Loaded,
    request: *const u8,
    length: usize,
    answer: *mut Bytes,
) -> bool {
    // SAFETY: as core.h says.
    let (loaded, request) = unsafe { (running(engine), given(request, length)) };
    let Ok(request) = postcard::from_bytes::<Request>(request) else { return false };
    let Ok(told) = postcard::to_allocvec(&loaded.engine.control(&request)) else { return false };
    // SAFETY: as core.h says; what was there is plain data.
    unsafe { answer.write(Bytes::of(told)) };
    true
}
