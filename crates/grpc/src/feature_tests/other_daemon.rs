//! Two daemons with the keys of one site, on one database and on two.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1::ProveDatabaseRequest;
use rackwright_api::v1::control_service_client::ControlServiceClient;
use rackwright_ground::core::Core;
use rackwright_ground::start::other::ask;
use rackwright_ground::{clock, testing};
use rackwright_identity::{ClientAuth, ServerCertificate, server_config};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

const HOUR: Duration = Duration::from_secs(3600);

/// A daemon with the keys in `dir`, on the database with that name and with one endpoint for agents.
async fn opened(dir: &Path, database: &str, endpoint: &str) -> Arc<Core> {
    let further = format!("database: {}\n", dir.join(database).display());
    let mut config = testing::config(dir, &further);
    config.endpoints = vec![endpoint.to_owned()];
    testing::open(config).await.unwrap()
}

/// Serves its API, and returns the endpoint.
async fn served(core: &Arc<Core>) -> String {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let now = clock::system_time(clock::now());
    let names = ["localhost".to_owned()];
    let credential = core.keys.authority.issue_server(&names, now, HOUR).unwrap();
    let certificate = ServerCertificate::new(credential).unwrap();
    let tls = server_config(certificate, core.keys.authority.client_trust(), ClientAuth::Optional).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    tokio::spawn(crate::run(core.clone(), (listener, tls), None));
    endpoint
}

#[tokio::test]
async fn another_database_with_our_keys_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let first = opened(dir.path(), "site.db", "https://localhost:1").await;
    ask(&first.config, &first.keys, &first.store, first.rng.as_ref())
        .await
        .unwrap();
    let endpoint = served(&first).await;
    let replica = opened(dir.path(), "site.db", &endpoint).await;
    ask(&replica.config, &replica.keys, &replica.store, replica.rng.as_ref())
        .await
        .unwrap();
    let copy = opened(dir.path(), "copy.db", &endpoint).await;
    let found = ask(&copy.config, &copy.keys, &copy.store, copy.rng.as_ref()).await;
    let said = found.unwrap_err().to_string();
    assert!(said.contains(&endpoint) && said.contains("--paused"), "{said}");
    // A caller without the keys learns and changes nothing.
    let before = first.store.challenge().await.unwrap();
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(first.keys.authority.ca_pem()));
    let server = Endpoint::from_shared(endpoint).unwrap().tls_config(tls).unwrap();
    let channel = server.connect().await.unwrap();
    let asking = ProveDatabaseRequest {
        challenge: "x".into(),
        proof: vec![0; 32],
    };
    let refused = ControlServiceClient::new(channel).prove_database(asking).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::Unauthenticated);
    assert_eq!(first.store.challenge().await.unwrap(), before);
    first.stop.cancel();
}

#[tokio::test]
async fn a_server_of_another_site_is_ignored() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = opened(theirs.path(), "site.db", "https://localhost:1").await;
    let endpoint = served(&other).await;
    let core = opened(ours.path(), "site.db", &endpoint).await;
    ask(&core.config, &core.keys, &core.store, core.rng.as_ref())
        .await
        .unwrap();
    other.stop.cancel();
}
