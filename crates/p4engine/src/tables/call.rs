// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Action calls with their arguments as numbers.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use crate::control::refusal::Refused;
use crate::control::Refusal;
use crate::ir::{Action, ActionCall, ActionId, Pc, Program};

/// An action with its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub action: ActionId,
    pub begin: Pc,
    pub arguments: Arguments,
}

/// One number per parameter, then the limbs of wide arguments. A wide parameter's number is the index of its limbs.
/// Up to `FEW` numbers are stored in place.
#[derive(Debug, Clone)]
pub(crate) enum Arguments {
    Few([u64; FEW]),
    Many(Box<[u64]>),
}

pub(crate) const FEW: usize = 2;

/// The number of the arguments of an action's calls.
pub(crate) fn argument_count(action: &Action) -> usize {
    let limbs = |width: u32| if width <= 64 { 0 } else { width.div_ceil(64) as usize };
    action.parameters.iter().map(|parameter| 1 + limbs(parameter.width)).sum()
}

impl Arguments {
    #[inline(always)]
    pub fn as_slice(&self) -> &[u64] {
        match self {
            Arguments::Few(few) => few,
            Arguments::Many(many) => many,
        }
    }

    /// Copies the arguments to the running action's. `to` has space for those of any action, and for `FEW`.
    #[inline(always)]
    pub fn pass(&self, to: &mut [u64]) {
        match self {
            Arguments::Few(few) => to.first_chunk_mut().into_iter().for_each(|to| *to = *few),
            Arguments::Many(many) => to.iter_mut().zip(many).for_each(|(to, from)| *to = *from),
        }
    }
}

impl From<Vec<u64>> for Arguments {
    fn from(numbers: Vec<u64>) -> Arguments {
        match *numbers {
            [] => Arguments::Few([0, 0]),
            [first] => Arguments::Few([first, 0]),
            [first, second] => Arguments::Few([first, second]),
            _ => Arguments::Many(numbers.into_boxed_slice()),
        }
    }
}

/// Checks and translates a call of the control plane.
pub(crate) fn call(program: &Program, call: &ActionCall) -> Result<Call, Refused> {
    let invalid = |text| Err((Refusal::InvalidArgument, text));
    let Some(action) = program.actions.get(usize::from(call.action)) else {
        return invalid(format!("there is no action {}", call.action));
    };
    if action.parameters.len() != call.arguments.len() {
        let text = format!(
            "{} takes {} arguments, not {}",
            action.name,
            action.parameters.len(),
            call.arguments.len()
        );
        return invalid(text);
    }
    let (mut numbers, mut limbs) = (Vec::new(), Vec::new());
    for (parameter, value) in action.parameters.iter().zip(&call.arguments) {
        let bytes = parameter.width.div_ceil(8) as usize;
        let unused = bytes as u32 * 8 - parameter.width;
        if value.len() != bytes || value.first().is_some_and(|first| u32::from(*first) >> (8 - unused) != 0) {
            return invalid(format!(
                "{}: {} is not a value of {} bits",
                action.name, parameter.name, parameter.width
            ));
        }
        if bytes <= 8 {
            numbers.push(value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        } else {
            numbers.push((action.parameters.len() + limbs.len()) as u64);
            let limb = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
            limbs.extend(value.rchunks(8).map(limb));
        }
    }
    numbers.append(&mut limbs);
    Ok(Call { action: call.action, begin: action.begin, arguments: numbers.into() })
}
