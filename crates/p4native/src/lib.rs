// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Executable memory for the machine code of `Engine::translate`. The engine itself has no unsafe code.
#![no_std]

extern crate alloc;

#[cfg(feature = "process")]
mod process;

#[cfg(feature = "process")]
pub use process::translate;

use alloc::boxed::Box;

use qbed_p4engine::Executable;

/// Machine code that an engine can run.
///
/// # Safety
/// The memory is executable, begins with the code that `Engine::translate` passed, and stays in place and unchanged
/// until it is dropped. Only that engine gets the result.
pub unsafe fn executable<M>(memory: M) -> Executable
where
    M: AsRef<[u8]> + Send + Sync + 'static,
{
    // SAFETY: by this function's contract, the code begins with such a function.
    let enter = unsafe { core::mem::transmute::<*const u8, qbed_p4engine::Enter>(memory.as_ref().as_ptr()) };
    Executable { enter, memory: Box::new(memory) }
}
