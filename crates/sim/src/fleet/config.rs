//! The configuration of a fleet.

use super::FleetError;
use super::faults::Script;
use super::profile::Profile;
use ipnet::Ipv4Net;
use rackwright_sim_bmc::AccountRules;
use rackwright_sim_bmc::UpdateSettings;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

/// Most machines of a fleet.
pub const MOST_NODES: usize = 100_000;

/// How much of a network boot machines do before they ask for their script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum BootMethod {
    /// They are iPXE from the beginning: one DHCP exchange and the script
    #[default]
    Ipxe,
    /// Firmware asks for iPXE and fetches it by TFTP, or by HTTP in a boot by UEFI HTTP; then as above
    Pxe,
}

/// What becomes of the kernel and the ramdisk that a script names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum BootFiles {
    /// They are not fetched
    #[default]
    Skip,
    /// They are fetched whole, and thrown away
    Fetch,
}

/// What becomes of an image's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ImageData {
    /// They stay in the store; only the index is fetched
    #[default]
    Skip,
    /// They are fetched and verified, and the drive remembers their digests
    Fetch,
}

/// A fleet to start. `FleetConfig::default()` is one machine with phases that take no time.
#[derive(Debug, Clone)]
pub struct FleetConfig {
    /// Number of machines, 1 to [`MOST_NODES`].
    pub nodes: usize,
    /// The machines' timing and hardware.
    pub profile: Profile,
    /// Seed of all randomness, of names that must be unique between fleets, and of the passwords.
    pub seed: u64,
    /// The BMCs' addresses: the first machine has the first host address of this network. A network below 127.0.0.0/8
    /// works without setup; any other must be routed to this machine (`ip route add local NETWORK dev lo`).
    pub network: Ipv4Net,
    /// Address of the one socket that serves all BMCs. Port 0 takes a free port.
    pub listen: SocketAddrV4,
    /// Address of the one socket that serves the SSH servers of all installed systems; `None`: no login is possible.
    pub ssh_listen: Option<SocketAddrV4>,
    /// HTTPS; otherwise plain HTTP.
    pub tls: bool,
    /// Seconds of the machines' time per real second.
    pub speed: f64,
    /// The BMCs' rules for accounts.
    pub accounts: AccountRules,
    /// Whether machines have a TPM.
    pub tpm: bool,
    /// A folder with a folder for each machine, named by its index, that holds its UEFI variables as efivarfs shows them; none: no
    /// variables are shown.
    pub efivars: Option<PathBuf>,
    /// The fault script.
    pub faults: Script,
    /// The DHCP server for network boots, which also gives the machines their addresses. Without it, a machine that boots
    /// from the network runs nothing.
    pub boot_server: Option<SocketAddrV4>,
    /// The network of the machines' own addresses, which the DHCP server assigns: the control plane has a subnet of it.
    /// Its first host address is the relay's, through which machines reach the server.
    pub hosts: Ipv4Net,
    /// How much of a network boot machines perform.
    pub boot_method: BootMethod,
    /// Whether machines fetch kernel and ramdisk.
    pub boot_files: BootFiles,
    /// Whether agents fetch the chunks of images.
    pub image_data: ImageData,
    /// Samples of each drive that an agent reads before and after an erase. A real machine reads
    /// [`rackwright_agent::erase::DEFAULT_SAMPLES`], but a real machine has its own processors for that.
    pub erase_samples: u32,
    /// The port of the TFTP server, which DHCP cannot transmit.
    pub tftp_port: u16,
    /// How BMCs accept firmware; none: they have no update service.
    pub updates: Option<UpdateSettings>,
    /// Time after a start until a settings job ends, as on Dell's BMCs; none: BMCs make no such jobs.
    pub settings_jobs: Option<Duration>,
    /// The UDP port that BMCs report for their serial console over IPMI; another program serves it.
    pub sol_port: Option<u16>,
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            nodes: 1,
            profile: Profile::Instant,
            seed: 1,
            network: Ipv4Net::new_assert(Ipv4Addr::new(127, 64, 0, 0), 10),
            listen: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            ssh_listen: None,
            tls: true,
            speed: 1.0,
            accounts: AccountRules::default(),
            tpm: true,
            efivars: None,
            faults: Script::default(),
            boot_server: None,
            hosts: Ipv4Net::new_assert(Ipv4Addr::new(127, 128, 0, 0), 10),
            boot_method: BootMethod::default(),
            boot_files: BootFiles::default(),
            image_data: ImageData::default(),
            erase_samples: 64,
            tftp_port: 69,
            updates: None,
            settings_jobs: None,
            sol_port: None,
        }
    }
}

impl FleetConfig {
    pub(super) fn check(&self) -> Result<(), FleetError> {
        let fault = |field, detail: String| Err(FleetError::Config { field, detail });
        if !(1..=MOST_NODES).contains(&self.nodes) {
            return fault("nodes", format!("must be 1 to {MOST_NODES}"));
        }
        let hosts = (1_u64 << (32 - u32::from(self.network.prefix_len()))).saturating_sub(2);
        if (self.nodes as u64) > hosts {
            let detail = format!(
                "{} has addresses for {hosts} machines, not for {}",
                self.network, self.nodes
            );
            return fault("network", detail);
        }
        if self.network.contains(&self.hosts) || self.hosts.contains(&self.network) {
            let detail = format!("{} overlaps the BMCs' network, {}", self.hosts, self.network);
            return fault("hosts", detail);
        }
        let listens = *self.listen.ip();
        if !listens.is_unspecified() && !self.addresses().any(|address| address == listens) {
            let detail = format!("{listens} is neither 0.0.0.0 nor the address of a machine's BMC");
            return fault("listen", detail);
        }
        if !listens.is_unspecified() && self.nodes > 1 {
            return fault(
                "listen",
                "one address serves only one machine; use 0.0.0.0 for more machines".to_owned(),
            );
        }
        if self.erase_samples == 0 {
            return fault("erase-samples", "must be at least 1".to_owned());
        }
        if !self.speed.is_finite() || !(0.001..=1_000_000.0).contains(&self.speed) {
            return fault("speed", "must be 0.001 to 1000000".to_owned());
        }
        Ok(())
    }

    /// Whether all BMCs are on the loopback interface.
    pub(super) fn is_loopback(&self) -> bool {
        self.network.addr().is_loopback() && self.network.prefix_len() >= 8
    }

    /// The address of the relay between the machines and the DHCP server.
    pub(super) fn relay(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.hosts.network()).saturating_add(1))
    }

    fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        (0..self.nodes).map(|index| self.address(index))
    }

    /// The address of a machine's BMC.
    pub(super) fn address(&self, index: usize) -> Ipv4Addr {
        let offset = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
        Ipv4Addr::from(u32::from(self.network.network()).saturating_add(offset))
    }

    /// The machine with the BMC at this address.
    pub(super) fn index(&self, address: Ipv4Addr) -> Option<usize> {
        let offset = u32::from(address).checked_sub(u32::from(self.network.network()))?;
        let index = usize::try_from(offset.checked_sub(1)?).ok()?;
        (index < self.nodes).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_machines_belong_together() {
        let config = FleetConfig {
            nodes: 10_000,
            ..FleetConfig::default()
        };
        config.check().unwrap();
        assert_eq!(config.address(0), Ipv4Addr::new(127, 64, 0, 1));
        assert_eq!(config.address(9_999), Ipv4Addr::new(127, 64, 39, 16));
        for index in [0, 1, 255, 256, 9_999] {
            assert_eq!(config.index(config.address(index)), Some(index));
        }
        for stranger in [
            [127, 64, 0, 0],
            [127, 64, 39, 17],
            [127, 0, 0, 1],
            [10, 0, 0, 1],
            [255; 4],
        ] {
            assert_eq!(config.index(stranger.into()), None);
        }
    }

    #[test]
    fn impossible_fleets_are_refused_by_field() {
        let base = FleetConfig::default;
        for (config, field) in [
            (FleetConfig { nodes: 0, ..base() }, "nodes"),
            (
                FleetConfig {
                    nodes: 100_001,
                    ..base()
                },
                "nodes",
            ),
            (
                FleetConfig {
                    nodes: 255,
                    network: "127.64.0.0/24".parse().unwrap(),
                    ..base()
                },
                "network",
            ),
            (
                FleetConfig {
                    network: "127.64.0.0/32".parse().unwrap(),
                    ..base()
                },
                "network",
            ),
            (
                FleetConfig {
                    hosts: "127.64.1.0/24".parse().unwrap(),
                    ..base()
                },
                "hosts",
            ),
            (
                FleetConfig {
                    listen: "127.0.0.1:0".parse().unwrap(),
                    ..base()
                },
                "listen",
            ),
            (
                FleetConfig {
                    nodes: 2,
                    listen: "127.64.0.1:0".parse().unwrap(),
                    ..base()
                },
                "listen",
            ),
            (
                FleetConfig {
                    speed: f64::NAN,
                    ..base()
                },
                "speed",
            ),
            (FleetConfig { speed: 0.0, ..base() }, "speed"),
            (
                FleetConfig {
                    boot_server: Some("127.0.0.1:67".parse().unwrap()),
                    hosts: "127.64.1.0/24".parse().unwrap(),
                    ..base()
                },
                "hosts",
            ),
        ] {
            match config.check() {
                Err(FleetError::Config { field: found, .. }) => assert_eq!(found, field),
                other => panic!("{config:?}: {other:?}"),
            }
        }
        let one = FleetConfig {
            listen: "127.64.0.1:0".parse().unwrap(),
            ..base()
        };
        one.check().unwrap();
    }
}
