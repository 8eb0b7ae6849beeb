// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Packets allocate no memory when they are forwarded, cloned, recirculated, hashed or sent as digests.

mod build;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use build::{arrival, departure, entry_of_everything, everything};
use qbed_p4engine::control::{Answer, CloneSession, Replica, Request};
use qbed_p4engine::packet::{Arrival, Instance, Shell};
use qbed_p4engine::Engine;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system's allocator; the counter is local to the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A shell that adds up the sizes of its arguments.
struct SumShell(u64);

impl Shell for SumShell {
    fn random(&mut self) -> u64 {
        7
    }

    fn digest(&mut self, _: u32, values: &[u8]) {
        self.0 += values.len() as u64;
    }

    fn log(&mut self, message: &str, values: &[i128]) {
        self.0 += (message.len() + values.len()) as u64;
    }

    fn failed(&mut self, _: &str) {}
}

#[test]
fn packets_allocate_nothing() {
    let mut engine = Engine::load(everything()).unwrap();
    assert_eq!(engine.control(&entry_of_everything()), Answer::Done);
    let clone = CloneSession { replicas: vec![Replica { port: 1, instance: 1 }], truncate_bytes: 0 };
    assert_eq!(engine.control(&Request::SetCloneSession { session: 3, clone: Some(clone) }), Answer::Done);
    let (mut context, mut other, mut third) = (engine.context(), engine.context(), engine.context());
    let (mut shell, packet) = (SumShell(0), [1u8; 64]);
    let before = ALLOCATIONS.with(Cell::get);
    for now_us in 0..if cfg!(miri) { 2 } else { 100 } {
        let decision = engine.ingress(&mut context, &packet, &arrival(1, 64, now_us), &mut shell);
        assert_eq!(decision.clone, Some(3));
        let preserved = Some(context.clone_fields());
        let cloned = Arrival {
            port: 1,
            length: 64,
            now_us,
            instance: Instance::IngressClone,
            preserved,
            checksum: None,
        };
        engine.parse_clone(&mut other, &packet, &cloned, &mut shell);
        engine.egress(&mut other, &packet, &departure(1, now_us), &mut shell);
        let emission = engine.egress(&mut context, &packet, &departure(3, now_us), &mut shell);
        assert!(emission.recirculate && emission.clone == Some(3) && context.headers().len() >= 12);
        engine.copy(&context, &mut other, Instance::EgressClone, 1);
        engine.egress(&mut other, &packet, &departure(1, now_us), &mut shell);
        let preserved = Some(context.resubmit_fields());
        let again = Arrival {
            port: 1,
            length: 64,
            now_us,
            instance: Instance::Recirculated,
            preserved,
            checksum: None,
        };
        engine.ingress(&mut third, &packet, &again, &mut shell);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    assert!(shell.0 > 0);
}
