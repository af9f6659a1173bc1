//! The web console in headless Chromium, driven by WebDriver: an operator deploys a machine, and members see what they may.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rackwright_bench::chromium::capabilities;
use rackwright_sim::fleet::{Fleet, FleetConfig};
use rackwright_sim::install_crypto;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::Site;
use rackwright_tests::web_console::Console;
use thirtyfour::common::log::LoggingPrefsLogLevel;
use thirtyfour::extensions::query::ElementQueryable as _;
use thirtyfour::{By, ChromiumLikeCapabilities as _, WebDriver};
use tokio::process::{Child, Command};

/// Generous: browser and control plane share the computer with other tests.
pub const TEST_LIMIT: Duration = Duration::from_secs(120);
const NODES: usize = 4;
/// The serious violations of a page, each with the first places.
const AXE: &str = r"
    const done = arguments[arguments.length - 1];
    const places = (nodes) => nodes.slice(0, 3).map(({ html }) => html.slice(0, 200)).join(' ');
    axe.run(document, { resultTypes: ['violations'] }).then(
        ({ violations }) => done(
            violations
                .filter(({ impact }) => impact === 'serious' || impact === 'critical')
                .map(({ id, help, nodes }) => `${id}, ${help}: ${places(nodes)}`),
        ),
        (error) => done([`axe-core failed: ${error}`]),
    );
";

/// A browser, and the program that drives it.
pub struct Browser {
    pub driver: WebDriver,
    console: String,
    program: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// A browser for the console with this address.
    pub async fn start(console: &str) -> Self {
        // The driver's HTTP client asks for it, although it uses no TLS here.
        install_crypto();
        let port = free_port();
        let mut command = Command::new("chromedriver");
        command
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let program = command.kill_on_drop(true).spawn().expect("chromedriver can be started");
        let profile = tempfile::tempdir().expect("a folder");
        let mut wanted = capabilities(profile.path()).expect("capabilities");
        wanted
            .set_browser_log_level(LoggingPrefsLogLevel::All)
            .expect("a capability");
        let url = format!("http://127.0.0.1:{port}");
        let connect = async {
            loop {
                match WebDriver::new(&url, wanted.clone()).await {
                    Ok(driver) => return driver,
                    // chromedriver does not listen yet.
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        Self {
            driver: tokio::time::timeout(TEST_LIMIT, connect)
                .await
                .expect("the browser starts"),
            console: console.to_owned(),
            program,
            _profile: profile,
        }
    }

    /// Opens the address that `rackwright console open` prints for a member; `present` is logged in before.
    pub async fn log_in(&self, site: &Site, config: &Path, present: &str) {
        let mut command = site.command();
        command
            .env("RACKWRIGHT_CONFIG", config)
            .args(["console", "open", "--print", "-o", "name"]);
        let output = command.output().expect("the CLI can be started");
        assert!(output.status.success(), "{output:?}");
        let url = String::from_utf8(output.stdout).expect("an address");
        self.driver.goto(url.trim()).await.expect("the page opens");
        if !present.is_empty() {
            self.shows(By::Css("main"), &format!("logged in as {present}")).await;
            self.click("Log in").await;
        }
        self.shows(By::Css(".shell nav"), "").await;
        let address = self.driver.current_url().await.expect("an address");
        assert!(
            address.fragment().is_none(),
            "the token stays in the address: {address}"
        );
    }

    pub async fn open(&self, path: &str) {
        let url = format!("{}{path}", self.console);
        self.driver.goto(&url).await.expect("the page opens");
    }

    /// Waits for an element with this text.
    pub async fn shows(&self, by: By, text: &str) {
        let wanted = text.to_owned();
        let query = self
            .driver
            .query(by.clone())
            .wait(TEST_LIMIT, Duration::from_millis(100));
        let found = query.with_filter(move |element: thirtyfour::WebElement| {
            let wanted = wanted.clone();
            async move { Ok(element.text().await.unwrap_or_default().contains(&wanted)) }
        });
        if found.first().await.is_err() {
            panic!("no {by:?} with {text:?} in: {}", self.text().await);
        }
    }

    /// Clicks the button or link with exactly this text.
    pub async fn click(&self, text: &str) {
        let path = format!("//button[normalize-space()='{text}'] | //a[normalize-space()='{text}']");
        let query = self
            .driver
            .query(By::XPath(path))
            .wait(TEST_LIMIT, Duration::from_millis(100));
        let element = query.and_clickable().first().await;
        let element = match element {
            Ok(element) => element,
            Err(error) => panic!("no button {text:?} ({error}) in: {}", self.text().await),
        };
        element.click().await.expect("a click");
    }

    pub async fn text(&self) -> String {
        let body = self.driver.find(By::Tag("body")).await.expect("a page");
        body.text().await.expect("its text")
    }

    /// The paths of the navigation.
    async fn navigation(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for link in self.driver.find_all(By::Css(".shell nav a")).await.expect("links") {
            paths.extend(link.attr("href").await.expect("an attribute"));
        }
        paths.sort();
        paths.dedup();
        paths
    }

    /// Opens each page of the navigation. The browser reports no error, and no page shows a text of `absent`.
    async fn visits_each_page(&self, absent: &[&str]) -> Vec<String> {
        let paths = self.navigation().await;
        for path in &paths {
            self.open(path).await;
            self.shows(By::Css("h1"), "").await;
            // A page that still loads says so.
            let loaded = async {
                while self.text().await.contains("Loading") {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(TEST_LIMIT, loaded).await.expect("the page loads");
            let (text, source) = (self.text().await, self.driver.source().await.expect("the page"));
            for word in absent {
                assert!(!source.contains(word), "{path} has {word:?}");
            }
            assert!(
                !text.contains("_UNSPECIFIED") && !text.contains("undefined"),
                "{path}: {text}"
            );
            self.reported_no_error(path).await;
            self.is_accessible(path).await;
        }
        paths
    }

    /// The audit has the login of this browser, and its filters choose records.
    async fn reads_the_audit(&self) {
        let table = || By::Css("main table");
        self.open("/audit").await;
        self.shows(table(), "SessionService/OpenSession").await;
        self.open("/audit?method=ImageService/&caller=members/operator").await;
        self.shows(table(), "ImageService/").await;
        let text = self.text().await;
        assert!(!text.contains("SessionService/"), "{text}");
        self.shows(By::Css("main"), "rackwright audit list --caller members/operator")
            .await;
        self.open("/audit?days=1&outcome=failed&target=nodes/none").await;
        self.shows(By::Css("main"), "No record matches").await;
        self.reported_no_error("the audit").await;
    }

    /// axe-core finds no serious or critical violation of the WCAG rules in the page that is open.
    pub async fn is_accessible(&self, place: &str) {
        let found = self.violations().await;
        assert!(found.is_empty(), "{place}:\n{}", found.join("\n"));
    }

    /// The serious and critical violations that axe-core finds in the page that is open.
    async fn violations(&self) -> Vec<String> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/web/ui/node_modules/axe-core/axe.min.js");
        let axe = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}; `make web` installs axe-core", file.display()));
        self.driver.execute(axe, Vec::new()).await.expect("axe-core loads");
        let found = self.driver.execute_async(AXE, Vec::new()).await.expect("axe-core runs");
        found.convert().expect("a list of violations")
    }

    pub async fn reported_no_error(&self, place: &str) {
        let log = self.driver.browser_log().await.expect("the browser's log");
        let errors: Vec<&str> = log
            .iter()
            .filter(|entry| entry.level == "SEVERE")
            // The login page asks who is logged in.
            .filter(|entry| !entry.message.contains("AuthService/WhoAmI"))
            .map(|entry| entry.message.as_str())
            .collect();
        assert!(errors.is_empty(), "{place}: {errors:?}");
    }

    /// Chooses an image in the open dialog.
    async fn choose_image(&self, image: &str) {
        self.choose(By::Css("dialog select"), image).await;
    }

    /// Chooses an entry of a list by a part of its words, once the list has it.
    pub async fn choose(&self, list: By, words: &str) {
        let words = words.to_owned();
        self.shows(list.clone(), &words).await;
        let query = self.driver.query(list);
        let choice = query.wait(TEST_LIMIT, Duration::from_millis(100)).first().await;
        let choice = choice.expect("a list to choose from");
        let select = thirtyfour::components::SelectElement::new(&choice).await;
        let select = select.expect("a list");
        select.select_by_partial_text(&words).await.expect("an entry");
    }

    /// Types the name of the node, the last field of the open dialog, and confirms.
    async fn confirm(&self, verb: &str, node: &str) {
        let fields = self.driver.find_all(By::Css("dialog input[type=text]")).await;
        let fields = fields.expect("the fields of the dialog");
        let field = fields.last().expect("a field for the name");
        field.send_keys(node).await.expect("the name is typed");
        self.click(&format!("{verb} {node}")).await;
        self.shows(By::Css("dialog"), "Accepted for 1 node").await;
        self.click("Close").await;
    }

    pub async fn end(mut self) {
        self.driver.quit().await.expect("the browser ends");
        self.program.kill().await.expect("chromedriver ends");
    }
}

/// A control plane with a site, the customers acme and bolt, and machines in the pool.
async fn hall(dir: &Path) -> (Console, Fleet) {
    let ssh = free_port();
    let console = Console::start_with(dir, "", &format!("ssh_port: {ssh}\n")).await;
    let site = &console.plane.site;
    let generated = site.cli(["site", "generate", "--sku", "dgx-h100", "--nodes", "4"]);
    let file = dir.join("site.yaml");
    let text = format!("{generated}---\ncustomers: [{{name: acme}}, {{name: bolt-secret}}]\n");
    std::fs::write(&file, text).expect("the site file");
    site.cli(["site", "apply", &file.display().to_string(), "--yes"]);
    let config = FleetConfig {
        nodes: NODES,
        boot_server: Some(console.plane.dhcp),
        tftp_port: console.plane.tftp_port,
        ssh_listen: Some(std::net::SocketAddrV4::new([0, 0, 0, 0].into(), ssh)),
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.expect("the fleet starts");
    console.plane.enrol(&fleet, |_| "lab".to_owned()).await;
    let image = dir.join("disk.raw");
    std::fs::write(&image, vec![7; 1 << 20]).expect("an image");
    let image = image.display().to_string();
    site.cli(["image", "add", "disk", "--file", &image, "--format", "raw"]);
    (console, fleet)
}

/// Waits for the newest operation of a kind on a node or cluster.
pub fn wait_for(site: &Site, kind: &str, target: &str) {
    let filter = format!("target = {target} AND kind = {kind}");
    let operations = site.json(["operation", "list", "--filter", &filter]);
    let name = operations[0]["name"].as_str().expect("an operation");
    let id = name.trim_start_matches("operations/");
    site.cli(["operation", "wait", id, "--timeout", "2m"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_visits_each_page_and_deploys_a_machine() {
    let dir = tempfile::tempdir().expect("a folder");
    let (console, fleet) = hall(dir.path()).await;
    let site = &console.plane.site;
    let browser = Browser::start(&console.url).await;

    // Without a login there is only the login page.
    browser.open("/nodes").await;
    browser.shows(By::Css("body"), "rackwright console open").await;
    browser.is_accessible("the login page").await;
    let wordless = "document.body.append(document.createElement('button'))";
    browser
        .driver
        .execute(wordless, Vec::new())
        .await
        .expect("a button without a name");
    assert_eq!(browser.violations().await.len(), 1, "axe-core finds what is wrong");
    browser.driver.browser_log().await.expect("the refused call");
    browser.log_in(site, &site.dir().join("cli"), "").await;
    browser.open("/").await;
    browser.shows(By::Css("main"), &format!("{NODES} nodes")).await;
    let pages = browser.visits_each_page(&[]).await;
    for page in ["/", "/nodes", "/clusters", "/images", "/members", "/audit"] {
        assert!(pages.iter().any(|path| path == page), "no {page} in {pages:?}");
    }
    browser.reads_the_audit().await;

    let node = fleet.node(0).name();
    browser.open(&format!("/nodes/{node}")).await;
    browser.shows(By::Css("main"), "available").await;
    browser.is_accessible("the page of a node").await;
    browser.click("Deploy").await;
    browser.choose_image("disk").await;
    browser.is_accessible("the dialog of a deploy").await;
    browser.click(&format!("Deploy {node}")).await;
    site.until(&node, &["active"], TEST_LIMIT).await;
    // The page follows without a reload.
    browser.click("Close").await;
    browser.shows(By::Css("main"), "active").await;
    browser.reported_no_error("the deploy").await;

    // The terminal is a file of its own, and its line is a WebSocket.
    browser.open(&format!("/nodes/{node}?tab=console")).await;
    browser.shows(By::Css(".console-line"), "Connected: you watch").await;
    browser.is_accessible("a console").await;
    browser.click("Type here").await;
    browser.shows(By::Css(".console-line"), "Connected: you type").await;
    browser.reported_no_error("a console").await;
    browser.open(&format!("/nodes/{node}")).await;

    // What destroys data wants the name typed.
    browser.click("Reimage").await;
    browser.choose_image("disk").await;
    browser.confirm("Reimage", &node).await;
    wait_for(site, "reimage", &format!("nodes/{node}"));
    browser.shows(By::Css("main"), "active").await;
    browser.click("Release").await;
    browser.confirm("Release", &node).await;
    wait_for(site, "release", &format!("nodes/{node}"));
    browser.shows(By::Css("main"), "available").await;
    browser.reported_no_error("the release").await;

    // The end of the session is said at once.
    let sessions = site.json(["session", "list"]);
    let id = sessions[0]["name"]
        .as_str()
        .expect("a session")
        .trim_start_matches("sessions/");
    site.cli(["session", "end", id]);
    browser.shows(By::Css("body"), "rackwright console open").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_customer_sees_its_own_and_nothing_of_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let (console, fleet) = hall(dir.path()).await;
    let site = &console.plane.site;
    let (own, foreign) = (fleet.node(0).name(), fleet.node(1).name());
    for (node, customer) in [(&own, "acme"), (&foreign, "bolt-secret")] {
        site.cli(["node", "deploy", node, "--image", "disk", "--customer", customer]);
        site.until(node, &["active"], TEST_LIMIT).await;
    }
    let browser = Browser::start(&console.url).await;
    let mut present = "";
    for (member, role) in [("adam@acme", "customer-admin"), ("uma@acme", "customer-user")] {
        let home = console.join(member, &["--role", role, "--customer", "acme"]);
        browser.log_in(site, &home, present).await;
        present = member;
        browser.open("/").await;
        browser.shows(By::Css("main"), &own).await;
        let pages = browser.visits_each_page(&["bolt-secret", &foreign]).await;
        let is_of_site = |path: &String| path == "/discovery" || path == "/audit";
        assert!(!pages.iter().any(is_of_site), "{pages:?}");
        browser.open(&format!("/nodes/{foreign}")).await;
        browser.shows(By::Css("main"), "does not exist").await;
        browser.driver.browser_log().await.expect("the refused call");
        browser.open(&format!("/nodes/{own}")).await;
        browser.shows(By::Css("main"), "active").await;
        browser.reported_no_error(&own).await;
    }
    browser.end().await;
}
