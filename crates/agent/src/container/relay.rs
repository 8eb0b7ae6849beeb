// SPDX-License-Identifier: Apache-2.0
//! Translates ids between the clients of the control socket and the gate. Replies are for the requesting client, all
//! other events for all clients.

use serde_json::Value;
use std::collections::HashMap;

/// Number of a client's connection.
pub type Client = u32;

/// A request of a client.
#[derive(Clone)]
struct Request {
    client: Client,
    /// The client's id.
    id: Value,
    /// Whether the program ends with the connection of its client (`exec`).
    foreground: bool,
}

#[derive(Default)]
pub struct Relay {
    /// By gate id.
    requests: HashMap<u64, Request>,
    next: u64,
}

impl Relay {
    /// Translates a client's command for the gate. Err: the command is invalid.
    pub fn command(&mut self, client: Client, mut command: Value) -> Result<Value, String> {
        let Some(fields) = command.as_object_mut() else { return Err("a command is an object".into()) };
        let kind = fields.get("command").and_then(Value::as_str);
        if let (Some("input" | "resize"), Some(id)) = (kind, fields.get("id").cloned()) {
            let matches = |(_, request): &(&u64, &Request)| (request.client, &request.id) == (client, &id);
            let number = self.requests.iter().find(matches).map(|(number, _)| *number);
            let number = number.ok_or_else(|| format!("this client has no running program {id}"))?;
            fields.insert("id".into(), number.into());
        } else if let Some(id) = fields.get("id").cloned() {
            self.next += 1;
            let foreground = fields.get("command").is_some_and(|command| command == "exec");
            self.requests.insert(self.next, Request { client, id, foreground });
            fields.insert("id".into(), self.next.into());
        }
        Ok(command)
    }

    /// Translates an event of the gate for its client. None: for all clients.
    pub fn event(&mut self, mut event: Value) -> (Option<Client>, Value) {
        let Some(number) = event.get("id").and_then(Value::as_u64) else { return (None, event) };
        let Some(Request { client, id, .. }) = self.requests.get(&number).cloned() else {
            return (Some(0), event);
        };
        if event["event"] == "exit" {
            self.requests.remove(&number);
        }
        event["id"] = id;
        (Some(client), event)
    }

    /// Removes a client. Returns the gate ids of its foreground programs.
    pub fn remove_client(&mut self, client: Client) -> Vec<u64> {
        let ends = |(_, request): &(&u64, &Request)| request.client == client && request.foreground;
        let numbers: Vec<u64> = self.requests.iter().filter(ends).map(|(number, _)| *number).collect();
        self.requests.retain(|_, request| request.client != client);
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clients_with_equal_ids_get_separate_replies() {
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
        assert_eq!(relay.command(1, types()).unwrap_err(), "this client has no running program 7");
    }

    #[test]
    fn only_running_foreground_programs_end_with_their_client() {
        let mut relay = Relay::default();
        let mut send =
            |client, kind| relay.command(client, json!({"command": kind, "id": 1})).unwrap()["id"].clone();
        let (ended, running) = (send(1, "exec"), send(1, "exec"));
        send(1, "background");
        send(2, "exec");
        relay.event(json!({"event": "exit", "id": ended, "code": 0}));
        assert_eq!(relay.remove_client(1), [running.as_u64().unwrap()]);
        assert!(relay.remove_client(1).is_empty());
        assert_eq!(relay.event(json!({"event": "exit", "id": running, "code": 0})).0, Some(0));
    }
}
