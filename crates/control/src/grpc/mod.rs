//! The gRPC API: writes intent, reads views, never touches hardware.

pub(crate) mod agents;
mod asked;
mod auth;
pub(crate) mod bmc;
mod boot;
mod caller;
mod clusters;
mod connection;
mod console;
pub mod convert;
pub mod credentials;
mod discovery;
mod enrolment;
mod errors;
mod events;
pub(crate) mod explain;
pub mod fabric;
mod firmware;
mod images;
mod intent;
mod metering;
mod names;
pub mod nodes;
mod operations;
mod power;
#[cfg(test)]
pub mod said;
pub mod seats;
mod settings;
mod sites;
#[cfg(test)]
mod tenancy;
mod theirs;
mod traced;
mod watch;
mod windows;

use std::sync::Arc;

use rackwright_api::DESCRIPTORS;
use rackwright_api::v1::agent_service_server::AgentServiceServer;
use rackwright_api::v1::auth_service_server::AuthServiceServer;
use rackwright_api::v1::bmc_service_server::BmcServiceServer;
use rackwright_api::v1::boot_service_server::BootServiceServer;
use rackwright_api::v1::cluster_service_server::ClusterServiceServer;
use rackwright_api::v1::console_service_server::ConsoleServiceServer;
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
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::transport::Server;

use self::connection::Connection;
use crate::core::Core;
use crate::tls;

pub use auth::new_member_token;
pub use boot::mac as parse_mac;
pub use caller::{Caller, of_member};
pub use errors::ApiError;
pub use images::collect as collect_chunks;

/// The largest message taken: a whole inventory fits.
const MESSAGE_MAX: usize = 8 << 20;

/// The largest message about a site: its files may be long.
const SITE_MAX: usize = 272 << 20;

/// Serves until the core stops.
///
/// # Errors
/// The server could not be set up.
pub async fn run(
    core: Arc<Core>,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<NodeServiceServer<nodes::Nodes>>().await;
    health.set_serving::<ImageServiceServer<images::Images>>().await;
    health
        .set_serving::<OperationServiceServer<operations::Operations>>()
        .await;
    health.set_serving::<EventServiceServer<events::Events>>().await;
    health.set_serving::<AuthServiceServer<auth::Auth>>().await;
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
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let connections = ReceiverStream::new(tls::accept(listener, tls, core.stop.clone())).map(Connection::from);
    let stop = core.stop.clone();
    Server::builder()
        .http2_keepalive_interval(Some(std::time::Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(std::time::Duration::from_secs(20)))
        .layer(tower::layer::layer_fn(traced::Traced))
        .add_routes(routes(&core))
        .add_service(health_service)
        .add_service(reflection)
        .serve_with_incoming_shutdown(connections.map(Ok::<_, std::io::Error>), stop.cancelled_owned())
        .await?;
    Ok(())
}

/// All our services. Each of their calls decides by `caller` who may make it.
fn routes(core: &Arc<Core>) -> Routes {
    Routes::new(NodeServiceServer::new(nodes::Nodes(core.clone())).max_decoding_message_size(MESSAGE_MAX))
        .add_service(ImageServiceServer::new(images::Images(core.clone())))
        .add_service(OperationServiceServer::new(operations::Operations(core.clone())))
        .add_service(EventServiceServer::new(events::Events(core.clone())))
        .add_service(AuthServiceServer::new(auth::Auth(core.clone())))
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
        .add_service(
            DiscoveryServiceServer::new(discovery::Discovery(core.clone())).max_decoding_message_size(MESSAGE_MAX),
        )
        .add_service(
            SiteServiceServer::new(sites::Sites(core.clone()))
                .max_decoding_message_size(SITE_MAX)
                .max_encoding_message_size(SITE_MAX),
        )
        .add_service(AgentServiceServer::new(agents::Agents(core.clone())).max_decoding_message_size(MESSAGE_MAX))
}
