//! The bridge and the taps, made with `ip` inside the namespace.

use super::LabError;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

/// Name of the bridge for all machines.
pub const BRIDGE: &str = "br0";
/// Our own address on the bridge (prefix length 24); BMC `i` listens on it at port 8001 + `i`.
pub const SERVER_IPV4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Our own IPv6 address on the bridge (prefix length 64).
pub const SERVER_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);

/// Sets up loopback and the bridge. Without spanning tree and forward delay, which would outlast the first DHCP attempts.
pub(crate) fn up() -> Result<(), LabError> {
    ip(&format!(
        "link set lo up\n\
         link add {BRIDGE} type bridge stp_state 0 forward_delay 0\n\
         addr add {SERVER_IPV4}/24 dev {BRIDGE}\n\
         addr add {SERVER_IPV6}/64 dev {BRIDGE} nodad\n\
         link set {BRIDGE} up\n"
    ))
}

/// Name of the tap of machine `index`.
pub(crate) fn tap(index: usize) -> String {
    format!("tap{index}")
}

/// Adds one tap per machine to the bridge.
pub(crate) fn add_taps(count: usize) -> Result<(), LabError> {
    let lines: String = (0..count)
        .map(tap)
        .map(|tap| format!("tuntap add dev {tap} mode tap\nlink set {tap} master {BRIDGE}\nlink set {tap} up\n"))
        .collect();
    ip(&lines)
}

/// Removes the taps again, so that another lab can start in the same namespace.
pub(crate) fn remove_taps(count: usize) -> Result<(), LabError> {
    ip(&(0..count)
        .map(|index| format!("link del {}\n", tap(index)))
        .collect::<String>())
}

/// Plugs a machine's network cable in or out.
pub(crate) fn set_tap(index: usize, state: &'static str) -> Result<(), LabError> {
    ip(&format!("link set {} {state}\n", tap(index)))
}

/// Runs `ip -batch -` on the given lines.
fn ip(lines: &str) -> Result<(), LabError> {
    let failed = |detail: String| LabError::Command {
        command: format!("ip -batch: {}", lines.trim_end()),
        detail,
    };
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(lines.as_bytes())
            .map_err(|error| failed(error.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
