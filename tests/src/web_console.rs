//! A control plane with a web console, and curl as its browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::plane::Plane;
use crate::ports::free_port;
use crate::site::Site;

/// A control plane with a web console.
#[derive(Debug)]
pub struct Console {
    /// The control plane.
    pub plane: Plane,
    /// The address of the web console.
    pub url: String,
}

impl Console {
    /// Starts a control plane with its data below `dir`, and with further settings of the web console: `, field: value`.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(dir: &Path, further: &str) -> Self {
        Self::start_with(dir, further, "").await
    }

    /// The same, with further lines of the control plane's settings.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_with(dir: &Path, further: &str, settings: &str) -> Self {
        let port = free_port();
        let web = format!("web: {{listen: \"127.0.0.1:{port}\"{further}}}\n{settings}");
        Self {
            plane: Plane::start_with(dir, "pxe", &web).await,
            url: format!("https://127.0.0.1:{port}"),
        }
    }

    /// The file with the site's authority.
    #[must_use]
    pub fn authority(&self) -> String {
        let path = self.plane.site.dir().join("cli/default.ca.pem");
        path.display().to_string()
    }

    /// A request by curl: status with the version of HTTP, and body.
    ///
    /// # Panics
    /// If there is no answer.
    #[must_use]
    pub fn curl(&self, arguments: &[&str], path: &str) -> (String, String) {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--cacert",
            &self.authority(),
        ]);
        curl.args(["--write-out", "\n%{http_code} %{http_version}"])
            .args(arguments);
        let output = curl.arg(format!("{}{path}", self.url)).output().expect("curl runs");
        let out = text(&output.stdout);
        let (body, status) = out.rsplit_once('\n').expect("a status");
        assert!(output.status.success(), "{}", text(&output.stderr));
        (status.to_owned(), body.to_owned())
    }

    /// Invites a member and logs in as the member by the CLI; returns the folder of the member's credential.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn join(&self, name: &str, role: &[&str]) -> PathBuf {
        join(&self.plane.site, name, role)
    }

    /// Logs the member with this CLI configuration in. Returns the file with the cookie.
    ///
    /// # Panics
    /// If the login fails.
    #[must_use]
    pub fn log_in(&self, config: &Path) -> String {
        let mut command = self.plane.site.command();
        command
            .env("RACKWRIGHT_CONFIG", config)
            .args(["console", "open", "--print", "-o", "json"]);
        let output = command.output().expect("the CLI can be started");
        let login: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a login in JSON");
        let json = format!("{{\"token\": {}}}", login["token"]);
        let jar = config.join("cookies").display().to_string();
        let post = [&OWN_PAGE[..], &["--cookie-jar", &jar, "--json", &json]].concat();
        let (status, answer) = self.curl(&post, "/auth/login");
        assert!(status.starts_with("204 "), "{status} {answer}");
        jar
    }
}

/// Invites a member of a site and logs in as the member by the CLI; returns the folder of the member's credential.
///
/// # Panics
/// If that fails.
#[must_use]
pub fn join(site: &Site, name: &str, role: &[&str]) -> PathBuf {
    let made = site.json([&["token", "create", name], role].concat());
    let config = std::fs::read_to_string(site.dir().join("cli/config.yaml")).expect("the operator's login");
    let server = config.lines().find_map(|line| line.split_once("https://"));
    let server = format!("https://{}", server.expect("a server").1.trim_matches([' ', '"', '\'']));
    let [digest, token] = ["ca_sha256", "token"].map(|field| made[field].as_str().expect("text").to_owned());
    let home = site.dir().join(name);
    let mut command = site.command();
    command.env("RACKWRIGHT_CONFIG", &home);
    let words = ["login", "--server", &server, "--ca-sha256", &digest, "--token", &token];
    let output = command.args(words).output().expect("the CLI can be started");
    assert!(output.status.success(), "{output:?}");
    home
}

/// A header of requests that a page of the console sends.
pub const OWN_PAGE: [&str; 2] = ["--header", "Sec-Fetch-Site: same-origin"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
