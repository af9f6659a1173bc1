//! OpenIPMI's `ipmi_sim` (Debian package `openipmi`), started for a test: an independent BMC.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rackwright_ipmi::{Account, Ipmi, IpmiError, RequestLimiter};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

pub const USER: &str = "admin";
pub const PASSWORD: &str = "sim-pass'w0rd";
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The chassis, with its state in files. A dip of the power stays visible for a while, as in `ipmi_sim`.
const CHASSIS: &str = r#"#!/bin/sh
cd "$1" || exit 1
shift 2
while [ $# -gt 0 ]; do
    case $1 in
    get) printf '%s:%s\n' "$2" "$(cat "$2")"; shift 2 ;;
    set) printf '%s' "$3" >"$2"; printf '%s=%s\n' "$2" "$3" >>calls; shift 3 ;;
    *) shift ;;
    esac
done
"#;

pub struct Simulator {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Simulator {
    /// Starts the simulator with the serial port at this TCP port.
    pub async fn start(serial: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let script = file("chassis.sh");
        std::fs::write(&script, CHASSIS).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).unwrap();
        for (name, value) in [("power", "0"), ("boot", "none"), ("calls", "")] {
            std::fs::write(file(name), value).unwrap();
        }
        let port = rackwright_free_port::free_port().unwrap();
        let (script, folder) = (script.display(), dir.path().display());
        let lan = format!(
            "name \"bmc\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {port}\n    priv_limit admin\n    \
             allowed_auths_admin none md2 md5 straight\n    guid a123456789abcdefa123456789abcdef\n  endlan\n  \
             chassis_control \"{script} {folder} 0x20\"\n  sol \"tcp:127.0.0.1:{serial}\" 115200\n  \
             user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 none md2 md5 straight\n"
        );
        std::fs::write(file("lan.conf"), lan).unwrap();
        let commands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
                        sel_enable 0x20 1000 0x0a\nmc_enable 0x20\n";
        std::fs::write(file("bmc.emu"), commands).unwrap();
        let out = std::fs::File::create(file("log")).unwrap();
        let child = Command::new("ipmi_sim")
            .arg("-c")
            .arg(file("lan.conf"))
            .arg("-f")
            .arg(file("bmc.emu"))
            .arg("-s")
            .arg(file("state"))
            .args(["-n", "-p"])
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .kill_on_drop(true)
            .spawn()
            .expect("ipmi_sim starts; Debian's package openipmi has it");
        Self { child, port, dir }
    }

    pub fn address(&self, options: &str) -> String {
        format!("ipmi://127.0.0.1:{}?{options}", self.port)
    }

    pub fn client(&self, password: &str, limiter: &Arc<RequestLimiter>) -> Ipmi {
        client(&self.address("cipher=3"), USER, password, limiter).unwrap()
    }

    /// Waits until the simulator listens and returns a client.
    pub async fn connect(&mut self, limiter: &Arc<RequestLimiter>) -> Ipmi {
        let (client, started) = (self.client(PASSWORD, limiter), Instant::now());
        loop {
            match client.clone().for_polling().power().await {
                Ok(_) => return client,
                Err(IpmiError::NoAnswer { .. }) if started.elapsed() < WAIT_LIMIT => {
                    assert!(self.child.try_wait().unwrap().is_none(), "{}", self.log());
                }
                Err(failure) => panic!("{failure:?}\n{}", self.log()),
            }
        }
    }

    /// The calls to the chassis since the last call of this function.
    pub fn calls(&self) -> Vec<String> {
        let file = self.file("calls");
        let calls = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, "").unwrap();
        calls.lines().map(str::to_owned).collect()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.file("log")).unwrap()
    }
}

pub fn client(address: &str, user: &str, password: &str, limiter: &Arc<RequestLimiter>) -> Result<Ipmi, IpmiError> {
    let account = Account {
        username: user.to_owned(),
        password: password.into(),
    };
    Ipmi::new(address.parse()?, account, limiter.clone())
}

/// Writes a program that stands in for `ipmitool`.
pub fn script(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("ipmitool");
    std::fs::write(&path, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
    path
}

/// The machine's serial port and its TCP port.
pub async fn serial() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}
