// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! What a standard library would have: memory, and an end, both of the module's C (kernel/modules/qp4/memory.c).

use core::alloc::{GlobalAlloc, Layout};
use core::fmt::{self, Write};
use core::panic::PanicInfo;

use crate::running_name;

extern "C" {
    fn qp4_allocate(size: usize, align: usize) -> *mut u8;
    fn qp4_deallocate(memory: *mut u8);
    fn qp4_panicked(message: *const u8, length: usize) -> !;
}

struct Kernel;

// SAFETY: memory as large and as aligned as asked for, or null; it stays until it is given back.
unsafe impl GlobalAlloc for Kernel {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: may be called wherever the engine may.
        unsafe { qp4_allocate(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: from `alloc`, as the caller says.
        unsafe { qp4_deallocate(memory) };
    }
}

#[global_allocator]
static KERNEL: Kernel = Kernel;

/// One line of a panic, cut where it ends; without memory, which may be what there is none of.
struct Line {
    bytes: [u8; 512],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let Some(place) = self.bytes.get_mut(self.used) else { break };
            *place = if byte == b'\n' { b' ' } else { byte };
            self.used += 1;
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    let mut line = Line { bytes: [0; 512], used: 0 };
    let _ = match info.location() {
        Some(place) => {
            write!(line, "{}: {}:{}: {}", running_name(), place.file(), place.line(), info.message())
        }
        None => write!(line, "{}: {}", running_name(), info.message()),
    };
    // SAFETY: so many bytes are there; it does not return.
    unsafe { qp4_panicked(line.bytes.as_ptr(), line.used) }
}
