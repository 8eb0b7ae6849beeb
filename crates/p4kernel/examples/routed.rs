// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//! Writes the image of a scheme's program (schemes/NAME/p4) and requests for routes to two hosts. bench/p4.py measures
//! the program in a guest (kernel/tests/guest/p4_scenarios.py, `routed`).
//!
//!     cargo run --package qbed-p4kernel --example routed PROGRAM.json FOLDER
//!
//! The example `guest` describes the files.

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use qbed_p4engine::control::{Answer, Entry, Request, Target};
use qbed_p4engine::program::{ActionCall, ActionId, Match, Program, TableId};
use qbed_p4engine::Engine;

/// For each port: the host's address, and the last bytes of the switch's and the host's hardware address (netlab.py
/// numbers them).
const HOSTS: [([u8; 4], u8, u8); 2] = [([10, 0, 0, 0], 2, 1), ([10, 0, 0, 3], 3, 4)];

/// A table by name, and one of its actions.
fn find(program: &Program, table: &str, action: &str) -> Result<(TableId, ActionId), Box<dyn Error>> {
    let number = program.tables.iter().position(|found| found.name == table).ok_or("no such table")?;
    let actions = &program.tables[number].actions;
    let named = |found: &&ActionId| program.actions[usize::from(**found)].name == action;
    Ok((number as TableId, *actions.iter().find(named).ok_or("no such action")?))
}

fn insert(table: TableId, key: Match, action: ActionId, arguments: Vec<Vec<u8>>) -> Request {
    let target = Target::Call(ActionCall { action, arguments });
    Request::Insert { table, entry: Entry { matches: vec![key], priority: 0, target, idle_us: 0 } }
}

fn routes(program: &Program) -> Result<Vec<Request>, Box<dyn Error>> {
    let (routes, route) = find(program, "ipv4_routes", "route")?;
    let (hops, send) = find(program, "next_hops", "send")?;
    let mac = |last: u8| vec![2, 0, 0, 0, 0, last];
    let mut requests = vec![];
    for (port, (host, source, destination)) in (0u8..).zip(HOSTS) {
        let hop = vec![0, port];
        let key = Match::Lpm { value: host.to_vec(), length: 32 };
        requests.push(insert(routes, key, route, vec![hop.clone(), vec![0, 1], vec![0]]));
        let arguments = vec![vec![0, port], mac(source), mac(destination)];
        requests.push(insert(hops, Match::Exact(hop), send, arguments));
    }
    Ok(requests)
}

fn main() -> Result<(), Box<dyn Error>> {
    let [json, folder] = std::env::args()
        .skip(1)
        .map(PathBuf::from)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_| "expected PROGRAM.json FOLDER")?;
    let program = qbed_p4switch::load::load(&fs::read(json)?).map_err(|refused| refused.to_string())?;
    let image = postcard::to_allocvec(&program)?;
    let requests = routes(&program)?;
    let mut engine = Engine::load(program).map_err(|invalid| invalid.0)?;
    let mut list = vec![];
    for request in &requests {
        assert_eq!(engine.control(request), Answer::Done, "{request:?}");
        let bytes = postcard::to_allocvec(request)?;
        list.extend((bytes.len() as u32).to_le_bytes());
        list.extend(bytes);
    }
    fs::write(folder.join("image"), image)?;
    fs::write(folder.join("requests"), list)?;
    Ok(())
}
