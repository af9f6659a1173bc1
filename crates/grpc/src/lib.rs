//! The gRPC API: stores intent and reads views. It never accesses hardware.
//!
//! This crate translates calls for the features in `rackwright-control`: it identifies the caller, converts messages and
//! stores wishes. The features do not know this crate. It also serves the web console, which is a client of the API.
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
mod device_login;
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
mod fleet;
mod grants;
mod health;
mod http1;
mod images;
mod members;
mod metering;
mod names;
mod nodes;
mod operations;
mod paused;
#[cfg(test)]
#[path = "../../oidc/tests/provider/mod.rs"]
mod played_provider;
mod power;
mod sessions;
mod settings;
#[cfg(test)]
mod simulation;
mod site_files;
mod sites;
#[cfg(test)]
mod tenancy;
#[cfg(test)]
mod test_calls;
mod topology;
mod traced;
mod watch;
mod web;
mod windows;

use std::collections::BTreeSet;
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
use rackwright_api::v1::session_service_server::SessionServiceServer;
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
use self::connection::{Connection, identity_of};

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
/// Parallel calls on a connection to the web console: files at the first load, then streams and calls of a page.
const BROWSER_CALLS: u32 = 32;
/// Largest headers of a call, in bytes.
const HEADERS: u32 = 16 << 10;

/// A listener with its TLS settings.
pub type Listening = (TcpListener, Arc<rustls::ServerConfig>);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Serves the API, and the web console if there is one, until the core stops.
///
/// # Errors
/// The server could not be set up.
pub async fn run(core: Arc<Core>, api: Listening, web: Option<Listening>) -> Result<(), Failure> {
    let (health, health_service) = health_reporter();
    let methods = methods()?;
    begin_health(&core, &health, &methods).await;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let stack = Stack {
        refusals: Refusals::new(core.metrics.calls_refused()),
        methods,
        services: routes(&core).add_service(health_service).add_service(reflection),
        core: core.clone(),
    };
    let accepted = tls::accept(&core, api.0, api.1, core.listeners.api.clone());
    let (dividing, strangers, known) = split(accepted, |connection| connection.identity.is_some());
    let serve_web = async {
        let site = web::Site::new(&core);
        match (web, site) {
            (Some((listener, tls)), Some(site)) => {
                let accepted = tls::accept(&core, listener, tls, core.listeners.web.clone());
                let (dividing, http1, http2) = split(accepted, speaks_http2);
                let over_http1 = http1::serve(http1, stack.service(site.clone()), core.stop.clone());
                let over_http2 = stack.serve(for_browsers(), http2, Some(site));
                let ((), (), served) = tokio::join!(dividing, over_http1, over_http2);
                served
            }
            _ => Ok(()),
        }
    };
    let serving = async {
        tokio::try_join!(
            async {
                dividing.await;
                Ok(())
            },
            stack.serve(for_strangers(), strangers, None),
            stack.serve(for_known(), known, None),
            serve_web
        )
    };
    // The reports end with the server, and a panic in them ends the server.
    tokio::select! {
        served = serving => {
            served?;
        }
        () = report_part_health(&core, &health) => {}
    }
    Ok(())
}

/// The methods that the gateway translates.
fn methods() -> Result<Arc<Methods>, Failure> {
    let methods = Methods::new(&[BARE_DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET])?;
    let methods = methods.with_rest(REST, PACKAGE)?;
    let about = ("Rackwright", env!("CARGO_PKG_VERSION"));
    Ok(Arc::new(methods.with_openapi(
        DESCRIPTORS,
        (REST, PACKAGE),
        about,
        access::OPEN,
    )))
}

/// Limits for connections without a certificate.
fn for_strangers() -> Server {
    Server::builder()
        .initial_stream_window_size(STRANGERS_WINDOW)
        .initial_connection_window_size(STRANGERS_WINDOW)
        .max_concurrent_streams(STRANGERS_CALLS)
        .http2_max_header_list_size(STRANGERS_HEADERS)
}

/// Limits for connections with a certificate.
fn for_known() -> Server {
    Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_concurrent_streams(CALLS)
        .http2_max_header_list_size(HEADERS)
}

/// Limits for connections to the web console. A browser loads the console before its login; the window is that of unknown
/// callers.
fn for_browsers() -> Server {
    Server::builder()
        .initial_stream_window_size(STRANGERS_WINDOW)
        .initial_connection_window_size(STRANGERS_WINDOW)
        .max_concurrent_streams(BROWSER_CALLS)
        .http2_max_header_list_size(HEADERS)
}

/// The services with everything around them.
struct Stack {
    core: Arc<Core>,
    refusals: Arc<Refusals>,
    methods: Arc<Methods>,
    services: Routes,
}

impl Stack {
    /// The services with all layers, for the web console.
    fn service(&self, site: Arc<web::Site>) -> Layered<Routes> {
        let shared = (&self.refusals, &self.methods);
        around(self.services.clone().prepare(), &self.core, shared, Some(site))
    }

    /// Serves connections until the core stops; `site` is the web console of a listener for browsers.
    async fn serve(
        &self,
        server: Server,
        connections: mpsc::Receiver<Accepted>,
        site: Option<Arc<web::Site>>,
    ) -> Result<(), tonic::transport::Error> {
        let (core, refusals, methods) = (self.core.clone(), self.refusals.clone(), self.methods.clone());
        let connections =
            ReceiverStream::new(connections).map(|accepted| Ok::<Connection, std::io::Error>(accepted.into()));
        let layers = move |services| around(services, &core, (&refusals, &methods), site.clone());
        server
            .http2_keepalive_interval(Some(std::time::Duration::from_secs(30)))
            .http2_keepalive_timeout(Some(std::time::Duration::from_secs(20)))
            .layer(tower::layer::layer_fn(layers))
            .add_routes(self.services.clone())
            .serve_with_incoming_shutdown(connections, self.core.stop.clone().cancelled_owned())
            .await
    }
}

/// Services with all layers around them, the outermost first.
type Layered<S> = web::Web<Gateway<traced::Traced<audited::Audited<Gate<grants::Granted<paused::Paused<S>>>>>>>;

fn around<S>(
    services: S,
    core: &Arc<Core>,
    (refusals, methods): (&Arc<Refusals>, &Arc<Methods>),
    site: Option<Arc<web::Site>>,
) -> Layered<S> {
    let core = core.clone();
    let services = paused::Paused {
        core: core.clone(),
        services,
    };
    let services = grants::Granted::new(services, core.clone());
    let services = Gate::new(services, refusals.clone());
    let services = traced::Traced(audited::Audited { core, services });
    let refusals = refusals.clone();
    let gateway = Gateway::new(services, methods.clone(), RIGHTS, Arc::new(move || refusals.count()));
    web::Web::new(gateway, site)
}

/// Reports all services to health checks as serving.
async fn begin_health(core: &Arc<Core>, health: &HealthReporter, methods: &Methods) {
    let services = methods
        .paths()
        .filter_map(|path| path.strip_prefix('/')?.split_once('/'));
    let own = services
        .map(|(service, _)| service)
        .filter(|service| service.starts_with(PACKAGE));
    for service in own.collect::<BTreeSet<&str>>() {
        health.set_service_status(service, ServingStatus::Serving).await;
    }
    if core.pause.is_on() {
        health.set_not_serving::<ControlServiceServer<control::Control>>().await;
        let (core, health) = (core.clone(), health.clone());
        tokio::spawn(async move {
            core.pause.ending().await;
            health.set_serving::<ControlServiceServer<control::Control>>().await;
        });
    }
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
    let identity = identity_of(extensions, clock::now());
    identity.is_some_and(|identity| matches!(identity.kind, ClientKind::Member { .. }))
}

/// Prefix of the service names for health checks of single parts of the daemon: "rackwright.parts/runner".
const PARTS: &str = "rackwright.parts/";

/// Reports the running parts of the daemon to health checks. If a part has ended, the whole counts as not serving.
async fn report_part_health(core: &Core, health: &HealthReporter) {
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

/// Divides connections that have different limits: first those without the property, then those with it. The future does
/// the work, and ends with the connections or with one of their servers.
fn split(
    mut accepted: mpsc::Receiver<Accepted>,
    has_property: fn(&Accepted) -> bool,
) -> (
    impl Future<Output = ()>,
    mpsc::Receiver<Accepted>,
    mpsc::Receiver<Accepted>,
) {
    let ((without, to_without), (with, to_with)) = (mpsc::channel(1), mpsc::channel(1));
    let dividing = async move {
        while let Some(connection) = accepted.recv().await {
            let server = if has_property(&connection) { &with } else { &without };
            if server.send(connection).await.is_err() {
                return;
            }
        }
    };
    (dividing, to_without, to_with)
}

/// Whether the handshake chose HTTP/2. Clients without ALPN speak HTTP/1.1.
fn speaks_http2(connection: &Accepted) -> bool {
    let chosen = connection.stream.get_ref().1.alpn_protocol();
    chosen.is_some_and(|protocol| protocol == b"h2")
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
        .add_service(SessionServiceServer::new(sessions::Sessions(core.clone())))
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

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_check_response::ServingStatus::{NotServing, Serving};
    use tonic_health::pb::health_client::HealthClient;

    use super::*;

    #[tokio::test]
    async fn health_checks_name_a_part_that_has_ended() {
        let core = testing::core().await;
        let (reporter, service) = health_reporter();
        let mut client = HealthClient::new(service);
        let mut reports = std::pin::pin!(report_part_health(&core, &reporter));
        for (runner, whole) in [(Serving, Serving), (NotServing, NotServing)] {
            core.health
                .send_modify(|all| all.extend([("runner", runner == Serving), ("housekeeping", true)]));
            // One poll reports all that has changed.
            tokio::select! {
                biased;
                () = &mut reports => panic!("the reports have ended"),
                () = std::future::ready(()) => {}
            }
            let expected = [
                ("rackwright.parts/runner", runner),
                ("rackwright.parts/housekeeping", Serving),
                ("", whole),
            ];
            for (service, status) in expected {
                let request = HealthCheckRequest {
                    service: service.into(),
                };
                let found = client.check(request).await.unwrap().into_inner().status();
                assert_eq!(found, status, "{service:?}");
            }
        }
    }
}
