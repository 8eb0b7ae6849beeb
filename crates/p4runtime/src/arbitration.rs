// SPDX-License-Identifier: Apache-2.0
//! Arbitration: elects one primary controller per role (section "Client Arbitration and Controller Replication").

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::{mpsc, Notify};
use tonic::{Code, Status};

use crate::error::{denied, exhausted, invalid, not_found, precondition, RequestError, Result};
use crate::proto::google::rpc;
use crate::proto::p4::v1::stream_message_response::Update;
use crate::proto::p4::v1::{MasterArbitrationUpdate, Role, StreamMessageResponse, Uint128};
use crate::roles::RoleConfig;

/// Limit on open streams.
pub const MAX_STREAMS: usize = 64;
/// Limit on roles, because the highest election id of each role is kept.
const MAX_ROLES: usize = 64;
const MAX_ROLE_BYTES: usize = 256;
/// Capacity of a controller's message queue.
pub const MAX_QUEUED: usize = 1024;
/// The part of the queue that is reserved for arbitration.
const FOR_ARBITRATION: usize = 64;

pub type StreamId = u64;
pub type Outgoing = mpsc::Sender<std::result::Result<StreamMessageResponse, Status>>;

pub struct Clients {
    device_id: u64,
    streams: BTreeMap<StreamId, Stream>,
    roles: HashMap<String, RoleState>,
    last: StreamId,
}

#[derive(Default)]
struct RoleState {
    /// Highest election id.
    highest: Option<u128>,
    /// Config of the last primary. None for the full pipeline.
    config: Option<RoleConfig>,
}

struct Stream {
    outgoing: Outgoing,
    /// Notified when the controller's message queue is full.
    stalled: Arc<Notify>,
    client: Option<Client>,
}

#[derive(Clone, PartialEq)]
struct Client {
    role: String,
    election: Option<u128>,
}

fn number(election: Option<&Uint128>) -> Option<u128> {
    election.map(|id| u128::from(id.high) << 64 | u128::from(id.low))
}

fn message(id: u128) -> Uint128 {
    Uint128 { high: (id >> 64) as u64, low: id as u64 }
}

impl Clients {
    pub fn new(device_id: u64) -> Clients {
        Clients {
            device_id,
            streams: BTreeMap::new(),
            roles: HashMap::from([(String::new(), RoleState::default())]),
            last: 0,
        }
    }

    pub fn connect(&mut self, outgoing: Outgoing, stalled: Arc<Notify>) -> Result<StreamId> {
        if self.streams.len() >= MAX_STREAMS {
            return Err(exhausted(format!("more than {MAX_STREAMS} streams")));
        }
        self.last += 1;
        self.streams.insert(self.last, Stream { outgoing, stalled, client: None });
        Ok(self.last)
    }

    /// Remove a stream. If it was the primary's, the role's other controllers are notified.
    pub fn disconnect(&mut self, id: StreamId) {
        let primary = self.is_primary(id);
        let client = self.streams.remove(&id).and_then(|stream| stream.client);
        if let (Some(client), true) = (client, primary) {
            self.notify(&client.role, |_| true);
        }
    }

    pub fn is_primary(&self, id: StreamId) -> bool {
        let client = self.streams.get(&id).and_then(|stream| stream.client.as_ref());
        client.is_some_and(|client| {
            let highest = self.roles.get(&client.role).and_then(|role| role.highest);
            client.election.is_some() && highest == client.election
        })
    }

    /// Check that a request comes from the primary controller of its role.
    pub fn check(&self, device_id: u64, role: &str, election: Option<&Uint128>) -> Result<()> {
        self.device(device_id)?;
        if !self.roles.contains_key(role) {
            return Err(not_found(format!("there is no role {role}")));
        }
        let wanted = Client { role: role.into(), election: number(election) };
        match self.streams.iter().find(|(_, stream)| stream.client.as_ref() == Some(&wanted)) {
            Some((id, _)) if self.is_primary(*id) => Ok(()),
            _ => Err(denied("not the primary controller")),
        }
    }

    /// The config of a role. None for the full pipeline.
    pub fn config(&self, role: &str) -> Result<Option<&RoleConfig>> {
        let state = self.roles.get(role).ok_or_else(|| not_found(format!("there is no role {role}")))?;
        Ok(state.config.as_ref())
    }

    pub fn device(&self, device_id: u64) -> Result<()> {
        match device_id == self.device_id {
            true => Ok(()),
            false => {
                Err(not_found(format!("there is no device {device_id}: this is device {}", self.device_id)))
            }
        }
    }

    /// Handle an arbitration message. An error ends the stream.
    pub fn arbitrate(&mut self, id: StreamId, update: &MasterArbitrationUpdate) -> Result<()> {
        let before = self.streams.get(&id).and_then(|stream| stream.client.clone());
        let client = self.client_of(id, before.as_ref(), update)?;
        let config = self.config_of(&client.role, update)?;
        let was_primary = self.is_primary(id);
        let state = self.roles.entry(client.role.clone()).or_default();
        let primary = client.election.is_some() && client.election >= state.highest;
        if primary {
            *state = RoleState { highest: client.election, config };
        }
        let role = client.role.clone();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.client = Some(client);
        }
        // The new primary is notified last.
        if primary || was_primary {
            self.notify(&role, |other| other != id);
        }
        self.notify(&role, |other| other == id);
        Ok(())
    }

    /// The sender's role and election id, if they are valid.
    fn client_of(
        &self,
        id: StreamId,
        before: Option<&Client>,
        update: &MasterArbitrationUpdate,
    ) -> Result<Client> {
        let role = update.role.clone().unwrap_or_default();
        let client = Client { role: role.name, election: number(update.election_id.as_ref()) };
        let changed = |refused: RequestError| match before {
            Some(_) => precondition(refused.message),
            None => refused,
        };
        self.device(update.device_id).map_err(changed)?;
        if before.is_some_and(|before| before.role != client.role) {
            return Err(precondition("the role of a stream does not change"));
        }
        #[allow(deprecated)]
        if role.id != 0 {
            return Err(invalid("role ids are deprecated: expected a role name"));
        }
        let mut others = self.streams.iter().filter(|(other, _)| **other != id);
        if client.election.is_some() && others.any(|(_, other)| other.client.as_ref() == Some(&client)) {
            return Err(invalid(format!(
                "election id {} is used by another controller",
                client.election.unwrap_or_default()
            )));
        }
        let new_role = !self.roles.contains_key(&client.role);
        if client.role.len() > MAX_ROLE_BYTES || new_role && self.roles.len() >= MAX_ROLES {
            return Err(exhausted(format!(
                "more than {MAX_ROLES} roles, or a name of more than {MAX_ROLE_BYTES} bytes"
            )));
        }
        Ok(client)
    }

    /// The role config in a message, if it does not conflict with those of other roles.
    fn config_of(&self, role: &str, update: &MasterArbitrationUpdate) -> Result<Option<RoleConfig>> {
        let config = update.role.as_ref().and_then(|role| role.config.as_ref());
        let Some(config) = config.map(RoleConfig::new).transpose()? else { return Ok(None) };
        for (name, other) in self.roles.iter().filter(|(name, _)| *name != role) {
            if let Some(id) = other.config.as_ref().and_then(|other| config.conflict(other)) {
                return Err(invalid(format!("{id:#x} is exclusive to one of this role and role {name}")));
            }
        }
        Ok(Some(config))
    }

    /// Send the state of arbitration to a role's controllers that `recipient` selects.
    fn notify(&self, role: &str, recipient: impl Fn(StreamId) -> bool) {
        let of_role = |stream: &Stream| stream.client.as_ref().is_some_and(|client| client.role == role);
        let state = self.roles.get(role);
        let highest = state.and_then(|state| state.highest);
        let config = state.and_then(|state| state.config.as_ref()).map(|config| config.original.clone());
        let primary = self.streams.keys().find(|id| self.is_primary(**id) && of_role(&self.streams[id]));
        for (id, stream) in self.streams.iter().filter(|(id, stream)| of_role(stream) && recipient(**id)) {
            let (code, text) = match primary {
                Some(primary) if primary == id => (Code::Ok, "this is the primary controller"),
                Some(_) => (Code::AlreadyExists, "another controller is the primary one"),
                None => (Code::NotFound, "there is no primary controller"),
            };
            let update = MasterArbitrationUpdate {
                device_id: self.device_id,
                role: (!role.is_empty() || config.is_some()).then(|| Role {
                    name: role.into(),
                    config: config.clone(),
                    ..Default::default()
                }),
                election_id: highest.map(message),
                status: Some(rpc::Status { code: code as i32, message: text.into(), details: vec![] }),
            };
            let update = StreamMessageResponse { update: Some(Update::Arbitration(update)) };
            if stream.outgoing.try_send(Ok(update)).is_err() {
                stream.stalled.notify_one();
            }
        }
    }

    /// Send a message to a controller. It is dropped if the queue is full.
    pub fn send(&self, id: StreamId, update: Update) {
        if let Some(stream) =
            self.streams.get(&id).filter(|stream| stream.outgoing.capacity() > FOR_ARBITRATION)
        {
            let _ = stream.outgoing.try_send(Ok(StreamMessageResponse { update: Some(update) }));
        }
    }

    /// Send a message to the primary of every role, filtered by the role's config.
    pub fn send_primaries(&self, update: &Update) {
        for (id, stream) in self.streams.iter().filter(|(id, _)| self.is_primary(**id)) {
            let role = stream.client.as_ref().and_then(|client| self.roles.get(&client.role));
            let filtered = match role.and_then(|role| role.config.as_ref()) {
                Some(config) => config.filter(update),
                None => Some(update.clone()),
            };
            if let Some(filtered) = filtered {
                self.send(*id, filtered);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::Any;

    use super::*;
    use crate::roles::P4RoleConfig;

    struct Switch {
        clients: Clients,
        inboxes: HashMap<StreamId, mpsc::Receiver<std::result::Result<StreamMessageResponse, Status>>>,
    }

    impl Switch {
        fn new() -> Switch {
            Switch { clients: Clients::new(1), inboxes: HashMap::new() }
        }

        fn connect(&mut self) -> StreamId {
            let (outgoing, inbox) = mpsc::channel(MAX_QUEUED);
            let id = self.clients.connect(outgoing, Arc::default()).unwrap();
            self.inboxes.insert(id, inbox);
            id
        }

        fn arbitrate(&mut self, id: StreamId, role: &str, election: Option<u128>) -> Result<()> {
            self.arbitrate_with(id, role, election, None)
        }

        fn arbitrate_with(
            &mut self,
            id: StreamId,
            role: &str,
            election: Option<u128>,
            config: Option<Any>,
        ) -> Result<()> {
            let role = Some(Role { name: role.into(), config, ..Default::default() });
            let update = MasterArbitrationUpdate {
                device_id: 1,
                role,
                election_id: election.map(message),
                status: None,
            };
            self.clients.arbitrate(id, &update)
        }

        /// Code and highest election id of each arbitration message since the last call.
        fn received(&mut self, id: StreamId) -> Vec<(Code, Option<u128>)> {
            let mut received = vec![];
            while let Ok(Ok(message)) = self.inboxes.get_mut(&id).unwrap().try_recv() {
                let Some(Update::Arbitration(update)) = message.update else { panic!("{message:?}") };
                received.push((Code::from(update.status.unwrap().code), number(update.election_id.as_ref())));
            }
            received
        }
    }

    #[test]
    fn the_highest_election_id_is_primary() {
        let mut switch = Switch::new();
        let (a, b) = (switch.connect(), switch.connect());
        switch.arbitrate(a, "", Some(5)).unwrap();
        assert_eq!(switch.received(a), [(Code::Ok, Some(5))]);
        switch.arbitrate(b, "", Some(3)).unwrap();
        assert_eq!(switch.received(b), [(Code::AlreadyExists, Some(5))]);
        assert_eq!(switch.received(a), [], "the primary is not notified of a backup");
        switch.arbitrate(b, "", Some(1 << 70)).unwrap();
        assert_eq!(switch.received(a), [(Code::AlreadyExists, Some(1 << 70))]);
        assert_eq!(switch.received(b), [(Code::Ok, Some(1 << 70))]);
        assert!(switch.clients.check(1, "", Some(&message(1 << 70))).is_ok());
        assert_eq!(switch.clients.check(1, "", Some(&message(5))).unwrap_err().code, Code::PermissionDenied);
        assert_eq!(switch.clients.check(1, "", None).unwrap_err().code, Code::PermissionDenied);
    }

    #[test]
    fn a_backup_becomes_primary_by_arbitration_only() {
        let mut switch = Switch::new();
        let (a, b) = (switch.connect(), switch.connect());
        switch.arbitrate(a, "", Some(5)).unwrap();
        switch.arbitrate(b, "", Some(3)).unwrap();
        switch.received(b);
        switch.clients.disconnect(a);
        assert_eq!(switch.received(b), [(Code::NotFound, Some(5))]);
        assert!(!switch.clients.is_primary(b));
        switch.arbitrate(b, "", Some(4)).unwrap();
        assert_eq!(switch.received(b), [(Code::NotFound, Some(5))], "4 is lower than 5");
        switch.arbitrate(b, "", Some(5)).unwrap();
        assert_eq!(switch.received(b), [(Code::Ok, Some(5))]);
    }

    #[test]
    fn a_primary_can_step_down() {
        let mut switch = Switch::new();
        let (a, b) = (switch.connect(), switch.connect());
        switch.arbitrate(a, "", Some(5)).unwrap();
        switch.arbitrate(b, "", None).unwrap();
        switch.received(a);
        switch.received(b);
        switch.arbitrate(a, "", Some(2)).unwrap();
        assert_eq!(switch.received(a), [(Code::NotFound, Some(5))]);
        assert_eq!(switch.received(b), [(Code::NotFound, Some(5))]);
        assert_eq!(switch.clients.check(1, "", Some(&message(2))).unwrap_err().code, Code::PermissionDenied);
    }

    #[test]
    fn each_role_has_a_primary() {
        let mut switch = Switch::new();
        let (a, b) = (switch.connect(), switch.connect());
        switch.arbitrate(a, "", Some(5)).unwrap();
        switch.arbitrate(b, "second", Some(5)).unwrap();
        assert_eq!(
            (switch.received(a), switch.received(b)),
            (vec![(Code::Ok, Some(5))], vec![(Code::Ok, Some(5))])
        );
        assert!(switch.clients.check(1, "second", Some(&message(5))).is_ok());
        assert_eq!(switch.clients.check(1, "third", Some(&message(5))).unwrap_err().code, Code::NotFound);
    }

    fn config(exclusive: &[u32], shared: &[u32]) -> Any {
        let message = P4RoleConfig {
            exclusive_p4_ids: exclusive.into(),
            shared_p4_ids: shared.into(),
            ..Default::default()
        };
        Any { type_url: "type.googleapis.com/stratum.P4RoleConfig".into(), value: message.encode_to_vec() }
    }

    #[test]
    fn exclusive_ids_of_a_role_exclude_other_roles() {
        let mut switch = Switch::new();
        let (a, b, c) = (switch.connect(), switch.connect(), switch.connect());
        switch.arbitrate_with(a, "a", Some(5), Some(config(&[1, 2], &[3]))).unwrap();
        for other in [config(&[3], &[]), config(&[], &[1]), config(&[9, 9], &[]), config(&[9], &[9])] {
            let refused = switch.arbitrate_with(b, "b", Some(5), Some(other)).unwrap_err();
            assert_eq!(refused.code, Code::InvalidArgument, "{refused:?}");
        }
        let other = Any { type_url: "type.googleapis.com/other.Config".into(), value: vec![] };
        assert!(switch.arbitrate_with(b, "b", Some(5), Some(other)).is_err());
        switch.arbitrate_with(b, "b", Some(5), Some(config(&[4], &[3]))).unwrap();
        // The config of a backup has no effect, that of the next primary has.
        switch.arbitrate_with(c, "a", Some(4), Some(config(&[], &[7]))).unwrap();
        assert!(switch.clients.config("a").unwrap().unwrap().has(1));
        switch.arbitrate_with(c, "a", Some(6), Some(config(&[], &[7]))).unwrap();
        assert!(!switch.clients.config("a").unwrap().unwrap().has(1));
        assert_eq!(switch.clients.config("").unwrap(), None);
    }

    #[test]
    fn arbitration_errors_end_a_stream() {
        let mut switch = Switch::new();
        let (a, b) = (switch.connect(), switch.connect());
        switch.arbitrate(a, "", Some(5)).unwrap();
        let refused = |result: Result<()>| result.unwrap_err().code;
        assert_eq!(refused(switch.arbitrate(b, "", Some(5))), Code::InvalidArgument);
        assert_eq!(refused(switch.arbitrate(a, "other", Some(5))), Code::FailedPrecondition);
        let wrong_device = MasterArbitrationUpdate { device_id: 7, ..Default::default() };
        assert_eq!(refused(switch.clients.arbitrate(b, &wrong_device)), Code::NotFound);
        assert_eq!(refused(switch.clients.arbitrate(a, &wrong_device)), Code::FailedPrecondition);
        assert_eq!(refused(switch.arbitrate(b, &"x".repeat(257), None)), Code::ResourceExhausted);
    }

    #[test]
    fn a_stalled_controller_is_disconnected() {
        let mut switch = Switch::new();
        let (outgoing, inbox) = mpsc::channel(FOR_ARBITRATION + 1);
        let stalled = Arc::new(Notify::new());
        let a = switch.clients.connect(outgoing, stalled.clone()).unwrap();
        switch.inboxes.insert(a, inbox);
        for election in 0..FOR_ARBITRATION as u128 + 1 {
            switch.clients.send(a, Update::Packet(Default::default()));
            switch.arbitrate(a, "", Some(election)).unwrap();
        }
        // One packet and all arbitration messages but the last fit into the queue.
        assert_eq!(switch.inboxes.get_mut(&a).unwrap().len(), FOR_ARBITRATION + 1);
        let waited = std::pin::pin!(stalled.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::future::Future::poll(waited, &mut context).is_ready());
    }
}
