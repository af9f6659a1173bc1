//! Serial consoles of real machines: recorded while they boot, and used by OpenSSH's client and by the CLI.

// Helpers outside of test functions.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rackwright_lab::{self as lab, Consoles, Firmware, Lab, LabConfig, SERVER_IPV4};
use rackwright_tests::client::Client;
use rackwright_tests::site::{BOOT, Settings, Site};

const TEST_LIMIT: Duration = Duration::from_secs(60);
/// The control plane's port for SSH clients.
const PORT: &str = "2222";

/// A new key, and a client configuration with nothing else.
fn key(dir: &Path, name: &str) -> PathBuf {
    let file = dir.join(name);
    let mut made = Command::new("ssh-keygen");
    made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file);
    assert!(made.status().expect("ssh-keygen runs").success());
    file
}

fn ssh(dir: &Path, key: &Path, user: &str, host: &str, port: &str) -> Command {
    let mut command = Command::new("ssh");
    command.args([
        "-F",
        "none",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=accept-new",
    ]);
    command.args(["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none"]);
    command.arg("-o").arg(format!(
        "UserKnownHostsFile={}",
        dir.join(format!("known-{host}-{port}")).display()
    ));
    command.arg("-i").arg(key).args(["-p", port, "-l", user, host]);
    command
}

struct Keys {
    dir: PathBuf,
    own: PathBuf,
}

impl Keys {
    /// OpenSSH's client at a console.
    fn at(&self, node: &str, words: &[&str]) -> Client {
        let mut command = ssh(&self.dir, &self.own, node, &SERVER_IPV4.to_string(), PORT);
        Client::start(command.arg("-tt").args(words))
    }
}

#[test]
fn a_boot_is_recorded_and_a_console_is_used() {
    lab::run_test("a_boot_is_recorded_and_a_console_is_used", async |namespace| {
        let config = LabConfig {
            firmware: Firmware::Bios,
            memory_mb: 768,
            ..LabConfig::default()
        };
        let lab = Lab::start(&namespace, config).await.expect("the lab starts");
        let further = format!("console: {{record: booting}}\nconsole_ssh: {{listen: \"{SERVER_IPV4}:{PORT}\"}}\n");
        let settings = Settings {
            further,
            ..Settings::default()
        };
        let dir = namespace.state_dir().join("site");
        let site = Site::start(&dir, &settings).await;
        let keys = Keys {
            own: key(&dir, "own"),
            dir: dir.clone(),
        };
        strangers_are_not_let_in(&site, &keys).await;
        site.cli(["ssh-key", "add", &format!("{}.pub", keys.own.display())]);
        site.enroll("n1", lab.machine(0));
        let watcher = keys.at("n1", &["read-only"]);
        watcher.wait_for_text("the console is open", BOOT).await;
        let state = site.until("n1", &["available", "failed"], BOOT).await;
        assert_eq!(state, "available", "{}", site.reason("n1"));
        the_boot_is_recorded(&site, &watcher);
        drop(watcher);

        site.add_image("tiny", "tiny.raw.zst");
        let public = std::fs::read_to_string(dir.join("own.pub")).unwrap();
        site.cli(["node", "deploy", "n1", "--image", "tiny", "--ssh-key", public.trim()]);
        let state = site.until("n1", &["active", "failed"], BOOT).await;
        assert_eq!(state, "active", "{}", site.reason("n1"));
        a_shell_on_the_serial_port(&site, &keys);
        it_is_used_by_one_and_seen_by_others(&site, &keys).await;
        another_host_key_stops_it(&site, &keys).await;
        let log = site.cli(["node", "console", "log", "n1"]);
        assert!(
            !log.contains("by-ssh-42"),
            "what the holder of the node does is not recorded"
        );
        no_secret_is_in_the_log(&site, lab.machine(0).bmc().password());
        site.stop().await;
        lab.stop().await.expect("the lab ends");
    });
}

/// iPXE's prompt for a key, and its output afterwards.
const IPXE_PROMPT: &str = "Ctrl-B";
const IPXE_SHELL: &str = "iPXE>";

#[test]
fn a_console_behind_a_web_socket_is_recorded_and_used() {
    lab::run_test(
        "a_console_behind_a_web_socket_is_recorded_and_used",
        async |namespace| {
            let config = LabConfig {
                firmware: Firmware::Bios,
                consoles: Consoles::WebSocket,
                ..LabConfig::default()
            };
            let lab = Lab::start(&namespace, config).await.expect("the lab starts");
            let settings = Settings {
                further: "console: {record: always}\n".to_owned(),
                ..Settings::default()
            };
            let dir = namespace.state_dir().join("site");
            let site = Site::start(&dir, &settings).await;
            site.enroll("n1", lab.machine(0));
            let mut client = Client::start(site.command().args(["node", "console", "n1"]));
            client.wait_for_text("the console is open", TEST_LIMIT).await;
            // The boot code of the network card, which accepts commands.
            client.wait_for_text(IPXE_PROMPT, BOOT).await;
            client.type_text("\u{2}");
            client.wait_for_text(IPXE_SHELL, TEST_LIMIT).await;
            client.type_text("show net0/mac\r");
            client
                .wait_for_text(&format!("net0/mac:hex = {}", lab.machine(0).mac()), TEST_LIMIT)
                .await;
            client.type_text("~.");
            assert_eq!(client.ended(TEST_LIMIT).await, Some(0), "{}", client.text());
            let log = site.until_recorded("n1", lab.machine(0).mac(), TEST_LIMIT).await;
            for wanted in ["SeaBIOS", IPXE_SHELL] {
                assert!(log.contains(wanted), "{wanted} is missing: {log}");
            }
            no_secret_is_in_the_log(&site, lab.machine(0).bmc().password());
            site.stop().await;
            lab.stop().await.expect("the lab ends");
        },
    );
}

async fn strangers_are_not_let_in(site: &Site, keys: &Keys) {
    let mut stranger = keys.at("n1", &[]);
    assert_eq!(stranger.ended(TEST_LIMIT).await, Some(255), "{}", stranger.text());
    assert!(stranger.text().contains("Permission denied"), "{}", stranger.text());
    let events = site.cli(["events", "-o", "json"]);
    assert!(!events.contains("console.attached"), "{events}");
}

/// Firmware, boot loader, kernel and agent, live and in the recording.
fn the_boot_is_recorded(site: &Site, watcher: &Client) {
    let log = site.cli(["node", "console", "log", "n1", "--boot", "-1"]);
    for text in [&log, &watcher.text()] {
        for wanted in ["SeaBIOS", "iPXE", "Linux version", "MARK"] {
            assert!(text.contains(wanted), "{wanted} is missing: {text}");
        }
    }
    assert!(log.starts_with("--- switched on at "), "{log}");
    assert!(!log.contains('\u{1b}'), "escape sequences are left out");
    let raw = site.cli(["node", "console", "log", "n1", "--raw"]);
    assert!(raw.contains('\u{1b}'), "with --raw they are not");
    let boots = site.json(["node", "console", "boots", "n1"]);
    assert!(
        boots[0]["size_bytes"].as_u64().is_some_and(|size| size > 1000),
        "{boots}"
    );
    let future = site.cli(["node", "console", "log", "n1", "--since", "2100-01-01T00:00:00Z"]);
    assert_eq!(future, "");
}

/// The image has no getty: the test starts one.
fn a_shell_on_the_serial_port(site: &Site, keys: &Keys) {
    let node = site.json(["node", "get", "n1"]);
    let address = node["status"]["address"]
        .as_str()
        .expect("the node has an address")
        .to_owned();
    let mut command = ssh(&keys.dir, &keys.own, "root", &address, "22");
    let output = command
        .arg("setsid getty -n -l /bin/sh 115200 ttyS0 vt100 >/dev/null 2>&1 </dev/null &")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

async fn it_is_used_by_one_and_seen_by_others(site: &Site, keys: &Keys) {
    let mut first = keys.at("n1", &[]);
    first.wait_for_text("the console is open", TEST_LIMIT).await;
    first.type_text("\r");
    first.type_text("echo by-ssh-$((40+2))\r");
    first.wait_for_text("by-ssh-42", TEST_LIMIT).await;
    // A second writer is refused, only reads, or takes over, which the first client sees.
    let mut second = keys.at("n1", &[]);
    assert_eq!(second.ended(TEST_LIMIT).await, Some(1));
    assert!(
        second.text().contains("operator types at the console"),
        "{}",
        second.text()
    );
    let mut commands = keys.at("n1", &["cat", "/etc/passwd"]);
    assert_eq!(commands.ended(TEST_LIMIT).await, Some(127), "{}", commands.text());
    let watcher = keys.at("n1", &["read-only"]);
    watcher.wait_for_text("the console is open", TEST_LIMIT).await;
    let mut cli = Client::start(site.command().args(["node", "console", "n1", "--take-over"]));
    cli.wait_for_text("the console is open", TEST_LIMIT).await;
    first.wait_for_text("operator has taken over", TEST_LIMIT).await;
    first.type_text("echo in-vain-$((40+2))\r");
    cli.type_text("echo by-cli-$((40+2))\r");
    for client in [&cli, &watcher, &first] {
        client.wait_for_text("by-cli-42", TEST_LIMIT).await;
        assert!(!client.text().contains("in-vain-42"), "{}", client.text());
    }
    cli.type_text("~.");
    assert_eq!(cli.ended(TEST_LIMIT).await, Some(0), "{}", cli.text());
    // Other channels and forwarding are refused.
    let mut forward = ssh(&keys.dir, &keys.own, "n1", &SERVER_IPV4.to_string(), PORT);
    let forward = forward
        .args(["-W", &format!("{SERVER_IPV4}:7070")])
        .stdin(Stdio::null())
        .output();
    assert!(!forward.unwrap().status.success());
}

/// The BMC's SSH host key is pinned: with another key nothing is sent, and an event reports it.
async fn another_host_key_stops_it(site: &Site, keys: &Keys) {
    let other = format!("SHA256:{}", "A".repeat(43));
    site.cli(["node", "console", "host-key", "n1", &other]);
    let client = keys.at("n1", &["read-only"]);
    client.wait_for_text("not the pinned SHA256:AAAA", TEST_LIMIT).await;
    let events = site.cli(["events", "--target", "nodes/n1", "-o", "json"]);
    assert!(events.contains("security.bmc-host-key-changed"), "{events}");
    site.cli(["node", "console", "host-key", "n1", "--forget"]);
    let client = keys.at("n1", &["read-only"]);
    client.wait_for_text("the console is open", TEST_LIMIT).await;
}

/// The control plane writes the BMC's password only in sealed form.
fn no_secret_is_in_the_log(site: &Site, secret: &str) {
    let mut folders = vec![site.dir().join("data"), site.dir().to_owned()];
    let mut looked = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|kind| kind != "password") && path.is_file() {
                let bytes = std::fs::read(&path).unwrap();
                let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!found, "{} holds the BMC's password", path.display());
                looked += 1;
            }
        }
    }
    assert!(looked > 3);
}
