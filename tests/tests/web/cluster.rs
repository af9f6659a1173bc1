//! A cluster from the order to the release in the browser, on a fabric that ibsim plays and a real OpenSM manages: an
//! operator orders it for a customer, and the customer's admin follows it, uses a console and releases it.

use std::path::Path;

use rackwright_site::model::Redundancy;
use rackwright_tests::fabric::{Lab, folder};
use rackwright_tests::hall::{Ports, config, describe, enrolment, image, read, simulate};
use rackwright_tests::site::Site;
use rackwright_tests::web_console::join;
use thirtyfour::By;
use tokio::process::Child;

use crate::browser::{Browser, wait_for};

/// Machines of the hall: one unit of the fabric.
const NODES: usize = 32;
const CUSTOMERS: [(&str, Redundancy, bool); 2] = [
    ("acme", Redundancy::FeedLoss, true),
    ("bolt-secret", Redundancy::FeedLoss, true),
];
/// Seconds of the machines' time per real second.
const SPEED: u32 = 40;

struct Hall {
    lab: Lab,
    simulator: Child,
    site: Site,
    /// The address of the web console.
    url: String,
}

impl Hall {
    async fn start(dir: &Path) -> Self {
        let text = describe(NODES, &CUSTOMERS);
        let model = read(&text);
        let lab = Lab::of_site(&model).await;
        let ports = Ports::find();
        let (simulator, machines) = simulate(dir, &ports, NODES, SPEED, &[]).await;
        let path = |name: &str| dir.join(name).display().to_string();
        std::fs::write(path("site.yaml"), &text).expect("the site file");
        std::fs::write(path("nodes.yaml"), enrolment(model.nodes.iter(), &machines)).expect("the nodes");
        std::fs::write(path("image.raw"), image(13)).expect("an image");
        let site = Site::start_with(dir, &config(dir, &ports, &lab, "check_s: 5")).await;
        site.cli(["site", "apply", &path("site.yaml"), "--yes", "--quiet"]);
        site.cli(["apply", "-f", &path("nodes.yaml"), "--wait", "--quiet"]);
        let file = path("image.raw");
        site.cli(["image", "add", "ubuntu", "--file", &file, "--format", "raw", "--quiet"]);
        Self {
            lab,
            simulator,
            site,
            url: format!("https://127.0.0.1:{}", ports.web),
        }
    }

    async fn stop(mut self) {
        self.site.stop().await;
        self.simulator.kill().await.expect("the simulator ends");
        self.lab.stop().await;
    }
}

/// The operator plans and orders the cluster.
async fn order(browser: &Browser) {
    browser
        .open("/clusters/new?name=alpha&customer=acme&sku=dgx-h100&nodes=4")
        .await;
    browser.click("Plan").await;
    browser.shows(By::Css("main"), "would be reserved").await;
    browser.is_accessible("a plan").await;
    let images = "//label[normalize-space()='Image']/following-sibling::select";
    browser.choose(By::XPath(images), "ubuntu").await;
    browser.click("Create the cluster").await;
    browser.shows(By::Css("dialog"), "4 nodes").await;
    browser.click("Create alpha").await;
    browser.shows(By::Css("main"), "Cluster alpha is ordered").await;
    browser.reported_no_error("the order").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_ordered_followed_used_and_released() {
    let dir = folder();
    let hall = Hall::start(dir.path()).await;
    let (site, browser) = (&hall.site, Browser::start(&hall.url).await);
    browser.log_in(site, &site.dir().join("cli"), "").await;
    order(&browser).await;

    let adam = join(site, "adam@acme", &["--role", "customer-admin", "--customer", "acme"]);
    browser.log_in(site, &adam, "operator").await;
    browser.open("/clusters/alpha").await;
    browser.shows(By::Css("h1"), "alpha").await;
    site.cli(["cluster", "watch", "alpha"]);
    // The page follows without a reload.
    browser.shows(By::Css("main"), "ready").await;
    let source = browser.driver.source().await.expect("the page");
    assert!(!source.contains("bolt-secret"), "of another customer: {source}");
    browser.is_accessible("a cluster").await;
    browser.reported_no_error("a cluster").await;

    let cluster = site.json(["cluster", "get", "alpha"]);
    let members = cluster["status"]["members"].as_array().expect("members");
    assert_eq!(members.len(), 4, "{cluster}");
    let node = members[0]["node"].as_str().expect("a node");
    browser.open(&format!("/{node}?tab=console")).await;
    browser.shows(By::Css(".console-line"), "Connected: you watch").await;
    browser.click("Type here").await;
    browser.shows(By::Css(".console-line"), "Connected: you type").await;
    browser.reported_no_error("the console of a node").await;

    browser.open("/clusters/alpha").await;
    browser.click("Release").await;
    let typed = browser.driver.find(By::Css("dialog input[type=text]")).await;
    let typed = typed.expect("a field for the name");
    typed.send_keys("alpha").await.expect("the name is typed");
    browser.click("Release alpha").await;
    browser.shows(By::Css("main"), "releasing").await;
    wait_for(site, "release-cluster", "clusters/alpha");
    browser.shows(By::Css("main"), "released").await;
    browser.reported_no_error("the release").await;
    browser.end().await;
    hall.stop().await;
}
