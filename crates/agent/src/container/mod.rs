// SPDX-License-Identifier: Apache-2.0
//! A node's container (docs/formats.md §5): the entry point, which starts the node and relays messages between its
//! gate and the clients of `control.sock`, and `exec`, a client inside the container.

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
/// Write timeout of sockets; a client that exceeds it is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
