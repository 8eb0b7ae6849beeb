// SPDX-License-Identifier: Apache-2.0
//! From BMv2's JSON to the engine's program: every name resolved, every expression compiled, or a refusal that says where.
//!
//! The order is that of dependence: `layout` (headers, fields), `objects` (arrays, calculations, lists), `actions`,
//! `control` (tables, conditionals), `parse`, `checksum`. `expression` and `code` serve them all, `tidy` comes last.

mod actions;
mod checksum;
mod code;
mod control;
mod expression;
mod layout;
pub(crate) mod liveness;
mod number;
mod objects;
mod optimize;
mod parse;

use std::collections::HashMap;

use qbed_p4engine::program::{ActionId, ArrayId, FieldId, HeaderId, ListId, Pc, Program, StackId, TableId};

use crate::bmv2::Document;
use crate::error::{refuse, At, LoadError, Result};
use layout::Layout;

/// An area of bytes is copied with every packet: what is larger is a mistake.
const MOST_AREA_BYTES: u64 = 1 << 20;
/// Levels of brackets in the file, and a stack that holds what reads so many (8 KiB each and more, without optimizations).
const MOST_DEPTH: usize = 1000;
const STACK_BYTES: usize = 64 << 20;
/// Of all registers of a program together.
const MOST_ARRAY_BYTES: u64 = 1 << 28;

/// A number of things that the program's form can count, or a refusal that names them.
fn narrow<T: TryFrom<usize>>(count: usize, what: &str) -> Result<T> {
    T::try_from(count).map_err(|_| LoadError::new(format!("too many {what}: {count}")))
}

/// Loads a program from the file's bytes.
///
/// In a thread with a stack for expressions that nest as deep as they may: long concatenations nest some hundred levels.
pub fn load(text: &[u8]) -> Result<Program> {
    let mut program = load_unoptimized(text)?;
    optimize::optimize(&mut program);
    Ok(program)
}

/// With the steps that nothing needs: what `load` is compared with.
pub fn load_unoptimized(text: &[u8]) -> Result<Program> {
    let depth = depth(text);
    if depth > MOST_DEPTH {
        return refuse(format!("nested {depth} levels deep: at most {MOST_DEPTH} are possible"));
    }
    let run = || Document::parse(text).and_then(|document| Loader::new(&document)?.run());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, run);
        let thread = thread.map_err(|error| LoadError::new(format!("no thread to load it in: {error}")))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// How deep a text's brackets nest, those in its strings aside.
fn depth(text: &[u8]) -> usize {
    let (mut open, mut most, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for letter in text {
        match letter {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                open += 1;
                most = most.max(open);
            }
            b']' | b'}' if !quoted => open = open.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// What the parts of the loader share.
struct Loader<'a> {
    document: &'a Document,
    program: Program,
    layout: Layout,
    /// By the JSON's names and numbers.
    arrays: HashMap<&'a str, ArrayId>,
    counters: HashMap<&'a str, u16>,
    meters: HashMap<&'a str, u16>,
    hashes: HashMap<&'a str, u16>,
    value_sets: HashMap<&'a str, u16>,
    lists: HashMap<u32, ListId>,
    digests: HashMap<u32, u16>,
    actions: HashMap<u32, ActionId>,
    /// What runs before a calculation or a digest: expressions that land in registers and scratch fields.
    hash_inputs: HashMap<u16, Vec<(u16, expression::Expression)>>,
    digest_inputs: HashMap<u16, Vec<(u16, expression::Expression)>>,
    /// Keys of tables that are computed before it is looked up, each in a scratch field.
    computed_keys: HashMap<TableId, Vec<(FieldId, expression::Expression)>>,
    registers: code::Registers,
}

impl<'a> Loader<'a> {
    fn new(document: &'a Document) -> Result<Self> {
        let mut program = Program::default();
        program.name = document.program.clone().unwrap_or_default();
        program.errors = document.errors.clone();
        let layout = Layout::of(document, &mut program)?;
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
            registers: code::Registers::default(),
        })
    }

    fn run(mut self) -> Result<Program> {
        if let Some(unknown) = self.document.extern_instances.first() {
            return refuse(format!("extern type {} is not one of v1model's", unknown.kind))
                .at(|| format!("extern_instances[0] {}", unknown.name));
        }
        self.objects()?;
        self.compile_actions()?;
        self.program.entry.parser = self.parser()?;
        self.program.entry.verify = self.checksums(checksum::Side::Verify)?;
        self.program.entry.ingress = self.pipeline("ingress")?;
        self.program.entry.egress = self.pipeline("egress")?;
        self.program.entry.update = self.checksums(checksum::Side::Update)?;
        self.program.entry.deparser = self.deparser()?;
        self.finish()
    }

    fn finish(mut self) -> Result<Program> {
        self.registers.tell(&mut self.program);
        let area = self.layout.bytes();
        if area > MOST_AREA_BYTES {
            return refuse(format!(
                "headers and metadata take {area} bytes: at most {MOST_AREA_BYTES} are possible"
            ));
        }
        self.program.area_bytes = area as u32;
        narrow::<u16>(self.program.fields.len(), "fields")?;
        Ok(self.program)
    }

    fn here(&self) -> Pc {
        self.program.code.len() as Pc
    }

    fn header(&self, name: &str) -> Result<HeaderId> {
        self.layout.headers.get(name).copied().ok_or_else(|| LoadError::new(format!("no header {name}")))
    }

    fn stack(&self, name: &str) -> Result<StackId> {
        self.layout.stacks.get(name).copied().ok_or_else(|| LoadError::new(format!("no header stack {name}")))
    }
}
