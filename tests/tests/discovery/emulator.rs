//! A BMC of independent origin: `sushy-emulator` with its fake driver, and with libvirt's test driver, over TLS and with a
//! password.
//!
//! `RACKWRIGHT_SUSHY` may name an emulator for the fake driver; otherwise `tests/venv.sh` makes an environment below the
//! target folder, which needs `python3` with `venv`, a package index, and for libvirt Debian's `python3-libvirt`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use rackwright_redfish::{BiosValue, BmcClient, BmcTarget, PowerState, Settings};
use rackwright_sim::install_crypto;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::Site;
use tokio::process::{Child, Command};

use super::{ended, findings, found, plane, start, until, write};

const PASSWORD: &str = "emulated-password";

/// The driver behind the emulator.
#[derive(Clone, Copy, PartialEq)]
enum Driver {
    Fake,
    LibvirtTest,
}

impl Driver {
    /// Name of the environment, and the distribution's module that it needs.
    fn environment(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Fake => ("venv-sushy", None),
            Self::LibvirtTest => ("venv-sushy-libvirt", Some("libvirt")),
        }
    }

    /// The driver creates its machine anew when its last connection ends, so one connection must outlive the requests.
    fn settings(self) -> &'static str {
        match self {
            Self::Fake => "",
            Self::LibvirtTest => {
                "import libvirt\nSUSHY_EMULATOR_LIBVIRT_URI = 'test:///default'\n\
                 KEPT_OPEN = libvirt.open(SUSHY_EMULATOR_LIBVIRT_URI)\n"
            }
        }
    }
}

async fn program(driver: Driver) -> PathBuf {
    let given = std::env::var_os("RACKWRIGHT_SUSHY").map(PathBuf::from);
    if let Some(given) = given.filter(|path| path.is_file() && driver == Driver::Fake) {
        return given;
    }
    let (environment, module) = driver.environment();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = Command::new(here.join("venv.sh"))
        .arg(target.join(environment))
        .arg(here.join("../crates/redfish/tests/sushy-requirements.txt"))
        .args(module)
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

async fn emulator(driver: Driver, dir: &Path, host: &str, port: u16) -> Child {
    let program = program(driver).await;
    let made = rcgen::generate_simple_self_signed(vec![host.to_owned()]).unwrap();
    let (cert, key) = (
        write(dir, "cert.pem", &made.cert.pem()),
        write(dir, "key.pem", &made.signing_key.serialize_pem()),
    );
    let code = "import bcrypt, sys; print(bcrypt.hashpw(sys.argv[1].encode(), bcrypt.gensalt(4)).decode())";
    let hashed = Command::new(program.with_file_name("python"))
        .args(["-c", code, PASSWORD])
        .output()
        .await
        .unwrap();
    let users = write(
        dir,
        "users",
        &format!("admin:{}\n", String::from_utf8(hashed.stdout).unwrap().trim()),
    );
    let state = dir.join("state");
    std::fs::create_dir(&state).unwrap();
    let settings = format!(
        "SUSHY_EMULATOR_AUTH_FILE = {:?}\nSUSHY_EMULATOR_STATE_DIR = {:?}\n{}",
        users.display().to_string(),
        state.display().to_string(),
        driver.settings()
    );
    let config = write(dir, "sushy.conf", &settings);
    let log = std::fs::File::create(dir.join("sushy.log")).unwrap();
    Command::new(program)
        .args((driver == Driver::Fake).then_some("--fake"))
        .args(["--interface", host, "--port", &port.to_string()])
        .arg("--config")
        .arg(config)
        .arg("--ssl-certificate")
        .arg(cert)
        .arg("--ssl-key")
        .arg(key)
        .env("TMPDIR", dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn listens(port: u16) {
    until("the emulator listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_independent_bmc_emulator_is_found_and_enrolled() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let site = plane(dir.path(), "127.0.0.1", "answer_timeout_s: 10").await;
    let port = free_port();
    let mut child = emulator(Driver::Fake, dir.path(), "127.0.0.1", port).await;
    listens(port).await;
    let password = write(dir.path(), "password", PASSWORD).display().to_string();
    let port = port.to_string();
    let id = start(
        &site,
        &[
            "--range",
            "127.0.0.1",
            "--port",
            &port,
            "--user",
            "admin",
            "--password-file",
            &password,
        ],
    );
    ended(&site, &id).await;
    let all = findings(&site, &id);
    let url = format!("https://127.0.0.1:{port}");
    assert_eq!(found(&all, &url), ("new", ""), "{all:#?}");
    assert_eq!(all[0]["manufacturer"], "Sushy Emulator");
    assert_eq!(all[0]["uuid"], "27946b59-9e44-4fa7-8e91-f3527a1ef094");
    site.cli(["discover", "enrol", &format!("127.0.0.1:{port}"), "--name", "sushy"]);
    until("the node has its machine's identity", || {
        let node = site.json(["node", "get", "sushy"]);
        node["status"]["macs"][0] == "00:5c:52:31:3a:9c"
    })
    .await;
    site.stop().await;
    child.kill().await.unwrap();
}

const WANTED: &str = "site: {name: hall}
rooms: [{name: hall}]
racks: [{name: r1, room: hall}]
skus:
- name: virtual
  power: {max_watts: 1000}
  psus: {count: 1, watts: 1000, needed: 1}
  height_units: 1
  bios: {ProcTurboMode: Disabled, EmbeddedSata: Ahci}
  firmware:
  - {component: BIOS, version: 1.1.0}
nodes:
- {name: sushy, sku: virtual, rack: r1, unit: 1}
";

/// A control plane with boot services: a BMC that fetches firmware itself needs an address there.
async fn with_boot(dir: &Path) -> Site {
    let [api, store, dhcp, tftp, http] = std::array::from_fn(|_| free_port());
    for file in ["vmlinuz", "initrd", "snponly.efi"] {
        write(dir, file, file);
    }
    let dir_text = dir.display();
    let config = format!(
        "data_dir: {dir_text}/data\napi: {{listen: \"127.0.0.1:{api}\", names: [\"127.0.0.1\"]}}\n\
         store: {{listen: \"127.0.0.1:{store}\"}}\npower_watch: {{interval_s: 3600}}\n\
         boot:\n  method: pxe\n  ramdisk: {{kernel: {dir_text}/vmlinuz, initrd: {dir_text}/initrd}}\n  network:\n    \
         server_ip: 127.0.0.1\n    interface: lo\n    dhcp_port: {dhcp}\n    tftp_port: {tftp}\n    http_port: {http}\n    \
         first_stages: {{snponly.efi: {dir_text}/snponly.efi}}\n    dhcp:\n      server:\n        subnets:\n        \
         - network: 127.128.0.0/10\n          pool: {{first: 127.128.1.0, last: 127.128.1.255}}\n"
    );
    Site::start_with(dir, &config).await
}

async fn client(port: u16) -> BmcClient {
    let target = BmcTarget {
        address: format!("https://127.0.0.1:{port}"),
        username: "admin".to_owned(),
        password: PASSWORD.into(),
        certificate_sha256: None,
        system: None,
    };
    BmcClient::connect(target, Settings::default()).await.unwrap()
}

/// The SKU's settings and firmware are written before the first boot, through a BMC of independent origin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_and_firmware_reach_a_machine_of_libvirt() {
    install_crypto();
    let dir = tempfile::tempdir().unwrap();
    let site = with_boot(dir.path()).await;
    let port = free_port();
    let mut child = emulator(Driver::LibvirtTest, dir.path(), "127.0.0.1", port).await;
    listens(port).await;
    let bmc = client(port).await;
    let before = bmc.bios().await.unwrap().unwrap().current;
    assert_eq!(before["ProcTurboMode"].to_string(), "Enabled");
    let file = write(dir.path(), "bios.bin", "a BIOS").display().to_string();
    site.cli(["firmware", "add", &file, "--component", "BIOS", "--version", "1.1.0"]);
    let wanted = dir.path().join("wanted");
    std::fs::create_dir(&wanted).unwrap();
    write(&wanted, "site.yaml", WANTED);
    site.cli(["site", "apply", &wanted.display().to_string(), "--yes"]);
    let password = write(dir.path(), "password", PASSWORD).display().to_string();
    let (url, account) = (
        format!("https://127.0.0.1:{port}"),
        ["--user", "admin", "--password-file", &password],
    );
    site.cli(
        ["node", "enroll", "sushy", "--sku", "virtual", "--bmc", &url]
            .into_iter()
            .chain(account),
    );

    until("the update", || {
        site.cli(["events"]).contains("BIOS went from 1.0.0 to 1.1.0")
    })
    .await;
    let report = site.cli(["node", "firmware", "sushy"]);
    assert!(report.contains("up-to-date"), "{report}");
    until("the first boot", || {
        site.state("sushy") == "inspecting" && is_booted(&site)
    })
    .await;
    let after = bmc.bios().await.unwrap().unwrap();
    let differs = |(name, value): &(&String, &BiosValue)| before.get(*name) != Some(*value);
    let changed = after.current.iter().filter(differs);
    let changed: Vec<_> = changed
        .map(|(name, value)| (name.as_str(), value.to_string()))
        .collect();
    assert_eq!(
        changed,
        [
            ("EmbeddedSata", "Ahci".to_owned()),
            ("ProcTurboMode", "Disabled".to_owned())
        ]
    );
    assert_eq!(bmc.power().await.unwrap(), PowerState::On, "started for the agent");
    assert_eq!(bmc.boot().await.unwrap().target.as_deref(), Some("Pxe"));
    site.stop().await;
    child.kill().await.unwrap();
}

/// Whether the node waits for the agent, which this machine does not run.
fn is_booted(site: &Site) -> bool {
    let node = site.json(["node", "get", "sushy"]);
    let why = node["status"]["waiting_for"].as_str().unwrap_or_default();
    why.contains("agent")
}
