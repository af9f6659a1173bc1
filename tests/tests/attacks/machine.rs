//! Control planes with simulated machines that several modules of attacks start in the same way.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rackwright_sim::fleet::{Fleet, FleetConfig, Format, Profile, SimNode};
use rackwright_sim::install_crypto;
use rackwright_tests::plane::Plane;
use rackwright_tests::ports::free_port;
use rackwright_tests::site::{POLL, Site, out_or_error, program};
use serde_json::Value;
use tempfile::TempDir;

pub const TEST_LIMIT: Duration = Duration::from_secs(180);
/// A customer's login key, which is a part of the seed.
pub const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA9Nf8gnELrYx6K/bPXBRt0Q3kQb6ujVbhL6rVQIzJgo customer";

/// A control plane and its machines.
pub struct Setup<'a> {
    pub nodes: usize,
    pub profile: Profile,
    /// Whether the machines have TPMs.
    pub tpm: bool,
    /// The kernel that the control plane serves to the machines.
    pub kernel: &'a [u8],
    /// First and last address that the DHCP server gives to machines.
    pub pool: [Ipv4Addr; 2],
    /// Address and port of the installed systems' SSH servers.
    pub ssh: SocketAddrV4,
    pub agent_quiet_s: u32,
    /// Whether the machines are enrolled.
    pub enrols: bool,
    /// Further settings of the control plane.
    pub more: &'a str,
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self {
            nodes: 1,
            profile: Profile::Instant,
            tpm: true,
            kernel: b"vmlinuz",
            pool: [Ipv4Addr::new(127, 128, 1, 0), Ipv4Addr::new(127, 128, 1, 255)],
            ssh: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, free_port()),
            agent_quiet_s: 1,
            enrols: true,
            more: "",
        }
    }
}

impl Setup<'_> {
    /// Starts the control plane and the machines, enrols the machines, and adds the image "disk". `prepare` changes the
    /// machines before they are enrolled.
    pub async fn start(self, prepare: impl FnOnce(&Fleet)) -> Bench {
        install_crypto();
        let dir = tempfile::tempdir().expect("a folder");
        let ports = std::array::from_fn(|_| free_port());
        let site = Site::start_with(dir.path(), &self.settings(dir.path(), ports)).await;
        let dhcp = SocketAddrV4::new(Ipv4Addr::LOCALHOST, ports[2]);
        let config = FleetConfig {
            nodes: self.nodes,
            profile: self.profile,
            tpm: self.tpm,
            boot_server: Some(dhcp),
            ssh_listen: Some(self.ssh),
            ..FleetConfig::default()
        };
        let fleet = Fleet::start(config).await.expect("the fleet starts");
        prepare(&fleet);
        if self.enrols {
            enrol(&site, &fleet, dir.path());
        }
        add_image(&site, dir.path());
        Bench { site, fleet, dhcp, dir }
    }

    fn settings(&self, dir: &Path, [api, store, dhcp, tftp, http]: [u16; 5]) -> String {
        for (file, content) in [("vmlinuz", self.kernel), ("initrd", b"initrd")] {
            std::fs::write(dir.join(file), content).expect("the file can be written");
        }
        let (dir, ssh, [first, last]) = (dir.display(), self.ssh.port(), self.pool);
        let (agent_quiet_s, more) = (self.agent_quiet_s, self.more);
        format!(
            "data_dir: {dir}/data\napi: {{listen: \"127.0.0.1:{api}\", names: [\"127.0.0.1\"]}}\n\
             store: {{listen: \"127.0.0.1:{store}\"}}\nssh_port: {ssh}\n\
             boot:\n  ramdisk: {{kernel: {dir}/vmlinuz, initrd: {dir}/initrd}}\n  network:\n    \
             server_ip: 127.0.0.1\n    interface: lo\n    dhcp_port: {dhcp}\n    tftp_port: {tftp}\n    \
             http_port: {http}\n    first_stages: {{}}\n    dhcp:\n      server:\n        subnets:\n        \
             - network: 127.128.0.0/10\n          pool: {{first: {first}, last: {last}}}\n\
             policy: {{power_off_s: 1, backoff_s: 1, backoff_max_s: 5, tries: 3, agent_grace_s: 2, agent_boot_s: 90, \
             agent_quiet_s: {agent_quiet_s}}}\n{more}"
        )
    }
}

/// Enrols the machines of a fleet.
fn enrol(site: &Site, fleet: &Fleet, dir: &Path) {
    let mut text = Vec::new();
    fleet
        .describe(Format::Yaml, None, &mut text)
        .expect("it can be described");
    let file = dir.join("nodes.yaml");
    std::fs::write(&file, text).expect("the file can be written");
    tokio::task::block_in_place(|| site.cli(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]));
}

/// Adds the image "disk".
fn add_image(site: &Site, dir: &Path) {
    let image = dir.join("disk.raw");
    let content: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&image, content).expect("the image can be written");
    site.cli(["image", "add", "disk", "--file", &image.display().to_string()]);
}

/// A running [`Setup`]. The methods are about its first machine.
pub struct Bench {
    pub site: Site,
    pub fleet: Fleet,
    pub dhcp: SocketAddrV4,
    /// The data folder and the settings of the control plane; dropping it removes them.
    pub dir: TempDir,
}

impl Bench {
    pub fn node(&self) -> SimNode {
        self.fleet.node(0)
    }

    pub fn id(&self) -> String {
        self.node().name()
    }

    pub async fn until(&self, states: &[&str]) -> String {
        self.site.until(&self.id(), states, TEST_LIMIT).await
    }

    pub fn deploy(&self) {
        self.site
            .cli(["node", "deploy", &self.id(), "--image", "disk", "--ssh-key", KEY]);
    }

    pub fn release(&self) {
        self.site.cli(["node", "release", "--yes", &self.id()]);
    }

    pub fn status(&self) -> Value {
        self.site.json(["node", "get", &self.id()])["status"].clone()
    }

    pub fn certificates(&self) -> String {
        self.site.json(["node", "certificates", &self.id()]).to_string()
    }

    pub fn events(&self, kind: &str) -> Vec<Value> {
        self.site.events(&format!("nodes/{}", self.id()), kind)
    }

    pub async fn until_reported(&self, kind: &str, count: usize) -> Vec<Value> {
        let target = format!("nodes/{}", self.id());
        self.site.until_reported(&target, kind, count, TEST_LIMIT).await
    }

    pub async fn end(self) {
        // Stopped first: the control plane logs out of each BMC.
        self.site.stop().await;
        self.fleet.stop().await;
    }
}

/// A control plane and one enrolled machine that boots by PXE, with an image "disk".
pub async fn pxe_machine(dir: &Path) -> (Plane, Fleet) {
    install_crypto();
    let ssh = free_port();
    let further = format!("ssh_port: {ssh}\nnetwork_test: {{enabled: false}}\n");
    let plane = Plane::start_with(dir, "pxe", &further).await;
    let config = FleetConfig {
        nodes: 1,
        boot_server: Some(plane.dhcp),
        tftp_port: plane.tftp_port,
        ssh_listen: Some(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, ssh)),
        ..FleetConfig::default()
    };
    let fleet = Fleet::start(config).await.expect("the fleet starts");
    plane.enrol(&fleet, |_| "lab".to_owned()).await;
    let image = dir.join("disk.raw");
    std::fs::write(&image, vec![7; 1 << 20]).expect("an image");
    let image = image.display().to_string();
    plane
        .site
        .cli(["image", "add", "disk", "--file", &image, "--format", "raw"]);
    (plane, fleet)
}

/// `rackwrightd COMMAND` beside the running daemon: standard output, or the error.
pub fn rackwrightd(dir: &Path, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program("rackwrightd"));
    command.args(words).arg("--config").arg(dir.join("rackwrightd.yaml"));
    out_or_error(&command.output().expect("rackwrightd can be started"))
}

/// Waits until a condition holds, which may take some rounds of the daemon.
pub async fn until(site: &Site, what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + TEST_LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}\n{}", site.log_tail());
        tokio::time::sleep(POLL).await;
    }
}
