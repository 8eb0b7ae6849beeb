// SPDX-License-Identifier: Apache-2.0
//! Compiles BMv2's JSON to the engine's program: resolves names and compiles expressions. Errors name their place.
//!
//! The phases, in order: `layout` (headers, fields), `objects` (arrays, calculations, lists), `actions`, `parse`,
//! `checksum`, `control` (tables, conditionals), `optimize`. All use `operands` to read expressions and `evaluate` and
//! `assign` to generate code.

mod actions;
mod assign;
mod checksum;
mod control;
mod evaluate;
mod expression;
mod layout;
mod number;
mod objects;
mod operands;
mod optimize;
mod parse;
mod registers;

use std::collections::HashMap;

use qbed_p4engine::program::{ActionId, ArrayId, FieldId, HeaderId, ListId, Pc, Program, StackId, TableId};

use crate::bmv2::Document;
use crate::error::{refuse, At, LoadError, Result};
use layout::Layout;

/// Limit on headers and metadata, which are copied with each packet.
const MAX_PHV_BYTES: u64 = 1 << 20;
/// Limit on nested brackets in the file.
const MAX_DEPTH: usize = 1000;
/// Stack for MAX_DEPTH levels: each takes 8 KiB and more without optimizations.
const STACK_BYTES: usize = 64 << 20;
/// Limit on the size of all registers of a program.
const MAX_ARRAY_BYTES: u64 = 1 << 28;

/// Convert a count to the program's integer type, or fail with "too many WHAT".
fn narrow<T: TryFrom<usize>>(count: usize, kind: &str) -> Result<T> {
    T::try_from(count).map_err(|_| LoadError::new(format!("too many {kind}: {count}")))
}

/// Load a program from BMv2's JSON.
///
/// It runs in a thread with a stack for MAX_DEPTH: long concatenations nest some hundred levels.
pub fn load(text: &[u8]) -> Result<Program> {
    let mut program = load_unoptimized(text)?;
    optimize::optimize(&mut program);
    Ok(program)
}

/// Load a program without `optimize`, for tests of it.
pub fn load_unoptimized(text: &[u8]) -> Result<Program> {
    let depth = depth(text);
    if depth > MAX_DEPTH {
        return refuse(format!("{depth} nested levels: at most {MAX_DEPTH} are supported"));
    }
    let run = || Document::parse(text).and_then(|document| Loader::new(&document)?.run());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| LoadError::new(format!("cannot start a thread: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Depth of a text's nested brackets, outside of strings.
fn depth(text: &[u8]) -> usize {
    let (mut open, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for letter in text {
        match letter {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' if !quoted => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// State of the compilation.
struct Loader<'a> {
    document: &'a Document,
    program: Program,
    layout: Layout,
    // Objects by their names and ids in the JSON.
    arrays: HashMap<&'a str, ArrayId>,
    counters: HashMap<&'a str, u16>,
    meters: HashMap<&'a str, u16>,
    hashes: HashMap<&'a str, u16>,
    value_sets: HashMap<&'a str, u16>,
    lists: HashMap<u32, ListId>,
    digests: HashMap<u32, u16>,
    actions: HashMap<u32, ActionId>,
    /// Expressions to evaluate before a calculation or a digest, with their register or scratch field.
    hash_inputs: HashMap<u16, Vec<(u16, expression::Expression)>>,
    digest_inputs: HashMap<u16, Vec<(u16, expression::Expression)>>,
    /// Table keys that are expressions, each with its scratch field.
    computed_keys: HashMap<TableId, Vec<(FieldId, expression::Expression)>>,
    registers: registers::Registers,
}

impl<'a> Loader<'a> {
    fn new(document: &'a Document) -> Result<Self> {
        let mut program = Program::default();
        program.name = document.program.clone().unwrap_or_default();
        program.errors = document.errors.clone();
        let layout = Layout::new(document, &mut program)?;
        Ok(Self {
            document,
            program,
            layout,
            arrays: HashMap::new(),
            counters: HashMap::new(),
            meters: HashMap::new(),
            hashes: HashMap::new(),
            value_sets: HashMap::new(),
            lists: HashMap::new(),
            digests: HashMap::new(),
            actions: HashMap::new(),
            hash_inputs: HashMap::new(),
            digest_inputs: HashMap::new(),
            computed_keys: HashMap::new(),
            registers: registers::Registers::default(),
        })
    }

    fn run(mut self) -> Result<Program> {
        if let Some(unknown) = self.document.extern_instances.first() {
            return refuse(format!("extern type {} is not part of v1model", unknown.kind))
                .at(|| format!("extern_instances[0] {}", unknown.name));
        }
        self.objects()?;
        self.compile_actions()?;
        self.program.entry.parser = self.parser()?;
        self.program.entry.verify = self.checksums(checksum::Phase::Verify)?;
        self.program.entry.ingress = self.pipeline("ingress")?;
        self.program.entry.egress = self.pipeline("egress")?;
        self.program.entry.update = self.checksums(checksum::Phase::Update)?;
        self.program.entry.deparser = self.deparser()?;
        self.finish()
    }

    fn finish(mut self) -> Result<Program> {
        self.registers.report(&mut self.program);
        let phv_bytes = self.layout.bytes();
        if phv_bytes > MAX_PHV_BYTES {
            return refuse(format!(
                "headers and metadata take {phv_bytes} bytes: at most {MAX_PHV_BYTES} are supported"
            ));
        }
        self.program.phv_bytes = phv_bytes as u32;
        narrow::<u16>(self.program.fields.len(), "fields")?;
        Ok(self.program)
    }

    /// The position of the next instruction.
    fn next_pc(&self) -> Pc {
        self.program.code.len() as Pc
    }

    fn header(&self, name: &str) -> Result<HeaderId> {
        self.layout.headers.get(name).copied().ok_or_else(|| LoadError::new(format!("no header {name}")))
    }

    fn stack(&self, name: &str) -> Result<StackId> {
        self.layout.stacks.get(name).copied().ok_or_else(|| LoadError::new(format!("no header stack {name}")))
    }
}
