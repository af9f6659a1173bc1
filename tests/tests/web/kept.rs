//! `make demo KEEP=1`: the address that it prints answers outside of the lab's namespace, and its login works there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rackwright_lab::{self as lab, Entered, Namespace, Reentry};
use rackwright_tests::outside;
use rackwright_tests::site::{POLL, Site};

const TEST_LIMIT: Duration = Duration::from_secs(240);
const CONSOLE: &str = "127.0.0.1:7080";
/// The file that the outside leaves after its login.
const ANSWERED: &str = "answered";

/// The file in which the inside leaves its login for the outside.
fn login(folder: &Path) -> PathBuf {
    folder.join("login")
}

/// A login by curl, as a browser's, with what the inside printed. Returns the status.
fn log_in_from_outside(folder: &Path) -> String {
    let deadline = Instant::now() + TEST_LIMIT;
    while !login(folder).is_file() {
        assert!(Instant::now() < deadline, "the inside printed no login");
        thread::sleep(POLL);
    }
    let printed = std::fs::read_to_string(login(folder)).expect("the login");
    let (page, token) = printed.trim().split_once('#').expect("an address with a token");
    let authority = folder.join("site/cli/default.ca.pem");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "60", "--output", "/dev/null"]);
    curl.args(["--write-out", "%{http_code}", "--header", "Sec-Fetch-Site: same-origin"]);
    curl.arg("--cacert").arg(authority);
    curl.args(["--json", &format!("{{\"token\": \"{token}\"}}")]);
    let output = curl
        .arg(page.replace("/login", "/auth/login"))
        .output()
        .expect("curl runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{page}: {errors}");
    std::fs::write(folder.join(ANSWERED), "").expect("a file");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A control plane in the namespace, until the outside has logged in.
async fn inside(namespace: Namespace) {
    let folder = namespace.state_dir().to_owned();
    let dir = folder.join("site");
    let url = outside::public_url(&folder).expect("an address outside");
    let config = format!(
        "data_dir: {}/data\napi: {{listen: \"127.0.0.1:7070\", names: [\"127.0.0.1\", localhost]}}\n\
         store: {{listen: \"127.0.0.1:7071\"}}\nweb: {{listen: \"{CONSOLE}\", public_url: \"{url}\"}}\n",
        dir.display()
    );
    let site = Site::start_with(&dir, &config).await;
    let served = tokio::spawn({
        let folder = folder.clone();
        async move { outside::serve(&folder, CONSOLE.parse().expect("an address")).await }
    });
    let made = site.json(["console", "open", "--print"]);
    let printed = made["url"].as_str().expect("an address");
    assert!(printed.starts_with(&url), "{printed} is not at {url}");
    // The whole file appears at once.
    let unfinished = folder.join("login.part");
    std::fs::write(&unfinished, printed).expect("a file");
    std::fs::rename(unfinished, login(&folder)).expect("a file");
    let answered = async {
        while !folder.join(ANSWERED).is_file() {
            tokio::time::sleep(POLL).await;
        }
    };
    let done = tokio::time::timeout(TEST_LIMIT, answered).await;
    assert!(!served.is_finished(), "the way into the namespace has ended");
    done.expect("nothing outside had an answer");
    let sessions = site.json(["session", "list"]);
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions}");
    site.stop().await;
}

#[test]
fn the_printed_login_works_outside_of_the_namespace() {
    let mut checking: Option<JoinHandle<String>> = None;
    let name = "kept::the_printed_login_works_outside_of_the_namespace";
    let entered = lab::enter_with(Reentry::Test(name), |folder| {
        outside::offer(folder)?;
        let folder = folder.to_owned();
        checking = Some(thread::spawn(move || log_in_from_outside(&folder)));
        Ok(())
    });
    match entered.expect("the lab starts") {
        Entered::Inside(namespace) => {
            lab::install_crypto();
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build();
            runtime.expect("an async runtime").block_on(inside(namespace));
        }
        Entered::Outside(outcome) => {
            assert!(
                outcome.entered && outcome.status.success(),
                "the inside failed, see above"
            );
            let status = checking.expect("a check outside").join().expect("the check ends");
            assert_eq!(status, "204");
        }
    }
}
