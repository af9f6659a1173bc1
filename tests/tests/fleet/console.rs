//! Serial consoles through a control plane: serial over LAN of BMCs that are reached over IPMI or over Redfish.

use rackwright_tests::client::Client;
use rackwright_tests::ipmi::IpmiSim;

use super::*;

const USER: &str = "admin";
const PASSWORD: &str = "sim-pass'w0rd";

/// Enrols a node with a BMC that is reached over IPMI.
fn enrol(site: &Site, id: &str, bmc: &IpmiSim) {
    let file = site.dir().join("ipmi.password");
    std::fs::write(&file, PASSWORD).expect("the file can be written");
    let (address, file) = (bmc.address(), file.display().to_string());
    site.cli([
        "node",
        "enroll",
        id,
        "--bmc",
        &address,
        "--user",
        USER,
        "--password-file",
        &file,
    ]);
}

fn at(site: &Site, words: &[&str]) -> Client {
    Client::start(site.command().args(["node", "console"]).args(words))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_of_an_ipmi_node_is_shown_typed_to_and_recorded() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start_with(dir.path(), "pxe", "console: {record: always}\n").await;
    let mut bmc = IpmiSim::start_anywhere(&dir.path().join("bmc"), USER, PASSWORD).await;
    let site = &plane.site;
    enrol(site, "n1", &bmc);
    let mut client = at(site, &["n1"]);
    client.wait_for_text("the console is open", TEST_LIMIT).await;
    bmc.print_text("kernel: here I am\r\nn1 login: ").await;
    client.wait_for_text("n1 login: ", TEST_LIMIT).await;
    client.type_text("root\r");
    bmc.wait_for_typed("root\r").await;
    // A second client only reads and does not type.
    let watcher = at(site, &["n1", "--read-only"]);
    watcher.wait_for_text("the console is open", TEST_LIMIT).await;
    bmc.print_text("Password:").await;
    watcher.wait_for_text("Password:", TEST_LIMIT).await;
    client.type_text("~.");
    assert_eq!(client.ended(TEST_LIMIT).await, Some(0), "{}", client.text());

    let log = site.until_recorded("n1", "Password:", TEST_LIMIT).await;
    assert!(log.contains("kernel: here I am"), "{log}");
    let boots = site.cli(["node", "console", "boots", "n1"]);
    assert!(boots.contains("FIRST OUTPUT") && boots.lines().count() > 1, "{boots}");
    assert!(
        !site.log_tail().contains(PASSWORD),
        "the BMC's password is in the daemon's log"
    );
    drop(watcher);
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redfish_bmc_that_has_its_console_over_ipmi_alone_shows_it_by_its_own_account() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    // With our own passwords: those of simulated machines are too long for ipmi_sim.
    let plane = Plane::start_with(dir.path(), "pxe", "bmc_accounts: {}\n").await;
    let port = free_port();
    let config = FleetConfig {
        sol_port: Some(port),
        ..FleetConfig::default()
    };
    let fleet = plane.machines(config, Arc::new(Seen::default())).await;
    let (site, node) = (&plane.site, fleet.node(0));
    let (user, password) = accounts::known(site, &node.name());
    let host = node.bmc_address();
    let mut bmc = IpmiSim::start(&dir.path().join("bmc"), host, port, &user, &password).await;
    let mut client = at(site, &[&node.name()]);
    client.wait_for_text("the console is open", TEST_LIMIT).await;
    bmc.print_text("a machine behind Redfish\r\n").await;
    client.wait_for_text("a machine behind Redfish", TEST_LIMIT).await;
    client.type_text("hello\r");
    bmc.wait_for_typed("hello\r").await;
    drop(client);
    // Stopped first: the control plane logs out of each BMC.
    plane.site.stop().await;
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_line_ends_when_the_node_gets_another_bmc() {
    const SECRET: &str = "of the machine that it was";
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path()).await;
    let mut former = IpmiSim::start_anywhere(&dir.path().join("former"), USER, PASSWORD).await;
    let mut present = IpmiSim::start_anywhere(&dir.path().join("present"), USER, PASSWORD).await;
    let site = &plane.site;
    enrol(site, "n1", &former);
    let mut client = at(site, &["n1"]);
    client.wait_for_text("the console is open", TEST_LIMIT).await;
    former.print_text("the former machine\r\n").await;
    client.wait_for_text("the former machine", TEST_LIMIT).await;

    site.cli(["node", "update", "n1", "--bmc", &present.address()]);
    client.wait_for_text("the node has another BMC now", TEST_LIMIT).await;
    former.print_text(SECRET).await;
    // The machine's output is lost until the line is open again.
    client.wait_for_count("the console is open", 2, TEST_LIMIT).await;
    present.print_text("the present machine\r\n").await;
    client.wait_for_text("the present machine", TEST_LIMIT).await;
    client.type_text("hello\r");
    present.wait_for_typed("hello\r").await;
    assert!(!client.text().contains(SECRET), "{}", client.text());
    drop(client);
    plane.site.stop().await;
}

/// OpenSSH's client, which gets this password at each prompt.
fn ssh(dir: &Path, port: u16, node: &str, password: &str) -> Client {
    let (calls, output) = (dir.join("asked"), dir.join("said"));
    let script = format!(
        "#!/bin/sh\necho asked >>{}\ncat {}\n",
        calls.display(),
        output.display()
    );
    let ask = dir.join("askpass");
    std::fs::write(&output, password).expect("the file can be written");
    std::fs::write(&ask, script).expect("the file can be written");
    std::fs::set_permissions(&ask, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("it is ours");
    let known = format!("UserKnownHostsFile={}", dir.join("known_hosts").display());
    let mut command = std::process::Command::new("ssh");
    command.args([
        "-F",
        "none",
        "-tt",
        "-o",
        "StrictHostKeyChecking=accept-new",
        "-o",
        &known,
    ]);
    command.args(["-o", "PubkeyAuthentication=no", "-o", "NumberOfPasswordPrompts=5"]);
    command.args(["-p", &port.to_string(), "-l", node, "127.0.0.1"]);
    Client::start(command.env("SSH_ASKPASS", ask).env("SSH_ASKPASS_REQUIRE", "force"))
}

/// The number of password prompts since the last call.
fn prompts(dir: &Path) -> usize {
    let calls = std::fs::read_to_string(dir.join("asked")).unwrap_or_default();
    std::fs::write(dir.join("asked"), "").expect("the file can be written");
    calls.lines().count()
}

async fn is_refused(dir: &Path, port: u16, node: &str, password: &str) {
    let mut client = ssh(dir, port, node, password);
    assert_eq!(client.ended(TEST_LIMIT).await, Some(255), "{}", client.text());
    assert!(client.text().contains("Permission denied"), "{}", client.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_the_password_of_one_login_at_one_console() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let ssh_port = format!("console_ssh: {{listen: \"127.0.0.1:{port}\", tokens: true}}\n");
    let plane = Plane::start_with(dir.path(), "pxe", &ssh_port).await;
    let mut bmc = IpmiSim::start_anywhere(&dir.path().join("bmc"), USER, PASSWORD).await;
    let (site, dir) = (&plane.site, dir.path());
    enrol(site, "n1", &bmc);
    enrol(site, "n2", &bmc);
    let made = site.json(["node", "console", "token", "n1"]);
    let token = made["token"].as_str().expect("a token").to_owned();

    let none = format!("rw1_{}", "0".repeat(64));
    is_refused(dir, port, "n1", &none).await;
    assert_eq!(prompts(dir), 3, "no more is tried");
    is_refused(dir, port, "n1", "a password").await;
    // A token for another console is refused, and stays valid.
    is_refused(dir, port, "n2", &token).await;
    is_refused(dir, port, "no-such-node", &token).await;
    prompts(dir);
    let mut client = ssh(dir, port, "n1", &token);
    client.wait_for_text("the console is open", TEST_LIMIT).await;
    assert_eq!(prompts(dir), 1);
    bmc.print_text("n1 login: ").await;
    client.wait_for_text("n1 login: ", TEST_LIMIT).await;
    client.type_text("root\r");
    bmc.wait_for_typed("root\r").await;
    drop(client);
    is_refused(dir, port, "n1", &token).await;

    let log = std::fs::read_to_string(dir.join("rackwrightd.log")).expect("the daemon has a log");
    let database = std::fs::read(dir.join("data/rackwright.db")).expect("the database can be read");
    let is_kept = database.windows(token.len()).any(|part| part == token.as_bytes());
    assert!(!log.contains(&token) && !is_kept, "the token was written down");
    let events = site.cli(["events", "--target", "nodes/n1", "-o", "json"]);
    assert!(
        events.contains("security.console-token-created") && events.contains("console.attached"),
        "{events}"
    );
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_setting_there_are_no_console_tokens() {
    install_crypto();
    let dir = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let ssh_port = format!("console_ssh: {{listen: \"127.0.0.1:{port}\"}}\n");
    let plane = Plane::start_with(dir.path(), "pxe", &ssh_port).await;
    let bmc = IpmiSim::start_anywhere(&dir.path().join("bmc"), USER, PASSWORD).await;
    enrol(&plane.site, "n1", &bmc);
    let refused = plane.site.try_cli(["node", "console", "token", "n1"]);
    let (_, words) = texts(&refused);
    assert!(!refused.status.success());
    assert!(
        words.contains("no SSH port that takes tokens") && words.contains("tokens: true"),
        "{words}"
    );
    is_refused(dir.path(), port, "n1", &format!("rw1_{}", "0".repeat(64))).await;
    assert_eq!(prompts(dir.path()), 0, "no password is asked for");
    plane.site.stop().await;
}
