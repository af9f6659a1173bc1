//! Real machines and a simulated one on one network, their control plane, and a hostile host on the same network.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use rackwright_lab::{Lab, LabConfig, Machine, Namespace, SERVER_IPV4};
use rackwright_sim::fleet::{BootFiles, Fleet, FleetConfig, Format, ImageData, Profile, SimNode};
use rackwright_tests::bridge_host::{BridgeHost, CARD, ip};
use rackwright_tests::customer::customer_key;
use rackwright_tests::flood::{Flood, HTTP, Speed, TLS, raise_open_files};
use rackwright_tests::site::{BOOT, Settings, Site};
use rackwright_tests::{member, process};
use serde_json::Value;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

/// The hostile host's own address.
pub const HOSTILE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Its address for calls. The flood does not come from it, and takes no connection of it.
pub const CALLER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 19);
/// Its address while it has a copied MAC address, before the DHCP server gives it the machine's.
const COPY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 61);
/// The host that the simulated machines are on.
const SIMULATION: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
/// The networks of the simulated machines and of their BMCs.
const SIMULATED: [u8; 3] = [10, 78, 0];
const SIMULATED_BMCS: &str = "10.78.1.0/24";
/// How long a part of an attack may take that needs no boot.
pub const SHORT: Duration = Duration::from_secs(60);
/// The nodes of the real machines.
pub const NODES: [&str; 2] = ["n1", "n2"];
/// Few enough for a flood from one host to reach each limit.
const LIMITS: &str = "connections: {unauthenticated: 96, boot_http: 96, per_address: 8}\n";
/// Most memory of a control plane under attack, in bytes. Without an attack it has some 90 MiB.
const MEMORY: u64 = 256 << 20;

/// The host name that the customer of a node gives it.
pub fn host_name(id: &str) -> String {
    format!("{id}-of-a-customer")
}

pub struct Hall {
    pub lab: Lab,
    pub site: Site,
    pub hostile: BridgeHost,
    /// The customer's key pair: the file of the private half.
    pub key: PathBuf,
    simulation: BridgeHost,
    fleet: Fleet,
}

impl Hall {
    /// Starts it: two real machines, and a simulated one on a third host. No machine is enrolled yet.
    pub async fn start(namespace: &Namespace, config: LabConfig) -> Self {
        raise_open_files();
        let lab = Lab::start(namespace, LabConfig { machines: 2, ..config }).await;
        let settings = Settings {
            boots: 3,
            relayed: vec![SIMULATED],
            further: LIMITS.to_owned(),
            ..Settings::default()
        };
        let site = Site::start(&namespace.state_dir().join("site"), &settings).await;
        site.add_image("tiny", "tiny.raw.zst");
        let hostile = BridgeHost::with_address(HOSTILE);
        hostile.ip(&format!("addr add {CALLER}/24 dev {CARD}"));
        let simulation = BridgeHost::with_address(SIMULATION);
        let fleet = simulate(&simulation).await;
        let file = site.dir().join("simulated.yaml");
        let mut text = Vec::new();
        let described = fleet.describe(Format::Yaml, None, &mut text);
        described.expect("the fleet can be described");
        std::fs::write(&file, text).expect("the file can be written");
        site.cli(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]);
        let lab = lab.expect("the lab starts");
        for (at, id) in NODES.iter().enumerate() {
            site.enroll(id, lab.machine(at));
        }
        let key = customer_key(site.dir());
        Self {
            lab,
            site,
            hostile,
            key,
            simulation,
            fleet,
        }
    }

    /// The machine of a node.
    pub fn machine(&self, id: &str) -> &Machine {
        let at = NODES.iter().position(|node| *node == id);
        self.lab.machine(at.expect("a node of the hall"))
    }

    pub fn simulated(&self) -> SimNode {
        self.fleet.node(0)
    }

    /// The hostile host under the MAC address of a node's machine.
    pub fn copy_of(&self, id: &str) -> (BridgeHost, String) {
        let mac = self.machine(id).mac().to_owned();
        let host = BridgeHost::plug_in(Some(&mac));
        host.ip(&format!("addr add {COPY}/24 dev {CARD}"));
        (host, mac)
    }

    /// Waits until the node is in this state.
    pub async fn becomes(&self, id: &str, wanted: &str) {
        let ends = [wanted, "failed", "quarantined"];
        let state = self.site.until(id, &ends, BOOT).await;
        assert_eq!(
            state,
            wanted,
            "{id}: {}\n{}",
            self.site.reason(id),
            self.site.log_tail()
        );
    }

    /// Waits until all machines, real and simulated, are in this state.
    pub async fn all_become(&self, wanted: &str) {
        for id in NODES {
            self.becomes(id, wanted).await;
        }
        self.becomes(&self.simulated().name(), wanted).await;
    }

    /// Deploys a node for a customer, whose key and host name are in the seed.
    pub fn deploy(&self, id: &str) {
        let (key, name) = (self.key.with_extension("pub"), host_name(id));
        let key = key.display().to_string();
        let wishes = ["--verify-disk", "--ssh-key", &key, "--hostname", &name];
        self.site
            .cli(["node", "deploy", id, "--image", "tiny"].into_iter().chain(wishes));
    }

    pub fn events(&self, id: &str, kind: &str) -> Vec<Value> {
        self.site.events(&format!("nodes/{id}"), kind)
    }

    /// Waits until there are `count` events of this kind, and returns them.
    pub async fn until_reported(&self, id: &str, kind: &str, count: usize) -> Vec<Value> {
        let target = format!("nodes/{id}");
        self.site.until_reported(&target, kind, count, BOOT).await
    }

    /// The erase certificates of a node.
    pub fn certificates(&self, id: &str) -> Value {
        self.site.json(["node", "certificates", id])
    }

    /// The API as a client without a certificate reaches it from the hostile host.
    pub fn stranger(&self) -> Endpoint {
        let authority = Certificate::from_pem(member::authority(&self.site.dir().join("cli")));
        let tls = ClientTlsConfig::new().ca_certificate(authority);
        let endpoint = Endpoint::from_shared(format!("https://{SERVER_IPV4}:7070")).expect("a URL");
        let endpoint = endpoint.local_address(Some(CALLER.into()));
        endpoint.tls_config(tls).expect("PEM")
    }

    /// Floods boot HTTP, API and image store from the hostile host: silent connections of one address, and unfinished
    /// requests from many addresses. They last until they are dropped.
    pub async fn flood(&self) -> Vec<Flood> {
        let many: Vec<Ipv4Addr> = (20..50).map(|n| Ipv4Addr::new(10, 77, 0, n)).collect();
        for address in &many {
            self.hostile.ip(&format!("addr add {address}/24 dev {CARD}"));
        }
        self.hostile
            .run(async move {
                let mut floods = Vec::new();
                for (port, head) in [(8080, HTTP), (7070, TLS), (7443, TLS)] {
                    let target = SocketAddrV4::new(SERVER_IPV4, port);
                    floods.push(Flood::start(target, 60, &[HOSTILE], Speed::Silent).await);
                    floods.push(Flood::start(target, 120, &many, Speed::Slow(head)).await);
                }
                floods
            })
            .await
    }

    /// The control plane has used a bounded amount of memory since its start.
    pub fn memory_is_bounded(&self) {
        let peak = process::memory(self.site.pid(), "VmHWM");
        println!("the control plane used {} MiB at most", peak >> 20);
        assert!(peak < MEMORY, "the control plane used {peak} bytes");
    }

    pub async fn end(self) {
        // Stopped first: the control plane logs out of each BMC.
        self.site.stop().await;
        self.simulation.run(self.fleet.stop()).await;
        self.lab.stop().await.expect("the lab ends");
    }
}

/// One simulated machine, on a host of its own: the host has the addresses of the machine and of its BMC, and is their router.
async fn simulate(host: &BridgeHost) -> Fleet {
    let [a, b, c] = SIMULATED;
    let hosts = format!("{a}.{b}.{c}.0/24");
    for network in [&hosts, SIMULATED_BMCS] {
        host.ip(&format!("route add local {network} dev lo"));
        ip(&format!("route add {network} via {SIMULATION}"));
    }
    let config = FleetConfig {
        profile: Profile::Vm,
        tpm: false,
        network: SIMULATED_BMCS.parse().expect("a network"),
        hosts: hosts.parse().expect("a network"),
        boot_server: Some(SocketAddrV4::new(SERVER_IPV4, 67)),
        boot_files: BootFiles::Fetch,
        image_data: ImageData::Fetch,
        ssh_listen: Some(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 22)),
        ..FleetConfig::default()
    };
    host.run(Fleet::start(config)).await.expect("the fleet starts")
}
