//! A control plane with a web console, and curl as its browser.

use std::path::Path;
use std::process::Command;

use crate::plane::Plane;
use crate::ports::free_port;

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
        let port = free_port();
        let web = format!("web: {{listen: \"127.0.0.1:{port}\"{further}}}\n");
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
        assert!(output.status.success(), "{}", text(&output.stderr));
        let out = text(&output.stdout);
        let (body, status) = out.rsplit_once('\n').expect("a status");
        (status.to_owned(), body.to_owned())
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

/// A header of requests that a page of the console sends.
pub const OWN_PAGE: [&str; 2] = ["--header", "Sec-Fetch-Site: same-origin"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
