//! Starts `sushy-emulator` for a test.

mod libvirt;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rackwright_redfish::{BmcClient, BmcTarget, CertificateFingerprint, ErrorKind, Settings};
use tokio::process::{Child, Command};

pub const PASSWORD: &str = "emulated-password";
/// The fake driver takes 1 to 11 s for each change of power.
pub const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// The driver behind the emulator.
#[derive(Clone, Copy, PartialEq)]
pub enum Driver {
    /// The emulator's own fake driver.
    Fake,
    /// libvirt, with its test driver.
    LibvirtTest,
}

impl Driver {
    /// Settings in addition to name and password; the settings file is a Python program.
    fn settings(self) -> &'static str {
        match self {
            Self::Fake => "",
            // The driver creates its machine anew when its last connection ends, so one connection must outlive the
            // requests.
            Self::LibvirtTest => {
                "import libvirt\nSUSHY_EMULATOR_LIBVIRT_URI = 'test:///default'\n\
                 KEPT_OPEN = libvirt.open(SUSHY_EMULATOR_LIBVIRT_URI)\n"
            }
        }
    }
}

/// A running emulator; dropping it stops the emulator.
pub struct Emulator {
    child: Child,
    port: u16,
    pub fingerprint: CertificateFingerprint,
    log: PathBuf,
    _dir: tempfile::TempDir,
}

async fn emulator_program(driver: Driver) -> PathBuf {
    if driver == Driver::Fake
        && let Some(given) = std::env::var_os("RACKWRIGHT_SUSHY")
            .map(PathBuf::from)
            .filter(|path| path.is_file())
    {
        return given;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let requirements = here.join("tests/sushy-requirements.txt");
    let made = Command::new(here.join("../../tests/venv.sh"))
        .args(match driver {
            Driver::Fake => vec![target.join("venv-sushy"), requirements],
            // PyPI's libvirt-python needs libvirt's headers and a compiler; Debian has it built.
            Driver::LibvirtTest => vec![target.join("venv-sushy-libvirt"), requirements, "libvirt".into()],
        })
        .stderr(Stdio::piped())
        .output()
        .await
        .unwrap();
    let words = String::from_utf8_lossy(&made.stderr);
    assert!(
        made.status.success(),
        "cannot make the environment of sushy-emulator: {words}"
    );
    Path::new(String::from_utf8(made.stdout).unwrap().trim()).join("sushy-emulator")
}

async fn password_hash(program: &Path) -> String {
    let python = program.with_file_name("python");
    let code = "import bcrypt, sys; print(bcrypt.hashpw(sys.argv[1].encode(), bcrypt.gensalt(4)).decode())";
    let made = Command::new(python)
        .args(["-c", code, PASSWORD])
        .output()
        .await
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

impl Emulator {
    pub async fn start(driver: Driver) -> Self {
        let program = emulator_program(driver).await;
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(file("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(file("users"), format!("admin:{}\n", password_hash(&program).await)).unwrap();
        std::fs::create_dir(file("state")).unwrap();
        let config = format!(
            "SUSHY_EMULATOR_AUTH_FILE = {:?}\nSUSHY_EMULATOR_STATE_DIR = {:?}\n{}",
            file("users").display().to_string(),
            file("state").display().to_string(),
            driver.settings()
        );
        std::fs::write(file("sushy.conf"), config).unwrap();
        let log = file("log");
        let out = std::fs::File::create(&log).unwrap();
        let port = rackwright_free_port::free_port().unwrap();
        let child = Command::new(program)
            .args((driver == Driver::Fake).then_some("--fake"))
            .args(["--interface", "127.0.0.1", "--port", &port.to_string()])
            .arg("--config")
            .arg(file("sushy.conf"))
            .arg("--ssl-certificate")
            .arg(file("cert.pem"))
            .arg("--ssl-key")
            .arg(file("key.pem"))
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let fingerprint = CertificateFingerprint::of(made.cert.der());
        Self {
            child,
            port,
            fingerprint,
            log,
            _dir: dir,
        }
    }

    pub fn target(&self, password: &str, pin: Option<CertificateFingerprint>) -> BmcTarget {
        BmcTarget {
            address: format!("https://127.0.0.1:{}", self.port),
            username: "admin".to_owned(),
            password: password.into(),
            certificate_sha256: pin,
            system: None,
        }
    }

    /// Connects when the emulator listens.
    pub async fn connect(&mut self) -> BmcClient {
        let started = Instant::now();
        loop {
            match BmcClient::connect(self.target(PASSWORD, None), Settings::default()).await {
                Ok(client) => return client,
                Err(failure) if failure.kind() == ErrorKind::Retryable && started.elapsed() < WAIT_LIMIT => {
                    let ended = self.child.try_wait().unwrap();
                    assert!(ended.is_none(), "the emulator ended: {}", self.log());
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(failure) => panic!("{failure:?}\n{}", self.log()),
            }
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub async fn stop(mut self) {
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
    }
}
