//! `rackwright login --oidc` at a real OpenID Connect provider: the npm package `oidc-provider`. curl is the person's
//! browser.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rackwright_tests::web_console::Console;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use crate::browser::TEST_LIMIT;
use crate::provider;

/// The words before the code that the page has to show.
const CODE: &str = "Allow the login only if the page shows this code: ";

/// The members' side of a control plane: its address, and the SHA-256 of its authority.
struct Members<'a> {
    console: &'a Console,
    dir: &'a Path,
    server: String,
    digest: String,
}

/// `rackwright login --oidc`, which waits for the person.
struct Login {
    program: Child,
    stderr: BufReader<ChildStderr>,
    url: String,
    code: String,
}

impl<'a> Members<'a> {
    fn of(console: &'a Console, dir: &'a Path) -> Self {
        let site = &console.plane.site;
        let made = site.json(["token", "create", "someone", "--role", "viewer"]);
        let config = std::fs::read_to_string(site.dir().join("cli/config.yaml")).expect("the operator's login");
        let server = config.lines().find_map(|line| line.split_once("https://"));
        let server = server.expect("a server").1.trim_matches([' ', '"', '\'']);
        Self {
            console,
            dir,
            server: format!("https://{server}"),
            digest: made["ca_sha256"].as_str().expect("a digest").to_owned(),
        }
    }

    /// The folder with the credential of a person.
    fn folder(&self, person: &str) -> PathBuf {
        self.dir.join(format!("of-{person}"))
    }

    fn command(&self, person: &str) -> std::process::Command {
        let mut command = self.console.plane.site.command();
        command.env("RACKWRIGHT_CONFIG", self.folder(person));
        command
    }

    /// Runs the CLI as a person.
    fn run(&self, person: &str, arguments: &[&str]) -> Output {
        let output = self.command(person).args(arguments).output();
        output.expect("the CLI can be started")
    }

    /// Begins the first login of a person.
    async fn begin(&self, person: &str) -> Login {
        let arguments = ["--server", &self.server, "--ca-sha256", &self.digest];
        self.begin_with(person, &arguments).await
    }

    async fn begin_with(&self, person: &str, arguments: &[&str]) -> Login {
        let mut command = self.command(person);
        command.args(["login", "--oidc"]).args(arguments);
        let mut command = Command::from(command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut program = command.spawn().expect("the CLI can be started");
        let mut stderr = BufReader::new(program.stderr.take().expect("its errors"));
        let (mut shown, mut url) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(TEST_LIMIT, stderr.read_line(&mut line));
            let bytes = read.await.expect("it says what to do").expect("text");
            assert_ne!(bytes, 0, "it ended: {shown}");
            shown += &line;
            match line.trim() {
                text if text.starts_with("http://") => text.clone_into(&mut url),
                text => {
                    if let Some(code) = text.strip_prefix(CODE) {
                        assert!(shown.contains("Open this page of the lab in any browser"), "{shown}");
                        return Login {
                            program,
                            stderr,
                            url,
                            code: code.to_owned(),
                        };
                    }
                }
            }
        }
    }
}

impl Login {
    /// The end of the program: its exit code, and its output.
    async fn end(mut self) -> (i32, String) {
        let mut text = String::new();
        let read = async {
            let mut stdout = self.program.stdout.take().expect("its output");
            stdout.read_to_string(&mut text).await.expect("text");
            self.stderr.read_to_string(&mut text).await.expect("text");
        };
        tokio::time::timeout(TEST_LIMIT, read).await.expect("it ends");
        let status = self.program.wait().await.expect("a status");
        (status.code().expect("an exit code"), text)
    }

    /// The person opens the page and confirms the code, and logs in, or aborts.
    fn decide(&self, dir: &Path, account: Option<&str>) {
        let jar = dir.join(format!("jar-{}", self.code)).display().to_string();
        let visit = |url: &str, fields: &[String]| {
            let mut curl = std::process::Command::new("curl");
            curl.args(["--silent", "--show-error", "--fail", "--location", "--max-time", "20"]);
            curl.args(["--cookie", &jar, "--cookie-jar", &jar]);
            curl.args(["--write-out", "\n%{url_effective}"]);
            for field in fields {
                curl.args(["--data-urlencode", field]);
            }
            let output = curl.arg(url).output().expect("curl runs");
            assert!(output.status.success(), "{url}: {output:?}");
            String::from_utf8(output.stdout).expect("a page")
        };
        let page = visit(&self.url, &[]);
        let (address, _) = self.url.split_once('?').expect("a page with the code filled in");
        let xsrf = |page: &str| {
            let value = page.split("name=\"xsrf\" value=\"").nth(1).expect("a form");
            format!("xsrf={}", value.split('"').next().expect("a value"))
        };
        let code = format!("user_code={}", self.code);
        let page = visit(address, &[xsrf(&page), code.clone()]);
        assert!(page.contains(&format!("<code>{}</code>", self.code)), "{page}");
        let Some(account) = account else {
            let page = visit(address, &[xsrf(&page), code, "abort=yes".into()]);
            assert!(page.contains("The Sign-in request was interrupted"), "{page}");
            return;
        };
        let page = visit(address, &[xsrf(&page), code, "confirm=yes".into()]);
        assert!(page.contains("<h1>The provider</h1>"), "{page}");
        let (_, interaction) = page.rsplit_once('\n').expect("the address of the page");
        let page = visit(interaction, &[format!("account={account}"), "do=login".into()]);
        assert!(page.contains("<h1>Sign-in Success</h1>"), "{page}");
    }
}

fn texts(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{out}{err}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_of_a_group_logs_the_cli_in_by_a_real_provider_and_others_are_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let (console, mut provider) = provider::start(dir.path(), "device_login: true, ").await;
    let members = Members::of(&console, dir.path());
    let site = &console.plane.site;

    let (ann, uma, operator, cancelled) = tokio::join!(
        members.begin("ann"),
        members.begin("uma"),
        members.begin("operator"),
        members.begin("cancelled"),
    );
    ann.decide(dir.path(), Some("ann"));
    uma.decide(dir.path(), Some("uma"));
    operator.decide(dir.path(), Some("operator"));
    cancelled.decide(dir.path(), None);
    let (ended, others) = tokio::join!(ann.end(), async {
        tokio::join!(uma.end(), operator.end(), cancelled.end())
    });
    assert_eq!(ended.0, 0, "{}", ended.1);
    assert!(
        ended.1.contains("logged in as ann (operator), context default"),
        "{}",
        ended.1
    );
    for ((code, text), wanted, words) in [
        (others.0, 5, "is in no group that may log in"),
        (others.1, 4, "is a member with another login already"),
        (
            others.2,
            5,
            "the login was refused on the page of the identity provider",
        ),
    ] {
        assert!(code == wanted && text.contains(words), "{code}: {text}");
    }
    for person in ["uma", "operator", "cancelled"] {
        assert!(!members.folder(person).exists(), "{person} has no credential");
    }

    // The certificate works, for the hours of a session.
    let whoami = members.run("ann", &["whoami"]);
    let shown = texts(&whoami);
    assert!(whoami.status.success() && shown.contains("operator"), "{shown}");
    assert!(shown.contains("then run `rackwright login --oidc` again"), "{shown}");
    assert!(shown.contains("(in 11h") || shown.contains("(in 12h"), "{shown}");
    let listed = members.run("ann", &["node", "list"]);
    assert!(listed.status.success(), "{}", texts(&listed));
    let all = site.json(["member", "list"]);
    let is_ann = |one: &&Value| one["name"] == "members/ann";
    let ann = all
        .as_array()
        .expect("a list")
        .iter()
        .find(is_ann)
        .expect("ann is a member");
    assert!(
        ann["issuer"].as_str().expect("text").starts_with("http://127.0.0.1:"),
        "{all}"
    );
    let audit = site.cli(["audit", "list", "-o", "json"]);
    let is_recorded = audit.contains("AuthService/FinishDeviceLogin") && audit.contains("members/ann");
    assert!(is_recorded, "{audit}");

    // A revoked member: the certificate ends at once, and the next login needs the group only. The context knows the server.
    site.cli(["member", "revoke", "ann"]);
    let refused = members.run("ann", &["whoami"]);
    assert_eq!(refused.status.code(), Some(5), "{}", texts(&refused));
    let again = members.begin_with("ann", &[]).await;
    again.decide(dir.path(), Some("ann"));
    let (code, text) = again.end().await;
    assert_eq!(code, 0, "{text}");
    assert!(members.run("ann", &["whoami"]).status.success());

    // The provider is away: plain words, and no wait.
    provider.kill().await.expect("the provider ends");
    let away = members.run("ann", &["login", "--oidc"]);
    let text = texts(&away);
    assert!(
        !away.status.success() && text.contains("the identity provider begins no login with a device code"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_setting_no_program_logs_in_by_the_provider() {
    let dir = tempfile::tempdir().expect("a folder");
    let oidc =
        ", oidc: {issuer: \"http://127.0.0.1:9\", client_id: rackwright, members: [{group: ops, role: operator}]}";
    let console = Console::start(dir.path(), oidc).await;
    let members = Members::of(&console, dir.path());
    let arguments = [
        "login",
        "--oidc",
        "--server",
        &members.server,
        "--ca-sha256",
        &members.digest,
    ];
    let refused = members.run("ann", &arguments);
    let text = texts(&refused);
    assert_eq!(refused.status.code(), Some(4), "{text}");
    assert!(
        text.contains("this control plane has no logins with a device code")
            && text.contains("web.oidc.device_login: true"),
        "{text}"
    );
}
