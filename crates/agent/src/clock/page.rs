// SPDX-License-Identifier: Apache-2.0
//! The guest's clock as a page of memory (docs/formats.md §2): CLOCK_MONOTONIC without a system call.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds, which the kernel writes while this process does not run. Mapped until the process ends.
pub struct Page(&'static AtomicU64);

impl Page {
    /// An error where the device has none: on the wall clock.
    pub fn map(gate: impl AsFd) -> io::Result<Self> {
        let descriptor = gate.as_fd().as_raw_fd();
        let length = size_of::<AtomicU64>();
        // SAFETY: a new mapping, nowhere in particular, which is never taken away: its first word is there as long as
        // the process is. Nothing writes it from here.
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
