//! A real `rackwrightd` finds BMCs: simulated machines, recordings, a `sushy-emulator`, and listeners that are not BMCs.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

#[path = "discovery/emulator.rs"]
mod emulator;
#[path = "discovery/machines.rs"]
mod machines;
#[path = "discovery/network.rs"]
mod network;
#[path = "discovery/recorded.rs"]
mod recorded;
#[path = "discovery/strangers.rs"]
mod strangers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rackwright_tests::ports::free_port;
use rackwright_tests::site::{POLL, Site, texts};
use serde_json::Value;

/// Generous: the control plane shares the computer with other tests.
const TEST_LIMIT: Duration = Duration::from_secs(120);

/// A control plane on the loopback interface, without boot services.
async fn plane(dir: &Path, listens: &str, discovery: &str) -> Site {
    let [api, store] = [free_port(), free_port()];
    let config = format!(
        "data_dir: {0}/data\napi: {{listen: \"{listens}:{api}\", names: [\"{listens}\"]}}\n\
         store: {{listen: \"{listens}:{store}\"}}\n\
         power_watch: {{interval_s: 3600}}\ndiscovery: {{{discovery}}}\n",
        dir.display()
    );
    Site::start_with(dir, &config).await
}

/// Begins a discovery; returns its id.
fn start(site: &Site, arguments: &[&str]) -> String {
    let started = site.json([&["discover", "start"], arguments].concat());
    let name = started["name"].as_str().unwrap();
    assert_eq!(started["target"], name.replace("operations", "discoveries"));
    name.trim_start_matches("operations/").to_owned()
}

fn discovery(site: &Site, id: &str) -> Value {
    let all = site.json(["discover", "list"]);
    let wanted = format!("discoveries/{id}");
    let mut all = all.as_array().unwrap().iter();
    all.find(|one| one["name"] == wanted.as_str()).unwrap().clone()
}

/// Waits for the end of a discovery, and returns its report.
async fn ended(site: &Site, id: &str) -> Value {
    let output = site.try_cli(["operation", "wait", id, "--timeout", "120s"]);
    let now = discovery(site, id);
    assert_eq!(now["phase"], "done", "{now}\n{:?}\n{}", texts(&output), site.log_tail());
    now
}

fn findings(site: &Site, id: &str) -> Vec<Value> {
    site.json(["discover", "show", id]).as_array().unwrap().clone()
}

/// State and reason of the finding at an address.
fn found<'a>(findings: &'a [Value], address: &str) -> (&'a str, &'a str) {
    let one = findings.iter().find(|one| one["address"] == address);
    let one = one.unwrap_or_else(|| panic!("nothing was found at {address}: {findings:#?}"));
    (one["state"].as_str().unwrap(), one["reason"].as_str().unwrap())
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Waits until a condition holds.
async fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_long(what, TEST_LIMIT, is_so).await;
}

async fn until_long(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        tokio::time::sleep(POLL).await;
    }
}
