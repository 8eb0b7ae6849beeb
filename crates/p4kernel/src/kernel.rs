// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Memory allocator and panic handler through the module's C code (kernel/modules/qp4/memory.c).

use core::alloc::{GlobalAlloc, Layout};
use core::fmt::{self, Write};
use core::panic::PanicInfo;

use qbed_p4engine::Engine;

use crate::running_name;

extern "C" {
    fn qp4_allocate(size: usize, align: usize) -> *mut u8;
    fn qp4_deallocate(memory: *mut u8);
    fn qp4_allocate_code(size: usize) -> *mut u8;
    fn qp4_free_code(memory: *mut u8);
    fn qp4_panicked(message: *const u8, length: usize) -> !;
}

struct Kernel;

// SAFETY: qp4_allocate returns null, or memory with this size and alignment that is valid until qp4_deallocate.
unsafe impl GlobalAlloc for Kernel {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the function may be called in every context of the engine.
        unsafe { qp4_allocate(layout.size(), layout.align()) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: the caller guarantees that `alloc` returned the memory.
        unsafe { qp4_deallocate(memory) };
    }
}

#[global_allocator]
static KERNEL: Kernel = Kernel;

/// Executable memory of the kernel.
struct Code {
    memory: *mut u8,
    bytes: usize,
}

// SAFETY: only this value has the pointer, and the kernel frees memory on any CPU.
unsafe impl Send for Code {}
// SAFETY: shared access only reads.
unsafe impl Sync for Code {}

impl AsRef<[u8]> for Code {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: qp4_allocate_code returned that many bytes, and `translate` has written them.
        unsafe { core::slice::from_raw_parts(self.memory, self.bytes) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: qp4_allocate_code returned the memory, and it is freed once.
        unsafe { qp4_free_code(self.memory) };
    }
}

/// Translates the engine's program. The interpreter runs it in a kernel without executable memory for modules.
pub fn translate(engine: &mut Engine) {
    engine.translate(|code| {
        // SAFETY: a program is loaded in process context.
        let memory = unsafe { qp4_allocate_code(code.len()) };
        if memory.is_null() {
            return None;
        }
        // SAFETY: the memory is new and has this size.
        unsafe { memory.copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        // SAFETY: the memory is executable, has the code that this engine passed, and nothing else accesses it.
        Some(unsafe { qbed_p4native::executable(Code { memory, bytes: code.len() }) })
    });
}

/// The message of a panic in one line, truncated. It is not allocated, since memory may be exhausted.
struct Line {
    bytes: [u8; 512],
    used: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let Some(next) = self.bytes.get_mut(self.used) else { break };
            *next = if byte == b'\n' { b' ' } else { byte };
            self.used += 1;
        }
        Ok(())
    }
}

#[panic_handler]
fn panic(info: &PanicInfo) -> ! {
    let mut line = Line { bytes: [0; 512], used: 0 };
    let _ = match info.location() {
        Some(location) => {
            write!(line, "{}: {}:{}: {}", running_name(), location.file(), location.line(), info.message())
        }
        None => write!(line, "{}: {}", running_name(), info.message()),
    };
    // SAFETY: the buffer has `used` bytes, and the function does not return.
    unsafe { qp4_panicked(line.bytes.as_ptr(), line.used) }
}
