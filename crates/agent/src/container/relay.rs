// SPDX-License-Identifier: Apache-2.0
//! Between a node's control socket and its gate: several clients, each with ids of its own; an answer goes to the one
//! that asked, everything else to all.

use serde_json::Value;
use std::collections::HashMap;

/// Number of a client's connection.
pub type Client = u32;

#[derive(Default)]
pub struct Relay {
    /// What the gate calls a request: who asked, their name for it, and whether nobody else wants it.
    asked: HashMap<u64, (Client, Value, bool)>,
    next: u64,
}

impl Relay {
    /// A client's command, as the gate is to have it. Err: what the client did wrong.
    pub fn command(&mut self, client: Client, mut command: Value) -> Result<Value, String> {
        let Some(fields) = command.as_object_mut() else { return Err("a command is an object".into()) };
        let kind = fields.get("command").and_then(Value::as_str);
        if let (Some("input" | "resize"), Some(id)) = (kind, fields.get("id").cloned()) {
            let own = |(_, asked): &(&u64, &(Client, Value, bool))| (asked.0, &asked.1) == (client, &id);
            let number = self.asked.iter().find(own).map(|(number, _)| *number);
            let number = number.ok_or_else(|| format!("no program {id} of yours runs"))?;
            fields.insert("id".into(), number.into());
        } else if let Some(id) = fields.get("id").cloned() {
            self.next += 1;
            let own = fields.get("command").is_some_and(|command| command == "exec");
            self.asked.insert(self.next, (client, id, own));
            fields.insert("id".into(), self.next.into());
        }
        Ok(command)
    }

    /// An event of the gate, as its clients are to have it. None: it is for all.
    pub fn event(&mut self, mut event: Value) -> (Option<Client>, Value) {
        let Some(number) = event.get("id").and_then(Value::as_u64) else { return (None, event) };
        let Some((client, id, _)) = self.asked.get(&number).cloned() else { return (Some(0), event) };
        if event["event"] == "exit" {
            self.asked.remove(&number);
        }
        event["id"] = id;
        (Some(client), event)
    }

    /// A client has gone: what the gate calls the programs that nobody listens to any more.
    pub fn left(&mut self, gone: Client) -> Vec<u64> {
        let own = |(_, (client, _, own)): &(&u64, &(Client, Value, bool))| *client == gone && *own;
        let numbers: Vec<u64> = self.asked.iter().filter(own).map(|(number, _)| *number).collect();
        self.asked.retain(|_, (client, _, _)| *client != gone);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn two_clients_with_the_same_id_get_their_own_answers() {
        let mut relay = Relay::default();
        let first = relay.command(1, json!({"command": "exec", "id": 7})).unwrap();
        let second = relay.command(2, json!({"command": "exec", "id": 7})).unwrap();
        let exit = |command: &Value| json!({"event": "exit", "id": command["id"], "code": 0});
        assert_eq!(relay.event(exit(&second)), (Some(2), json!({"event": "exit", "id": 7, "code": 0})));
        assert_eq!(relay.event(exit(&first)).0, Some(1));
        assert_eq!(relay.event(json!({"event": "ready"})).0, None);
        assert!(relay.command(1, json!(3)).is_err());
        let types = || json!({"command": "input", "id": 7, "data": ""});
        let third = relay.command(2, json!({"command": "exec", "id": 7})).unwrap();
        assert_eq!(relay.command(2, types()).unwrap()["id"], third["id"]);
        assert_eq!(relay.command(1, types()).unwrap_err(), "no program 7 of yours runs");
    }

    #[test]
    fn who_leaves_takes_along_what_still_runs_but_in_the_background() {
        let mut relay = Relay::default();
        let mut ask =
            |client, what| relay.command(client, json!({"command": what, "id": 1})).unwrap()["id"].clone();
        let (over, runs) = (ask(1, "exec"), ask(1, "exec"));
        ask(1, "background");
        ask(2, "exec");
        relay.event(json!({"event": "exit", "id": over, "code": 0}));
        assert_eq!(relay.left(1), [runs.as_u64().unwrap()]);
        assert!(relay.left(1).is_empty());
        assert_eq!(relay.event(json!({"event": "exit", "id": runs, "code": 0})).0, Some(0));
    }
}
