//! The gRPC API: stores intent and reads views. It never accesses hardware.
//!
//! This crate translates calls for the features in `rackwright-control`: it identifies the caller, converts messages and
//! stores wishes. The features do not know this crate.
//!
//! Tests of features that begin with a call are here too: `feature_tests`, and the crashes in `simulation`.

// Tests may read clocks and files, and wait for tasks.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod access;
mod agents;
mod audit;
mod audited;
mod auth;
mod bmc;
mod boot;
mod call;
mod caller;
mod clusters;
mod connection;
mod console;
mod control;
mod convert;
mod credentials;
mod customer_view;
mod discovery;
mod doubts;
mod enrolment;
mod erase_chain;
mod events;
mod explain;
mod fabric;
#[cfg(test)]
mod feature_tests;
mod firmware;
mod grants;
mod health;
mod images;
mod members;
mod metering;
mod names;
mod nodes;
mod operations;
mod paused;
mod power;
mod settings;
#[cfg(test)]
mod simulation;
mod site_files;
mod sites;
#[cfg(test)]
mod tenancy;
#[cfg(test)]
mod test_calls;
mod traced;
mod watch;
mod windows;

use std::sync::Arc;

use rackwright_api::v1::agent_service_server::AgentServiceServer;
use rackwright_api::v1::audit_service_server::AuditServiceServer;
use rackwright_api::v1::auth_service_server::AuthServiceServer;
use rackwright_api::v1::bmc_service_server::BmcServiceServer;
use rackwright_api::v1::boot_service_server::BootServiceServer;
use rackwright_api::v1::cluster_service_server::ClusterServiceServer;
use rackwright_api::v1::console_service_server::ConsoleServiceServer;
use rackwright_api::v1::control_service_server::ControlServiceServer;
use rackwright_api::v1::credential_service_server::CredentialServiceServer;
use rackwright_api::v1::discovery_service_server::DiscoveryServiceServer;
use rackwright_api::v1::event_service_server::EventServiceServer;
use rackwright_api::v1::firmware_service_server::FirmwareServiceServer;
use rackwright_api::v1::image_service_server::ImageServiceServer;
use rackwright_api::v1::metering_service_server::MeteringServiceServer;
use rackwright_api::v1::node_service_server::NodeServiceServer;
use rackwright_api::v1::operation_service_server::OperationServiceServer;
use rackwright_api::v1::power_service_server::PowerServiceServer;
use rackwright_api::v1::settings_service_server::SettingsServiceServer;
use rackwright_api::v1::site_service_server::SiteServiceServer;
use rackwright_api::{BARE_DESCRIPTORS, DESCRIPTORS, REST};
use rackwright_gateway::{Gateway, Methods, PeerRights};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::tls::{self, Accepted};
use rackwright_identity::ClientKind;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Extensions;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

use self::access::{Gate, Refusals};
use self::connection::{Connection, Peer};

/// The package of the services.
const PACKAGE: &str = "rackwright.v1";

/// Largest message from a member, in bytes.
const MESSAGE_MAX: usize = 8 << 20;

/// Largest message about a site, in bytes: a part of a file and its name.
const SITE_PART_MAX: usize = site_files::PART_MAX + (64 << 10);

/// Flow-control window of a call, and of a connection, without a certificate: most bytes in transit.
const STRANGERS_WINDOW: u32 = (64 << 10) - 1;
/// Parallel calls on a connection without a certificate. A registered agent needs one.
const STRANGERS_CALLS: u32 = 2;
/// Largest headers of a call without a certificate, in bytes.
const STRANGERS_HEADERS: u32 = 8 << 10;
/// Flow-control window of a call, and of a connection, with a certificate: most bytes in transit.
const WINDOW: u32 = 1 << 20;
/// Parallel calls on a connection with a certificate.
const CALLS: u32 = 128;
/// Largest headers of a call, in bytes.
const HEADERS: u32 = 16 << 10;

/// Serves until the core stops.
///
/// # Errors
/// The server could not be set up.
pub async fn run(
    core: Arc<Core>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (health, health_service) = health_reporter();
    health.set_serving::<NodeServiceServer<nodes::Nodes>>().await;
    health.set_serving::<ImageServiceServer<images::Images>>().await;
    health
        .set_serving::<OperationServiceServer<operations::Operations>>()
        .await;
    health.set_serving::<EventServiceServer<events::Events>>().await;
    health.set_serving::<AuthServiceServer<auth::Auth>>().await;
    health.set_serving::<AuditServiceServer<audit::Records>>().await;
    health.set_serving::<BootServiceServer<boot::Boot>>().await;
    health.set_serving::<AgentServiceServer<agents::Agents>>().await;
    health.set_serving::<SiteServiceServer<sites::Sites>>().await;
    health.set_serving::<ClusterServiceServer<clusters::Clusters>>().await;
    health.set_serving::<MeteringServiceServer<metering::Metering>>().await;
    health
        .set_serving::<CredentialServiceServer<credentials::Credentials>>()
        .await;
    health.set_serving::<PowerServiceServer<power::Power>>().await;
    health.set_serving::<SettingsServiceServer<settings::Settings>>().await;
    health.set_serving::<FirmwareServiceServer<firmware::Firmware>>().await;
    health.set_serving::<ConsoleServiceServer<console::Console>>().await;
    health.set_serving::<BmcServiceServer<bmc::Bmc>>().await;
    health
        .set_serving::<DiscoveryServiceServer<discovery::Discovery>>()
        .await;
    if core.pause.is_on() {
        health.set_not_serving::<ControlServiceServer<control::Control>>().await;
        let (core, health) = (core.clone(), health.clone());
        tokio::spawn(async move {
            core.pause.ending().await;
            health.set_serving::<ControlServiceServer<control::Control>>().await;
        });
    } else {
        health.set_serving::<ControlServiceServer<control::Control>>().await;
    }
    tokio::spawn(report_part_health(core.clone(), health.clone()));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let accepted = tls::accept(&core, listener, tls, core.listeners.api.clone());
    let services = routes(&core).add_service(health_service).add_service(reflection);
    let refusals = Refusals::new(core.metrics.calls_refused());
    let methods = Methods::new(&[BARE_DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET])?;
    let methods = methods.with_rest(REST, PACKAGE)?;
    let about = ("Rackwright", env!("CARGO_PKG_VERSION"));
    let methods = Arc::new(methods.with_openapi(DESCRIPTORS, (REST, PACKAGE), about));
    let (strangers, known) = split_by_identity(accepted);
    let serve = |server: Server, connections: mpsc::Receiver<Accepted>| {
        let (refusals, granting, pausing, recording) = (refusals.clone(), core.clone(), core.clone(), core.clone());
        let methods = methods.clone();
        let connections =
            ReceiverStream::new(connections).map(|accepted| Ok::<Connection, std::io::Error>(accepted.into()));
        server
            .http2_keepalive_interval(Some(std::time::Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(std::time::Duration::from_secs(20)))
            .layer(tower::layer::layer_fn(move |inner| {
                Gateway::new(inner, methods.clone(), RIGHTS)
            }))
            .layer(tower::layer::layer_fn(traced::Traced))
            .layer(tower::layer::layer_fn(move |services| audited::Audited {
                core: recording.clone(),
                services,
            }))
            .layer(tower::layer::layer_fn(move |inner| Gate::new(inner, refusals.clone())))
            .layer(tower::layer::layer_fn(move |inner| {
                grants::Granted::new(inner, granting.clone())
            }))
            .layer(tower::layer::layer_fn(move |services| paused::Paused {
                core: pausing.clone(),
                services,
            }))
            .add_routes(services.clone())
            .serve_with_incoming_shutdown(connections, core.stop.clone().cancelled_owned())
    };
    let for_strangers = Server::builder()
        .initial_stream_window_size(STRANGERS_WINDOW)
        .initial_connection_window_size(STRANGERS_WINDOW)
        .max_concurrent_streams(STRANGERS_CALLS)
        .http2_max_header_list_size(STRANGERS_HEADERS);
    let for_known = Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(CALLS)
        .http2_max_header_list_size(HEADERS);
    tokio::try_join!(serve(for_strangers, strangers), serve(for_known, known))?;
    Ok(())
}

/// Only a member may send long messages, and none to an open call.
const RIGHTS: PeerRights = PeerRights {
    limit: |extensions, path| match is_member(extensions) && !access::is_open(path) {
        true => MESSAGE_MAX,
        false => access::OPEN_MAX,
    },
    reads_openapi: is_member,
};

fn is_member(extensions: &Extensions) -> bool {
    let identity = Peer::from_extensions(extensions).and_then(|peer| peer.identity(clock::now()));
    identity.is_some_and(|identity| matches!(identity.kind, ClientKind::Member { .. }))
}

/// Prefix of the service names for health checks of single parts of the daemon: "rackwright.parts/runner".
const PARTS: &str = "rackwright.parts/";

/// Reports the running parts of the daemon to health checks. If a part has ended, the whole counts as not serving.
async fn report_part_health(core: Arc<Core>, health: HealthReporter) {
    let mut changes = core.health.subscribe();
    loop {
        let all = changes.borrow_and_update().clone();
        let is_whole = all.values().all(|runs| *runs);
        let parts = all.iter().map(|(part, runs)| (format!("{PARTS}{part}"), *runs));
        for (service, runs) in parts.chain([(String::new(), is_whole)]) {
            let status = if runs {
                ServingStatus::Serving
            } else {
                ServingStatus::NotServing
            };
            health.set_service_status(service, status).await;
        }
        // The sender lives as long as the core.
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Divides connections by whether they have a certificate, because they have different limits.
fn split_by_identity(mut accepted: mpsc::Receiver<Accepted>) -> (mpsc::Receiver<Accepted>, mpsc::Receiver<Accepted>) {
    let ((strangers, to_strangers), (known, to_known)) = (mpsc::channel(1), mpsc::channel(1));
    tokio::spawn(async move {
        while let Some(connection) = accepted.recv().await {
            let server = match connection.identity {
                None => &strangers,
                Some(_) => &known,
            };
            if server.send(connection).await.is_err() {
                return;
            }
        }
    });
    (to_strangers, to_known)
}

/// All services. Each of their calls checks its caller with `caller`.
fn routes(core: &Arc<Core>) -> Routes {
    Routes::new(NodeServiceServer::new(nodes::Nodes(core.clone())).max_decoding_message_size(MESSAGE_MAX))
        .add_service(ImageServiceServer::new(images::Images(core.clone())))
        .add_service(OperationServiceServer::new(operations::Operations(core.clone())))
        .add_service(EventServiceServer::new(events::Events(core.clone())))
        .add_service(AuthServiceServer::new(auth::Auth(core.clone())))
        .add_service(AuditServiceServer::new(audit::Records(core.clone())))
        .add_service(BootServiceServer::new(boot::Boot(core.clone())))
        .add_service(ClusterServiceServer::new(clusters::Clusters(core.clone())))
        .add_service(MeteringServiceServer::new(metering::Metering(core.clone())))
        .add_service(CredentialServiceServer::new(credentials::Credentials(core.clone())))
        .add_service(PowerServiceServer::new(power::Power(core.clone())))
        .add_service(SettingsServiceServer::new(settings::Settings(core.clone())))
        .add_service(
            FirmwareServiceServer::new(firmware::Firmware(core.clone())).max_decoding_message_size(MESSAGE_MAX),
        )
        .add_service(ConsoleServiceServer::new(console::Console(core.clone())))
        .add_service(BmcServiceServer::new(bmc::Bmc(core.clone())))
        .add_service(ControlServiceServer::new(control::Control(core.clone())))
        .add_service(
            DiscoveryServiceServer::new(discovery::Discovery(core.clone())).max_decoding_message_size(MESSAGE_MAX),
        )
        .add_service(SiteServiceServer::new(sites::Sites(core.clone())).max_decoding_message_size(SITE_PART_MAX))
        .add_service(
            AgentServiceServer::new(agents::Agents(core.clone())).max_decoding_message_size(agents::MESSAGE_MAX),
        )
}
