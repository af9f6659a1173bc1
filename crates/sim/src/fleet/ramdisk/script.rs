//! Reads the boot script as iPXE does: only the kernel's command line and the names of files matter.

use super::BootError;
use rackwright_agent::cmdline::{self, Settings};
use std::net::Ipv4Addr;

/// The URLs of the kernel and of the ramdisks of a script, in order.
pub(super) fn files(script: &str) -> impl Iterator<Item = &str> {
    let commands = script.lines().map(|line| line.split(" || ").next().unwrap_or(line));
    let loads = commands.filter(|line| line.starts_with("kernel ") || line.starts_with("initrd "));
    loads.filter_map(|line| line.split(' ').find(|word| word.starts_with("http://")))
}

/// Reads the agent's settings from the kernel line of a script.
///
/// # Errors
/// [`BootError::NoKernel`], [`BootError::Cmdline`].
pub(super) fn settings(script: &str, address: Ipv4Addr) -> Result<Settings, BootError> {
    let line = script.lines().find_map(|line| line.strip_prefix("kernel "));
    let line = line.and_then(|line| line.split(" || ").next());
    let (_, arguments) = line.and_then(|line| line.split_once(' ')).ok_or(BootError::NoKernel)?;
    // Placeholders that iPXE fills if another server assigned the address.
    let arguments = arguments.replace("${netX/ip}", &address.to_string());
    let arguments = arguments.replace("${netX/netmask}", "").replace("${netX/gateway}", "");
    Ok(cmdline::parse(&arguments)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 128, 0, 9);

    fn script(kernel: &str) -> String {
        format!(
            "#!ipxe\n:retry\nimgfree\n{kernel}\ninitrd --name initrd http://127.0.0.1/initrd || goto again\nboot || goto again\n"
        )
    }

    #[test]
    fn the_command_line_is_that_of_the_kernel() {
        let ca = "a".repeat(64);
        let least = format!("rackwright.server=https://127.0.0.1:7070 rackwright.token=s3 rackwright.ca=sha256:{ca}");
        let line = format!(
            "kernel http://127.0.0.1/k {least} rackwright.ip=${{netX/ip}} rackwright.gw=${{netX/gateway}} initrd=initrd || goto again"
        );
        let read = settings(&script(&line), ADDRESS).unwrap();
        assert_eq!(read.endpoints[0].server, "https://127.0.0.1:7070");
        assert_eq!(
            read.addressing.map(|addressing| addressing.address),
            Some(ADDRESS.into())
        );
        let script_of_both = script(&line);
        let named: Vec<&str> = files(&script_of_both).collect();
        assert_eq!(named, ["http://127.0.0.1/k", "http://127.0.0.1/initrd"]);
        assert!(matches!(settings(&script(""), ADDRESS), Err(BootError::NoKernel)));
        let bare = settings(&script("kernel http://127.0.0.1/k quiet || goto again"), ADDRESS);
        assert!(matches!(bare, Err(BootError::Cmdline(_))));
    }
}
