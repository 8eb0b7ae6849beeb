// SPDX-License-Identifier: Apache-2.0
//! The RPCs of P4Runtime for one device and its controllers.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prost::Message;
use tokio::sync::{mpsc, Notify};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::arbitration::{Clients, StreamId, MAX_QUEUED};
use crate::clock::since_epoch_ns;
use crate::control::{Control, Event};
use crate::device::{Device, Entities};
use crate::error::{batch_status, denied, invalid, unimplemented, RequestError, Result};
use crate::packets;
use crate::proto::p4::v1::get_forwarding_pipeline_config_request::ResponseType;
use crate::proto::p4::v1::p4_runtime_server::P4Runtime;
use crate::proto::p4::v1::stream_error::Details;
use crate::proto::p4::v1::stream_message_request::Update as ClientMessage;
use crate::proto::p4::v1::stream_message_response::Update as ServerMessage;
use crate::proto::p4::v1::write_request::Atomicity;
use crate::proto::p4::v1::{
    CapabilitiesRequest, CapabilitiesResponse, DigestListAckError, Entity, ForwardingPipelineConfig,
    GetForwardingPipelineConfigRequest, GetForwardingPipelineConfigResponse, IdleTimeoutNotification,
    PacketOutError, ReadRequest, ReadResponse, SetForwardingPipelineConfigRequest,
    SetForwardingPipelineConfigResponse, StreamError, StreamMessageRequest, StreamMessageResponse,
    StreamOtherError, Update, WriteRequest, WriteResponse,
};
use crate::roles::{id_of, RoleConfig};

/// Version of the specification (p4lang/p4runtime).
pub const API_VERSION: &str = "1.5.0";
/// Size at which a read's answer is split into messages: by default, clients accept at most 4 MiB.
const READ_BYTES: usize = 1 << 20;
const IDLE_SCAN: Duration = Duration::from_millis(100);
/// Limit on entries in one notification.
const MAX_IDLE: u32 = 1024;

/// State shared by all calls. Requests are executed one after the other.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Mutex<Shared>>,
    /// Notified when the pipeline changes.
    changed: Arc<Notify>,
}

struct Shared {
    device: Device,
    clients: Clients,
}

impl Service {
    pub fn new(device_id: u64, control: Box<dyn Control>) -> Service {
        let shared = Shared { device: Device::new(control), clients: Clients::new(device_id) };
        Service { shared: Arc::new(Mutex::new(shared)), changed: Arc::default() }
    }

    /// Adopt the pipeline that the switch runs already.
    pub fn take_over(&self, config: ForwardingPipelineConfig) -> Result<()> {
        self.shared().device.take_over(config)
    }

    /// Lock the state. After a panic in another request, the server continues.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Execute a batch. Returns its status unless all updates succeeded.
    pub fn handle_write(&self, request: &WriteRequest) -> Result<Option<Status>> {
        let Shared { device, clients } = &mut *self.shared();
        clients.check(request.device_id, &request.role, request.election_id.as_ref())?;
        device.ready()?;
        if request.atomicity() != Atomicity::ContinueOnError {
            return Err(unimplemented("only CONTINUE_ON_ERROR is supported"));
        }
        let config = clients.config(&request.role)?;
        let write = |update: &Update| {
            config.map_or(Ok(()), |config| config.allow(update.entity.as_ref()))?;
            device.write(update)
        };
        let results: Vec<Result<()>> = request.updates.iter().map(write).collect();
        Ok(batch_status("updates", &results))
    }

    /// Execute a read. Returns the entities, and the status unless all reads succeeded.
    pub fn handle_read(&self, request: &ReadRequest) -> Result<(Entities, Option<Status>)> {
        let Shared { device, clients } = &mut *self.shared();
        clients.device(request.device_id)?;
        device.ready()?;
        let config = clients.config(&request.role)?;
        let mut found = Entities::default();
        let read = |entity: &Entity| {
            config.map_or(Ok(()), |config| config.allow(Some(entity)))?;
            device.read(entity, &mut found)
        };
        let results: Vec<Result<()>> = request.entities.iter().map(read).collect();
        if let Some(config) = config {
            found.retain(|entity| id_of(entity).is_none_or(|id| config.has(id)));
        }
        Ok((found, batch_status("entities", &results)))
    }

    pub fn handle_set_pipeline(&self, request: SetForwardingPipelineConfigRequest) -> Result<()> {
        let Shared { device, clients } = &mut *self.shared();
        clients.check(request.device_id, &request.role, request.election_id.as_ref())?;
        clients.config(&request.role)?.map_or(Ok(()), RoleConfig::allow_pipeline)?;
        let configured = device.configure(request.action(), request.config);
        self.changed.notify_one();
        configured
    }

    fn config(
        &self,
        request: GetForwardingPipelineConfigRequest,
    ) -> Result<Option<ForwardingPipelineConfig>> {
        let shared = self.shared();
        shared.clients.device(request.device_id)?;
        let Some(config) = shared.device.config() else { return Ok(None) };
        let (p4info, device_config) = match request.response_type() {
            ResponseType::All => (true, true),
            ResponseType::CookieOnly => (false, false),
            ResponseType::P4infoAndCookie => (true, false),
            ResponseType::DeviceConfigAndCookie => (false, true),
        };
        Ok(Some(ForwardingPipelineConfig {
            p4info: config.p4info.clone().filter(|_| p4info),
            p4_device_config: if device_config { config.p4_device_config.clone() } else { vec![] },
            cookie: config.cookie,
        }))
    }

    /// Handle a message from a controller's stream. An error ends the stream.
    pub fn handle_message(&self, id: StreamId, message: StreamMessageRequest) -> Result<()> {
        let Shared { device, clients } = &mut *self.shared();
        let primary = clients.is_primary(id);
        let (done, details) = match message.update {
            Some(ClientMessage::Arbitration(update)) => return clients.arbitrate(id, &update),
            Some(ClientMessage::Packet(packet)) => {
                let done = match (primary, device.pipeline()) {
                    (false, _) => Err(denied("not the primary controller")),
                    (true, None) => Err(invalid("no forwarding pipeline config is set")),
                    (true, Some(pipeline)) => packets::packet_out(&pipeline.packet_out, &packet),
                };
                let done = done.and_then(|bytes| device.inject(&bytes));
                (done, Details::PacketOut(PacketOutError { packet_out: Some(packet) }))
            }
            Some(ClientMessage::DigestAck(ack)) => {
                let done = match (primary, device.digests()) {
                    (false, _) => Err(denied("not the primary controller")),
                    (true, None) => Err(invalid("no forwarding pipeline config is set")),
                    (true, Some((pipeline, digests))) => digests.acknowledge(pipeline, &ack),
                };
                (done, Details::DigestListAck(DigestListAckError { digest_list_ack: Some(ack) }))
            }
            Some(ClientMessage::Other(other)) => {
                let details = Details::Other(StreamOtherError { other: Some(other) });
                (Err(unimplemented("unknown messages")), details)
            }
            None => {
                let details = Details::Other(StreamOtherError::default());
                (Err(invalid("a message without contents")), details)
            }
        };
        if let Err(RequestError { code, message }) = done {
            let error = StreamError {
                canonical_code: code as i32,
                message,
                details: Some(details),
                ..Default::default()
            };
            clients.send(id, ServerMessage::Error(error));
        }
        Ok(())
    }

    /// Forward an event of the switch to the primary controllers.
    pub fn handle_event(&self, event: Event, now: Instant) {
        let Shared { device, clients } = &mut *self.shared();
        let message = match event {
            Event::PacketIn(packet) => {
                let pipeline = device.pipeline();
                pipeline
                    .and_then(|pipeline| packets::packet_in(&pipeline.packet_in, &packet))
                    .map(ServerMessage::Packet)
            }
            Event::Digest { id, values } => {
                let digests = device.digests();
                digests
                    .and_then(|(pipeline, digests)| digests.add(pipeline, id, values, now))
                    .map(ServerMessage::Digest)
            }
        };
        if let Some(message) = message {
            clients.send_primaries(&message);
        }
    }

    pub fn send_due_digests(&self, now: Instant) {
        let Shared { device, clients } = &mut *self.shared();
        if let Some((pipeline, digests)) = device.digests() {
            for list in digests.due(pipeline, now) {
                clients.send_primaries(&ServerMessage::Digest(list));
            }
        }
    }

    /// Send notifications for all entries that are idle now, unless a saved pipeline waits for its COMMIT.
    pub fn send_idle_timeouts(&self) {
        let Shared { device, clients } = &mut *self.shared();
        let now_us = device.now_us();
        while let Ok(table_entry) = device.idle(now_us, MAX_IDLE) {
            if table_entry.is_empty() {
                return;
            }
            let notification = IdleTimeoutNotification { table_entry, timestamp: since_epoch_ns() };
            clients.send_primaries(&ServerMessage::IdleTimeoutNotification(notification));
        }
    }

    fn has_idle_timeouts(&self) -> bool {
        let shared = self.shared();
        shared
            .device
            .pipeline()
            .is_some_and(|pipeline| pipeline.tables.values().any(|table| table.idle_timeout))
    }

    /// Forward the events of the switch to the controllers until the switch is gone.
    pub async fn forward_events(self, mut events: mpsc::Receiver<Event>) {
        let mut scan = tokio::time::interval(IDLE_SCAN);
        scan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let due = self.shared().device.digests().and_then(|(_, digests)| digests.next());
            let wait = tokio::time::sleep_until(due.unwrap_or_else(Instant::now).into());
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.handle_event(event, Instant::now()),
                    None => return,
                },
                () = wait, if due.is_some() => self.send_due_digests(Instant::now()),
                _ = scan.tick(), if self.has_idle_timeouts() => self.send_idle_timeouts(),
                () = self.changed.notified() => {}
            }
        }
    }

    pub fn connect(&self, outgoing: crate::arbitration::Outgoing, stalled: Arc<Notify>) -> Result<StreamId> {
        self.shared().clients.connect(outgoing, stalled)
    }

    pub fn disconnect(&self, id: StreamId) {
        self.shared().clients.disconnect(id);
    }
}

/// Split entities into messages of about READ_BYTES.
fn messages(found: Entities) -> Vec<ReadResponse> {
    let mut messages = vec![];
    let (mut entities, mut bytes) = (vec![], 0);
    for entity in found.into_entities() {
        bytes += entity.encoded_len();
        entities.push(entity);
        if bytes >= READ_BYTES {
            messages.push(ReadResponse { entities: std::mem::take(&mut entities) });
            bytes = 0;
        }
    }
    if !entities.is_empty() {
        messages.push(ReadResponse { entities });
    }
    messages
}

type Answers<T> = Pin<Box<dyn Stream<Item = std::result::Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl P4Runtime for Service {
    type ReadStream = Answers<ReadResponse>;
    type StreamChannelStream = ReceiverStream<std::result::Result<StreamMessageResponse, Status>>;

    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> std::result::Result<Response<WriteResponse>, Status> {
        match self.handle_write(request.get_ref())? {
            None => Ok(Response::new(WriteResponse {})),
            Some(status) => Err(status),
        }
    }

    async fn read(
        &self,
        request: Request<ReadRequest>,
    ) -> std::result::Result<Response<Self::ReadStream>, Status> {
        let (found, status) = self.handle_read(request.get_ref())?;
        let answers = messages(found).into_iter().map(Ok).chain(status.map(Err));
        Ok(Response::new(Box::pin(tokio_stream::iter(answers))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> std::result::Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        self.handle_set_pipeline(request.into_inner())?;
        Ok(Response::new(SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        request: Request<GetForwardingPipelineConfigRequest>,
    ) -> std::result::Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        let config = self.config(request.into_inner())?;
        Ok(Response::new(GetForwardingPipelineConfigResponse { config }))
    }

    async fn stream_channel(
        &self,
        request: Request<tonic::Streaming<StreamMessageRequest>>,
    ) -> std::result::Result<Response<Self::StreamChannelStream>, Status> {
        let (outgoing, messages) = mpsc::channel(MAX_QUEUED);
        let stalled = Arc::new(Notify::new());
        let id = self.connect(outgoing.clone(), stalled.clone())?;
        let mut received = request.into_inner();
        let service = self.clone();
        tokio::spawn(async move {
            let ended = loop {
                let message = tokio::select! {
                    message = received.message() => message,
                    () = stalled.notified() => break Some(Status::resource_exhausted("the controller does not read its messages")),
                };
                let Ok(Some(message)) = message else { break None };
                if let Err(refused) = service.handle_message(id, message) {
                    break Some(refused.into());
                }
            };
            service.disconnect(id);
            if let Some(status) = ended {
                let _ = outgoing.try_send(Err(status)); // the stream ends in any case
            }
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn capabilities(
        &self,
        request: Request<CapabilitiesRequest>,
    ) -> std::result::Result<Response<CapabilitiesResponse>, Status> {
        match request.get_ref().device_id {
            0 => {}
            device_id => self.shared().clients.device(device_id)?,
        }
        Ok(Response::new(CapabilitiesResponse {
            p4runtime_api_version: API_VERSION.into(),
            experimental: None,
        }))
    }
}
