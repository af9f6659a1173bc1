//! An attacker with write access to the database, or with access to calls, against the audit.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rackwright_sim::install_crypto;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{Site, program, texts};
use rackwright_tests::wire::{self, methods};
use serde_json::Value;
use tonic::Code;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// The attacker's first step: these triggers make the database refuse changes of the audit.
const UNLOCK: &str = "DROP TRIGGER audit_is_not_changed; DROP TRIGGER audit_is_not_deleted;";
/// Calls of an auditor.
const AUDITORS: [&str; 12] = [
    "AuditService/ListAudit",
    "AuditService/StreamAudit",
    "AuthService/ListMembers",
    "AuthService/RenewCredential",
    "AuthService/WhoAmI",
    "EventService/StreamEvents",
    "SessionService/CreateApiKey",
    "SessionService/CreateLoginToken",
    "SessionService/DeleteApiKey",
    "SessionService/EndSession",
    "SessionService/ListApiKeys",
    "SessionService/ListSessions",
];
/// For callers without a certificate.
const OPEN: [&str; 6] = [
    "AuthService/BeginDeviceLogin",
    "AuthService/FinishDeviceLogin",
    "AuthService/RedeemToken",
    "AgentService/Register",
    "ControlService/ProveDatabase",
    "SessionService/OpenSession",
];

/// A control plane on the loopback interface.
struct Plane {
    site: Site,
    api: u16,
    store: u16,
}

fn config(data: &Path, api: u16, store: u16) -> String {
    format!(
        "data_dir: {}\napi: {{listen: \"127.0.0.1:{api}\", names: [\"127.0.0.1\"]}}\n\
         store: {{listen: \"127.0.0.1:{store}\"}}\n",
        data.display()
    )
}

impl Plane {
    async fn start(dir: &Path, further: &str) -> Self {
        install_crypto();
        let [api, store] = std::array::from_fn(|_| free_port());
        let config = format!("{}{further}", config(&dir.join("data"), api, store));
        let site = Site::start_with(dir, &config).await;
        Self { site, api, store }
    }

    fn cli_of(&self, home: &Path, words: &[&str]) -> Output {
        let mut command = self.site.command();
        command.env("RACKWRIGHT_CONFIG", home).args(words);
        command.output().expect("the CLI can be started")
    }

    /// Invites a member and logs in as the member; returns the folder of its credential.
    fn join(&self, name: &str, role: &str) -> PathBuf {
        let made = self.site.json(["token", "create", name, "--role", role]);
        let home = self.site.dir().join(name);
        let server = format!("https://127.0.0.1:{}", self.api);
        let text = |field: &str| made[field].as_str().expect("the answer holds it").to_owned();
        let (ca, token) = (text("ca_sha256"), text("token"));
        let output = self.cli_of(
            &home,
            &["login", "--server", &server, "--ca-sha256", &ca, "--token", &token],
        );
        assert!(output.status.success(), "{:?}", texts(&output));
        home
    }

    /// A connection, with the credential in a folder or without one.
    fn connect(&self, home: Option<&Path>) -> Channel {
        let read = |path: PathBuf| std::fs::read_to_string(&path).expect("a file of the CLI");
        let ca = Certificate::from_pem(read(self.site.dir().join("cli/default.ca.pem")));
        let mut tls = ClientTlsConfig::new().ca_certificate(ca);
        if let Some(home) = home {
            let identity = read(home.join("default.pem"));
            tls = tls.identity(Identity::from_pem(&identity, &identity));
        }
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.api)).expect("a URL");
        endpoint.tls_config(tls).expect("the files are PEM").connect_lazy()
    }

    /// Records, newest first.
    fn audit(&self, words: &[&str]) -> Vec<Value> {
        let records = self.site.json([&["audit", "list", "--limit", "10000"], words].concat());
        records.as_array().expect("a list").clone()
    }

    fn data(&self) -> PathBuf {
        self.site.dir().join("data")
    }
}

fn verify(config: &Path, further: &[&str]) -> Output {
    let mut command = Command::new(program("rackwrightd"));
    command.args(["audit", "verify", "--config"]).arg(config).args(further);
    command.output().expect("rackwrightd can be started")
}

/// Runs the break-glass command on the control plane's host.
fn invite(config: &Path, name: &str) -> Output {
    let mut command = Command::new(program("rackwrightd"));
    let reason = "nobody can log in";
    command
        .args(["invite-operator", "--name", name, "--reason", reason, "--config"])
        .arg(config);
    command.output().expect("rackwrightd can be started")
}

/// Runs an attacker's statements on the database file. Returns whether the database accepted them.
fn sql(data: &Path, statements: &str) -> bool {
    let mut command = Command::new("sqlite3");
    command.arg("-bail").arg(data.join("rackwright.db")).arg(statements);
    command.output().expect("sqlite3 is installed").status.success()
}

/// A copy of the data folder, and a configuration with that copy.
fn copy(plane: &Plane, name: &str) -> (PathBuf, PathBuf) {
    let data = plane.site.dir().join(name);
    let done = Command::new("cp").arg("-a").arg(plane.data()).arg(&data).status();
    assert!(done.is_ok_and(|status| status.success()), "the data folder is copied");
    let path = plane.site.dir().join(format!("{name}.yaml"));
    std::fs::write(&path, config(&data, plane.api, plane.store)).expect("a configuration");
    (data, path)
}

/// The position in `"audit/7"` or 7, as JSON has it.
fn position(record: &Value) -> u64 {
    let position = &record["position"];
    let text = position.as_str().map(str::to_owned);
    text.unwrap_or_else(|| position.to_string())
        .parse()
        .expect("a position")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_a_deleted_a_reordered_record_and_a_cut_end_are_found_with_their_position() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start(dir.path(), "").await;
    for name in ["ann", "bob", "cleo", "dora"] {
        plane.site.cli(["token", "create", name, "--role", "viewer"]);
    }
    let (older, older_config) = copy(&plane, "older");
    for name in ["eve", "fred"] {
        plane.site.cli(["token", "create", name, "--role", "viewer"]);
    }
    plane.site.halt().await;
    let (whole, whole_config) = copy(&plane, "whole");
    let (out, err) = texts(&verify(&whole_config, &[]));
    assert!(out.contains("the audit is intact") && err.is_empty(), "{out}{err}");
    let last: u64 = out
        .split("the last record is ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .expect("the last position");
    assert!(last > 8, "{out}");
    assert!(
        !sql(&whole, "DELETE FROM audit WHERE position = 3"),
        "without dropping triggers"
    );
    assert!(!sql(&whole, "UPDATE audit SET caller = '' WHERE position = 3"));
    let head = "UPDATE audit_head SET position = 4, hash = (SELECT hash FROM audit WHERE position = 4)";
    let cut = format!("record {last}");
    for (name, attack, error) in [
        (
            "changed",
            "UPDATE audit SET record = REPLACE(record, 'AuthService', 'AuthServicE') WHERE position = 4".to_owned(),
            "record 4 was changed",
        ),
        (
            "columns",
            "UPDATE audit SET caller = 'members/eve' WHERE position = 4".to_owned(),
            "record 4 was changed",
        ),
        (
            "deleted",
            "DELETE FROM audit WHERE position = 4".to_owned(),
            "record 4 is missing",
        ),
        (
            "deleted-some",
            "DELETE FROM audit WHERE position IN (4, 5)".to_owned(),
            "records 4 to 5 are missing",
        ),
        (
            "reordered",
            "UPDATE audit SET position = -1 WHERE position = 4; UPDATE audit SET position = 4 WHERE position = 5; \
             UPDATE audit SET position = 5 WHERE position = -1"
                .to_owned(),
            "the record at position 4 has the number 5",
        ),
        (
            "cut",
            format!("DELETE FROM audit WHERE position > 4; {head}"),
            cut.as_str(),
        ),
        (
            "cut-rows",
            "DELETE FROM audit WHERE position > 4".to_owned(),
            cut.as_str(),
        ),
        (
            "emptied",
            "DELETE FROM audit; UPDATE audit_head SET position = 0, hash = ''".to_owned(),
            cut.as_str(),
        ),
    ] {
        let (data, config) = copy(&plane, name);
        assert!(sql(&data, &format!("{UNLOCK} {attack}")), "{name}");
        let output = verify(&config, &[]);
        let (out, err) = texts(&output);
        assert!(
            !output.status.success() && err.contains("the audit is not intact") && err.contains(error),
            "{name}: {out}{err}"
        );
    }
    // An older database, with the present head.
    let kept = std::fs::copy(plane.data().join("audit-head"), older.join("audit-head"));
    kept.expect("the head is copied");
    let output = verify(&older_config, &[]);
    assert!(
        !output.status.success() && texts(&output).1.contains(&cut),
        "{:?}",
        texts(&output)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_control_plane_that_continues_a_cut_audit_records_that_permanently() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start(dir.path(), "").await;
    plane.site.cli(["token", "create", "ann", "--role", "viewer"]);
    plane.site.halt().await;
    let attack = format!(
        "{UNLOCK} DELETE FROM audit WHERE position > 2; \
         UPDATE audit_head SET position = 2, hash = (SELECT hash FROM audit WHERE position = 2)"
    );
    assert!(sql(&plane.data(), &attack));
    plane.site.restart().await;
    let gap = plane.audit(&["--method", "local/gap"]);
    let [gap] = &gap[..] else { panic!("{gap:?}") };
    assert_eq!(
        (position(gap), gap["outcome"].as_str()),
        (3, Some("DATA_LOSS")),
        "{gap}"
    );
    let events = plane.site.cli(["events", "-o", "json"]);
    assert!(events.contains("security.audit-gap"), "{events}");
    plane.site.halt().await;
    let (_, config) = copy(&plane, "copy");
    let output = verify(&config, &[]);
    let (_, err) = texts(&output);
    assert!(
        !output.status.success() && err.contains("record 3 reports a gap"),
        "{err}"
    );
    let output = verify(&config, &["--known-gap", "3"]);
    assert!(output.status.success(), "{:?}", texts(&output));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_calls_and_break_glass_commands_are_recorded_with_caller_and_source() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start(dir.path(), "site: hall-7\n").await;
    let vera = plane.join("vera", "viewer");
    let refused = plane.cli_of(&vera, &["node", "hold", "n17", "--reason", "mine"]);
    assert!(!refused.status.success());
    let failed = plane.site.try_cli(["node", "hold", "n17", "--reason", "not there"]);
    assert!(!failed.status.success());
    let records = plane.audit(&["--failed", "--target", "nodes/n17"]);
    let [operators, veras] = &records[..] else {
        panic!("{records:?}")
    };
    let field_of = |record: &Value, field: &str| record[field].as_str().unwrap_or_default().to_owned();
    let facts = ["caller", "role", "address", "method", "outcome", "target", "site"];
    assert_eq!(
        facts.map(|field| field_of(veras, field)),
        [
            "members/vera",
            "viewer",
            "127.0.0.1",
            "NodeService/HoldNode",
            "PERMISSION_DENIED",
            "nodes/n17",
            "hall-7"
        ]
    );
    assert!(
        field_of(veras, "client").contains("rackwright") && field_of(veras, "request").contains("mine"),
        "{veras}"
    );
    assert_eq!(field_of(operators, "outcome"), "NOT_FOUND");
    // The login of the viewer.
    let joined = plane.audit(&["--method", "AuthService/RedeemToken", "--target", "members/vera"]);
    assert_eq!(joined.len(), 1, "{joined:?}");
    assert_eq!(
        (field_of(&joined[0], "outcome"), field_of(&joined[0], "address")),
        ("OK".into(), "127.0.0.1".into())
    );

    let config = dir.path().join("rackwrightd.yaml");
    let invited = invite(&config, "oscar");
    let (printed, err) = texts(&invited);
    assert!(invited.status.success(), "{err}");
    let records = plane.audit(&["--method", "local/invite-operator"]);
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(
        (field_of(record, "target"), field_of(record, "message")),
        ("members/oscar".into(), "nobody can log in".into())
    );
    assert!(field_of(record, "caller").starts_with("local/"), "{record}");
    let token = printed
        .split("--token ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let everything = format!("{:?}", plane.audit(&[]));
    assert!(
        !everything.contains(token.expect("a token")),
        "the audit repeats the token"
    );
    plane.site.halt().await;
    assert!(
        verify(&config, &[]).status.success(),
        "{:?}",
        texts(&verify(&config, &[]))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_anonymous_calls_leaves_few_records_and_one_count() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut plane = Plane::start(dir.path(), "").await;
    let before = plane.audit(&[]).len();
    let stranger = plane.connect(None);
    for _ in 0..100 {
        for method in ["NodeService/ListNodes", "AuthService/RedeemToken", "NoService/AtAll"] {
            let answer = wire::call(stranger.clone(), &format!("/rackwright.v1.{method}"), Vec::new()).await;
            assert_eq!(answer.expect_err("refused").code(), Code::Unauthenticated, "{method}");
        }
    }
    // Each reading of the audit is itself recorded.
    let grown = plane.audit(&[]).len() - before;
    assert!((2..20).contains(&grown), "300 calls of strangers left {grown} records");
    plane.site.halt().await;
    plane.site.restart().await;
    let counts = plane.audit(&["--method", "local/refused-calls"]);
    let [count] = &counts[..] else { panic!("{counts:?}") };
    let message = count["message"].as_str().expect("a message");
    assert!(
        message.starts_with("290 further calls without a certificate"),
        "{message}"
    );
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_auditor_reads_the_audit_and_nothing_else_and_checks_an_export_anywhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path(), "").await;
    let (audrey, vera) = (plane.join("audrey", "auditor"), plane.join("vera", "viewer"));
    let channel = plane.connect(Some(&audrey));
    for method in methods() {
        let short = method.path().trim_start_matches("/rackwright.v1.").to_owned();
        if OPEN.contains(&short.as_str()) {
            continue;
        }
        let answer = wire::call(channel.clone(), &method.path(), Vec::new()).await;
        let refused = answer.is_err_and(|status| status.code() == Code::PermissionDenied);
        assert_eq!(refused, !AUDITORS.contains(&short.as_str()), "{short}");
    }
    let refused = plane.cli_of(&vera, &["audit", "list"]);
    assert_eq!(refused.status.code(), Some(5), "{:?}", texts(&refused));

    let file = dir.path().join("audit.jsonl");
    let export = file.display().to_string();
    let exported = plane.cli_of(&audrey, &["audit", "export", "--file", &export]);
    let (out, err) = texts(&exported);
    assert!(exported.status.success(), "{err}");
    let key = out
        .split("--key ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next());
    let key = key.expect("a key").to_owned();
    let check = |text: &str| {
        std::fs::write(&file, text).expect("the export is written");
        let mut command = Command::new(program("rackwrightd"));
        command.args(["audit", "verify", "--file", &export, "--key", &key]);
        let output = command.output().expect("rackwrightd can be started");
        let (out, err) = texts(&output);
        (output.status.success(), format!("{out}{err}"))
    };
    let text = std::fs::read_to_string(&file).expect("an export");
    let (is_intact, report) = check(&text);
    assert!(is_intact && report.contains("the audit is intact"), "{report}");
    let (is_intact, report) = check(&text.replacen("members/audrey", "members/nobody", 1));
    assert!(!is_intact && report.contains("was changed"), "{report}");
    let lines: Vec<&str> = text.lines().collect();
    let shorter = [&lines[..4], &lines[5..]].concat().join("\n");
    let (is_intact, report) = check(&shorter);
    assert!(!is_intact && report.contains("record 4 is missing"), "{report}");
    let mut command = Command::new(program("rackwrightd"));
    command.args(["audit", "verify", "--file", &export, "--key", &"0".repeat(64)]);
    let output = command.output().expect("rackwrightd can be started");
    assert!(
        !output.status.success() && texts(&output).1.contains("no signing key"),
        "{:?}",
        texts(&output)
    );
    plane.site.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_cannot_be_recorded_is_not_made() {
    let dir = tempfile::tempdir().expect("a folder");
    let plane = Plane::start(dir.path(), "").await;
    assert!(sql(&plane.data(), "ALTER TABLE audit RENAME TO hidden"));
    let refused = plane
        .site
        .try_cli(["token", "create", "eve", "--role", "operator", "--call-timeout", "2s"]);
    assert!(!refused.status.success(), "{:?}", texts(&refused));
    let invited = invite(&dir.path().join("rackwrightd.yaml"), "oscar");
    let (out, err) = texts(&invited);
    assert!(!invited.status.success() && !out.contains("--token"), "{out}{err}");
    assert!(sql(&plane.data(), "ALTER TABLE hidden RENAME TO audit"));
    let tokens = plane.site.cli(["token", "list"]);
    assert!(!tokens.contains("eve") && !tokens.contains("oscar"), "{tokens}");
    plane.site.cli(["token", "create", "ann", "--role", "viewer"]);
    plane.site.stop().await;
}

/// Reads the messages that a syslog server got from a control plane that has ended. None is missing, and only the kill may
/// have repeated one.
fn every_record_arrived(syslog: &UdpSocket, file: &str, count: u64) {
    let mut message = [0; 4096];
    let (mut last, mut repeated) = (0, 0);
    while let Ok(length) = syslog.recv(&mut message) {
        let text = std::str::from_utf8(&message[..length]).expect("text");
        let (head, json) = text.split_once('\u{feff}').expect("a message of RFC 5424 in UTF-8");
        let is_audit = head.starts_with("<109>1 ") || head.starts_with("<108>1 ");
        assert!(is_audit && head.contains(" rackwrightd - audit - "), "{head}");
        let record: Value = serde_json::from_str(json).expect("JSON");
        match position(&record) {
            next if next == last + 1 => last = next,
            same if same == last && repeated == 0 => repeated += 1,
            other => panic!("record {other} follows record {last}"),
        }
        assert!(file.contains(record["hash"].as_str().expect("a hash")), "{record}");
    }
    assert_eq!(last, count, "records are missing at the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exported_file_continues_where_it_ended_after_any_failure_of_the_control_plane() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("export").join("audit.jsonl");
    let syslog = UdpSocket::bind("127.0.0.1:0").expect("a syslog server");
    syslog.set_nonblocking(true).expect("it can be read without a wait");
    let server = syslog.local_addr().expect("its address");
    let exports = format!("audit: {{file: \"{}\", syslog: \"{server}\"}}\n", file.display());
    let mut plane = Plane::start(dir.path(), &exports).await;
    plane.site.cli(["token", "create", "ann", "--role", "viewer"]);
    // The folder was missing until now: only the export has failed.
    std::fs::create_dir(file.parent().expect("a folder")).expect("a folder");
    plane.site.kill().await;
    plane.site.restart().await;
    plane.site.cli(["token", "create", "bob", "--role", "viewer"]);
    plane.site.halt().await;
    plane.site.restart().await;
    plane.site.halt().await;
    let text = std::fs::read_to_string(&file).expect("an export");
    let positions: Vec<u64> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|line| line["type"] == "record")
        .map(|line| position(&line))
        .collect();
    let count = u64::try_from(positions.len()).expect("few records");
    assert_eq!(positions, (1..=count).collect::<Vec<_>>());
    assert!(text.contains("members/ann") && text.contains("members/bob"), "{text}");
    every_record_arrived(&syslog, &text, count);
    let (out, err) = texts(&verify(&dir.path().join("rackwrightd.yaml"), &[]));
    let key = out
        .split("public key ")
        .nth(1)
        .unwrap_or_else(|| panic!("{out}{err}"))
        .trim()
        .to_owned();
    let mut command = Command::new(program("rackwrightd"));
    command.args(["audit", "verify", "--key", &key, "--file"]).arg(&file);
    let output = command.output().expect("rackwrightd can be started");
    assert!(output.status.success(), "{:?}", texts(&output));
}
