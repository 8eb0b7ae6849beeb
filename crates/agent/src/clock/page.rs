// SPDX-License-Identifier: Apache-2.0
//! The guest's clock page (docs/formats.md §2): CLOCK_MONOTONIC without a system call.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapped word with the nanoseconds of CLOCK_MONOTONIC. The kernel writes it only while this process does not run.
pub struct ClockPage(&'static AtomicU64);

impl ClockPage {
    /// Maps the page for the lifetime of the process. Fails on the wall clock, where the device has no page.
    pub fn map(gate: impl AsFd) -> io::Result<Self> {
        let descriptor = gate.as_fd().as_raw_fd();
        let length = size_of::<AtomicU64>();
        // SAFETY: a new mapping at an address of the kernel's choice, which is never unmapped, so that its first word
        // lives as long as the process. This process only reads it.
        unsafe {
            let start = libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, descriptor, 0);
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok(Self(&*start.cast::<AtomicU64>()))
        }
    }

    pub fn read_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
