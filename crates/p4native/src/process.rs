// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Executable memory of a process.

use qbed_p4engine::Engine;

/// Translates the engine's program. The interpreter runs it where a process gets no executable memory.
#[cfg(target_arch = "x86_64")]
pub fn translate(engine: &mut Engine) {
    // Miri runs no machine code.
    if cfg!(miri) {
        return;
    }
    engine.translate(|code| {
        let mut memory = memmap2::MmapMut::map_anon(code.len()).ok()?;
        memory.get_mut(..code.len())?.copy_from_slice(code);
        let memory = memory.make_exec().ok()?;
        // SAFETY: the mapping is private, read-only and executable, and has the code that this engine passed.
        Some(unsafe { crate::executable(memory) })
    });
}

#[cfg(not(target_arch = "x86_64"))]
pub fn translate(_engine: &mut Engine) {}
