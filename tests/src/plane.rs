//! A control plane on the loopback interface, and simulated machines that boot from it.

use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rackwright_sim::fleet::{Fleet, FleetConfig, Format, Systems};

use crate::ports::free_port;
use crate::site::Site;

/// Generous: the control plane shares the computer with other tests.
pub const TEST_LIMIT: Duration = Duration::from_secs(120);

/// A control plane on the loopback interface.
#[derive(Debug)]
pub struct Plane {
    /// The control plane and its CLI.
    pub site: Site,
    /// Address of its DHCP server.
    pub dhcp: SocketAddrV4,
    /// Port of its TFTP server.
    pub tftp_port: u16,
}

impl Plane {
    /// Starts a control plane with its data below `dir`.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(dir: &Path) -> Self {
        Self::start_with(dir, "pxe", "").await
    }

    /// Starts a control plane with boot method `method` (pxe or uefi-http) and further lines of settings.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_with(dir: &Path, method: &str, further: &str) -> Self {
        let [api, store, dhcp, tftp, http] = std::array::from_fn(|_| free_port());
        for file in ["vmlinuz", "initrd", "snponly.efi", "ipxe.efi"] {
            std::fs::write(dir.join(file), file.repeat(10_000)).expect("the file can be written");
        }
        let dir_text = dir.display();
        let config = format!(
            "data_dir: {dir_text}/data\napi: {{listen: \"127.0.0.1:{api}\", names: [\"127.0.0.1\"]}}\n\
             store: {{listen: \"127.0.0.1:{store}\"}}\n\
             boot:\n  method: {method}\n  ramdisk: {{kernel: {dir_text}/vmlinuz, initrd: {dir_text}/initrd}}\n  network:\n    \
             server_ip: 127.0.0.1\n    interface: lo\n    dhcp_port: {dhcp}\n    tftp_port: {tftp}\n    \
             http_port: {http}\n    first_stages: {{snponly.efi: {dir_text}/snponly.efi, ipxe.efi: {dir_text}/ipxe.efi}}\n    dhcp:\n      server:\n        subnets:\n        \
             - network: 127.128.0.0/10\n          pool: {{first: 127.128.1.0, last: 127.128.1.255}}\n\
             policy: {{power_off_s: 1, backoff_s: 1, backoff_max_s: 5, tries: 2, firmware_s: 720, agent_grace_s: 2, agent_boot_s: 30}}\n{further}"
        );
        Self {
            site: Site::start_with(dir, &config).await,
            dhcp: SocketAddrV4::new([127, 0, 0, 1].into(), dhcp),
            tftp_port: tftp,
        }
    }

    /// Starts machines that boot from it, enrols them and waits for the end of their inspection.
    ///
    /// # Panics
    /// If that fails.
    pub async fn machines(&self, config: FleetConfig, systems: Arc<dyn Systems>) -> Fleet {
        let config = FleetConfig {
            boot_server: Some(self.dhcp),
            tftp_port: self.tftp_port,
            ..config
        };
        let fleet = Fleet::with_systems(config, systems).await.expect("the fleet starts");
        self.enrol(&fleet, |_| "lab".to_owned()).await;
        fleet
    }

    /// Enrols machines on the circuits that `circuit` returns, and waits for the end of their inspection.
    ///
    /// # Panics
    /// If that fails.
    pub async fn enrol(&self, fleet: &Fleet, circuit: impl Fn(usize) -> String) {
        let file = self.site.dir().join("nodes.yaml");
        let mut text = Vec::new();
        fleet
            .describe(Format::Yaml, None, &mut text)
            .expect("the fleet can be described");
        let mut text = String::from_utf8(text).expect("it is text");
        for index in 0..fleet.nodes() {
            let id = format!("id: {}\n", fleet.node(index).name());
            let labels = format!("labels: {{circuit: {}}}\n", circuit(index));
            text = text.replace(&id, &format!("{id}{labels}"));
        }
        std::fs::write(&file, text).expect("the file can be written");
        let enrolled =
            tokio::task::block_in_place(|| self.site.cli(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]));
        assert_eq!(enrolled.matches("enrolled").count(), fleet.nodes(), "{enrolled}");
        for index in 0..fleet.nodes() {
            let id = fleet.node(index).name();
            self.site.until(&id, &["available"], TEST_LIMIT).await;
        }
    }
}
