// SPDX-License-Identifier: Apache-2.0
//! Which controller may write: one primary for each role (section "Client Arbitration and Controller Replication").

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::{mpsc, Notify};
use tonic::{Code, Status};

use crate::error::{denied, exhausted, invalid, not_found, precondition, RequestError, Result};
use crate::proto::google::rpc;
use crate::proto::p4::v1::stream_message_response::Update;
use crate::proto::p4::v1::{MasterArbitrationUpdate, Role, StreamMessageResponse, Uint128};
use crate::roles::RoleConfig;

/// Open streams, whatever their role.
pub const MAX_STREAMS: usize = 64;
/// The highest election id of each role is remembered for ever.
const MAX_ROLES: usize = 64;
const MAX_ROLE_BYTES: usize = 256;
/// Messages for a controller that does not read; arbitration has the last few to itself.
pub const MAX_QUEUED: usize = 1024;
const FOR_ARBITRATION: usize = 64;

pub type StreamId = u64;
pub type Outgoing = mpsc::Sender<std::result::Result<StreamMessageResponse, Status>>;

pub struct Clients {
    device_id: u64,
    streams: BTreeMap<StreamId, Stream>,
    roles: HashMap<String, State>,
    last: StreamId,
}

/// Of a role.
#[derive(Default)]
struct State {
    /// Election id.
    highest: Option<u128>,
    /// The last primary's; None: it has the full pipeline.
    config: Option<RoleConfig>,
}

struct Stream {
    outgoing: Outgoing,
    /// Told when this controller has stopped reading.
    lost: Arc<Notify>,
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
            roles: HashMap::from([(String::new(), State::default())]),
            last: 0,
        }
    }

    pub fn connect(&mut self, outgoing: Outgoing, lost: Arc<Notify>) -> Result<StreamId> {
        if self.streams.len() >= MAX_STREAMS {
            return Err(exhausted(format!("more than {MAX_STREAMS} streams")));
        }
        self.last += 1;
        self.streams.insert(self.last, Stream { outgoing, lost, client: None });
        Ok(self.last)
    }

    /// Its stream has ended: whoever it leaves behind is told if it was their primary.
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

    /// Of a request that says from whom it is.
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

    /// What a role may do; None: everything.
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

    /// An error ends the stream.
    pub fn arbitrate(&mut self, id: StreamId, update: &MasterArbitrationUpdate) -> Result<()> {
        let before = self.streams.get(&id).and_then(|stream| stream.client.clone());
        let client = self.client_of(id, before.as_ref(), update)?;
        let config = self.config_of(&client.role, update)?;
        let was_primary = self.is_primary(id);
        let state = self.roles.entry(client.role.clone()).or_default();
        let primary = client.election.is_some() && client.election >= state.highest;
        if primary {
            *state = State { highest: client.election, config };
        }
        let role = client.role.clone();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.client = Some(client);
        }
        // The new primary is told last.
        if primary || was_primary {
            self.notify(&role, |other| other != id);
        }
        self.notify(&role, |other| other == id);
        Ok(())
    }

    /// What the message makes of its sender, if it may.
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
            return Err(precondition("a stream keeps its role"));
        }
        #[allow(deprecated)]
        if role.id != 0 {
            return Err(invalid("roles go by their names"));
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

    /// That of the message, if it goes together with those of the other roles.
    fn config_of(&self, role: &str, update: &MasterArbitrationUpdate) -> Result<Option<RoleConfig>> {
        let given = update.role.as_ref().and_then(|role| role.config.as_ref());
        let Some(config) = given.map(RoleConfig::new).transpose()? else { return Ok(None) };
        for (name, other) in self.roles.iter().filter(|(name, _)| *name != role) {
            if let Some(id) = other.config.as_ref().and_then(|other| config.conflict(other)) {
                return Err(invalid(format!("the role {name} has {id:#x}, too, and one of them for itself")));
            }
        }
        Ok(Some(config))
    }

    fn notify(&self, role: &str, whom: impl Fn(StreamId) -> bool) {
        let of_role = |stream: &Stream| stream.client.as_ref().is_some_and(|client| client.role == role);
        let state = self.roles.get(role);
        let highest = state.and_then(|state| state.highest);
        let config = state.and_then(|state| state.config.as_ref()).map(|config| config.given.clone());
        let primary = self.streams.keys().find(|id| self.is_primary(**id) && of_role(&self.streams[id]));
        for (id, stream) in self.streams.iter().filter(|(id, stream)| of_role(stream) && whom(**id)) {
            let (code, message_of) = match primary {
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
                status: Some(rpc::Status { code: code as i32, message: message_of.into(), details: vec![] }),
            };
            let update = StreamMessageResponse { update: Some(Update::Arbitration(update)) };
            if stream.outgoing.try_send(Ok(update)).is_err() {
                stream.lost.notify_one();
            }
        }
    }

    /// To a controller that may have fallen behind: then it misses it.
    pub fn send(&self, id: StreamId, update: Update) {
        if let Some(stream) =
            self.streams.get(&id).filter(|stream| stream.outgoing.capacity() > FOR_ARBITRATION)
        {
            let _ = stream.outgoing.try_send(Ok(StreamMessageResponse { update: Some(update) }));
        }
    }

    /// To the primary of every role, what of it is the role's.
    pub fn send_primaries(&self, update: &Update) {
        for (id, stream) in self.streams.iter().filter(|(id, _)| self.is_primary(**id)) {
            let role = stream.client.as_ref().and_then(|client| self.roles.get(&client.role));
            let part = match role.and_then(|role| role.config.as_ref()) {
                Some(config) => config.part_of(update),
                None => Some(update.clone()),
            };
            if let Some(part) = part {
                self.send(*id, part);
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

        /// What it was told since: the code and the highest election id.
        fn told(&mut self, id: StreamId) -> Vec<(Code, Option<u128>)> {
            let mut told = vec![];
            while let Ok(Ok(message)) = self.inboxes.get_mut(&id).unwrap().try_recv() {
                let Some(Update::Arbitration(update)) = message.update else { panic!("{message:?}") };
                told.push((Code::from(update.status.unwrap().code), number(update.election_id.as_ref())));
            }
            told
        }
    }

    #[test]
    fn the_highest_election_id_is_primary() {
        let mut switch = Switch::new();
        let (a, b) = (switch.connect(), switch.connect());
        switch.arbitrate(a, "", Some(5)).unwrap();
        assert_eq!(switch.told(a), [(Code::Ok, Some(5))]);
        switch.arbitrate(b, "", Some(3)).unwrap();
        assert_eq!(switch.told(b), [(Code::AlreadyExists, Some(5))]);
        assert_eq!(switch.told(a), [], "a backup is no news to the primary");
        switch.arbitrate(b, "", Some(1 << 70)).unwrap();
        assert_eq!(switch.told(a), [(Code::AlreadyExists, Some(1 << 70))]);
        assert_eq!(switch.told(b), [(Code::Ok, Some(1 << 70))]);
        assert!(switch.clients.check(1, "", Some(&message(1 << 70))).is_ok());
        assert_eq!(switch.clients.check(1, "", Some(&message(5))).unwrap_err().code, Code::PermissionDenied);
        assert_eq!(switch.clients.check(1, "", None).unwrap_err().code, Code::PermissionDenied);
    }

    #[test]
    fn without_a_primary_a_backup_has_to_ask() {
        let mut switch = Switch::new();
        let (a, b) = (switch.connect(), switch.connect());
        switch.arbitrate(a, "", Some(5)).unwrap();
        switch.arbitrate(b, "", Some(3)).unwrap();
        switch.told(b);
        switch.clients.disconnect(a);
        assert_eq!(switch.told(b), [(Code::NotFound, Some(5))]);
        assert!(!switch.clients.is_primary(b));
        switch.arbitrate(b, "", Some(4)).unwrap();
        assert_eq!(switch.told(b), [(Code::NotFound, Some(5))], "5 was seen, 4 is too low");
        switch.arbitrate(b, "", Some(5)).unwrap();
        assert_eq!(switch.told(b), [(Code::Ok, Some(5))]);
    }

    #[test]
    fn a_primary_can_step_down() {
        let mut switch = Switch::new();
        let (a, b) = (switch.connect(), switch.connect());
        switch.arbitrate(a, "", Some(5)).unwrap();
        switch.arbitrate(b, "", None).unwrap();
        switch.told(a);
        switch.told(b);
        switch.arbitrate(a, "", Some(2)).unwrap();
        assert_eq!(switch.told(a), [(Code::NotFound, Some(5))]);
        assert_eq!(switch.told(b), [(Code::NotFound, Some(5))]);
        assert_eq!(switch.clients.check(1, "", Some(&message(2))).unwrap_err().code, Code::PermissionDenied);
    }

    #[test]
    fn roles_have_primaries_of_their_own() {
        let mut switch = Switch::new();
        let (a, b) = (switch.connect(), switch.connect());
        switch.arbitrate(a, "", Some(5)).unwrap();
        switch.arbitrate(b, "second", Some(5)).unwrap();
        assert_eq!((switch.told(a), switch.told(b)), (vec![(Code::Ok, Some(5))], vec![(Code::Ok, Some(5))]));
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
    fn what_a_role_has_for_itself_no_other_has() {
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
        // A backup's config changes nothing; the next primary's does.
        switch.arbitrate_with(c, "a", Some(4), Some(config(&[], &[7]))).unwrap();
        assert!(switch.clients.config("a").unwrap().unwrap().has(1));
        switch.arbitrate_with(c, "a", Some(6), Some(config(&[], &[7]))).unwrap();
        assert!(!switch.clients.config("a").unwrap().unwrap().has(1));
        assert_eq!(switch.clients.config("").unwrap(), None);
    }

    #[test]
    fn what_ends_a_stream() {
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
    fn a_controller_that_does_not_read_is_given_up() {
        let mut switch = Switch::new();
        let (outgoing, inbox) = mpsc::channel(FOR_ARBITRATION + 1);
        let lost = Arc::new(Notify::new());
        let a = switch.clients.connect(outgoing, lost.clone()).unwrap();
        switch.inboxes.insert(a, inbox);
        for election in 0..FOR_ARBITRATION as u128 + 1 {
            switch.clients.send(a, Update::Packet(Default::default()));
            switch.arbitrate(a, "", Some(election)).unwrap();
        }
        // One packet went in while there was room; the last notice found none.
        assert_eq!(switch.inboxes.get_mut(&a).unwrap().len(), FOR_ARBITRATION + 1);
        let waited = std::pin::pin!(lost.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::future::Future::poll(waited, &mut context).is_ready());
    }
}
