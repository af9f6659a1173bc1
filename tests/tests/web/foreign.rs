//! The API by clients of the Connect protocol that are not ours: npm's `@connectrpc/connect-web` and PyPI's `connectrpc`.
//! Both make a call, get an error, and follow a stream, with JSON and with binary messages.

use std::path::{Path, PathBuf};
use std::process::Command;

use rackwright_tests::web_console::Console;
use serde_json::{Value, json};

/// The folder with the clients.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign-clients")
}

/// What a program prints.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {out}\n{errors}");
    out
}

/// An API key of an operator.
fn key(console: &Console) -> String {
    let site = &console.plane.site;
    let made = site.json(["api-key", "create", "foreign", "--role", "operator", "--lifetime", "2h"]);
    made["key"].as_str().expect("a key").to_owned()
}

/// The client has made its calls, and the control plane has the nodes that the client has seen.
#[track_caller]
fn has_worked(console: &Console, printed: &str, refused: &str, node: &str) {
    let results: Value = serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    for form in ["json", "binary"] {
        let name = format!("nodes/{node}-{form}");
        assert_eq!(
            results[form],
            json!({"member": "operator", "refused": refused, "seen": name}),
            "{printed}"
        );
    }
    let nodes = console.plane.site.json(["node", "list"]);
    assert_eq!(nodes.as_array().map(Vec::len), Some(2), "{nodes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_web_calls_and_follows_in_node() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    assert!(
        folder().join("node_modules").is_dir(),
        "`make test-foreign-clients` installs the clients"
    );
    let descriptors = dir.path().join("descriptors.bin");
    std::fs::write(&descriptors, rackwright_api::BARE_DESCRIPTORS).expect("a file");
    let mut node = Command::new("node");
    node.arg(folder().join("client.mjs"))
        .arg(&console.url)
        .arg(&descriptors);
    node.arg("by-npm").env("RACKWRIGHT_API_KEY", key(&console));
    node.env("NODE_EXTRA_CA_CERTS", console.authority());
    has_worked(&console, &printed(&mut node), "NotFound", "by-npm");
}

/// The environment of Python with the client and its generator of code, which `tests/venv.sh` makes in the target folder.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("a target folder");
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut made = Command::new(tests.join("venv.sh"));
    made.arg(target.join("venv-foreign-clients"));
    made.arg(folder().join("requirements.txt"));
    PathBuf::from(printed(&mut made).trim())
}

/// The paths of the API's files below `proto`.
fn sources(proto: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["rackwright/v1", "google/rpc"] {
        for file in std::fs::read_dir(proto.join(folder)).expect("a folder") {
            let name = file.expect("a file").file_name();
            found.push(format!("{folder}/{}", name.to_string_lossy()));
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connectrpc_calls_and_follows_in_python() {
    let dir = tempfile::tempdir().expect("a folder");
    let console = Console::start(dir.path(), "").await;
    let bin = python();
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
    let generated = dir.path().join("generated");
    std::fs::create_dir(&generated).expect("a folder");
    let mut protoc = Command::new(bin.join("python"));
    protoc.args(["-m", "grpc_tools.protoc", "-I"]).arg(&proto);
    for (plugin, out) in [("py", "py_out"), ("connectrpc", "connectrpc_out")] {
        let program = bin.join(format!("protoc-gen-{plugin}"));
        protoc.arg(format!("--plugin=protoc-gen-{plugin}={}", program.display()));
        protoc.arg(format!("--{out}={}", generated.display()));
    }
    printed(protoc.args(sources(&proto)));
    let mut client = Command::new(bin.join("python"));
    client
        .arg(folder().join("client.py"))
        .arg(&console.url)
        .arg(console.authority());
    client.arg("by-pypi").env("RACKWRIGHT_API_KEY", key(&console));
    client.env("PYTHONPATH", dir.path());
    has_worked(&console, &printed(&mut client), "NOT_FOUND", "by-pypi");
}
