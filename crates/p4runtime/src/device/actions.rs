// SPDX-License-Identifier: Apache-2.0
//! Conversion of actions between P4Runtime and the engine.

use qbed_p4engine::program::ActionCall;

use crate::bytestring::encode;
use crate::error::{invalid, Result};
use crate::pipeline::Action;
use crate::proto::p4::v1::action::Param;
use crate::proto::p4::v1::{self};

/// Convert an action to the engine's form. `owner` is the table or profile in error messages.
pub fn decode_action(actions: &[Action], owner: &str, given: &v1::Action) -> Result<(ActionCall, Action)> {
    let action = actions.iter().find(|action| action.id == given.action_id);
    let action = action.ok_or_else(|| invalid(format!("{owner} has no action {:#x}", given.action_id)))?;
    if let Some(other) = given
        .params
        .iter()
        .find(|value| !action.parameters.iter().any(|parameter| parameter.id == value.param_id))
    {
        return Err(invalid(format!("{} has no parameter {}", action.name, other.param_id)));
    }
    let arguments = action.parameters.iter().map(|parameter| {
        let mut values = given.params.iter().filter(|value| value.param_id == parameter.id);
        match (values.next(), values.next()) {
            (Some(value), None) => {
                parameter.widths.decode(&value.value, &format!("{} of {}", parameter.name, action.name))
            }
            (None, _) => Err(invalid(format!("{} needs {}", action.name, parameter.name))),
            _ => Err(invalid(format!("{} has {} twice", action.name, parameter.name))),
        }
    });
    Ok((ActionCall { action: action.number, arguments: arguments.collect::<Result<_>>()? }, action.clone()))
}

/// Convert an action to P4Runtime. None if P4Info does not have it.
pub fn encode_action(actions: &[Action], call: &ActionCall) -> Option<v1::Action> {
    let action = actions.iter().find(|action| action.number == call.action)?;
    let params = action.parameters.iter().zip(&call.arguments);
    let params = params.map(|(parameter, value)| Param { param_id: parameter.id, value: encode(value) });
    Some(v1::Action { action_id: action.id, params: params.collect() })
}
