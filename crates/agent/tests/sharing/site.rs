//! A site in this process: its authority, the key of its tickets, an image in a chunk store with HTTPS, and machines with
//! files as drives.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rackwright_agent::cmdline::Mac;
use rackwright_agent::drives::file::{FileDrive, FileDrives};
use rackwright_agent::drives::{DriveFacts, Drives};
use rackwright_agent::efi::vars::EfiVars;
use rackwright_agent::erase::DriveEraser;
use rackwright_agent::host::{Host, KernelHost, Presence};
use rackwright_agent::identity::{Identity, IdentityError};
use rackwright_agent::jobs::control::JobControl;
use rackwright_agent::jobs::power::{Power, PowerAction};
use rackwright_agent::jobs::runner::JobRunner;
use rackwright_agent::jobs::write::FinishError;
use rackwright_agent::jobs::writer::{ImageWriter, StoreWriter, WriteRequest, WriteSummary};
use rackwright_agent::ledger::{Ledger, LedgerError};
use rackwright_agent::machine::Machine;
use rackwright_agent::medium::BootSecret;
use rackwright_agent::root::SysRoot;
use rackwright_api::v1::job::Work;
use rackwright_api::v1::job_report::Result as JobResult;
use rackwright_api::v1::{Inventory, Job, JobError, JobReport, JobState, Peers, WriteImage, WriteImageResult};
use rackwright_fanout::{Span, TableSettings};
use rackwright_identity::ClientIdentity;
use rackwright_image::{ImageDigest, Index};
use rackwright_peers::SignedTicket;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::WAIT;
use crate::image::server::{Fault, Server};
use crate::image::{Fixture, noise};
use crate::keys::SiteKeys;
use crate::plane::{Plane, PlaneSettings};

/// A quarter of this holds every image here.
const MEMORY_KB: u64 = 4 << 20;
const MIB: u64 = 1 << 20;

pub struct Site {
    pub keys: SiteKeys,
    pub image: ImageDigest,
    pub index: Arc<Index>,
    pub disk: Arc<Vec<u8>>,
    pub store: Server,
    pub fixture: Fixture,
    pub port: u16,
}

impl Site {
    /// An image of noise with this number of chunks, the last of which is short.
    pub fn new(chunks: usize) -> Self {
        // One provider is used by all parts of this process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let fixture = Fixture::new();
        let disk = noise(77, chunks * rackwright_image::CHUNK_SIZE - 1_000_448);
        let image = fixture.add(&disk);
        let index = Arc::new(fixture.store.index(&image).unwrap());
        assert_eq!(index.data().len(), chunks);
        let keys = SiteKeys::new().unwrap();
        let tls = keys.server_tls(&["127.0.0.1"]).unwrap();
        let store = Server::start_with(&fixture.store, Box::new(|_, _| Fault::None), Some(tls));
        Self {
            keys,
            image,
            index,
            disk: Arc::new(disk),
            store,
            fixture,
            port: rackwright_free_port::free_port().unwrap(),
        }
    }

    /// A control plane on 127.0.0.1. Nodes with `left` in their names are one rack, all others another.
    pub async fn plane(&self) -> Plane {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let settings = PlaneSettings {
            ca_pem: self.keys.ca_pem.clone(),
            server: self.keys.server(&["127.0.0.1"]).unwrap(),
            chunks: self.index.data().len() as u32,
            table: TableSettings {
                // A busy computer is slow, and a lease that ends early costs a second copy.
                expected: Span::seconds(20),
                ..TableSettings::default()
            },
            rack: |node| u32::from(node.contains("left")),
        };
        Plane::start(listener, settings).unwrap()
    }

    /// A ticket of a customer for the image, an hour long.
    pub fn ticket(&self, of: &ClientIdentity, customer: &str) -> SignedTicket {
        self.keys.ticket(&self.image, of, customer).unwrap()
    }

    pub fn peers(&self, of: &ClientIdentity) -> Peers {
        self.keys
            .peers(&self.image, of, "customers/physics", self.port)
            .unwrap()
    }

    /// How often each chunk was requested from the store.
    pub fn store_requests(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (path, _) in self.store.requests() {
            if path.starts_with("/chunks/") {
                *counts.entry(path).or_default() += 1;
            }
        }
        counts
    }

    /// A machine with this node's name, and an address of its own on the loopback interface.
    pub fn node(&self, name: &str, address: u8, plane_url: &str) -> Node {
        let identity = agent(name);
        let folder = self.fixture.path(name);
        fs::create_dir_all(folder.join("proc")).unwrap();
        fs::write(folder.join("proc/meminfo"), format!("MemAvailable: {MEMORY_KB} kB\n")).unwrap();
        let drive = folder.join("vda");
        let size = self.disk.len() as u64 + 64 * MIB;
        fs::File::create(&drive).unwrap().set_len(size).unwrap();
        let drives = FileDrives {
            drives: vec![FileDrive {
                name: "vda".into(),
                serial_number: "S1".into(),
                path: drive.clone(),
            }],
        };
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, address));
        let host: Arc<dyn Host> = Arc::new(LoopbackHost {
            kernel: KernelHost {
                root: SysRoot::below(&folder),
            },
            address,
        });
        let written: Arc<Mutex<Vec<bool>>> = Arc::default();
        let machine = Machine {
            drives: Arc::new(drives),
            writer: Arc::new(Checked {
                disk: self.disk.clone(),
                equal: written.clone(),
            }),
            eraser: Arc::new(DriveEraser),
            power: Arc::new(NoPower),
            host: host.clone(),
        };
        let runner = JobRunner::new(Arc::new(machine), host.ledger().unwrap());
        runner.set_credentials(self.keys.credentials(&identity).unwrap());
        runner.sharing().set_servers(vec![plane_url.to_owned()]);
        Node {
            identity,
            address,
            drive,
            host,
            runner,
            written,
        }
    }
}

/// The agent of a node in its claim generation 7.
pub fn agent(node: &str) -> ClientIdentity {
    crate::keys::agent(node).unwrap()
}

/// An agent's jobs on its machine.
pub struct Node {
    pub identity: ClientIdentity,
    pub address: IpAddr,
    drive: PathBuf,
    pub host: Arc<dyn Host>,
    pub runner: Arc<JobRunner>,
    written: Arc<Mutex<Vec<bool>>>,
}

impl Node {
    pub fn job(&self, site: &Site, operation: &str, peers: Option<Peers>) -> Job {
        let work = WriteImage {
            store_urls: vec![site.store.url()],
            image_digest: site.image.to_string(),
            memory_budget_bytes: 128 * MIB,
            peers,
            ..WriteImage::default()
        };
        Job {
            operation: operation.into(),
            claim_generation: 7,
            deadline_s: 300,
            work: Some(Work::WriteImage(work)),
        }
    }

    /// Begins to write the site's image with peers.
    pub fn begin(&self, site: &Site) {
        self.runner
            .submit(self.job(site, "op-1", Some(site.peers(&self.identity))));
    }

    async fn report(&self, operation: &str, is_wanted: impl Fn(&JobReport) -> bool) -> JobReport {
        let wait = async {
            loop {
                let (reports, _) = self.runner.snapshot();
                if let Some(report) = reports.into_iter().find(|report| report.operation == operation)
                    && is_wanted(&report)
                {
                    return report;
                }
                self.runner.changed().await;
            }
        };
        let name = &self.identity.common_name;
        timeout(WAIT, wait)
            .await
            .unwrap_or_else(|_| panic!("{name}: no report"))
    }

    /// Waits until this number of bytes is written.
    pub async fn progress(&self, bytes: u64) {
        let far = |report: &JobReport| {
            let progress = report.progress.clone().unwrap_or_default();
            progress.logical_bytes >= bytes || report.state() != JobState::Running
        };
        self.report("op-1", far).await;
    }

    pub async fn ended(&self, operation: &str) -> JobReport {
        self.report(operation, |report| report.state() != JobState::Running)
            .await
    }

    /// Waits for the end of the job, and compares the drive with the image.
    pub async fn finish(&self, site: &Site) -> (WriteImageResult, String) {
        let report = self.ended("op-1").await;
        let name = &self.identity.common_name;
        assert_eq!(report.state(), JobState::Succeeded, "{name}: {:?}", report.error);
        assert_eq!(*self.written.lock().unwrap(), [true], "{name}: the drive is the image");
        assert!(fs::read(&self.drive).unwrap()[..site.disk.len()] == site.disk[..]);
        let Some(JobResult::WriteImage(result)) = report.result else {
            panic!("{name}: no result")
        };
        (result, report.progress.unwrap_or_default().step)
    }
}

/// The writer of the product, without the partition table and the seed, which noise does not have.
struct Checked {
    disk: Arc<Vec<u8>>,
    equal: Arc<Mutex<Vec<bool>>>,
}

impl ImageWriter for Checked {
    fn logical_bytes(&self, request: &WriteRequest, control: &JobControl) -> Result<u64, JobError> {
        StoreWriter.logical_bytes(request, control)
    }

    fn write(&self, request: &WriteRequest, drive: &Path, control: &JobControl) -> Result<WriteSummary, JobError> {
        StoreWriter.write(request, drive, control)
    }

    fn finish(&self, facts: &DriveFacts, _: &BTreeMap<String, Vec<u8>>) -> Result<(), FinishError> {
        let found = fs::read(&facts.node).unwrap();
        self.equal
            .lock()
            .unwrap()
            .push(found[..self.disk.len()] == self.disk[..]);
        Ok(())
    }
}

struct NoPower;

impl Power for NoPower {
    fn perform(&self, _: PowerAction) -> io::Result<()> {
        Ok(())
    }
}

/// A host with an address of its own on the loopback interface.
struct LoopbackHost {
    kernel: KernelHost,
    address: IpAddr,
}

impl Host for LoopbackHost {
    fn boot_id(&self) -> String {
        self.kernel.boot_id()
    }

    fn uptime_s(&self) -> f64 {
        self.kernel.uptime_s()
    }

    fn system_uuid(&self) -> String {
        self.kernel.system_uuid()
    }

    fn inventory(&self, drives: &dyn Drives) -> Inventory {
        self.kernel.inventory(drives)
    }

    fn presence(&self, server: &str, boot_mac: Option<Mac>) -> Presence {
        self.kernel.presence(server, boot_mac)
    }

    fn source_address(&self) -> Option<IpAddr> {
        Some(self.address)
    }

    fn available_memory(&self) -> Option<u64> {
        self.kernel.available_memory()
    }

    fn set_clock(&self, unix_s: i64) -> io::Result<()> {
        self.kernel.set_clock(unix_s)
    }

    fn mark(&self, _: &str) {}

    fn ledger(&self) -> Result<Ledger, LedgerError> {
        self.kernel.ledger()
    }

    fn stored_identity(&self) -> Option<Identity> {
        None
    }

    fn store_identity(&self, _: &Identity) -> Result<(), IdentityError> {
        Ok(())
    }

    fn clear_tpm(&self) -> Result<bool, String> {
        Ok(false)
    }

    fn boot_secret(&self) -> Result<BootSecret, String> {
        Err("no medium".into())
    }

    fn efivars(&self) -> Option<EfiVars> {
        None
    }
}
