//! The iPXE script of one node.

use crate::config::Settings;
use crate::sessions::{ClientAddress, Session};

/// Attempts before the machine continues with its next boot entry.
const ATTEMPTS: u32 = 5;

/// The script prints its steps, retries a few times, and finally exits with an error, so that firmware continues (a plain
/// `exit` under UEFI counts as success and stops at the setup menu).
pub(super) fn ipxe(session: &Session, settings: &Settings) -> String {
    let files = format!("{}/boot/v1/files/{}", settings.http_base(), session.id);
    let plan = &session.plan;
    let mut cmdline = session.cmdline(settings);
    if matches!(session.client_address(settings), ClientAddress::Foreign) {
        cmdline.push_str(" rackwright.ip=${netX/ip} rackwright.mask=${netX/netmask} rackwright.gw=${netX/gateway}");
    }
    let mut script = format!(
        "#!ipxe\n\
         echo rackwright: booting {mac} at ${{netX/ip}}\n\
         set attempt:int32 0\n\
         :retry\n\
         inc attempt\n\
         imgfree\n",
        mac = session.mac,
    );
    // Linux's EFI stub finds ramdisks by these names.
    for initrd in &plan.initrds {
        cmdline.push_str(&format!(" initrd={}", initrd.name));
    }
    let kernel = &plan.kernel.name;
    script.push_str(&format!(
        "echo rackwright: fetching {kernel}\nkernel {files}/{kernel} {cmdline} || goto again\n"
    ));
    for initrd in &plan.initrds {
        let name = &initrd.name;
        script.push_str(&format!(
            "echo rackwright: fetching {name}\ninitrd --name {name} {files}/{name} || goto again\n"
        ));
    }
    script.push_str(&format!(
        "echo rackwright: starting {kernel}\n\
         boot || goto again\n\
         :again\n\
         iseq ${{attempt}} {ATTEMPTS} && goto failed ||\n\
         echo rackwright: attempt ${{attempt}} of {ATTEMPTS} failed, once more in 2 s\n\
         sleep 2\n\
         goto retry\n\
         :failed\n\
         echo rackwright: giving up after {ATTEMPTS} attempts, going on to the next boot entry\n\
         exit 1\n"
    ));
    script
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Instant;

    use super::*;
    use crate::dhcp::testing::settings;
    use crate::sessions::Sessions;
    use crate::sessions::tests::{MAC, plan};

    fn script(remote: [u8; 4]) -> (String, String) {
        let session = Sessions::default()
            .open(MAC, plan("quiet"), IpAddr::from(remote), Instant::now())
            .unwrap();
        (ipxe(&session, &settings()), session.id.clone())
    }

    #[test]
    fn an_own_client_gets_its_address() {
        let (script, id) = script([10, 77, 0, 10]);
        let files = format!("http://10.77.0.1:8080/boot/v1/files/{id}");
        let kernel = format!(
            "kernel {files}/vmlinuz quiet rackwright.mac={MAC} rackwright.ip=10.77.0.10/24 rackwright.gw=10.77.0.1 initrd=initrd || goto again\n"
        );
        assert!(script.starts_with("#!ipxe\n"));
        assert!(script.contains(&kernel), "{script}");
        assert!(script.contains(&format!("initrd --name initrd {files}/initrd || goto again\n")));
        assert!(script.ends_with("exit 1\n"));
    }

    #[test]
    fn a_client_of_another_server_keeps_its_address() {
        let (script, _) = script([192, 0, 2, 7]);
        assert!(
            script.contains("rackwright.ip=${netX/ip} rackwright.mask=${netX/netmask} rackwright.gw=${netX/gateway}")
        );
    }
}
