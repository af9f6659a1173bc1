//! Logins and API keys over TLS, with curl and a gRPC client.

use std::process::Output;

use rackwright_api::v1;
use rackwright_api::v1::auth_service_client::AuthServiceClient;
use rackwright_tests::web_console::{Console, OWN_PAGE};
use serde_json::Value;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic::{Code, Request};

fn outcome(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{out} {err}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_from_the_cli_opens_the_console_and_ends_by_the_cli() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    let jar = dir.path().join("cookies").display().to_string();
    let site = &console.plane.site;

    // The page needs no login; the API does.
    for version in ["--http1.1", "--http2"] {
        let (status, page) = console.curl(&[version, "--compressed"], "/nodes");
        assert_eq!(
            status,
            format!("200 {}", if version == "--http2" { "2" } else { "1.1" })
        );
        assert!(page.contains("<script"), "{page}");
        let (status, refused) = console.curl(&[version], "/v1/nodes");
        assert!(status.starts_with("401 "), "{status} {refused}");
    }

    let login = site.json(["console", "open", "--print"]);
    let (url, token) = login["url"].as_str().expect("a URL").rsplit_once('#').expect("a token");
    assert_eq!(url, format!("{}/login", console.url));
    let json = format!("{{\"token\": \"{token}\"}}");
    let post = [&OWN_PAGE[..], &["--cookie-jar", &jar, "--json", &json]].concat();
    let (status, answer) = console.curl(&post, "/auth/login");
    assert!(status.starts_with("204 "), "{status} {answer}");
    let again = [&OWN_PAGE[..], &["--json", &json]].concat();
    let (status, answer) = console.curl(&again, "/auth/login");
    assert!(
        status.starts_with("401 ") && answer.contains("rackwright console open"),
        "{status} {answer}"
    );

    let cookie = [&OWN_PAGE[..], &["--cookie", &jar]].concat();
    let (status, answer) = console.curl(&cookie, "/v1/nodes");
    assert!(status.starts_with("200 "), "{status} {answer}");
    let sessions = site.json(["session", "list"]);
    let session = &sessions.as_array().expect("a list")[0];
    assert_eq!(session["member"], "operator", "{sessions}");
    assert_eq!(session["address"], "127.0.0.1", "{sessions}");
    assert!(
        session["client"].as_str().expect("a client").starts_with("curl/"),
        "{sessions}"
    );
    let id = session["name"]
        .as_str()
        .expect("a name")
        .trim_start_matches("sessions/");
    site.cli(["session", "end", id]);
    let (status, answer) = console.curl(&cookie, "/v1/nodes");
    assert!(status.starts_with("401 "), "{status} {answer}");

    // The audit has the login with its address, without its token.
    let audit = site.cli(["audit", "list", "-o", "json"]);
    assert!(
        audit.contains("SessionService/OpenSession") && !audit.contains(token),
        "{audit}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_calls_with_an_api_key_by_rest_and_grpc() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    let site = &console.plane.site;
    let made = site.json(["api-key", "create", "a report", "--role", "viewer", "--lifetime", "2h"]);
    let key = made["key"].as_str().expect("a key").to_owned();
    let bearer = format!("Authorization: Bearer {key}");
    let (status, who) = console.curl(&["--header", &bearer], "/v1/whoami");
    assert!(status.starts_with("200 "), "{status} {who}");
    let who: Value = serde_json::from_str(&who).expect("JSON");
    assert_eq!(
        (&who["member"], &who["role"]),
        (&"operator".into(), &"ROLE_VIEWER".into()),
        "{who}"
    );

    // The same by gRPC, with the key as metadata.
    let authority = std::fs::read(console.authority()).expect("the authority");
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
    let endpoint = Endpoint::from_shared(console.url.clone()).expect("a URL");
    let channel = endpoint.tls_config(tls).expect("TLS").connect_lazy();
    let ask = async |key: Option<&str>| {
        let mut request = Request::new(v1::WhoAmIRequest {});
        if let Some(key) = key {
            let value = format!("Bearer {key}").parse().expect("a header");
            request.metadata_mut().insert("authorization", value);
        }
        AuthServiceClient::new(channel.clone()).who_am_i(request).await
    };
    assert_eq!(ask(Some(&key)).await.expect("let in").into_inner().member, "operator");
    assert_eq!(ask(None).await.expect_err("no key").code(), Code::Unauthenticated);

    let keys = site.json(["api-key", "list"]);
    let listed = &keys.as_array().expect("a list")[0];
    assert_eq!(listed["label"], "a report", "{keys}");
    assert!(!keys.to_string().contains(&key), "{keys}");
    let id = listed["name"].as_str().expect("a name").trim_start_matches("apiKeys/");
    site.cli(["api-key", "delete", id]);
    assert_eq!(
        ask(Some(&key)).await.expect_err("deleted").code(),
        Code::Unauthenticated
    );
    // The key does not exist any more.
    let again = site.try_cli(["api-key", "delete", id]);
    assert_eq!(again.status.code(), Some(3), "{}", outcome(&again));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_presents_the_sites_own_certificate() {
    let dir = tempfile::tempdir().expect("a folder");
    let (chain, key) = (dir.path().join("console.pem"), dir.path().join("console.key"));
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::write(&chain, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let further = format!(
        ", certificate: {}, key: {}, public_url: \"https://console.example\"",
        chain.display(),
        key.display()
    );
    let console = Console::start(dir.path(), &further).await;
    let own = ["--cacert", &chain.display().to_string()];
    let (status, _) = console.curl(&own, "/");
    assert!(status.starts_with("200 "), "{status}");
    let login = console.plane.site.json(["console", "open", "--print"]);
    let url = login["url"].as_str().expect("a URL");
    assert!(url.starts_with("https://console.example/login#rw1_"), "{url}");
}
