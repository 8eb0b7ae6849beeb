// SPDX-License-Identifier: Apache-2.0
//! A P4Runtime server for tests with real clients (tests/p4): prints its address and serves until it is killed.

mod switch;

use std::net::TcpListener;

use qbed_p4runtime::{serve, Control, Event};

fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let (sender, events) = tokio::sync::mpsc::channel(1024);
    serve(listener, 1, Box::new(switch::Loopback::new(sender)), events, None)
}
