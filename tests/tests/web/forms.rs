//! Uploads by `PUT` and consoles by WebSocket, with curl and an API key.

use std::process::Command;

use rackwright_tests::web_console::Console;
use serde_json::Value;

/// The handshake of a WebSocket, with the key of the example in RFC 6455.
const UPGRADE: [&str; 8] = [
    "--header",
    "Connection: Upgrade",
    "--header",
    "Upgrade: websocket",
    "--header",
    "Sec-WebSocket-Version: 13",
    "--header",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
];
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A header with a new API key of this role.
fn key(console: &Console, role: &str) -> String {
    let make = ["api-key", "create", "a test", "--role", role, "--lifetime", "2h"];
    let made = console.plane.site.json(make);
    format!("Authorization: Bearer {}", made["key"].as_str().expect("a key"))
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_uploaded_in_parts() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    let bearer = key(&console, "operator");
    for version in ["--http1.1", "--http2"] {
        let call = |arguments: &[&str], path: &str| {
            let all = [&[version, "--header", &bearer][..], arguments].concat();
            let (status, body) = console.curl(&all, path);
            (status.split(' ').next().unwrap_or_default().to_owned(), parsed(&body))
        };
        let sha256 = "0".repeat(64);
        let wanted = format!(
            "{{\"imageId\": \"noble\", \"sizeBytes\": \"11\", \"sha256\": \"{sha256}\", \
             \"mutation\": {{\"idempotencyKey\": \"start{version}\"}}}}"
        );
        let (status, upload) = call(&["--json", &wanted], "/v1/uploads");
        assert_eq!(status, "200", "{upload}");
        let name = upload["name"].as_str().expect("a name").to_owned();
        let put = ["--request", "PUT", "--data-binary", "hello "];
        let (status, upload) = call(&put, &format!("/v1/{name}:write"));
        assert_eq!(
            (status.as_str(), &upload["receivedBytes"]),
            ("200", &"6".into()),
            "{upload}"
        );
        let (status, refused) = call(&put, &format!("/v1/{name}:write?offset=5"));
        assert_eq!(status, "400", "{refused}");
        assert!(refused.to_string().contains("continue at 6"), "{refused}");
        let (_, upload) = call(&[], &format!("/v1/{name}"));
        assert_eq!(upload["receivedBytes"], "6", "{upload}");
        let put = ["--request", "PUT", "--data-binary", "world"];
        let (status, upload) = call(&put, &format!("/v1/{name}:write?offset=6"));
        assert_eq!(
            (status.as_str(), &upload["receivedBytes"]),
            ("200", &"11".into()),
            "{upload}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_console_opens_as_a_websocket_and_a_refusal_is_an_answer() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    let operator = key(&console, "operator");
    // No BMC listens there: the console says so, and stays open.
    let node = "{\"nodeId\": \"n1\", \"spec\": {\"bmc\": {\"address\": \"https://127.0.0.1:1\", \"username\": \"admin\", \
                \"password\": \"guess-this-one\"}}, \"mutation\": {\"idempotencyKey\": \"enroll\"}}";
    let (status, enrolled) = console.curl(&["--header", &operator, "--json", node], "/v1/nodes");
    assert!(status.starts_with("200 "), "{status} {enrolled}");

    let status = |version: &str, header: &str, upgrade: &[&str], path: &str| {
        let all = [&[version, "--header", header][..], upgrade].concat();
        let (status, body) = console.curl(&all, path);
        (status.split(' ').next().unwrap_or_default().to_owned(), body)
    };
    let viewer = key(&console, "viewer");
    let plain: &[&str] = &[];
    let path = "/v1/nodes/n1/console";
    for (version, header, upgrade, path, expected) in [
        ("--http1.1", &operator, &UPGRADE[..], "/v1/nodes/n2/console", "404"),
        ("--http1.1", &viewer, &UPGRADE[..], path, "403"),
        ("--http1.1", &operator, plain, path, "426"),
        ("--http2", &operator, plain, path, "400"),
    ] {
        let (found, body) = status(version, header, upgrade, path);
        assert_eq!(found, expected, "{version} {path}: {body}");
        assert!(parsed(&body)["error"]["message"].is_string(), "{body}");
    }

    // curl reads the frames until its time is over.
    let mut curl = Command::new("curl");
    curl.args(["--http1.1", "--silent", "--include", "--output", "-", "--max-time", "3"])
        .args(["--cacert", &console.authority(), "--header", &viewer])
        .args(UPGRADE)
        .arg(format!("{}{path}?read_only=true", console.url));
    let shown = curl.output().expect("curl runs").stdout;
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(shown.starts_with("HTTP/1.1 101 ") && shown.contains(ACCEPT), "{shown}");
    assert!(shown.contains("{\"notice\":\""), "{shown}");
}
