//! Logins in headless Chromium by a real OpenID Connect provider: the npm package `oidc-provider`.

use std::path::Path;
use std::process::Stdio;

use rackwright_tests::ports::free_port;
use rackwright_tests::web_console::{Console, OWN_PAGE};
use thirtyfour::By;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::browser::{Browser, TEST_LIMIT};

/// Accounts of the provider, with their groups.
const ACCOUNTS: &str = r#"{"ann": ["staff", "ops"], "operator": ["ops"], "uma": ["staff"]}"#;

/// A control plane with members that log in at a provider, and the provider. `further` are settings of `web.oidc`:
/// `field: value, `.
pub async fn start(dir: &Path, further: &str) -> (Console, Child) {
    let port = free_port();
    let secret = dir.join("client-secret");
    std::fs::write(&secret, "a secret of the test\n").expect("a file");
    let oidc = format!(
        ", oidc: {{{further}issuer: \"http://127.0.0.1:{port}\", client_id: rackwright, client_secret_file: {}, name: the lab, \
         members: [{{group: ops, role: operator}}]}}",
        secret.display()
    );
    let console = Console::start(dir, &oidc).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc-provider");
    assert!(
        folder.join("node_modules").is_dir(),
        "`make test-provider` installs the provider"
    );
    let mut command = Command::new("node");
    command
        .current_dir(folder)
        .arg("provider.mjs")
        .arg(port.to_string())
        .arg(format!("{}/auth/oidc/callback", console.url))
        .arg(ACCOUNTS)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut provider = command.kill_on_drop(true).spawn().expect("node can be started");
    let mut lines = BufReader::new(provider.stdout.take().expect("its output")).lines();
    let ready = async {
        while let Some(line) = lines.next_line().await.expect("a line") {
            if line.ends_with("is ready") {
                break;
            }
        }
    };
    tokio::time::timeout(TEST_LIMIT, ready)
        .await
        .expect("the provider starts");
    // The provider goes on writing.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (console, provider)
}

/// Begins a login on the console's login page, and ends it on the provider's page with a button.
async fn log_in(browser: &Browser, account: &str, button: &str) {
    browser.open("/members").await;
    browser.click("Log in with the lab").await;
    browser.shows(By::Css("h1"), "The provider").await;
    let field = browser.driver.find(By::Name("account")).await.expect("a field");
    field.send_keys(account).await.expect("a text");
    browser.click(button).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_of_a_group_logs_in_by_a_real_provider_and_others_are_told_why_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let (console, mut provider) = start(dir.path(), "").await;
    let site = &console.plane.site;
    let browser = Browser::start(&console.url).await;

    log_in(&browser, "ann", "Sign in").await;
    // The page that was asked for before.
    browser.shows(By::Css("main"), "ann (you)").await;
    let address = browser.driver.current_url().await.expect("an address");
    assert_eq!(address.as_str(), format!("{}/members", console.url));
    browser
        .driver
        .browser_log()
        .await
        .expect("the refused calls before the login");
    browser.open("/nodes").await;
    browser.shows(By::Css("h1"), "Nodes").await;
    browser.reported_no_error("/nodes").await;
    let members = site.json(["member", "list"]);
    let ann = members
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["name"] == "members/ann");
    let ann = ann.expect("ann is a member");
    assert_eq!(ann["role"], "ROLE_OPERATOR", "{members}");
    assert!(
        ann["issuer"].as_str().expect("text").starts_with("http://127.0.0.1:"),
        "{members}"
    );
    let audit = site.cli(["audit", "list", "-o", "json"]);
    assert!(
        audit.contains("SessionService/OpenSession") && audit.contains("members/ann"),
        "{audit}"
    );
    // The member has no certificate, and no invitation gives one.
    let refused = site.try_cli(["token", "create", "ann", "--role", "viewer"]);
    assert!(!refused.status.success(), "{refused:?}");

    // The end of the member ends the session.
    site.cli(["member", "revoke", "ann"]);
    browser.shows(By::Css("body"), "rackwright console open").await;
    browser.end().await;

    for (account, button, words) in [
        ("uma", "Sign in", "You are in no group that may log in here"),
        ("operator", "Sign in", "Another member of this site has your name"),
        ("ann", "Cancel", "You did not allow the login"),
    ] {
        let browser = Browser::start(&console.url).await;
        log_in(&browser, account, button).await;
        browser.shows(By::Css(".login-failure"), words).await;
        browser.end().await;
    }
    provider.kill().await.expect("the provider ends");
    let (_, answer) = console.curl(&OWN_PAGE, "/auth/methods");
    assert_eq!(answer, "{\"oidc\":{\"name\":\"the lab\"}}");
}
