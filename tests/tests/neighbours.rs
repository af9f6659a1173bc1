//! External programs beside the control plane at a site: a caching proxy, and Prometheus.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rackwright_lab::{self as lab, Firmware, Lab, LabConfig, SERVER_IPV4};
use rackwright_tests::site::{BOOT, Settings, Site, texts};
use serde_json::Value;

const TEST_LIMIT: Duration = Duration::from_secs(60);

/// A program that ends with the test.
struct Neighbour(Child);

impl Neighbour {
    fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_owned();
        let child = command.stdin(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|e| panic!("{name:?} cannot be started ({e}): `make deps` installs it")))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The member's certificate with its key, and the certificate authority that the member trusts.
fn credentials(home: &Path) -> (PathBuf, PathBuf) {
    let files: Vec<PathBuf> = std::fs::read_dir(home)
        .expect("the member has logged in")
        .flatten()
        .map(|e| e.path())
        .collect();
    let ends = |path: &Path, end: &str| path.to_string_lossy().ends_with(end);
    let find = |wanted: &dyn Fn(&Path) -> bool| files.iter().find(|p| wanted(p)).expect("the CLI keeps it").clone();
    (
        find(&|p| ends(p, ".pem") && !ends(p, ".ca.pem")),
        find(&|p| ends(p, ".ca.pem")),
    )
}

fn nginx(dir: &Path, home: &Path) -> Neighbour {
    let (identity, ca) = credentials(home);
    let (identity, ca, at) = (identity.display(), ca.display(), dir.display());
    let text = format!(
        "daemon off;\nuser root;\npid {at}/pid;\nerror_log {at}/error.log;\nevents {{}}\nhttp {{\n\
         client_body_temp_path {at}/body;\nproxy_temp_path {at}/temp;\nfastcgi_temp_path {at}/f;\n\
         uwsgi_temp_path {at}/u;\nscgi_temp_path {at}/s;\n\
         proxy_cache_path {at}/cache keys_zone=images:1m max_size=1g;\n\
         log_format cached '$upstream_cache_status $status $uri';\naccess_log {at}/access.log cached;\n\
         server {{ listen {SERVER_IPV4}:7445; location /store/v1/ {{\n\
         proxy_pass https://{SERVER_IPV4}:7443;\nproxy_ssl_certificate {identity};\n\
         proxy_ssl_certificate_key {identity};\nproxy_ssl_trusted_certificate {ca};\nproxy_ssl_verify on;\nproxy_ssl_protocols TLSv1.3;\n\
         proxy_ssl_name localhost;\nproxy_cache images;\nproxy_cache_lock on;\n}} }} }}\n"
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, text).expect("the configuration can be written");
    Neighbour::start(
        Command::new("nginx")
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg(dir.join("error.log")),
    )
}

/// The proxy's answers by source (HIT or MISS), with their number.
fn answers(dir: &Path) -> BTreeMap<String, usize> {
    let log = std::fs::read_to_string(dir.join("access.log")).expect("the proxy keeps a log");
    let mut answers = BTreeMap::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words.get(1).is_some_and(|s| s.starts_with('2')), "{line}");
        *answers.entry(words[0].to_owned()).or_default() += 1;
    }
    answers
}

async fn becomes_active(site: &Site, lab: &Lab, n: usize) {
    let id = format!("n{n}");
    site.enroll(&id, lab.machine(n));
    site.until(&id, &["available"], BOOT).await;
    site.cli(["node", "deploy", &id, "--image", "tiny"]);
    let state = site.until(&id, &["active", "failed"], BOOT).await;
    assert_eq!(state, "active", "{}\n{}", site.reason(&id), site.log_tail());
}

#[test]
fn a_caching_proxy_fetches_every_chunk_once() {
    lab::run_test("a_caching_proxy_fetches_every_chunk_once", async |namespace| {
        let settings = Settings {
            store_url: Some(format!("http://{SERVER_IPV4}:7445/store/v1")),
            caches: vec!["cache-1".into()],
            ..Settings::default()
        };
        let config = LabConfig {
            machines: 2,
            firmware: Firmware::Bios,
            ..LabConfig::default()
        };
        let lab = Lab::start(&namespace, config).await.expect("the lab starts");
        let site = Site::start(&namespace.state_dir().join("site"), &settings).await;
        let dir = namespace.state_dir().join("proxy");
        std::fs::create_dir_all(&dir).expect("the folder can be made");
        let _proxy = nginx(&dir, &site.viewer("cache-1"));
        site.add_image("tiny", "tiny.raw.zst");

        becomes_active(&site, &lab, 0).await;
        let first = answers(&dir);
        let requests: usize = first.values().sum();
        assert!(first["MISS"] > 3, "{first:?}");
        becomes_active(&site, &lab, 1).await;
        let second = answers(&dir);
        // The second machine made the same requests, and the cache answered all of them.
        let wanted = BTreeMap::from([
            ("MISS".to_owned(), first["MISS"]),
            ("HIT".to_owned(), 2 * requests - first["MISS"]),
        ]);
        assert_eq!(second, wanted);
        lab.stop().await.expect("the lab ends");
    });
}

const PROMETHEUS: &str = "http://127.0.0.1:9090";

fn prometheus(dir: &Path, home: &Path) -> Neighbour {
    let (identity, ca) = credentials(home);
    let monitoring = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring");
    let alerts = monitoring
        .canonicalize()
        .expect("the folder is there")
        .join("alerts.yaml");
    let text = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n\
         - job_name: rackwright\n  scheme: https\n  static_configs: [{{targets: [\"{SERVER_IPV4}:7443\"]}}]\n  \
         tls_config: {{ca_file: {ca}, cert_file: {identity}, key_file: {identity}}}\n",
        alerts.display(),
        ca = ca.display(),
        identity = identity.display(),
    );
    std::fs::create_dir_all(dir).expect("the folder can be made");
    let file = dir.join("prometheus.yml");
    std::fs::write(&file, text).expect("the configuration can be written");
    let log = std::fs::File::create(dir.join("log")).expect("the log can be made");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!("--storage.tsdb.path={}", dir.join("data").display()));
    command.arg("--web.listen-address=127.0.0.1:9090");
    Neighbour::start(command.stderr(log))
}

/// The answer of Prometheus' API; none if it does not answer.
fn ask(path: &str, query: Option<&str>) -> Option<Value> {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-G", &format!("{PROMETHEUS}/api/v1/{path}")]);
    if let Some(query) = query {
        curl.args(["--data-urlencode", &format!("query={query}")]);
    }
    let output = curl.output().expect("curl runs");
    serde_json::from_slice(&output.stdout).ok()
}

async fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + TEST_LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} is not there after {TEST_LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The expressions of all panels, with the dashboard's variables filled in.
fn panels() -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/monitoring/grafana.json");
    let text = std::fs::read_to_string(file).expect("the dashboard reads");
    let dashboard: Value = serde_json::from_str(&text).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels.iter().filter_map(|p| p["targets"].as_array()).flatten();
    targets
        .map(|t| t["expr"].as_str().expect("a panel has a query"))
        .map(|e| e.replace("$job", "rackwright").replace("$__rate_interval", "1m"))
        .collect()
}

#[test]
fn prometheus_reads_the_metrics_and_understands_panels_and_alerts() {
    lab::run_test(
        "prometheus_reads_the_metrics_and_understands_panels_and_alerts",
        async |namespace| {
            let lab = Lab::start(&namespace, LabConfig::default())
                .await
                .expect("the lab starts");
            let site = Site::start(&namespace.state_dir().join("site"), &Settings::default()).await;
            lab.machine(0).boot_hang(true).await.expect("the machine hangs");
            site.enroll("n1", lab.machine(0));
            site.until("n1", &["inspecting"], TEST_LIMIT).await;
            let dir = namespace.state_dir().join("prometheus");
            let credentials = site.viewer("prometheus");
            let _prometheus = prometheus(&dir, &credentials);

            let nodes = "rackwright_nodes{job=\"rackwright\",state=\"inspecting\"} == 1";
            until("the node that is inspected", || {
                let found = ask("query", Some(nodes))?;
                (found["data"]["result"].as_array()?.len() == 1).then_some(())
            })
            .await;
            for panel in panels() {
                let answer = ask("query", Some(&panel)).expect("Prometheus answers");
                assert_eq!(answer["status"], "success", "{panel}: {answer}");
            }
            let rules = until("the judgement of all alerts", || {
                let groups = ask("rules", None)?;
                let rules = groups["data"]["groups"][0]["rules"].as_array()?.clone();
                rules.iter().all(|r| r["health"] != "unknown").then_some(rules)
            })
            .await;
            assert!(rules.len() > 5, "{rules:?}");
            for rule in &rules {
                assert_eq!(rule["health"], "ok", "{rule}");
                assert_eq!(rule["state"], "inactive", "nothing is wrong here: {rule}");
            }

            // A certificate in the place of a former one is used without a restart.
            let is = |up: u8| {
                let found = ask("query", Some(&format!("up{{job=\"rackwright\"}} == {up}")))?;
                (found["data"]["result"].as_array()?.len() == 1).then_some(())
            };
            site.cli(["member", "revoke", "prometheus"]);
            until("the end of the former certificate", || is(0)).await;
            assert_eq!(
                site.viewer("prometheus"),
                credentials,
                "the same files have the new certificate"
            );
            until("a scrape with the new certificate", || is(1)).await;

            // Without a member's certificate nothing is readable.
            let url = format!("https://{SERVER_IPV4}:7443/metrics");
            let output = Command::new("curl").args(["-sk", "--fail", &url]).output();
            let output = output.expect("curl runs");
            assert!(
                !output.status.success() && output.stdout.is_empty(),
                "{:?}",
                texts(&output)
            );
            lab.stop().await.expect("the lab ends");
        },
    );
}
