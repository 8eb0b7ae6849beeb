// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Translation of counters and of P4's registers, which are arrays.

use crate::arith::bits::{ones, Place};
use crate::control;
use crate::ir::{ArrayId, FieldId, Reg};
use crate::native::assembler::{Alu, Condition, Label, Memory, Shift, FRAME, RAX, RCX, RDX, RSI};
use crate::native::translate::{number, Translator};
use crate::native::{
    Span, COUNT_BYTES, COUNT_PACKETS, FRAME_ARRAYS, FRAME_ARRIVED, FRAME_COUNTERS, SPAN_ADDRESS, SPAN_SIZE,
};

impl<'a> Translator<'a> {
    /// Sets RSI to the address of an element of a span, or jumps to `outside`. `spans`: the offset of their address in
    /// the frame. `bytes`: the size of an element, a power of two. Overwrites RAX and RDX.
    fn element(&mut self, spans: i32, span: u16, index: Reg, bytes: usize, outside: Label) {
        self.get(index);
        let asm = &mut self.asm;
        let span = i32::from(span) * size_of::<Span>() as i32;
        asm.test(RDX);
        asm.jump_if(Condition::NotEqual, outside);
        asm.load64(RSI, Memory::new(FRAME, spans));
        asm.alu_memory(Alu::Compare, RAX, Memory::new(RSI, span + SPAN_SIZE));
        asm.jump_if(Condition::AboveOrEqual, outside);
        asm.shift(Shift::Left, RAX, bytes.trailing_zeros() as u8);
        asm.load64(RSI, Memory::new(RSI, span + SPAN_ADDRESS));
        asm.alu(Alu::Add, RSI, RAX);
    }

    /// Counts a packet, if the counter has the index.
    pub(super) fn count(&mut self, counter: u16, index: Reg) -> Option<()> {
        if usize::from(counter) >= self.state.counter_spans.len() {
            return None;
        }
        let outside = self.asm.local();
        self.element(FRAME_COUNTERS, counter, index, size_of::<control::Count>(), outside);
        let asm = &mut self.asm;
        asm.set(RCX, 1);
        asm.add_to_memory(Memory::new(RSI, COUNT_PACKETS), RCX);
        asm.load64(RCX, Memory::new(FRAME, FRAME_ARRIVED));
        asm.add_to_memory(Memory::new(RSI, COUNT_BYTES), RCX);
        asm.bind(outside);
        Some(())
    }

    /// The width of an array's values, if they are unsigned numbers of 64 bits at most.
    fn short_array(&self, array: ArrayId) -> Option<u32> {
        let array = self.state.arrays.get(usize::from(array))?;
        (array.limbs == 1 && !array.signed).then_some(array.width)
    }

    /// Stores a value of an array in a field, if the array has the index.
    pub(super) fn register_read(&mut self, to: FieldId, array: ArrayId, index: Reg) -> Option<()> {
        self.short_array(array)?;
        let (field, outside) = (self.code.field(to), self.asm.local());
        if field.width > 64 {
            return None;
        }
        self.element(FRAME_ARRAYS, array, index, size_of::<u64>(), outside);
        self.asm.load64(RAX, Memory::new(RSI, 0));
        self.store(Place::new(field.at, field.width))?;
        self.asm.bind(outside);
        Some(())
    }

    pub(super) fn register_write(&mut self, array: ArrayId, index: Reg, from: Reg) -> Option<()> {
        let (width, outside) = (self.short_array(array)?, self.asm.local());
        self.element(FRAME_ARRAYS, array, index, size_of::<u64>(), outside);
        self.asm.load64(RAX, number(from));
        if width < 64 {
            self.mask(RAX, ones(width));
        }
        self.asm.store64(Memory::new(RSI, 0), RAX);
        self.asm.bind(outside);
        Some(())
    }
}
