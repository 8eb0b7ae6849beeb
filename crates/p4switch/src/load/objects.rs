// SPDX-License-Identifier: Apache-2.0
//! Compiles named objects: registers, counters, meters, calculations, value sets, field lists and digests.

use qbed_p4engine::program::{
    Array, Counter, Digest, FieldId, Hash, HashInput, HashKind, Meter, Op, TableId, ValueSet,
};

use super::expression::Expression;
use super::operands::Scope;
use super::{narrow, number, Loader};
use crate::bmv2::{Calculation, FieldList, MeterArray, Operand};
use crate::error::{refuse, At, LoadError, Result};

impl<'a> Loader<'a> {
    pub(super) fn objects(&mut self) -> Result<()> {
        self.register_arrays()?;
        self.counter_arrays()?;
        let document = self.document;
        for (index, meter) in document.meter_arrays.iter().enumerate() {
            self.meter(meter).at(|| format!("meter_arrays[{index}] {}", meter.name))?;
        }
        for (index, calculation) in document.calculations.iter().enumerate() {
            self.calculation(calculation).at(|| format!("calculations[{index}] {}", calculation.name))?;
        }
        for set in &document.parse_vsets {
            self.value_sets.insert(&set.name, narrow(self.program.value_sets.len(), "value sets")?);
            let bytes = narrow(set.compressed_bitwidth.div_ceil(8) as usize, "bytes in a value set")?;
            let max_size = set.max_size.unwrap_or(u32::MAX);
            self.program.value_sets.push(ValueSet { name: set.name.clone(), bytes, max_size });
        }
        for (index, list) in document.field_lists.iter().enumerate() {
            let fields = self.fields(list).at(|| format!("field_lists[{index}] {}", list.name))?;
            self.lists.insert(list.id, narrow(self.program.field_lists.len(), "field lists")?);
            self.program.field_lists.push(fields);
        }
        for (index, list) in document.learn_lists.iter().enumerate() {
            self.digest(list).at(|| format!("learn_lists[{index}] {}", list.name))?;
        }
        Ok(())
    }

    fn register_arrays(&mut self) -> Result<()> {
        let mut bytes = 0_u64;
        for (index, array) in self.document.register_arrays.iter().enumerate() {
            let place = || format!("register_arrays[{index}] {}", array.name);
            if array.bitwidth == 0 || array.bitwidth > 1 << 15 {
                return refuse(format!("registers of {} bits", array.bitwidth)).at(place);
            }
            bytes += u64::from(array.size) * u64::from(array.bitwidth.div_ceil(8));
            if bytes > super::MAX_ARRAY_BYTES {
                return refuse(format!("all registers take more than {} bytes", super::MAX_ARRAY_BYTES))
                    .at(place);
            }
            self.arrays.insert(&array.name, narrow(self.program.arrays.len(), "registers")?);
            let (width, signed) = (array.bitwidth, array.signed);
            self.program.arrays.push(Array { name: array.name.clone(), width, signed, size: array.size });
        }
        Ok(())
    }

    fn counter_arrays(&mut self) -> Result<()> {
        let mut cells = 0_u64;
        for (index, counter) in self.document.counter_arrays.iter().enumerate() {
            let place = || format!("counter_arrays[{index}] {}", counter.name);
            let table = self.binding(counter.is_direct, counter.binding.as_deref()).at(place)?;
            let size = if counter.is_direct { 0 } else { counter.size.unwrap_or(0) };
            cells += u64::from(size);
            if cells > super::MAX_ARRAY_BYTES / 16 {
                return refuse(format!("more than {} counters in total", super::MAX_ARRAY_BYTES / 16))
                    .at(place);
            }
            self.counters.insert(&counter.name, narrow(self.program.counters.len(), "counters")?);
            self.program.counters.push(Counter { name: counter.name.clone(), table, size });
        }
        Ok(())
    }

    /// The table of a direct counter or meter.
    fn binding(&self, direct: bool, table: Option<&str>) -> Result<Option<TableId>> {
        match (direct, table) {
            (false, _) => Ok(None),
            (true, None) => refuse("a direct counter or meter without a table (binding)"),
            (true, Some(name)) => self.table_number(name).map(Some),
        }
    }

    /// A table's number. Tables are numbered across pipelines in the order of the file.
    pub(super) fn table_number(&self, name: &str) -> Result<TableId> {
        let mut tables = self.document.pipelines.iter().flat_map(|pipeline| &pipeline.tables);
        let found = tables.position(|table| table.name == name);
        found.map_or_else(|| refuse(format!("no table {name}")), |index| narrow(index, "tables"))
    }

    fn meter(&mut self, meter: &'a MeterArray) -> Result<()> {
        let bytes = match meter.kind.as_str() {
            "bytes" => true,
            "packets" => false,
            other => return refuse(format!("a meter of {other}: expected bytes or packets")),
        };
        if meter.rate_count != 2 {
            return refuse(format!("{} rates: expected 2", meter.rate_count));
        }
        let table = self.binding(meter.is_direct, meter.binding.as_deref())?;
        let size = if meter.is_direct { 0 } else { meter.size.unwrap_or(0) };
        if u64::from(size) > super::MAX_ARRAY_BYTES / 64 {
            return refuse(format!("{size} meters: at most {} are supported", super::MAX_ARRAY_BYTES / 64));
        }
        let result = match &meter.result_target {
            Some((header, field)) if meter.is_direct => Some(self.layout.field(header, field)?),
            _ => None,
        };
        self.meters.insert(&meter.name, narrow(self.program.meters.len(), "meters")?);
        self.program.meters.push(Meter { name: meter.name.clone(), table, size, bytes, result });
        Ok(())
    }

    fn calculation(&mut self, calculation: &'a Calculation) -> Result<()> {
        let id = self.hash(&calculation.name, &calculation.algo, &calculation.input)?;
        self.hashes.insert(&calculation.name, id);
        Ok(())
    }

    /// Compile the hash of a calculation or a selector.
    pub(super) fn hash(&mut self, name: &str, algorithm: &str, input: &[Operand]) -> Result<u16> {
        let kind = match algorithm {
            "crc32" => HashKind::Crc32,
            "crc32_custom" => HashKind::Crc32Custom,
            "crc16" => HashKind::Crc16,
            "crc16_custom" => HashKind::Crc16Custom,
            "csum16" | "cksum16" => HashKind::Csum16,
            "xor16" => HashKind::Xor16,
            "identity" => HashKind::Identity,
            "round_robin" => HashKind::RoundRobin,
            other => return refuse(format!("hash algorithm {other} is unknown")),
        };
        let id = narrow(self.program.hashes.len(), "calculations")?;
        let mut before = Vec::new();
        let mut inputs = Vec::new();
        for (index, operand) in input.iter().enumerate() {
            inputs.extend(self.hash_input(operand, &mut before).at(|| format!("input {index}"))?);
        }
        self.program.hashes.push(Hash { name: name.into(), kind, input: inputs });
        if !before.is_empty() {
            self.hash_inputs.insert(id, before);
        }
        Ok(id)
    }

    /// Compile an input of a hash. None if it has 0 bits.
    fn hash_input(
        &mut self,
        operand: &Operand,
        before: &mut Vec<(u16, Expression)>,
    ) -> Result<Option<HashInput>> {
        match operand.kind.as_str() {
            "payload" => return Ok(Some(HashInput::Payload)),
            "header" => {
                let name: String = crate::bmv2::part(&operand.value)?;
                return Ok(Some(HashInput::Header(self.header(&name)?)));
            }
            _ => {}
        }
        Ok(Some(match (self.operand(operand, Scope::default())?, operand.bitwidth) {
            (Expression::Empty, _) => return Ok(None),
            (Expression::Field(field), _) => HashInput::Field(field),
            (Expression::Constant(value), Some(width)) if operand.kind == "hexstr" && width <= 1 << 15 => {
                HashInput::Constant { value: number::value(&value, width), width }
            }
            (expression, _) => {
                let width = expression.bits(&self.program).filter(|width| *width <= 64);
                let width = width.ok_or_else(|| {
                    LoadError::new("an expression of unknown width or of more than 64 bits")
                })?;
                // Allocated permanently: every use of the calculation reads it.
                let register = self.registers.allocate()?;
                before.push((register, expression));
                HashInput::Register { register, width }
            }
        }))
    }

    /// Evaluate the expressions among a calculation's inputs.
    pub(super) fn prepare_hash(&mut self, hash: u16) -> Result<()> {
        for (register, expression) in self.hash_inputs.get(&hash).cloned().unwrap_or_default() {
            self.evaluate_into(register, &expression)?;
        }
        Ok(())
    }

    fn fields(&self, list: &FieldList) -> Result<Vec<FieldId>> {
        let mut fields = Vec::new();
        for (index, operand) in list.elements.iter().enumerate() {
            match self.operand(operand, Scope::default()).at(|| format!("element {index}"))? {
                Expression::Field(field) => fields.push(field),
                Expression::Empty => {}
                _ => return refuse("expected a field").at(|| format!("element {index}")),
            }
        }
        Ok(fields)
    }

    fn digest(&mut self, list: &FieldList) -> Result<()> {
        let id: u16 = narrow(self.program.digests.len(), "digests")?;
        let mut before = Vec::new();
        let mut fields = Vec::new();
        for (index, operand) in list.elements.iter().enumerate() {
            let place = || format!("element {index}");
            let field = match self.operand(operand, Scope::default()).at(place)? {
                Expression::Field(field) => field,
                Expression::Empty => continue,
                other => {
                    let width =
                        operand.bitwidth.or_else(|| other.bits(&self.program)).map(|bits| bits.max(1));
                    let width = width.filter(|width| *width <= 1 << 15);
                    let width =
                        width.ok_or_else(|| LoadError::new("an expression of unknown width")).at(place)?;
                    let scratch = self.layout.scratch(&mut self.program, width)?;
                    before.push((scratch, other));
                    scratch
                }
            };
            fields.push(field);
        }
        self.digests.insert(list.id, id);
        self.digest_inputs.insert(id, before);
        self.program.digests.push(Digest { name: list.name.clone(), id: list.id, fields });
        Ok(())
    }

    pub(super) fn send_digest(&mut self, digest: u16) -> Result<()> {
        for (field, expression) in self.digest_inputs.get(&digest).cloned().unwrap_or_default() {
            self.assign(&super::assign::Place::Field(field), &expression)?;
        }
        self.emit(Op::Digest { digest });
        Ok(())
    }
}
