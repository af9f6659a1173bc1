//! Real firmware in QEMU, up to a running kernel: OVMF by PXE, by HTTP Boot and under Secure Boot, SeaBIOS with iPXE's ROM,
//! and next to a DHCP server of another make.
//!
//! Each test runs itself again in its own network namespace; no packet leaves the machine, and everything ends with the
//! namespace. Needs root, or user namespaces and a /dev/net/tun that all users may open.

#![allow(clippy::disallowed_methods)] // a test may read clocks and wait for the processes it started
#![allow(clippy::unwrap_used, reason = "a failing test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod lab;
mod payload;
mod vm;

use std::time::Duration;

use rackwright_netboot::{BootIntent, BootLoader, DhcpMode, Stage};

use lab::{ADDRESS, Lab, MAC, RELAYED_ADDRESS, in_namespace, server_mode};
use vm::{Firmware, Vm};

/// Five times the duration of a single test on a slow machine.
const LIMIT: Duration = Duration::from_secs(400);
const IPXE: BootIntent = BootIntent::Network { loader: None };
const GRUB: BootIntent = BootIntent::Network {
    loader: Some(BootLoader::ShimGrub),
};

/// Asserts that the stages appeared in this order, each with the expected text.
fn assert_stages(lab: &Lab, expected: &[(Stage, &str)]) {
    let stages = lab.directory.stages(MAC);
    let mut rest = stages.iter();
    for (stage, text) in expected {
        let found = rest.any(|seen| seen.stage == *stage && seen.detail.contains(text));
        assert!(
            found,
            "no {stage} with {text:?} in this place of\n{}",
            lab.directory.trace()
        );
    }
    let refused = stages.iter().filter(|seen| seen.stage == Stage::Refused).count();
    assert_eq!(refused, 0, "{}", lab.directory.trace());
}

/// Waits for the payload's line on the console and checks its command line.
async fn userspace(vm: &mut Vm, lab: &Lab) -> String {
    let line = vm.wait_for_line("PAYLOAD ", LIMIT, || lab.directory.trace()).await;
    assert!(line.contains("rackwright.mac=52:54:00:77:00:01"), "{line}");
    assert!(line.contains("test.marker=yes"), "{line}");
    line
}

#[test]
fn ovmf_by_pxe() {
    in_namespace("ovmf_by_pxe", async {
        let lab = Lab::start(server_mode(), IPXE).await;
        let mut vm = Vm::start(&lab, &Firmware::OvmfPxe);
        let line = userspace(&mut vm, &lab).await;
        assert!(
            line.contains("rackwright.ip=10.77.0.10/24 rackwright.gw=10.77.0.1"),
            "{line}"
        );
        assert_stages(
            &lab,
            &[
                (
                    Stage::DhcpDiscover,
                    "PXE firmware UEFI x86-64: offered 10.77.0.10 and snponly.efi by TFTP",
                ),
                (Stage::DhcpRequest, "given 10.77.0.10 and snponly.efi"),
                (Stage::Tftp, "snponly.efi by TFTP: "),
                (Stage::DhcpDiscover, "iPXE UEFI x86-64"),
                (Stage::DhcpRequest, "its iPXE script"),
                (Stage::Script, "iPXE script"),
                (Stage::Kernel, "vmlinuz by HTTP: "),
                (Stage::Initrd, "initrd by HTTP: "),
            ],
        );
        // The UUID as given to QEMU, however firmware orders its bytes.
        assert!(
            lab.directory
                .clients()
                .iter()
                .any(|client| client.system_uuid.as_deref() == Some(vm::UUID))
        );
        lab.print_seconds("OVMF PXE, snponly.efi, HTTP");
    });
}

#[test]
fn seabios_with_ipxe_rom() {
    in_namespace("seabios_with_ipxe_rom", async {
        let lab = Lab::start(server_mode(), IPXE).await;
        let mut vm = Vm::start(&lab, &Firmware::SeaBios);
        userspace(&mut vm, &lab).await;
        let expected = [
            (Stage::DhcpRequest, "iPXE BIOS: given 10.77.0.10 and its iPXE script"),
            (Stage::Script, ""),
            (Stage::Kernel, ""),
        ];
        assert_stages(&lab, &expected);
        lab.print_seconds("SeaBIOS, iPXE ROM, HTTP");
        // Without advertisements iPXE would have waited 16 s for IPv6.
        assert!(lab.counter("router_advertisements_total") > 0);
    });
}

#[test]
fn ovmf_by_http_boot() {
    in_namespace("ovmf_by_http_boot", async {
        let lab = Lab::start(server_mode(), IPXE).await;
        let mut vm = Vm::start(&lab, &Firmware::OvmfHttp);
        userspace(&mut vm, &lab).await;
        assert_stages(
            &lab,
            &[
                (
                    Stage::DhcpDiscover,
                    "HTTP firmware UEFI HTTP x86-64: offered 10.77.0.10 and ipxe.efi by HTTP",
                ),
                (Stage::Http, "ipxe.efi by HTTP: "),
                (Stage::Script, ""),
                (Stage::Kernel, ""),
                (Stage::Initrd, ""),
            ],
        );
        lab.print_seconds("OVMF HTTP Boot, ipxe.efi, HTTP");
    });
}

#[test]
fn ovmf_with_secure_boot() {
    in_namespace("ovmf_with_secure_boot", async {
        let lab = Lab::start(server_mode(), GRUB).await;
        let mut vm = Vm::start(&lab, &Firmware::OvmfSecureBoot);
        let line = userspace(&mut vm, &lab).await;
        assert!(line.contains("secureboot=1"), "Secure Boot is off: {line}");
        assert!(line.contains("rackwright.ip=10.77.0.10/24"), "{line}");
        assert_stages(
            &lab,
            &[
                (Stage::DhcpRequest, "given 10.77.0.10 and shimx64.efi by TFTP"),
                (Stage::Tftp, "shimx64.efi by TFTP: "),
                (Stage::Tftp, "grubx64.efi by TFTP: "),
                (Stage::Tftp, "grub/grub.cfg by TFTP: "),
                (Stage::Script, "grub configuration"),
                (Stage::Kernel, "vmlinuz by TFTP: "),
                (Stage::Initrd, "initrd by TFTP: "),
            ],
        );
        lab.print_seconds("OVMF Secure Boot, shim, grub, TFTP");
    });
}

/// Secure Boot really refuses unsigned programs; otherwise the test above would prove nothing.
#[test]
fn secure_boot_refuses_ipxe() {
    in_namespace("secure_boot_refuses_ipxe", async {
        let lab = Lab::start(server_mode(), IPXE).await;
        let mut vm = Vm::start(&lab, &Firmware::OvmfSecureBoot);
        vm.wait_for_line("Access Denied", LIMIT, || lab.directory.trace()).await;
        assert!(lab.directory.stages(MAC).iter().all(|seen| seen.stage != Stage::Script));
    });
}

#[test]
fn a_node_that_boots_from_disk_gets_past_the_network() {
    in_namespace("a_node_that_boots_from_disk_gets_past_the_network", async {
        let lab = Lab::start(server_mode(), BootIntent::Disk).await;
        let mut vm = Vm::start(&lab, &Firmware::SeaBiosThenDisk);
        vm.wait_for_line("INSTALLED", LIMIT, || lab.directory.trace()).await;
        assert_stages(
            &lab,
            &[(Stage::DhcpRequest, "no boot file: the machine is to boot from its disk")],
        );
    });
}

/// dnsmasq assigns addresses, this server adds the boot file: with UEFI firmware and with iPXE in one boot.
#[test]
fn proxy_dhcp_with_dnsmasq() {
    in_namespace("proxy_dhcp_with_dnsmasq", async {
        let lab = Lab::start(DhcpMode::Proxy, IPXE).await;
        let _dnsmasq = lab.dnsmasq();
        let mut vm = Vm::start(&lab, &Firmware::OvmfPxe);
        let line = userspace(&mut vm, &lab).await;
        let cmdline = format!("rackwright.ip={ADDRESS} rackwright.mask=255.255.255.0 rackwright.gw=10.77.0.254");
        assert!(line.contains(&cmdline), "{line}");
        assert_stages(
            &lab,
            &[
                (Stage::ProxyDhcp, "pointed to snponly.efi"),
                (Stage::Tftp, "snponly.efi by TFTP"),
                (Stage::ProxyDhcp, "pointed to its iPXE script"),
                (Stage::Script, ""),
                (Stage::Kernel, ""),
            ],
        );
        assert_eq!(lab.counter("dhcp_offer_total"), 0);
        lab.print_seconds("OVMF PXE, proxyDHCP with dnsmasq");
    });
}

/// The same under Secure Boot: the neighbour table binds grub's plan to a machine, because this server assigned no address.
#[test]
fn proxy_dhcp_with_secure_boot() {
    in_namespace("proxy_dhcp_with_secure_boot", async {
        let lab = Lab::start(DhcpMode::Proxy, GRUB).await;
        let _dnsmasq = lab.dnsmasq();
        let mut vm = Vm::start(&lab, &Firmware::OvmfSecureBoot);
        userspace(&mut vm, &lab).await;
        assert_stages(
            &lab,
            &[
                (Stage::ProxyDhcp, "shimx64.efi"),
                (Stage::Script, "grub configuration"),
                (Stage::Kernel, ""),
            ],
        );
    });
}

/// A rack behind a router with dnsmasq as its relay agent.
#[test]
fn ovmf_behind_a_relay() {
    in_namespace("ovmf_behind_a_relay", async {
        let (lab, _relay) = Lab::start_behind_relay(IPXE).await;
        let mut vm = Vm::start(&lab, &Firmware::OvmfPxe);
        let line = userspace(&mut vm, &lab).await;
        let address = format!("rackwright.ip={RELAYED_ADDRESS}/24 rackwright.gw=10.78.0.254");
        assert!(line.contains(&address), "{line}");
        assert_stages(
            &lab,
            &[
                (
                    Stage::DhcpRequest,
                    "UEFI x86-64, through relay 10.78.0.254: given 10.78.0.10 and snponly.efi",
                ),
                (Stage::Tftp, "snponly.efi"),
                (
                    Stage::DhcpRequest,
                    "through relay 10.78.0.254: given 10.78.0.10 and its iPXE script",
                ),
                (Stage::Script, ""),
                (Stage::Kernel, ""),
            ],
        );
        lab.print_seconds("OVMF PXE behind a relay");
    });
}
