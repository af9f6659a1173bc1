//! The client against `sushy-emulator` with its fake driver: a BMC that nobody here wrote, over TLS and with a
//! password.
//!
//! `RACKWRIGHT_SUSHY` may name a `sushy-emulator` to use, with the `python` that runs it beside it. Otherwise `tests/venv.sh` makes a virtual environment below
//! the target folder, which needs `python3` with `venv` and a package index; without them this test fails.

#![allow(clippy::unwrap_used)] // helpers of tests fail loudly

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rackwright_redfish::{
    BmcClient, BmcTarget, BootMode, BootTarget, CertificateFingerprint, ErrorKind, MediaKind, Persistence, PowerChange,
    PowerGoal, PowerState, RedfishError, Settings,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

const PASSWORD: &str = "emulated-password";
/// The fake driver lets each change of power take 1 to 11 s.
const PATIENCE: Duration = Duration::from_secs(120);

struct Emulator {
    child: Child,
    port: u16,
    fingerprint: CertificateFingerprint,
    log: PathBuf,
    _dir: tempfile::TempDir,
}

async fn emulator_program() -> PathBuf {
    if let Some(given) = std::env::var_os("RACKWRIGHT_SUSHY")
        .map(PathBuf::from)
        .filter(|path| path.is_file())
    {
        return given;
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new(here.join("../../tests/venv.sh"))
        .arg(target.join("venv-sushy"))
        .arg(here.join("tests/sushy-requirements.txt"))
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
    async fn start() -> Self {
        let program = emulator_program().await;
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(file("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(file("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(file("users"), format!("admin:{}\n", password_hash(&program).await)).unwrap();
        std::fs::create_dir(file("state")).unwrap();
        let config = format!(
            "SUSHY_EMULATOR_AUTH_FILE = {:?}\nSUSHY_EMULATOR_STATE_DIR = {:?}\n",
            file("users").display().to_string(),
            file("state").display().to_string()
        );
        std::fs::write(file("sushy.conf"), config).unwrap();
        let log = file("log");
        let out = std::fs::File::create(&log).unwrap();
        // Free now; if somebody takes it in between, the emulator ends and the test says so.
        let port = TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let child = Command::new(program)
            .args(["--fake", "--interface", "127.0.0.1", "--port", &port.to_string()])
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

    fn target(&self, password: &str, pin: Option<CertificateFingerprint>) -> BmcTarget {
        BmcTarget {
            address: format!("https://127.0.0.1:{}", self.port),
            username: "admin".to_owned(),
            password: password.into(),
            certificate_sha256: pin,
            system: None,
        }
    }

    /// Connects as soon as the emulator listens.
    async fn connect(&mut self) -> BmcClient {
        let started = Instant::now();
        loop {
            match BmcClient::connect(self.target(PASSWORD, None), Settings::default()).await {
                Ok(client) => return client,
                Err(failure) if failure.kind() == ErrorKind::Retryable && started.elapsed() < PATIENCE => {
                    let ended = self.child.try_wait().unwrap();
                    assert!(ended.is_none(), "the emulator ended: {}", self.log());
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(failure) => panic!("{failure:?}\n{}", self.log()),
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    async fn stop(mut self) {
        self.child.start_kill().unwrap();
        self.child.wait().await.unwrap();
    }
}

/// Serves one file to whoever asks, as the server of an installation image would.
async fn serve_image() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tiny.iso", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntiny ISO";
            let _ = stream.write_all(answer).await;
        }
    });
    url
}

#[tokio::test]
async fn a_bmc_that_nobody_here_wrote() {
    let mut emulator = Emulator::start().await;
    let client = emulator.connect().await;

    certificates_and_passwords(&emulator, &client).await;
    identity(&client).await;
    power(&client).await;
    boot(&client).await;
    media(&client).await;

    client.close().await.unwrap();
    emulator.stop().await;
}

async fn certificates_and_passwords(emulator: &Emulator, client: &BmcClient) {
    assert_eq!(client.observed_fingerprint(), Some(emulator.fingerprint));
    let pinned = BmcClient::connect(
        emulator.target(PASSWORD, Some(emulator.fingerprint)),
        Settings::default(),
    )
    .await;
    pinned.unwrap().system().await.unwrap();
    let wrong = Some(CertificateFingerprint([7; 32]));
    let failure = BmcClient::connect(emulator.target(PASSWORD, wrong), Settings::default())
        .await
        .unwrap_err();
    assert!(matches!(failure, RedfishError::CertificateChanged { .. }), "{failure}");
    // The emulator knows no sessions, so that the password is first sent with the first resource.
    let stranger = BmcClient::connect(emulator.target("wrong-password", None), Settings::default())
        .await
        .unwrap();
    let failure = stranger.system().await.unwrap_err();
    assert!(
        matches!(failure, RedfishError::Unauthorized { status: 401, .. }),
        "{failure}"
    );
}

async fn identity(client: &BmcClient) {
    let identity = client.identity().await.unwrap();
    assert_eq!(identity.manufacturer.as_deref(), Some("Sushy Emulator"));
    assert_eq!(identity.uuid.as_deref(), Some("27946b59-9e44-4fa7-8e91-f3527a1ef094"));
    assert_eq!(identity.profiles, ["sushy-emulator"]);
    assert!(identity.manager_path.is_some());
    let macs = client.macs().await.unwrap();
    assert_eq!(
        macs.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["00:5c:52:31:3a:9c"]
    );
    let inventory = client.inventory().await.unwrap();
    assert_eq!(inventory.nics.len(), 1);
    // The fake driver has links to memory and storage with nothing behind them: named, not hidden.
    assert!(
        inventory.gaps.iter().any(|gap| gap.path.ends_with("/Memory")),
        "{:?}",
        inventory.gaps
    );
}

async fn power(client: &BmcClient) {
    assert_eq!(client.power().await.unwrap(), PowerState::Off);
    assert!(
        client
            .reset_types()
            .await
            .unwrap()
            .unwrap()
            .contains(&"ForceOn".to_owned())
    );
    let change = client.set_power(PowerGoal::On).await.unwrap();
    assert_eq!(
        change,
        PowerChange::Accepted {
            reset_type: "On".to_owned()
        }
    );
    client.wait_power(PowerGoal::On, PATIENCE).await.unwrap();
    assert_eq!(
        client.set_power(PowerGoal::On).await.unwrap(),
        PowerChange::AlreadyThere
    );
    client.power_cycle(PATIENCE).await.unwrap();
    assert_eq!(client.power().await.unwrap(), PowerState::On);
    client.set_power(PowerGoal::GracefulOff).await.unwrap();
    client.wait_power(PowerGoal::Off, PATIENCE).await.unwrap();
}

async fn boot(client: &BmcClient) {
    let once = client
        .set_boot(BootTarget::Pxe, Persistence::Once, Some(BootMode::Uefi))
        .await
        .unwrap();
    assert_eq!(once.after.target.as_deref(), Some("Pxe"));
    let deviations: Vec<_> = once
        .deviations
        .iter()
        .map(|one| (one.wanted.as_str(), one.seen.as_str()))
        .collect();
    assert_eq!(deviations, [("Once", "Continuous")], "known, so told and not an error");
    let disk = client
        .set_boot(BootTarget::Disk, Persistence::Continuous, None)
        .await
        .unwrap();
    assert_eq!((disk.after.target.as_deref(), disk.deviations.len()), (Some("Hdd"), 0));
    assert!(
        !client
            .set_boot(BootTarget::Disk, Persistence::Continuous, None)
            .await
            .unwrap()
            .changed
    );
    let legacy = client
        .set_boot(BootTarget::Pxe, Persistence::Continuous, Some(BootMode::Legacy))
        .await
        .unwrap();
    assert_eq!(legacy.after.mode.as_deref(), Some("Legacy"));
    let http = client
        .set_boot(BootTarget::UefiHttp, Persistence::Once, Some(BootMode::Uefi))
        .await;
    let failure = http.unwrap_err();
    assert!(
        failure.to_string().contains("does not offer boot target UefiHttp"),
        "only in UEFI mode: {failure}"
    );
    client
        .set_boot(BootTarget::Pxe, Persistence::Continuous, Some(BootMode::Uefi))
        .await
        .unwrap();
    let http = client
        .set_boot(BootTarget::UefiHttp, Persistence::Continuous, None)
        .await
        .unwrap();
    assert_eq!(http.deviations[0].seen, "Pxe", "without a URI the emulator falls back");
    let view = client.boot().await.unwrap();
    assert_eq!(view.allowed_targets, ["Pxe", "Cd", "Hdd", "UefiHttp"]);
}

async fn media(client: &BmcClient) {
    let image = serve_image().await;
    let drives = client.virtual_media().await.unwrap();
    assert_eq!(
        drives.iter().map(|drive| drive.id()).collect::<Vec<_>>(),
        ["Cd", "Floppy"]
    );
    let drive = client.insert_media(&image, MediaKind::Cd).await.unwrap();
    assert_eq!(drive.image().as_deref(), Some(image.as_str()));
    client.set_boot(BootTarget::Cd, Persistence::Once, None).await.unwrap();
    let again = client.insert_media(&image, MediaKind::Cd).await.unwrap();
    let drive = client.eject_media(&again).await.unwrap();
    assert!(!drive.is_inserted() && drive.image().is_none());
    let usb = client.insert_media(&image, MediaKind::Usb).await.unwrap();
    assert_eq!(usb.id(), "Floppy");
    client.eject_media(&usb).await.unwrap();
    let failure = client
        .insert_media("http://127.0.0.1:9/nothing.iso", MediaKind::Cd)
        .await
        .unwrap_err();
    assert!(
        failure.to_string().contains("nothing.iso"),
        "the emulator's own words: {failure}"
    );
}
