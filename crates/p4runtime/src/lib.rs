// SPDX-License-Identifier: Apache-2.0
//! A P4Runtime server for the P4 engine (docs/p4.md).
//!
//! ```text
//! controllers --gRPC--> service --> arbitration      primary controllers
//!                               --> pipeline         ids of P4Info <-> numbers of the program
//!                               --> device           entities <-> the engine's control requests
//!                               --> control          the engine, in this process or in the kernel
//! ```
#![forbid(unsafe_code)]

mod arbitration;
mod bytestring;
mod clock;
mod control;
mod controller_header;
mod data;
mod device;
mod error;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
#[path = "../examples/loopback/switch.rs"]
mod loopback;
mod matches;
mod packets;
mod pipeline;
mod roles;
mod service;
#[cfg(test)]
mod testing;
mod text;

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use tokio::sync::mpsc;
use tonic::transport::server::TcpIncoming;
use tonic::transport::Server;

pub use control::{Control, Event};
use proto::p4::v1::p4_runtime_server::P4RuntimeServer;
use proto::p4::v1::ForwardingPipelineConfig;
pub use text::p4info;

/// P4Runtime's messages, generated.
pub mod proto {
    pub mod p4 {
        pub mod v1 {
            #![allow(clippy::all, clippy::too_many_lines)]
            tonic::include_proto!("p4.v1");
        }
        pub mod config {
            pub mod v1 {
                #![allow(clippy::all, clippy::too_many_lines)]
                tonic::include_proto!("p4.config.v1");
            }
        }
    }
    pub mod google {
        pub mod rpc {
            #![allow(clippy::all, clippy::too_many_lines)]
            tonic::include_proto!("google.rpc");
        }
    }
}

/// Limit on a request. A device config has some megabytes.
const MAX_REQUEST_BYTES: usize = 64 << 20;
/// Interval of HTTP/2 keepalives, which detect a lost controller.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Serve controllers on a loopback address until the switch's events end. Controllers are not authenticated. `running`
/// is the pipeline that the switch runs already, with its entries.
pub fn serve(
    listener: TcpListener,
    device_id: u64,
    control: Box<dyn Control>,
    events: mpsc::Receiver<Event>,
    running: Option<ForwardingPipelineConfig>,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        let why = format!(
            "P4Runtime on {address}: expected a loopback address, since clients are not authenticated"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if device_id == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "P4Runtime: expected a device id of 1 or more",
        ));
    }
    let service = service::Service::new(device_id, control);
    if let Some(config) = running {
        service
            .take_over(config)
            .map_err(|refused| io::Error::new(io::ErrorKind::InvalidInput, refused.message))?;
    }
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let incoming =
            TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?).with_nodelay(Some(true));
        let calls = P4RuntimeServer::new(service.clone()).max_decoding_message_size(MAX_REQUEST_BYTES);
        Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .add_service(calls)
            .serve_with_incoming_shutdown(incoming, service.forward_events(events))
            .await
            .map_err(io::Error::other)
    })
}
