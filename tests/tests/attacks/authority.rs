//! A thief has copied the key folder with the key of the site's authority.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rackwright_api::v1;
use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_identity::{ClientIdentity, ClientKey, KeyFiles, SystemRng};
use rackwright_store::Store;
use rackwright_tests::plane::{Plane, TEST_LIMIT};
use rackwright_tests::site::{Site, texts};
use rackwright_tests::wire::{self, methods};
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::machine::{pxe_machine, rackwrightd, until};

fn rotate(dir: &Path, words: &[&str]) -> Result<String, String> {
    rackwrightd(dir, &[&["rotate-keys", "ca"], words].concat())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The address of a listener in the settings.
fn listener(dir: &Path, name: &str) -> String {
    let settings = read(&dir.join("rackwrightd.yaml"));
    let line = settings.lines().find(|line| line.starts_with(name));
    let address = line.and_then(|line| line.split('"').nth(1));
    address.expect("the settings name it").to_owned()
}

/// A thief with a copy of the key folder, who issues certificates.
struct Thief {
    keys: KeyFiles,
    dir: PathBuf,
}

impl Thief {
    fn copy(dir: &Path) -> Self {
        let copied = dir.join("stolen");
        std::fs::create_dir(&copied).expect("a folder");
        KeyFiles::install_set(&dir.join("data/keys"), &copied, &SystemRng).expect("the keys can be copied");
        let keys = KeyFiles::read_set(&copied.join("keys"), Arc::new(SystemRng));
        Self {
            keys: keys.expect("the copy is whole"),
            dir: dir.to_owned(),
        }
    }

    /// A certificate signed with the stolen key, and its own key, in one file.
    fn forge(&self, identity: &ClientIdentity) -> PathBuf {
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let request = rcgen::CertificateParams::default().serialize_request(&key);
        let request = request.and_then(|request| request.pem()).expect("a request");
        let client_key = ClientKey::of_request(&request).expect("the request is right");
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
        let issued = self.keys.authority.issue_client(&client_key, identity, now, hour);
        let file = self.dir.join(format!("{}.stolen.pem", identity.common_name));
        let text = format!(
            "{}{}",
            issued.expect("a certificate").certificate_pem,
            key.serialize_pem()
        );
        std::fs::write(&file, text).expect("the file can be written");
        file
    }
}

/// A connection to the API with the certificate in a file.
fn connect(dir: &Path, identity: &Path) -> Channel {
    let identity = read(identity);
    let ca = Certificate::from_pem(read(&dir.join("cli/default.ca.pem")));
    let tls = ClientTlsConfig::new()
        .ca_certificate(ca)
        .identity(Identity::from_pem(&identity, &identity));
    let endpoint = Endpoint::from_shared(format!("https://{}", listener(dir, "api:"))).expect("a URL");
    endpoint.tls_config(tls).expect("the files are PEM").connect_lazy()
}

async fn who_am_i(channel: &Channel) -> Result<v1::WhoAmIResponse, Status> {
    let answer = AuthServiceClient::new(channel.clone())
        .who_am_i(v1::WhoAmIRequest {})
        .await;
    answer.map(tonic::Response::into_inner)
}

/// The HTTP status of the image port for a certificate; 000: no connection.
fn fetch(dir: &Path, identity: &Path) -> String {
    let mut curl = Command::new("curl");
    curl.args([
        "-s",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--max-time",
        "20",
        "--cacert",
    ]);
    curl.arg(dir.join("cli/default.ca.pem"));
    curl.arg("--cert").arg(identity).arg("--key").arg(identity);
    let output = curl
        .arg(format!("https://{}/metrics", listener(dir, "store:")))
        .output();
    texts(&output.expect("curl runs")).0
}

fn authorities(home: &Path) -> usize {
    read(&home.join("default.ca.pem")).matches("BEGIN CERTIFICATE").count()
}

/// Invites a member and logs in as the member; returns the folder of its credential.
fn join(site: &Site, name: &str) -> PathBuf {
    let made = site.json(["token", "create", name, "--role", "operator"]);
    let text = |field: &str| made[field].as_str().expect("the answer holds it").to_owned();
    let home = site.dir().join(name);
    let server = format!("https://{}", listener(site.dir(), "api:"));
    let (pin, token) = (text("ca_sha256"), text("token"));
    let words = ["login", "--server", &server, "--ca-sha256", &pin, "--token", &token];
    let output = cli_of(site, &home, &words);
    assert!(output.status.success(), "{:?}", texts(&output));
    home
}

fn cli_of(site: &Site, home: &Path, words: &[&str]) -> Output {
    let mut command = site.command();
    command.env("RACKWRIGHT_CONFIG", home).args(words);
    command.output().expect("the CLI can be started")
}

async fn epoch_of(dir: &Path, member: &str) -> u64 {
    let store = Store::open(&dir.join("data/rackwright.db"))
        .await
        .expect("the database");
    let found = store.member(member).await.expect("the database answers");
    let epoch = found.expect("a member").epoch;
    store.close().await;
    epoch
}

/// Begins the rotation, which the daemon then uses; the daemon is killed in between.
async fn begin(plane: &mut Plane, dir: &Path) {
    let refused = rotate(dir, &[]).expect_err("no reason is given");
    assert!(refused.contains("--reason"), "{refused}");
    let refused = rotate(dir, &["--finish", "--reason", "x"]).expect_err("nothing was begun");
    assert!(refused.contains("no rotation"), "{refused}");
    let output = rotate(dir, &["--reason", "the folder was copied"]).expect("an authority is added");
    assert!(output.contains("authority-0002.pem"), "{output}");
    let refused = rotate(dir, &["--finish", "--reason", "x"]).expect_err("it is not used yet");
    assert!(refused.contains("do not use the next authority"), "{refused}");
    plane.site.kill().await;
    plane.site.restart().await;
    let used = || rotate(dir, &["--status"]).is_ok_and(|output| !output.contains("replica"));
    until(&plane.site, "the next authority is not used", used).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_by_a_stolen_authority_key_opens_nothing_after_the_rotation() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut plane, fleet) = pxe_machine(dir.path()).await;
    let dir = dir.path();
    let thief = Thief::copy(dir);
    let operator = ClientIdentity::member("operator", epoch_of(dir, "operator").await).expect("a name");
    let forged = thief.forge(&operator);
    let agent = ClientIdentity::agent_of_boot(&fleet.node(0).name(), 0, "01994d5e-7c1f-7abc-8def-0123456789ab");
    let forged_agent = thief.forge(&agent.expect("a name"));
    let open = connect(dir, &forged);
    assert_eq!(who_am_i(&open).await.expect("the key is good now").member, "operator");
    assert_eq!(fetch(dir, &forged), "200");

    begin(&mut plane, dir).await;
    let refused = rotate(dir, &["--finish", "--reason", "x"]).expect_err("the operator has not renewed");
    assert!(refused.contains("members/operator"), "{refused}");
    plane.site.cli(["member", "list"]);
    assert_eq!(authorities(&dir.join("cli")), 2, "the operator trusts both");
    let again = connect(dir, &forged);
    assert!(who_am_i(&again).await.is_ok(), "both are trusted until the end");
    let output = rotate(dir, &["--finish", "--reason", "the key is stolen"]).expect("the rotation ends");
    assert!(!output.contains("have not dropped"), "{output}");

    // Over the old connections, and over a new one.
    for channel in [&open, &again, &connect(dir, &forged), &connect(dir, &forged_agent)] {
        assert!(who_am_i(channel).await.is_err());
    }
    let stranger = connect(dir, &forged);
    for method in methods() {
        let answer = wire::call(stranger.clone(), &method.path(), Vec::new()).await;
        assert!(answer.is_err(), "{}: {answer:?}", method.path());
    }
    for file in [&forged, &forged_agent] {
        assert_eq!(fetch(dir, file), "000");
    }
    // The key is removed here, and the operator trusts only the new authority.
    assert!(!dir.join("data/keys/authority.pem").exists());
    assert!(!read(&dir.join("data/keys/authority-0001.crt")).contains("PRIVATE"));
    plane.site.cli(["member", "list"]);
    assert_eq!(authorities(&dir.join("cli")), 1);
    plane.site.kill().await;
    plane.site.restart().await;
    plane.site.cli(["member", "list"]);
    assert!(who_am_i(&connect(dir, &forged)).await.is_err());
    let events = plane.site.cli(["events", "-o", "json"]);
    assert!(events.contains("the key is stolen"), "{events}");
    rackwrightd(dir, &["audit", "verify"]).expect("the audit keeps the name of the site");
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn honest_members_and_machines_go_on_through_a_rotation_of_the_authority() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut plane, fleet) = pxe_machine(dir.path()).await;
    let id = fleet.node(0).name();
    let dir = dir.path();
    let (ann, gone) = (join(&plane.site, "ann"), join(&plane.site, "gone"));
    // A machine is in use before, during and after the rotation.
    plane.site.cli(["node", "deploy", &id, "--image", "disk"]);
    begin(&mut plane, dir).await;
    plane.site.until(&id, &["active"], TEST_LIMIT).await;
    plane.site.cli(["node", "release", "--yes", &id]);
    plane.site.until(&id, &["reclaiming"], TEST_LIMIT).await;
    plane
        .site
        .until_traced(&fleet.node(0).mac(), "connected", TEST_LIMIT)
        .await;
    assert!(cli_of(&plane.site, &ann, &["member", "list"]).status.success());
    let bob = join(&plane.site, "bob");
    assert_eq!((authorities(&ann), authorities(&bob)), (2, 2));

    let refused = rotate(dir, &["--finish", "--reason", "by rule"]).expect_err("one has not renewed");
    assert!(refused.contains("members/gone"), "{refused}");
    assert!(
        !refused.contains("members/ann") && !refused.contains("nodes/"),
        "{refused}"
    );
    let output = rotate(dir, &["--finish", "--leave-behind", "--reason", "by rule"]).expect("the rotation ends");
    assert!(output.contains("1 members and agents were left behind"), "{output}");
    plane.site.until(&id, &["available"], TEST_LIMIT).await;
    for home in [&ann, &bob] {
        let output = cli_of(&plane.site, home, &["member", "list"]);
        assert!(output.status.success(), "{:?}", texts(&output));
        assert_eq!(authorities(home), 1);
    }
    assert!(!cli_of(&plane.site, &gone, &["member", "list"]).status.success());
    join(&plane.site, "dan");
    // And a machine that boots afterwards.
    plane.site.cli(["node", "deploy", &id, "--image", "disk"]);
    plane
        .site
        .until(&id, &["imaging", "rebooting", "validating", "active"], TEST_LIMIT)
        .await;
    plane.site.until(&id, &["active"], TEST_LIMIT).await;
    plane.site.stop().await;
    fleet.stop().await;
}
