//! A `rackwrightd` for one test, on loopback, and its operator.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use rackwright_tests::ports::free_port;
use rackwright_tests::process;
use rackwright_tests::site::program;
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

pub struct Daemon {
    dir: TempDir,
    api: String,
    images: String,
    child: Child,
}

fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

impl Daemon {
    /// Starts with these further settings. Its first operator has logged in.
    pub async fn start(further: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let (api, images) = (free_address(), free_address());
        let text = format!(
            "data_dir: {}\nsite: traced\napi: {{listen: \"{api}\", names: [127.0.0.1]}}\nstore: {{listen: \"{images}\"}}\n{further}",
            dir.path().join("data").display(),
        );
        fs::create_dir_all(dir.path().join("data")).expect("a folder");
        let config = dir.path().join("rackwrightd.yaml");
        fs::write(&config, text).expect("settings can be written");
        let ready = dir.path().join("ready");
        let log = |name| Stdio::from(File::create(dir.path().join(name)).expect("a log"));
        let mut child = Command::new(program("rackwrightd"))
            .args(["serve", "--config"])
            .arg(&config)
            .arg("--ready-file")
            .arg(&ready)
            .stdin(Stdio::null())
            .stdout(log("out"))
            .stderr(log("log"))
            .spawn()
            .expect("rackwrightd can be started");
        while !ready.is_file() {
            let ended = child.try_wait().expect("it is ours");
            assert!(
                ended.is_none(),
                "{ended:?}: {}",
                fs::read_to_string(dir.path().join("log")).unwrap_or_default()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let daemon = Self {
            dir,
            api,
            images,
            child,
        };
        daemon.login();
        daemon
    }

    fn login(&self) {
        let printed = fs::read_to_string(self.dir.path().join("out")).expect("it has printed its invitation");
        let after = |flag: &str| {
            let rest = printed
                .split(flag)
                .nth(1)
                .unwrap_or_else(|| panic!("no {flag} in:\n{printed}"));
            rest.split_whitespace().next().expect("a value follows").to_owned()
        };
        let mut command = Command::new(program("rackwright"));
        command.env("RACKWRIGHT_CONFIG", self.dir.path().join("login"));
        command.args(["login", "--server", &format!("https://{}", self.api)]);
        command.args(["--ca-sha256", &after("--ca-sha256 "), "--token", &after("--token ")]);
        let output = command.output().expect("the CLI can be started");
        assert!(output.status.success(), "{output:?}");
    }

    /// The operator's certificate with its key, or the certificate authority that the operator trusts.
    fn file(&self, is_authority: bool) -> PathBuf {
        let files = fs::read_dir(self.dir.path().join("login"))
            .expect("a member has logged in")
            .flatten();
        let mut names = files.map(|file| file.path());
        let path = names.find(|path| {
            let name = path.to_string_lossy();
            name.ends_with(".pem") && name.ends_with(".ca.pem") == is_authority
        });
        path.expect("the login left it")
    }

    fn pem(&self, is_authority: bool) -> String {
        fs::read_to_string(self.file(is_authority)).expect("it is text")
    }

    fn connect(&self, tls: ClientTlsConfig) -> Channel {
        let endpoint = Endpoint::from_shared(format!("https://{}", self.api)).expect("a URL");
        let tls = tls.ca_certificate(Certificate::from_pem(self.pem(true)));
        endpoint.tls_config(tls).expect("the files are PEM").connect_lazy()
    }

    pub fn operator(&self) -> Channel {
        let pem = self.pem(false);
        self.connect(ClientTlsConfig::new().identity(Identity::from_pem(&pem, &pem)))
    }

    pub fn stranger(&self) -> Channel {
        self.connect(ClientTlsConfig::new())
    }

    /// Its current Prometheus metrics.
    pub fn metrics(&self) -> String {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail", "--cacert"]).arg(self.file(true));
        curl.arg("--cert")
            .arg(self.file(false))
            .arg("--key")
            .arg(self.file(false));
        let output = curl
            .arg(format!("https://{}/metrics", self.images))
            .output()
            .expect("curl runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("metrics are text")
    }

    /// Requests its end, and waits for it.
    pub fn stop(mut self) {
        process::signal(self.child.id(), Signal::SIGTERM);
        assert!(self.child.wait().expect("it is ours").success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
