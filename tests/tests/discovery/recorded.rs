//! Recorded services of real BMCs are identified correctly.

#[path = "../../../crates/redfish/tests/recordings/mod.rs"]
mod recordings;

use rackwright_sim::install_crypto;
use rackwright_sim::mockup::{Mockup, Tree};
use rackwright_tests::ports::free_port;

use super::{ended, findings, found, plane, start, write};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_services_are_recognised() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let site = plane(dir.path(), "127.0.0.1", "answer_timeout_s: 30").await;
    let port = free_port();
    let mut served = Vec::new();
    for (host, name) in (1..).zip(recordings::NAMES) {
        let tree = Tree::read(&recordings::path(name)).unwrap();
        let address = format!("127.71.0.{host}:{port}").parse().unwrap();
        served.push(Mockup::start(tree, address, true).await.unwrap());
    }
    let password = write(dir.path(), "password", "any\n").display().to_string();
    let port = port.to_string();
    let id = start(
        &site,
        &[
            "--range",
            "127.71.0.1-6",
            "--port",
            &port,
            "--user",
            "any",
            "--password-file",
            &password,
        ],
    );
    ended(&site, &id).await;
    let all = findings(&site, &id);
    println!("{}", site.cli(["discover", "show", &id]));
    for (mockup, name) in served.iter().zip(recordings::NAMES) {
        assert_eq!(found(&all, mockup.url()), ("new", ""), "{name}: {all:#?}");
        let one = all.iter().find(|one| one["address"] == mockup.url()).unwrap();
        assert_eq!(one["certificate_sha256"], mockup.fingerprint().unwrap(), "{name}");
        for field in ["redfish_version", "manufacturer", "model"] {
            assert_ne!(one[field], "", "{name}: {field}");
        }
    }
    site.stop().await;
}
