//! A control plane on the loopback interface, and clients of its API.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rackwright_sim::fleet::{Fleet, FleetConfig, Format};
use rackwright_tests::member;
use rackwright_tests::ports::free_port;
use rackwright_tests::process;
use rackwright_tests::site::Site;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// Generous: the control plane shares the computer with other tests.
pub const TEST_LIMIT: Duration = Duration::from_secs(120);

/// A control plane.
pub struct Plane {
    pub site: Site,
    pub api: u16,
    pub store: u16,
    pub http: u16,
    pub dhcp: u16,
    pub tftp: u16,
    config: String,
}

impl Plane {
    /// Starts a control plane with further lines of settings.
    pub async fn start(dir: &Path, further: &str) -> Self {
        Self::start_with_caches(dir, "", further).await
    }

    /// Starts with these members as caches of the image store.
    pub async fn start_with_caches(dir: &Path, caches: &str, further: &str) -> Self {
        let [api, store, dhcp, tftp, http] = std::array::from_fn(|_| free_port());
        for file in ["vmlinuz", "initrd", "ipxe.efi"] {
            std::fs::write(dir.join(file), file.repeat(10_000)).expect("the file can be written");
        }
        let dir_text = dir.display();
        let config = format!(
            "data_dir: {dir_text}/data\napi: {{listen: \"127.0.0.1:{api}\", names: [\"127.0.0.1\"]}}\n\
             store: {{listen: \"127.0.0.1:{store}\", caches: [{caches}]}}\n\
             boot:\n  ramdisk: {{kernel: {dir_text}/vmlinuz, initrd: {dir_text}/initrd}}\n  network:\n    \
             server_ip: 127.0.0.1\n    interface: lo\n    dhcp_port: {dhcp}\n    tftp_port: {tftp}\n    \
             http_port: {http}\n    first_stages: {{ipxe.efi: {dir_text}/ipxe.efi}}\n    dhcp:\n      server:\n        subnets:\n        \
             - network: 127.128.0.0/10\n          pool: {{first: 127.128.1.0, last: 127.128.1.255}}\n\
             policy: {{power_off_s: 1, backoff_s: 1, backoff_max_s: 5, tries: 4, agent_grace_s: 5, agent_boot_s: 60}}\n"
        );
        Self {
            site: Site::start_with(dir, &format!("{config}{further}")).await,
            api,
            store,
            http,
            dhcp,
            tftp,
            config,
        }
    }

    /// Restarts the control plane with other further lines.
    pub async fn restart_with(&mut self, further: &str) {
        self.site.kill().await;
        let file = self.site.dir().join("rackwrightd.yaml");
        std::fs::write(file, format!("{}{further}", self.config)).expect("the file can be written");
        self.site.restart().await;
    }

    /// Resident memory of the control plane, in bytes.
    pub fn memory(&self) -> u64 {
        process::memory(self.site.pid(), "VmRSS")
    }

    /// The first operator's certificate and key.
    pub fn operator(&self) -> Identity {
        member::identity(&self.site.dir().join("cli"))
    }

    /// A separate connection, which is made at the first call.
    pub fn channel(&self, identity: Option<Identity>) -> Channel {
        let authority = Certificate::from_pem(member::authority(&self.site.dir().join("cli")));
        let mut tls = ClientTlsConfig::new().ca_certificate(authority);
        if let Some(identity) = identity {
            tls = tls.identity(identity);
        }
        let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{}", self.api)).expect("it is a URL");
        endpoint.tls_config(tls).expect("the files are PEM").connect_lazy()
    }

    /// Starts a simulated machine that boots from this control plane, enrols it and waits for its inspection.
    pub async fn machine(&self) -> Fleet {
        let config = FleetConfig {
            boot_server: Some(SocketAddrV4::new([127, 0, 0, 1].into(), self.dhcp)),
            tftp_port: self.tftp,
            boot_files: rackwright_sim::fleet::BootFiles::Fetch,
            image_data: rackwright_sim::fleet::ImageData::Fetch,
            ..FleetConfig::default()
        };
        let fleet = Fleet::start(config).await.expect("the fleet starts");
        let mut text = Vec::new();
        let described = fleet.describe(Format::Yaml, None, &mut text);
        described.expect("the fleet can be described");
        let file = self.site.dir().join("nodes.yaml");
        std::fs::write(&file, text).expect("the file can be written");
        tokio::task::block_in_place(|| self.site.cli(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]));
        self.site.until(&fleet.node(0).name(), &["available"], TEST_LIMIT).await;
        fleet
    }
}

/// A file in place of a disk image: no machine starts it.
pub fn image(dir: &Path) -> PathBuf {
    let path = dir.join("disk.raw");
    let content: Vec<u8> = (0..8_u32 << 18)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    std::fs::write(&path, content).expect("the image can be written");
    path
}
