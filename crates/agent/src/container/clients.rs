// SPDX-License-Identifier: Apache-2.0
//! Connections of the clients of `control.sock`.

use crate::container::relay::{Client, Relay};
use crate::container::{SOCKET, WRITE_TIMEOUT};
use crate::control::gate::take_lines;
use crate::failure::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
}

pub struct Clients {
    listener: UnixListener,
    connections: BTreeMap<Client, Connection>,
    last: Client,
    relay: Relay,
    /// Gate ids of running programs of disconnected clients.
    orphaned: Vec<u64>,
}

impl AsFd for Clients {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Clients {
    pub fn listen() -> Result<Self> {
        let _ = fs::remove_file(SOCKET);
        Self::listen_at(SOCKET)
    }

    fn listen_at(path: &str) -> Result<Self> {
        let listener = UnixListener::bind(path).with_context(|| path.into())?;
        listener.set_nonblocking(true).with_context(|| path.into())?;
        let (connections, relay) = (BTreeMap::new(), Relay::default());
        Ok(Self { listener, connections, last: 0, relay, orphaned: Vec::new() })
    }

    /// Accepts the next client. Returns its number and the stream to watch.
    pub fn accept(&mut self) -> Result<Option<(Client, BorrowedFd<'_>)>> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).with_context(|| SOCKET.into()),
        };
        stream.set_write_timeout(Some(WRITE_TIMEOUT)).with_context(|| SOCKET.into())?;
        self.last += 1;
        let connection = Connection { stream, received: Vec::new() };
        let connection = self.connections.entry(self.last).or_insert(connection);
        Ok(Some((self.last, connection.stream.as_fd())))
    }

    /// Reads the complete lines that a client has sent.
    pub fn read(&mut self, client: Client) -> Vec<Vec<u8>> {
        let Some(connection) = self.connections.get_mut(&client) else { return Vec::new() };
        let mut buffer = [0; 1 << 16];
        match connection.stream.read(&mut buffer) {
            Ok(length) if length > 0 => connection.received.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Vec::new(),
            _ => {
                self.disconnect(client);
                return Vec::new();
            }
        }
        take_lines(&mut connection.received)
    }

    /// Translates a client's command for the gate. Err: the command is invalid.
    pub fn command(&mut self, client: Client, command: Value) -> std::result::Result<Value, String> {
        self.relay.command(client, command)
    }

    /// Sends an event of the gate to its client, or to all clients.
    pub fn deliver(&mut self, event: Value) {
        match self.relay.event(event) {
            (Some(client), event) => self.send(client, &event),
            (None, event) => self.broadcast(&event),
        }
    }

    pub fn broadcast(&mut self, event: &Value) {
        for client in self.connections.keys().copied().collect::<Vec<_>>() {
            self.send(client, event);
        }
    }

    pub fn send(&mut self, client: Client, event: &Value) {
        let Some(connection) = self.connections.get_mut(&client) else { return };
        let line = format!("{event}\n");
        if connection.stream.write_all(line.as_bytes()).is_err() {
            self.disconnect(client);
        }
    }

    /// Removes and returns the gate ids of programs of disconnected clients.
    pub fn take_orphaned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.orphaned)
    }

    fn disconnect(&mut self, client: Client) {
        self.connections.remove(&client);
        self.orphaned.extend(self.relay.remove_client(client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{BufRead, BufReader};

    #[test]
    fn replies_are_sent_to_the_requester_and_its_programs_are_orphaned() {
        let path = std::env::temp_dir().join(format!("qbed-clients-{}.sock", std::process::id()));
        let mut clients = Clients::listen_at(path.to_str().unwrap()).unwrap();
        assert!(clients.accept().unwrap().is_none());
        let mut streams: Vec<UnixStream> = Vec::new();
        let numbers: Vec<Client> = (0..2)
            .map(|_| {
                streams.push(UnixStream::connect(&path).unwrap());
                clients.accept().unwrap().unwrap().0
            })
            .collect();
        fs::remove_file(&path).unwrap();
        writeln!(streams[1], "{}", json!({"command": "exec", "id": 7})).unwrap();
        let line = clients.read(numbers[1]).remove(0);
        let command = clients.command(numbers[1], serde_json::from_slice(&line).unwrap()).unwrap();
        clients.deliver(json!({"event": "running", "id": command["id"]}));
        clients.deliver(json!({"event": "ready"}));
        let mut events = BufReader::new(streams[1].try_clone().unwrap()).lines().map_while(|line| line.ok());
        assert_eq!(events.next().unwrap(), json!({"event": "running", "id": 7}).to_string());
        assert_eq!(events.next().unwrap(), json!({"event": "ready"}).to_string());
        let mut other = BufReader::new(streams[0].try_clone().unwrap()).lines().map_while(|line| line.ok());
        assert_eq!(other.next().unwrap(), json!({"event": "ready"}).to_string());
        assert!(clients.take_orphaned().is_empty());
        drop(events);
        streams.remove(1);
        assert!(clients.read(numbers[1]).is_empty());
        assert_eq!(clients.take_orphaned(), [command["id"].as_u64().unwrap()]);
        assert!(clients.take_orphaned().is_empty());
    }
}
