//! A member's own connection to the control plane, with the files that the CLI keeps after its login.

use std::path::Path;

use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_api::v1::{NodeState, WatchNodesRequest};
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// The content of the first file of a login with a matching name.
fn file(login: &Path, fits: impl Fn(&str) -> bool) -> String {
    let files = std::fs::read_dir(login).expect("a member has logged in").flatten();
    let mut paths = files.map(|file| file.path());
    let path = paths.find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&fits));
    std::fs::read_to_string(path.expect("the login left the file")).expect("the file is text")
}

/// The member's certificate with its key.
///
/// # Panics
/// If there is no login in the folder.
#[must_use]
pub fn identity(login: &Path) -> Identity {
    let pem = file(login, |name| name.ends_with(".pem") && !name.ends_with(".ca.pem"));
    Identity::from_pem(&pem, &pem)
}

/// The certificate authority that the member trusts.
///
/// # Panics
/// If there is no login in the folder.
#[must_use]
pub fn authority(login: &Path) -> String {
    file(login, |name| name.ends_with(".ca.pem"))
}

/// TLS with the member's certificate.
///
/// # Panics
/// If there is no login in the folder.
#[must_use]
pub fn tls(login: &Path) -> ClientTlsConfig {
    ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority(login)))
        .identity(identity(login))
}

/// A connection to `server`, made at its first call.
///
/// # Panics
/// If there is no login in the folder.
#[must_use]
pub fn connect(login: &Path, server: &str) -> Channel {
    let endpoint = Endpoint::from_shared(server.to_owned()).expect("a URL");
    endpoint
        .tls_config(tls(login))
        .expect("the files are PEM")
        .connect_lazy()
}

/// The name of a state as the CLI takes it: "available".
#[must_use]
pub fn state_name(state: NodeState) -> String {
    state
        .as_str_name()
        .trim_start_matches("NODE_STATE_")
        .to_ascii_lowercase()
}

/// Follows one node, and returns the first of `states` that the node has. `seen` is the node's newest state.
///
/// # Errors
/// The stream ended before.
pub async fn follow(channel: Channel, id: &str, states: &[&str], seen: &mut String) -> Result<String, Status> {
    let filter = format!("name = \"{id}\"");
    let request = WatchNodesRequest { filter };
    let mut stream = NodeServiceClient::new(channel).watch_nodes(request).await?.into_inner();
    while let Some(message) = stream.message().await? {
        let Some(status) = message.node.and_then(|node| node.status) else {
            continue;
        };
        *seen = state_name(status.state());
        if states.contains(&seen.as_str()) {
            return Ok(seen.clone());
        }
    }
    Err(Status::unavailable("the stream ended"))
}
