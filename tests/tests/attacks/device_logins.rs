//! Attacks on logins with a device code: the login of another program, a repeated login, guesses, people without a group.

use std::path::Path;

use rackwright_api::v1;
use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_tests::web_console::Console;
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

use super::logins::provider::{CLIENT, Decision, Fault, Provider};
use super::logins::{now_s, person};

/// A control plane with logins by device codes at a provider of the test.
struct Lab {
    console: Console,
    provider: Provider,
    address: String,
}

impl Lab {
    async fn start(dir: &Path) -> Self {
        let provider = Provider::start(now_s).await;
        let secret = dir.join("client-secret");
        std::fs::write(&secret, CLIENT.1).expect("a file");
        let oidc = format!(
            ", oidc: {{device_login: true, issuer: \"{}\", client_id: {}, client_secret_file: {}, \
             members: [{{group: ops, role: operator}}]}}",
            provider.issuer,
            CLIENT.0,
            secret.display()
        );
        let console = Console::start(dir, &oidc).await;
        let config = std::fs::read_to_string(console.plane.site.dir().join("cli/config.yaml"));
        let config = config.expect("the operator's login");
        let server = config.lines().find_map(|line| line.split_once("https://"));
        let server = server.expect("a server").1.trim_matches([' ', '"', '\'']);
        Self {
            console,
            provider,
            address: format!("https://{server}"),
        }
    }

    /// A connection, with a certificate or without one.
    fn channel(&self, identity: Option<Identity>) -> Channel {
        let ca = std::fs::read(self.console.authority()).expect("the authority");
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
        let tls = identity.into_iter().fold(tls, ClientTlsConfig::identity);
        let endpoint = Endpoint::from_shared(self.address.clone()).expect("a URL");
        endpoint.tls_config(tls).expect("the files are PEM").connect_lazy()
    }

    async fn begin(&self, csr_pem: &str) -> v1::BeginDeviceLoginResponse {
        let request = v1::BeginDeviceLoginRequest {
            csr_pem: csr_pem.to_owned(),
        };
        let begun = AuthServiceClient::new(self.channel(None))
            .begin_device_login(request)
            .await;
        begun.expect("a login begins").into_inner()
    }

    /// Asks about a login as an unknown caller.
    async fn finish(&self, login: &str) -> Result<Option<v1::Credential>, Status> {
        let request = v1::FinishDeviceLoginRequest {
            login: login.to_owned(),
        };
        let answer = AuthServiceClient::new(self.channel(None))
            .finish_device_login(request)
            .await;
        answer.map(|answer| answer.into_inner().credential)
    }

    fn members(&self) -> Value {
        self.console.plane.site.json(["member", "list"])
    }

    /// The member of a certificate with this key; none: the certificate is not of the key, or opens nothing.
    async fn who(&self, certificate: &v1::Credential, key: &KeyPair) -> Option<String> {
        let identity = Identity::from_pem(&certificate.certificate_pem, key.serialize_pem());
        let ca = std::fs::read(self.console.authority()).expect("the authority");
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
        let endpoint = Endpoint::from_shared(self.address.clone()).expect("a URL");
        let endpoint = endpoint.tls_config(tls.identity(identity)).ok()?;
        let who = AuthServiceClient::new(endpoint.connect_lazy())
            .who_am_i(v1::WhoAmIRequest {})
            .await;
        Some(who.ok()?.into_inner().member)
    }
}

fn new_key() -> (KeyPair, String) {
    let key = KeyPair::generate().expect("a key");
    let request = CertificateParams::default().serialize_request(&key).expect("a request");
    let pem = request.pem().expect("a request is PEM");
    (key, pem)
}

#[track_caller]
fn refused(answer: Result<Option<v1::Credential>, Status>, code: Code, words: &str) {
    let status = answer.expect_err("no certificate");
    assert!(status.code() == code && status.message().contains(words), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_code_certifies_only_the_key_of_its_own_login_and_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let lab = Lab::start(dir.path()).await;
    let ((own, own_csr), (thief, thiefs_csr)) = (new_key(), new_key());
    let begun = lab.begin(&own_csr).await;
    let of_thief = lab.begin(&thiefs_csr).await;
    // The provider of the test would give its tokens again and again.
    lab.provider.set_fault(Fault::ReusableCode);
    let ann = Decision::Allowed(person("1", "ann", &["ops"]));
    lab.provider.decide(&begun.user_code, ann);

    assert!(lab.finish(&of_thief.login).await.expect("it waits").is_none());
    let middle = begun.login.len() / 2;
    let mixed = format!("{}{}", &begun.login[..middle], &of_thief.login[middle..]);
    refused(lab.finish(&mixed).await, Code::Unauthenticated, "not known");
    // The thief has the sealed text of the other's login, and not its key.
    let stolen = lab.finish(&begun.login).await.expect("allowed").expect("a certificate");
    assert_eq!(lab.who(&stolen, &thief).await, None);
    assert_eq!(lab.who(&stolen, &own).await.as_deref(), Some("ann"));
    refused(lab.finish(&begun.login).await, Code::Unauthenticated, "used before");

    // The certificate ends with the member.
    lab.console.plane.site.cli(["member", "delete", "ann"]);
    assert_eq!(lab.who(&stolen, &own).await, None);
    refused(lab.finish(&begun.login).await, Code::Unauthenticated, "used before");
    assert!(!lab.members().to_string().contains("members/ann"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_gets_no_certificate_by_a_device_code_and_has_to_wait() {
    let dir = tempfile::tempdir().expect("a folder");
    let lab = Lab::start(dir.path()).await;
    let begun = lab.begin(&new_key().1).await;
    for groups in [&[][..], &["guests"]] {
        let person = Decision::Allowed(person("2", "eve", groups));
        lab.provider.set_fault(Fault::ReusableCode);
        lab.provider.decide(&begun.user_code, person);
        refused(lab.finish(&begun.login).await, Code::PermissionDenied, "in no group");
    }
    for fault in [Fault::Unsigned, Fault::ClientSecret] {
        lab.provider.set_fault(fault);
        let again = lab.begin(&new_key().1).await;
        let eve = Decision::Allowed(person("2", "eve", &["ops"]));
        lab.provider.decide(&again.user_code, eve);
        refused(lab.finish(&again.login).await, Code::Unauthenticated, "identity token");
    }
    refused(lab.finish("a guess").await, Code::Unauthenticated, "not known");
    // After five refused logins the address waits, each time longer.
    let mut guesses = 0;
    while lab
        .finish("a guess")
        .await
        .is_err_and(|status| status.code() == Code::Unauthenticated)
    {
        guesses += 1;
        assert!(guesses < 10, "guesses without end");
    }
    refused(lab.finish("a guess").await, Code::ResourceExhausted, "try again in");
    assert!(!lab.members().to_string().contains("eve"));
    let audit = lab.console.plane.site.cli(["audit", "list", "--failed", "-o", "json"]);
    assert!(audit.contains("AuthService/FinishDeviceLogin"), "{audit}");
    assert!(!audit.contains(&begun.login), "the sealed text is a secret");
}
