//! A BMC with IPMI and without a machine: OpenIPMI's `ipmi_sim` (Debian package `openipmi`), with a serial port that belongs
//! to the test.

use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::ports::free_port;

/// Generous: the computer is shared.
const LIMIT: Duration = Duration::from_secs(60);

/// The chassis: one file for each part of its state.
const CHASSIS: &str = r#"#!/bin/sh
cd "$1" || exit 1
shift 2
while [ $# -gt 0 ]; do
    case $1 in
    get) printf '%s:%s\n' "$2" "$(cat "$2")"; shift 2 ;;
    set) printf '%s' "$3" >"$2"; shift 3 ;;
    *) shift ;;
    esac
done
"#;

/// A running BMC and the machine's end of its serial port. Dropping it stops the BMC.
#[derive(Debug)]
pub struct IpmiSim {
    host: Ipv4Addr,
    port: u16,
    serial: TcpStream,
    _listener: TcpListener,
    _child: Child,
}

impl IpmiSim {
    /// Starts a BMC with this user at an address of this computer; its files are below `dir`.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(dir: &Path, host: Ipv4Addr, port: u16, user: &str, password: &str) -> Self {
        std::fs::create_dir_all(dir).expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let serial = listener.local_addr().expect("it is bound").port();
        write_files(dir, &format!("{host} {port}"), serial, user, password);
        let log = std::fs::File::create(dir.join("log")).expect("the log can be made");
        let child = Command::new("ipmi_sim")
            .arg("-c")
            .arg(dir.join("lan.conf"))
            .arg("-f")
            .arg(dir.join("bmc.emu"))
            .arg("-s")
            .arg(dir.join("state"))
            .args(["-n", "-p"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be used twice"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("ipmi_sim starts; Debian's package openipmi has it");
        // ipmi_sim connects to the serial port after it has read its files.
        let accepted = tokio::time::timeout(LIMIT, listener.accept()).await;
        let (serial, _) = accepted.expect("ipmi_sim comes").expect("the port is ours");
        Self {
            host,
            port,
            serial,
            _listener: listener,
            _child: child,
        }
    }

    /// Starts a BMC on the loopback interface, at a port of its own.
    pub async fn start_anywhere(dir: &Path, user: &str, password: &str) -> Self {
        Self::start(dir, Ipv4Addr::LOCALHOST, free_port(), user, password).await
    }

    /// The address, with the MAC address of a network card that does not exist.
    #[must_use]
    pub fn address(&self) -> String {
        // It has no cipher suite 17 and does not answer questions about cipher suites: ipmitool would wait for that each
        // time.
        format!("ipmi://{}:{}?cipher=3&mac=52:54:00:00:00:07", self.host, self.port)
    }

    /// Prints a text on the machine's side.
    ///
    /// # Panics
    /// If `ipmi_sim` has ended.
    pub async fn print_text(&mut self, text: &str) {
        self.serial
            .write_all(text.as_bytes())
            .await
            .expect("the serial port takes it");
    }

    /// Waits until the input contains `wanted`.
    ///
    /// # Panics
    /// If it does not.
    pub async fn wait_for_typed(&mut self, wanted: &str) {
        let mut typed = Vec::new();
        let all = async {
            while !String::from_utf8_lossy(&typed).contains(wanted) {
                let count = self
                    .serial
                    .read_buf(&mut typed)
                    .await
                    .expect("the serial port is there");
                assert!(count > 0, "ipmi_sim has gone");
            }
        };
        let typed = tokio::time::timeout(LIMIT, all).await;
        assert!(typed.is_ok(), "{wanted:?} was not typed");
    }
}

fn write_files(dir: &Path, listen: &str, serial: u16, user: &str, password: &str) {
    let file = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("the file can be written");
    file("chassis.sh", CHASSIS);
    let script = dir.join("chassis.sh");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("it is ours");
    file("power", "0");
    file("boot", "none");
    let (script, folder) = (script.display(), dir.display());
    let lan = format!(
        "name \"bmc\"\nset_working_mc 0x20\n  startlan 1\n    addr {listen}\n    priv_limit admin\n    \
         allowed_auths_admin none md2 md5 straight\n    guid a123456789abcdefa123456789abcdef\n  endlan\n  \
         chassis_control \"{script} {folder} 0x20\"\n  sol \"tcp:127.0.0.1:{serial}\" 115200\n  \
         user 2 true \"{user}\" \"{password}\" admin 10 none md2 md5 straight\n"
    );
    file("lan.conf", &lan);
    // A BMC with an event log and little else; the numbers do not matter (ipmi_sim_cmd(5)).
    let commands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
                    sel_enable 0x20 1000 0x0a\nmc_enable 0x20\n";
    file("bmc.emu", commands);
}
