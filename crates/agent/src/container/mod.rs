// SPDX-License-Identifier: Apache-2.0
//! A node's container (docs/formats.md §5): its entry point, which starts the node's kernel and stands between its gate
//! and the clients of `control.sock`, and the program that is such a client inside it.

mod clients;
mod evidence;
pub mod exec;
mod frames;
mod guest;
mod interfaces;
mod origin;
mod relay;
pub mod supervisor;

use std::time::Duration;

const SOCKET: &str = "/qbed/control.sock";
/// Who takes nothing for so long is left.
const PATIENCE: Duration = Duration::from_secs(2);
