//! The Redfish service against programs of independent origin: DMTF's two validators, and OpenStack's client.
//!
//! They run in a virtual environment below the target folder, which `tests/venv.sh` makes; that needs `python3` with
//! `venv` and, once, a package index. Without them these tests fail. The validation itself is offline: the schemas are
//! DMTF's own CSDL files, which the crate `nv-redfish-schema` contains.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Client, LONG, RESET};
use rackwright_sim::fleet::{BootSource, Fleet, FleetConfig, Phase, Profile, SimNode};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;

/// Five times the duration of the longest program on an idle machine, and of making the environment.
const WAIT_LIMIT: Duration = Duration::from_secs(600);

/// Accepted failures of the protocol validator, by assertion, with the reason.
const PROTOCOL_FAILURES: &[(&str, &str)] = &[];

/// Assertions that the protocol validator cannot test here, by their beginning, with the reason.
const PROTOCOL_UNTESTED: &[(&str, &str)] = &[
    (
        "SERV_SSE_",
        "this version of the validator has its tests of streams turned off",
    ),
    ("SEC_SESSION_TERMINATION_SIDE_EFFECTS", "it is about event streams"),
    ("SERV_SSDP_", "BMCs are described, not discovered"),
    (
        "REQ_DATA_MOD_ERRORS",
        "the validator sends no POST here that fails; crates/lab/tests/bmc.rs tests refusals",
    ),
    ("RESP_STATUS_INTERNAL_SERVER_ERROR", "nothing fails inside"),
    ("PROTO_REDIRECT_ENFORCES_TARGET_PRIVS", "nothing is redirected"),
    ("REQ_HEADERS_ACCEPT", "there is no OpenAPI document, which is optional"),
    (
        "RESP_HEADERS_CONTENT_TYPE",
        "there is no OpenAPI document, which is optional",
    ),
    ("REQ_QUERY_", "the root states that there are no query parameters"),
    ("SEC_DEFAULT_CERT_REPLACE", "certificates are not resources here"),
];

/// Accepted failures of the service validator, by a part of their line, with the reason.
const SERVICE_FAILURES: &[(&str, &str)] = &[];

struct Bench {
    _fleet: Fleet,
    node: SimNode,
    client: Client,
    /// The validators' programs.
    bin: PathBuf,
    dir: TempDir,
}

impl Bench {
    async fn start(profile: Profile) -> Self {
        let config = FleetConfig {
            profile,
            speed: 100_000.0,
            ..FleetConfig::default()
        };
        let fleet = Fleet::start(config).await.unwrap();
        let node = fleet.node(0);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("bmc.pem"), pem(&node)).unwrap();
        Self {
            client: Client::of_fleet(&node),
            _fleet: fleet,
            node,
            bin: environment().await,
            dir,
        }
    }

    fn certificate(&self) -> PathBuf {
        self.dir.path().join("bmc.pem")
    }

    /// Runs a program of the environment in its own folder, with the BMC's certificate as CA and without a proxy.
    async fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let output = Command::new(self.bin.join(program))
            .args(arguments)
            .current_dir(self.dir.path())
            .env("REQUESTS_CA_BUNDLE", self.certificate())
            .env_remove("CURL_CA_BUNDLE")
            .env("NO_PROXY", "*")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        tokio::time::timeout(WAIT_LIMIT, output).await.unwrap().unwrap()
    }
}

fn pem(node: &SimNode) -> String {
    use base64::Engine;
    let certificate = node.certificate().unwrap().unwrap();
    let text = base64::prelude::BASE64_STANDARD.encode(&certificate);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

async fn environment() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new(here.join("../../tests/venv.sh"))
        .arg(target.join("venv-redfish"))
        .arg(here.join("tests/redfish-requirements.txt"))
        .output();
    let made = tokio::time::timeout(WAIT_LIMIT, made).await.unwrap().unwrap();
    let words = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success(),
        "cannot make the environment of the validators: {words}"
    );
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// The file below `folder` with a name that has this ending.
fn find(folder: &Path, end: &str) -> Option<PathBuf> {
    std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            find(&path, end)
        } else {
            path.to_string_lossy().ends_with(end).then_some(path)
        }
    })
}

/// The validator may write beside its schemas, so it gets copies.
fn copy_schemas(to: &Path) {
    std::fs::create_dir(to).unwrap();
    let mut copied = 0;
    for entry in std::fs::read_dir(nv_redfish_schema::REDFISH_CSDL_DIR)
        .unwrap()
        .flatten()
    {
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        copied += 1;
    }
    assert!(copied > 200, "only {copied} schemas");
}

#[tokio::test]
async fn protocol_validator() {
    let bench = Bench::start(Profile::Instant).await;
    let (url, password, certificate) = (bench.node.url(), bench.node.password(), bench.certificate());
    let mut arguments = vec!["--rhost", &url, "-u", "admin", "-p", &password];
    let certificate = certificate.to_str().unwrap();
    arguments.extend([
        "--ca-bundle",
        certificate,
        "--report-dir",
        "reports",
        "--report-type",
        "tsv",
    ]);
    let output = bench.run("rf_protocol_validator", &arguments).await;
    let report = find(&bench.dir.path().join("reports"), ".tsv").unwrap_or_else(|| panic!("{}", text(&output)));
    let report = std::fs::read_to_string(report).unwrap();

    let (mut passed, mut faults) = (0, Vec::new());
    let mut used = Vec::new();
    for line in report.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [assertion, method, _, uri, result, message, ..] = fields[..] else {
            continue;
        };
        let excuses = match result {
            "PASS" | "WARN" => {
                passed += usize::from(result == "PASS");
                continue;
            }
            "NOT_TESTED" => PROTOCOL_UNTESTED,
            _ => PROTOCOL_FAILURES,
        };
        match excuses.iter().find(|(excused, _)| assertion.starts_with(excused)) {
            Some((excused, _)) => used.push(*excused),
            None => faults.push(format!("{result} {assertion} {method} {uri}: {message}")),
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.join("\n"), text(&output));
    // Measured: 337. Fewer mean that the validator did not get far.
    assert!(passed >= 325, "only {passed} assertions passed\n{}", text(&output));
    let all = PROTOCOL_FAILURES.iter().chain(PROTOCOL_UNTESTED);
    let idle: Vec<_> = all.filter(|(excused, _)| !used.contains(excused)).collect();
    assert!(idle.is_empty(), "excused without need: {idle:?}");
}

async fn validate_service(profile: Profile, resources: usize) {
    let bench = Bench::start(profile).await;
    bench.client.boot("Pxe", "Once").await;
    // Where resets are tasks, this creates one to validate.
    let reset = bench.client.post(RESET, json!({"ResetType": "On"})).await;
    assert!(reset.status().is_success());
    let (url, password) = (bench.node.url(), bench.node.password());
    let mut arguments = vec!["--rhost", &url, "-u", "admin", "-p", &password, "--authtype", "Session"];
    copy_schemas(&bench.dir.path().join("schemas"));
    arguments.extend(["--skipschema", "--schema_directory", "schemas", "--logdir", "logs"]);
    let output = bench.run("rf_service_validator", &arguments).await;
    let printed = text(&output);
    let log = find(&bench.dir.path().join("logs"), ".log").unwrap_or_else(|| panic!("{printed}"));
    let log = std::fs::read_to_string(log).unwrap();

    let excused = |line: &str| SERVICE_FAILURES.iter().any(|(part, _)| line.contains(part));
    let failures: Vec<&str> = log.lines().filter(|line| line.contains(" FAIL - ")).collect();
    let faults: Vec<&&str> = failures.iter().filter(|line| !excused(line)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    let counted = printed
        .lines()
        .filter(|line| line.contains("- Pass: "))
        .collect::<Vec<_>>();
    let failed = counted.iter().filter(|line| !line.contains("Fail: 0,")).count();
    assert!(
        failed <= failures.len(),
        "failures that the log does not tell:\n{printed}"
    );
    assert!(
        counted.len() >= resources,
        "only {} resources\n{printed}",
        counted.len()
    );
}

#[tokio::test]
async fn service_validator_small_machine() {
    validate_service(Profile::Instant, 27).await;
}

#[tokio::test]
async fn service_validator_large_machine() {
    validate_service(Profile::DgxH100, 80).await;
}

#[tokio::test]
async fn sushy_drives_a_power_cycle_and_a_boot_for_once() {
    for profile in [Profile::Instant, Profile::DgxH100] {
        let bench = Bench::start(profile).await;
        bench.node.set_installed(true);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sushy_client.py");
        let (url, password, certificate) = (bench.node.url(), bench.node.password(), bench.certificate());
        let arguments = [
            script.to_str().unwrap(),
            &url,
            "admin",
            &password,
            certificate.to_str().unwrap(),
        ];
        let output = bench.run("python", &arguments).await;
        assert!(output.status.success(), "{}", text(&output));
        // The one-time boot was the first one; the second came from the drive again.
        let disk = bench
            .node
            .wait_for(|view| view.phase == Phase::Up(BootSource::Disk) && view.boots == 2);
        tokio::time::timeout(LONG, disk).await.unwrap();
    }
}
