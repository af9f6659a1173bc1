//! The lab's requirements on this machine, and how to meet them.

use super::qemu::{EMULATOR, firmware_files};
use super::{Firmware, LabError};
use std::env;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One requirement that was checked.
#[derive(Debug, Clone)]
pub struct Check {
    /// The requirement.
    pub what: String,
    /// Its location, or the fault with its remedy.
    pub result: Result<String, Fault>,
    /// Whether every lab needs it.
    pub required: bool,
}

/// Why a requirement is not met.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The fault.
    pub why: String,
    /// The remedy.
    pub remedy: String,
}

/// Checks all requirements of a lab.
pub fn examine() -> Vec<Check> {
    let mut checks = vec![tool(EMULATOR, "qemu-system-x86", true)];
    checks.extend(namespace_tools());
    checks.push(tool("nsenter", "util-linux", false));
    checks.push(tun());
    checks.push(unshare_works());
    for firmware in [Firmware::Uefi, Firmware::UefiSecureBoot] {
        for path in firmware_files(firmware)
            .into_iter()
            .flat_map(|files| [files.code, files.vars])
        {
            checks.push(file(path, "ovmf", firmware == Firmware::Uefi));
        }
    }
    checks.push(file("/usr/lib/ipxe/qemu/pxe-virtio.rom", "ipxe-qemu", true));
    checks.push(file("/usr/lib/ipxe/qemu/efi-virtio.rom", "ipxe-qemu", true));
    checks.push(tool("swtpm", "swtpm", false));
    checks.push(ipmi(false));
    checks
}

/// Fails unless a namespace with taps can be created here.
pub(crate) fn require_namespace() -> Result<(), LabError> {
    require(namespace_tools().into_iter().chain([tun()]))
}

/// Fails unless the emulator and the files of `firmware` are installed.
pub(crate) fn require_machines(firmware: Firmware, tpm: bool) -> Result<(), LabError> {
    let files = firmware_files(firmware)
        .into_iter()
        .flat_map(|files| [files.code, files.vars]);
    let mut checks = vec![tool(EMULATOR, "qemu-system-x86", true)];
    checks.extend(files.map(|path| file(path, "ovmf", true)));
    if tpm {
        checks.push(tool("swtpm", "swtpm", true));
    }
    require(checks.into_iter())
}

/// Fails unless a machine can get a BMC that uses IPMI.
pub(crate) fn require_ipmi() -> Result<(), LabError> {
    require([ipmi(true)].into_iter())
}

fn ipmi(required: bool) -> Check {
    tool("ipmi_sim", "openipmi", required)
}

fn require(checks: impl Iterator<Item = Check>) -> Result<(), LabError> {
    let report: Vec<String> = checks
        .filter_map(|check| {
            check
                .result
                .err()
                .map(|fault| format!("  {}: {}; {}", check.what, fault.why, fault.remedy))
        })
        .collect();
    if report.is_empty() {
        Ok(())
    } else {
        Err(LabError::Missing {
            report: report.join("\n"),
        })
    }
}

fn namespace_tools() -> [Check; 3] {
    [
        tool("unshare", "util-linux", true),
        tool("setpriv", "util-linux", true),
        tool("ip", "iproute2", true),
    ]
}

fn install(package: &str) -> String {
    format!("install it: apt-get install --no-install-recommends {package}")
}

/// The full path of a program on `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

fn tool(name: &str, package: &str, required: bool) -> Check {
    let result = find(name).map(|path| path.display().to_string()).ok_or_else(|| Fault {
        why: "not found on PATH".into(),
        remedy: install(package),
    });
    Check {
        what: name.to_owned(),
        result,
        required,
    }
}

fn file(path: &str, package: &str, required: bool) -> Check {
    let result = if Path::new(path).is_file() {
        Ok("found".to_owned())
    } else {
        Err(Fault {
            why: "not found".into(),
            remedy: install(package),
        })
    };
    Check {
        what: path.to_owned(),
        result,
        required,
    }
}

fn tun() -> Check {
    const PATH: &str = "/dev/net/tun";
    let result = OpenOptions::new()
        .read(true)
        .write(true)
        .open(PATH)
        .map(|_| "writable".to_owned())
        .map_err(|error| Fault {
            why: format!("cannot be opened for reading and writing: {error}"),
            remedy: "as root: modprobe tun; chmod 666 /dev/net/tun (or run the lab as root)".into(),
        });
    Check {
        what: PATH.to_owned(),
        result,
        required: true,
    }
}

fn unshare_works() -> Check {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--pid", "--mount", "--fork", "--mount-proc", "true"]);
    let why = match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(error.to_string()),
    };
    let result = why.map_or_else(
        || Ok("network, PID and mount namespaces can be created".to_owned()),
        |why| {
            let remedy = "run as root with CAP_SYS_ADMIN, or allow user namespaces: sysctl \
                          kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0";
            Err(Fault {
                why,
                remedy: remedy.into(),
            })
        },
    );
    Check {
        what: "private namespaces".to_owned(),
        result,
        required: true,
    }
}
