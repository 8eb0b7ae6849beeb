// SPDX-License-Identifier: Apache-2.0
//! The clients of `control.sock`.

use crate::container::relay::{Client, Relay};
use crate::container::{PATIENCE, SOCKET};
use crate::failure::{Of, Result};
use crate::gate::lines;
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
    /// What nobody listens to any more, as the gate calls it.
    abandoned: Vec<u64>,
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
        let listener = UnixListener::bind(path).of(|| path.into())?;
        listener.set_nonblocking(true).of(|| path.into())?;
        let (connections, relay) = (BTreeMap::new(), Relay::default());
        Ok(Self { listener, connections, last: 0, relay, abandoned: Vec::new() })
    }

    /// The next client: its number, and what to watch.
    pub fn accept(&mut self) -> Result<Option<(Client, BorrowedFd<'_>)>> {
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).of(|| SOCKET.into()),
        };
        stream.set_write_timeout(Some(PATIENCE)).of(|| SOCKET.into())?;
        self.last += 1;
        let connection = Connection { stream, received: Vec::new() };
        let connection = self.connections.entry(self.last).or_insert(connection);
        Ok(Some((self.last, connection.stream.as_fd())))
    }

    /// The lines that a client has sent.
    pub fn read(&mut self, client: Client) -> Vec<Vec<u8>> {
        let Some(connection) = self.connections.get_mut(&client) else { return Vec::new() };
        let mut piece = [0; 1 << 16];
        match connection.stream.read(&mut piece) {
            Ok(length) if length > 0 => connection.received.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Vec::new(),
            _ => {
                self.part(client);
                return Vec::new();
            }
        }
        lines(&mut connection.received)
    }

    /// A client's command, as the gate is to have it. Err: what the client did wrong.
    pub fn command(&mut self, client: Client, command: Value) -> std::result::Result<Value, String> {
        self.relay.command(client, command)
    }

    /// Hands an event of the gate to whom it is for.
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
            self.part(client);
        }
    }

    /// What clients that have gone had running, as the gate calls it; each is told once.
    pub fn take_abandoned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.abandoned)
    }

    fn part(&mut self, client: Client) {
        self.connections.remove(&client);
        self.abandoned.extend(self.relay.left(client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{BufRead, BufReader};

    #[test]
    fn an_answer_goes_to_who_asked_and_who_goes_leaves_what_it_had_running() {
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
        let asked = clients.command(numbers[1], serde_json::from_slice(&line).unwrap()).unwrap();
        clients.deliver(json!({"event": "running", "id": asked["id"]}));
        clients.deliver(json!({"event": "ready"}));
        let mut heard = BufReader::new(streams[1].try_clone().unwrap()).lines().map_while(|line| line.ok());
        assert_eq!(heard.next().unwrap(), json!({"event": "running", "id": 7}).to_string());
        assert_eq!(heard.next().unwrap(), json!({"event": "ready"}).to_string());
        let mut other = BufReader::new(streams[0].try_clone().unwrap()).lines().map_while(|line| line.ok());
        assert_eq!(other.next().unwrap(), json!({"event": "ready"}).to_string());
        assert!(clients.take_abandoned().is_empty());
        drop(heard);
        streams.remove(1);
        assert!(clients.read(numbers[1]).is_empty());
        assert_eq!(clients.take_abandoned(), [asked["id"].as_u64().unwrap()]);
        assert!(clients.take_abandoned().is_empty());
    }
}
