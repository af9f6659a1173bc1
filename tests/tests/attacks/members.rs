//! Members and agents after their rights have ended.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant, SystemTime};

use rackwright_api::v1;
use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_api::v1::event_service_client::EventServiceClient;
use rackwright_api::v1::image_service_client::ImageServiceClient;
use rackwright_api::v1::node_service_client::NodeServiceClient;
use rackwright_identity::{ClientIdentity, ClientKey, KeyFiles, SystemRng};
use rackwright_sim::install_crypto;
use rackwright_tests::client::Client;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{Site, program, texts};
use rackwright_tests::wire::{self, methods};
use serde_json::Value;
use tokio_stream::StreamExt as _;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

/// Time limit for everything that needs no machine.
const TEST_LIMIT: Duration = Duration::from_secs(30);
/// Open calls end within this time on the replica that ends the rights: a second, and time for a busy computer. The
/// replicas' check for changes, every five seconds, is too slow for that.
const AT_ONCE: Duration = Duration::from_secs(3);
/// For callers without a certificate.
pub const OPEN: [&str; 6] = [
    "AuthService/BeginDeviceLogin",
    "AuthService/FinishDeviceLogin",
    "AuthService/RedeemToken",
    "AgentService/Register",
    "ControlService/ProveDatabase",
    "SessionService/OpenSession",
];

/// A control plane on the loopback interface, with a console port, and with "cache-1" as a cache of images.
pub struct Plane {
    pub site: Site,
    api: u16,
    store: u16,
    ssh: u16,
}

impl Plane {
    pub async fn start(dir: &Path) -> Self {
        install_crypto();
        let [api, store, ssh] = std::array::from_fn(|_| free_port());
        let config = format!(
            "data_dir: {}/data\napi: {{listen: \"127.0.0.1:{api}\", names: [\"127.0.0.1\"]}}\n\
             store: {{listen: \"127.0.0.1:{store}\", caches: [cache-1]}}\n\
             console_ssh: {{listen: \"127.0.0.1:{ssh}\", tokens: true}}\n",
            dir.display()
        );
        let site = Site::start_with(dir, &config).await;
        Self { site, api, store, ssh }
    }

    /// The folder of the first operator's credential.
    fn operator(&self) -> PathBuf {
        self.site.dir().join("cli")
    }

    /// The CLI with the credential in a folder.
    fn cli_of(&self, home: &Path, words: &[&str]) -> Output {
        let mut command = self.site.command();
        command.env("RACKWRIGHT_CONFIG", home).args(words);
        command.output().expect("the CLI can be started")
    }

    /// Invites a member and logs in as the member; returns the folder of its credential.
    pub fn join(&self, home: &str, name: &str, role: &[&str]) -> PathBuf {
        let words = [&["token", "create", name, "--role"], role].concat();
        let made = self.site.json(words);
        self.log_in(
            home,
            made["token"].as_str().expect("a token"),
            made["ca_sha256"].as_str().expect("a digest"),
        )
    }

    fn log_in(&self, home: &str, token: &str, ca_sha256: &str) -> PathBuf {
        let home = self.site.dir().join(home);
        let server = format!("https://127.0.0.1:{}", self.api);
        let words = ["login", "--server", &server, "--ca-sha256", ca_sha256, "--token", token];
        let output = self.cli_of(&home, &words);
        assert!(output.status.success(), "{:?}", texts(&output));
        home
    }

    /// A connection with the credential in a folder.
    pub fn connect(&self, home: &Path) -> Channel {
        let identity = read(&home.join("default.pem"));
        self.connect_as(Identity::from_pem(&identity, &identity))
    }

    /// A connection without a certificate.
    pub fn connect_without(&self) -> Channel {
        self.connected(ClientTlsConfig::new())
    }

    pub fn connect_as(&self, identity: Identity) -> Channel {
        self.connected(ClientTlsConfig::new().identity(identity))
    }

    fn connected(&self, tls: ClientTlsConfig) -> Channel {
        let ca = Certificate::from_pem(read(&self.operator().join("default.ca.pem")));
        let tls = tls.ca_certificate(ca);
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.api)).expect("a URL");
        endpoint.tls_config(tls).expect("the files are PEM").connect_lazy()
    }

    /// A certificate of the site's own authority, with a key, as PEM.
    pub fn forge(&self, identity: &ClientIdentity) -> (String, String) {
        let data = self.site.dir().join("data");
        let keys = KeyFiles::load_or_create(&data, "", SystemTime::now(), std::sync::Arc::new(SystemRng));
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let request = rcgen::CertificateParams::default().serialize_request(&key);
        let request = request
            .and_then(|request| request.pem())
            .expect("a request can be made");
        let client_key = ClientKey::of_request(&request).expect("the request is right");
        let hour = Duration::from_secs(3600);
        let authority = keys.expect("the keys are there").authority;
        let issued = authority.issue_client(&client_key, identity, SystemTime::now(), hour);
        (
            issued.expect("the authority issues").certificate_pem,
            key.serialize_pem(),
        )
    }

    /// The HTTP status of the image port for a certificate.
    fn fetch(&self, identity_pem: &Path, path: &str) -> String {
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
        curl.arg(self.operator().join("default.ca.pem"));
        curl.arg("--cert").arg(identity_pem).arg("--key").arg(identity_pem);
        let output = curl.arg(format!("https://127.0.0.1:{}{path}", self.store)).output();
        texts(&output.expect("curl runs")).0
    }

    /// OpenSSH's client at the console of n1, with a private key.
    fn ssh(&self, key: &Path) -> Client {
        let known = format!("UserKnownHostsFile={}", self.site.dir().join("known_hosts").display());
        let mut command = Command::new("ssh");
        command.args([
            "-F",
            "none",
            "-tt",
            "-o",
            "StrictHostKeyChecking=accept-new",
            "-o",
            &known,
        ]);
        command
            .args(["-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-i"])
            .arg(key);
        command.args(["-p", &self.ssh.to_string(), "-l", "n1", "127.0.0.1"]);
        Client::start(&mut command)
    }

    /// A node with an unreachable BMC.
    fn enrol(&self) {
        let password = self.site.dir().join("password");
        std::fs::write(&password, "guess-this-one").expect("the file can be written");
        let file = password.display().to_string();
        self.site.cli([
            "node",
            "enroll",
            "n1",
            "--bmc",
            "https://127.0.0.1:9",
            "--user",
            "admin",
            "--password-file",
            &file,
        ]);
    }

    fn events(&self) -> Vec<Value> {
        let events = self.site.cli(["events", "-o", "json"]);
        let events = serde_json::Deserializer::from_str(&events).into_iter::<Value>();
        events.map(|event| event.expect("events are JSON")).collect()
    }

    /// Runs `rackwrightd invite-operator`.
    fn invite(&self, name: &str, reason: &str) -> Output {
        let config = self.site.dir().join("rackwrightd.yaml");
        let mut command = Command::new(program("rackwrightd"));
        command.args(["invite-operator", "--name", name, "--reason", reason, "--config"]);
        command.arg(config).output().expect("rackwrightd can be started")
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn short(method: &wire::Method) -> String {
    let service = method.service.trim_start_matches("rackwright.v1.");
    format!("{service}/{}", method.name)
}

/// Calls every method and expects this code from each.
async fn all_refused(channel: &Channel, code: Code) {
    for method in methods() {
        let name = short(&method);
        if OPEN.contains(&name.as_str()) || (name.starts_with("AgentService/") && code == Code::PermissionDenied) {
            continue;
        }
        let answer = wire::call(channel.clone(), &method.path(), Vec::new()).await;
        // A member without a valid epoch is not an agent in either case.
        let expected = if name.starts_with("AgentService/") {
            Code::PermissionDenied
        } else {
            code
        };
        match answer {
            Err(status) if status.code() == expected => {}
            other => panic!("{name}: not {expected:?}: {other:?}"),
        }
    }
}

/// An SSH key pair without a passphrase; returns the private key's file.
fn ssh_key(dir: &Path, name: &str) -> PathBuf {
    let file = dir.join(name);
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&file)
        .output();
    assert!(made.expect("ssh-keygen runs").status.success());
    file
}

async fn who_am_i(channel: &Channel) -> Result<v1::WhoAmIResponse, Status> {
    let answer = AuthServiceClient::new(channel.clone())
        .who_am_i(v1::WhoAmIRequest {})
        .await;
    answer.map(tonic::Response::into_inner)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_members_certificate_opens_nothing_on_any_listener() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    plane.enrol();
    let mallory = plane.join("mallory", "mallory", &["operator"]);
    let cache = plane.join("cache-1", "cache-1", &["viewer"]);
    let key = ssh_key(dir.path(), "key");
    let public = key.with_extension("pub").display().to_string();
    assert!(plane.cli_of(&mallory, &["ssh-key", "add", &public]).status.success());
    let unused = texts(&plane.cli_of(
        &mallory,
        &["token", "create", "backdoor", "--role", "operator", "-o", "json"],
    ))
    .0;
    let unused: Value = serde_json::from_str(&unused).expect("the CLI prints JSON");
    let open = plane.connect(&mallory);
    assert_eq!(who_am_i(&open).await.expect("a member").member, "mallory");
    let chunk = format!("/store/v1/chunks/{}", "3".repeat(64));
    let credentials = [mallory.join("default.pem"), cache.join("default.pem")];
    assert_eq!(plane.fetch(&credentials[0], "/metrics"), "200");
    assert_eq!(plane.fetch(&credentials[1], &chunk), "404", "a cache is let in");
    let mut console = plane.ssh(&key);
    console.wait_for_text("[rackwright: ", TEST_LIMIT).await;

    plane.site.cli(["member", "delete", "mallory"]);
    plane.site.cli(["member", "delete", "cache-1"]);
    let since = Instant::now();
    assert!(console.ended(AT_ONCE).await.is_some(), "{}", console.text());
    println!("the console ended after {:?}", since.elapsed());
    // Over the old connection, and over a new one.
    for channel in [&open, &plane.connect(&mallory)] {
        all_refused(channel, Code::Unauthenticated).await;
    }
    for credential in &credentials {
        assert_eq!(plane.fetch(credential, "/metrics"), "403");
        assert_eq!(plane.fetch(credential, &chunk), "403");
    }
    let mut again = plane.ssh(&key);
    assert_eq!(again.ended(TEST_LIMIT).await, Some(255), "{}", again.text());
    // Invitations and keys by the member have ended too.
    let words = [
        "login",
        "--server",
        &format!("https://127.0.0.1:{}", plane.api),
        "--ca-sha256",
        unused["ca_sha256"].as_str().expect("a digest"),
        "--token",
        unused["token"].as_str().expect("a token"),
    ];
    let refused = plane.cli_of(&dir.path().join("backdoor"), &words);
    assert_eq!(refused.status.code(), Some(5), "{:?}", texts(&refused));
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_calls_of_a_revoked_member_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let home = plane.join("mallory", "mallory", &["operator"]);
    let channel = plane.connect(&home);
    let mut events = EventServiceClient::new(channel.clone())
        .stream_events(v1::StreamEventsRequest::default())
        .await
        .expect("an operator follows events")
        .into_inner();
    let mut watch = NodeServiceClient::new(channel.clone())
        .watch_nodes(v1::WatchNodesRequest::default())
        .await
        .expect("an operator watches nodes")
        .into_inner();
    let mut images = ImageServiceClient::new(channel.clone());
    let upload = v1::StartUploadRequest {
        image_id: "evil".into(),
        size_bytes: 1000,
        sha256: "0".repeat(64),
        mutation: Some(v1::Mutation {
            idempotency_key: "k".into(),
            ..v1::Mutation::default()
        }),
        ..v1::StartUploadRequest::default()
    };
    let upload = images
        .start_upload(upload)
        .await
        .expect("an operator uploads")
        .into_inner();
    let first = v1::WriteUploadRequest {
        name: upload.name,
        offset: 0,
        data: vec![1],
    };
    let pieces = tokio_stream::once(first).chain(tokio_stream::pending());
    let writing = tokio::spawn(async move { images.write_upload(pieces).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!writing.is_finished());

    plane.site.cli(["member", "revoke", "mallory"]);
    let (events, watch, writing) = tokio::time::timeout(AT_ONCE, async {
        let events = async {
            loop {
                if let Err(status) = events.message().await {
                    return status.code();
                }
            }
        };
        let watch = async {
            loop {
                if let Err(status) = watch.message().await {
                    return status.code();
                }
            }
        };
        tokio::join!(events, watch, async {
            writing.await.expect("the call ends").map_err(|s| s.code())
        })
    })
    .await
    .expect("all that is open ends at once");
    assert_eq!((events, watch), (Code::Unauthenticated, Code::Unauthenticated));
    assert_eq!(writing.expect_err("the upload is cut"), Code::Unauthenticated);
    let renewed = plane.cli_of(&home, &["whoami"]);
    assert_eq!(renewed.status.code(), Some(5), "{:?}", texts(&renewed));

    // The member still exists, with its role, and returns with a new token.
    let home = plane.join("mallory-again", "mallory", &["operator"]);
    assert_eq!(
        who_am_i(&plane.connect(&home)).await.expect("a member").role(),
        v1::Role::Operator
    );
    assert_eq!(
        who_am_i(&channel).await.expect_err("the old certificate").code(),
        Code::Unauthenticated
    );
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_is_invited_again_does_not_revive_old_certificates_and_keys() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    plane.enrol();
    let former = plane.join("former", "ann", &["operator"]);
    let key = ssh_key(dir.path(), "key");
    let public = key.with_extension("pub").display().to_string();
    assert!(plane.cli_of(&former, &["ssh-key", "add", &public]).status.success());
    plane.site.cli(["member", "delete", "ann"]);
    let present = plane.join("present", "ann", &["operator"]);
    assert!(plane.cli_of(&present, &["whoami"]).status.success());
    all_refused(&plane.connect(&former), Code::Unauthenticated).await;
    assert_eq!(plane.fetch(&former.join("default.pem"), "/metrics"), "403");
    assert_eq!(plane.fetch(&present.join("default.pem"), "/metrics"), "200");
    let mut ssh = plane.ssh(&key);
    assert_eq!(ssh.ended(TEST_LIMIT).await, Some(255), "{}", ssh.text());
    // A certificate without an epoch is not valid for a member that has one.
    let (certificate, key) = plane.forge(&ClientIdentity::member("ann", 0).expect("a name"));
    let old = plane.connect_as(Identity::from_pem(certificate, key));
    assert_eq!(who_am_i(&old).await.expect_err("epoch 0").code(), Code::Unauthenticated);
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_certificate_opens_no_call_of_members_on_any_listener() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    // The node has the name of an operator, and of a cache.
    for name in ["operator", "cache-1"] {
        let (certificate, key) = plane.forge(&ClientIdentity::agent(name, 0).expect("a name"));
        let pem = dir.path().join(format!("{name}-agent.pem"));
        std::fs::write(&pem, format!("{certificate}{key}")).expect("the file can be written");
        std::fs::set_permissions(&pem, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
        let agent = plane.connect_as(Identity::from_pem(certificate, key));
        all_refused(&agent, Code::PermissionDenied).await;
        assert_eq!(plane.fetch(&pem, "/metrics"), "403");
        assert_eq!(
            plane.fetch(&pem, &format!("/store/v1/chunks/{}", "3".repeat(64))),
            "403"
        );
    }
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_customers_admin_reaches_no_members_and_tokens_of_other_customers() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let file = dir.path().join("site.yaml").display().to_string();
    let text = plane
        .site
        .cli(["site", "generate", "--sku", "dgx-h100", "--nodes", "4"]);
    std::fs::write(
        &file,
        format!("{text}---\ncustomers: [{{name: acme}}, {{name: bolt}}]\n"),
    )
    .expect("it can be written");
    plane.site.cli(["site", "apply", &file, "--yes"]);
    let admin = ["customer-admin", "--customer", "acme"];
    let adam = plane.join("adam", "adam@acme", &admin);
    plane.join("bea", "bea@bolt", &["customer-admin", "--customer", "bolt"]);
    plane.site.cli([
        "token",
        "create",
        "bob@bolt",
        "--role",
        "customer-user",
        "--customer",
        "bolt",
    ]);
    plane.site.cli([
        "token",
        "create",
        "abe@acme",
        "--role",
        "customer-user",
        "--customer",
        "acme",
    ]);

    let seen = texts(&plane.cli_of(&adam, &["member", "list", "-o", "name"])).0;
    assert_eq!(seen.split_whitespace().collect::<Vec<_>>(), ["members/adam@acme"]);
    let seen = texts(&plane.cli_of(&adam, &["token", "list"])).0;
    assert!(seen.contains("abe@acme") && !seen.contains("bolt"), "{seen}");
    let all = plane.site.cli(["token", "list", "-o", "json"]);
    let all: Value = serde_json::from_str(&all).expect("the CLI prints JSON");
    let tokens = all.as_array().expect("a list").iter();
    let ids: Vec<&str> = tokens
        .filter(|token| token["customer"] != "acme")
        .filter_map(|token| token["name"].as_str())
        .collect();
    assert_eq!(ids.len(), 1, "{all}");
    for words in [
        &["member", "delete", "bea@bolt"][..],
        &["member", "revoke", "bea@bolt"],
        &["member", "set-role", "bea@bolt", "customer-user"],
        &["member", "delete", "operator"],
        &["member", "revoke", "nobody"],
        &["token", "delete", ids[0]],
    ] {
        let refused = plane.cli_of(&adam, words);
        let (_, error) = texts(&refused);
        assert_eq!(refused.status.code(), Some(3), "{words:?}: {error}");
        assert!(error.contains("does not exist"), "{words:?}: {error}");
    }
    let refused = plane.cli_of(&adam, &["member", "set-role", "adam@acme", "operator"]);
    assert_eq!(refused.status.code(), Some(2), "{:?}", texts(&refused));
    let mine = plane.cli_of(&adam, &["token", "list", "-o", "name"]);
    let mine = texts(&mine).0;
    assert!(plane.cli_of(&adam, &["token", "delete", mine.trim()]).status.success());
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_locks_the_site_out_and_a_recorded_command_restores_access() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start(dir.path()).await;
    for words in [
        &["member", "delete", "operator"][..],
        &["member", "revoke", "operator"],
        &["member", "set-role", "operator", "viewer"],
    ] {
        let refused = plane.site.try_cli(words);
        let (_, error) = texts(&refused);
        assert_eq!(refused.status.code(), Some(4), "{words:?}: {error}");
        assert!(
            error.contains("last operator") && error.contains("invite-operator"),
            "{error}"
        );
    }
    for reason in ["", "  "] {
        let refused = plane.invite("oscar", reason);
        assert!(
            !refused.status.success() && refused.stdout.is_empty(),
            "{:?}",
            texts(&refused)
        );
    }
    for (name, is_up) in [("oscar", true), ("olga", false)] {
        if !is_up {
            plane.site.kill().await;
        }
        let invited = plane.invite(name, "the only operator left");
        let (printed, error) = texts(&invited);
        assert!(invited.status.success(), "{error}");
        if !is_up {
            plane.site.restart().await;
        }
        let after = |flag: &str| {
            let rest = printed
                .split(flag)
                .nth(1)
                .unwrap_or_else(|| panic!("no {flag} in {printed}"));
            rest.split_whitespace().next().expect("a value follows").to_owned()
        };
        let token = after("--token ");
        // The event exists before the token is used.
        let events = plane.events();
        let invited = events.iter().find(|event| {
            event["kind"] == "security.operator-invited-locally" && event["target"] == format!("members/{name}")
        });
        let invited = invited.unwrap_or_else(|| panic!("{name}: {events:?}")).to_string();
        assert!(
            invited.contains("the only operator left") && invited.contains("uid"),
            "{invited}"
        );
        assert!(!invited.contains(&token), "{invited}");
        let home = plane.log_in(name, &token, &after("--ca-sha256 "));
        let me = who_am_i(&plane.connect(&home)).await.expect("a member");
        assert_eq!((me.member.as_str(), me.role()), (name, v1::Role::Operator));
    }
    // With a second operator, the first one may be deleted.
    plane.site.cli(["member", "delete", "operator"]);
    plane.site.stop().await;
}
