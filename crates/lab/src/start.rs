//! Starts a lab: machines that are off, each with a running BMC.

use super::actor::Actor;
use super::config::{Consoles, DiskKind, LabConfig};
use super::enter::Namespace;
use super::file::LabFile;
use super::host::LabHost;
use super::machine::{BmcAccess, Inner, Machine};
use super::qemu::{Drive, DriveBus, Hardware};
use super::{Accelerator, LabError, SERVER_IPV4, network, requirements, state};
use rackwright_sim_bmc::{self as bmc, BmcError, ConsoleKind, Faults, random};
use ring::rand::SecureRandom;
use secrecy::SecretString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

const BMC_FIRST_PORT: u16 = 8001;
const CONSOLE_FIRST_PORT: u16 = 9001;
const BMC_USER: &str = "admin";

/// A running lab. Dropping it ends the BMCs and the machines.
#[derive(Debug)]
pub struct Lab {
    machines: Vec<Machine>,
    pid: u32,
    tasks: JoinSet<()>,
    _claim: Option<File>,
}

impl Lab {
    /// Starts the BMCs of `config.machines` machines, all powered off.
    ///
    /// # Errors
    /// [`LabError::Config`], [`LabError::Missing`], [`LabError::File`], [`LabError::Command`] (also if a lab is already
    /// running in this namespace), [`LabError::Bmc`].
    pub async fn start(namespace: &Namespace, config: LabConfig) -> Result<Self, LabError> {
        config.check()?;
        requirements::require_machines(config.firmware, config.tpm)?;
        let claim = config.dir.as_deref().map(state::claim).transpose()?;
        let accelerator = Accelerator::probe().await;
        network::add_taps(config.machines)?;
        let mut lab = Self {
            machines: Vec::new(),
            pid: namespace.pid(),
            tasks: JoinSet::new(),
            _claim: claim,
        };
        for index in 0..config.machines {
            lab.add(index, namespace, &config, accelerator).await?;
        }
        Ok(lab)
    }

    /// The machines, in order.
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// One machine.
    ///
    /// # Panics
    /// If there is no such machine.
    pub fn machine(&self, index: usize) -> &Machine {
        &self.machines[index]
    }

    /// The lab's description for other programs.
    pub fn file(&self) -> LabFile {
        LabFile::new(self.pid, &self.machines)
    }

    async fn add(
        &mut self,
        index: usize,
        namespace: &Namespace,
        config: &LabConfig,
        accelerator: Accelerator,
    ) -> Result<(), LabError> {
        let hardware = hardware(index, namespace, config, accelerator);
        for dir in [&hardware.dir, &hardware.run_dir] {
            fs::create_dir_all(dir).map_err(LabError::file("create", dir))?;
        }
        let drives = drives(index, &hardware.dir, config);
        let (actor, view) = Actor::new(hardware.clone(), drives)?;
        let address = SocketAddr::from((SERVER_IPV4, BMC_FIRST_PORT + index as u16));
        let identity = bmc::Identity::new(&hardware.name, SERVER_IPV4)?;
        let (commands, receiver) = mpsc::channel(16);
        let (faults, fault_receiver) = watch::channel(Faults::default());
        let (listening_sender, listening) = watch::channel(false);
        let access = BmcAccess {
            url: format!("https://{address}"),
            user: BMC_USER.to_owned(),
            password: random_password(&hardware.name)?,
            fingerprint: identity.fingerprint.clone(),
            certificate_pem: identity.certificate_pem.clone(),
        };
        let inner = Inner {
            index,
            hardware,
            bmc: access,
            commands,
            view,
            faults,
            listening,
        };
        let machine = Machine { inner: Arc::new(inner) };
        let limits = bmc::Limits {
            sessions: config.bmc_sessions,
            session_timeout: config.bmc_session_timeout,
            accounts: bmc::AccountRules::default(),
        };
        let host = Arc::new(LabHost {
            machine: machine.clone(),
            faults: fault_receiver.clone(),
            media_bytes: config.media_bytes,
            console: match config.consoles {
                Consoles::Ssh => ConsoleKind::Ssh(console_port(index)),
                Consoles::WebSocket => ConsoleKind::WebSocket,
            },
            serial: machine.console_path(),
        });
        if let ConsoleKind::Ssh(port) = host.console {
            self.add_console(&machine, Arc::clone(&host), port).await?;
        }
        let server = bmc::Server::bind(
            machine.name(),
            host,
            address,
            identity,
            limits,
            fault_receiver,
            listening_sender,
        )
        .await?;
        self.tasks.spawn(actor.run(receiver));
        self.tasks.spawn(server.run());
        self.machines.push(machine);
        Ok(())
    }

    /// Starts the SSH server of a machine's BMC.
    async fn add_console(&mut self, machine: &Machine, host: Arc<LabHost>, port: u16) -> Result<(), LabError> {
        let address = SocketAddr::from((SERVER_IPV4, port));
        let failed = |source| BmcError::Listen {
            machine: machine.name().to_owned(),
            address,
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let mut seed = [0; 32];
        let key = random::source().fill(&mut seed).ok();
        let key = key
            .and_then(|()| bmc::host_key(&seed))
            .ok_or_else(|| LabError::Machine {
                machine: machine.name().to_owned(),
                what: "make a host key",
                detail: "the random number generator failed".into(),
            })?;
        let console = bmc::Console {
            host,
            serial: machine.console_path(),
            key,
        };
        self.tasks.spawn(console.run(listener));
        Ok(())
    }

    /// Ends the BMCs, powers the machines off and removes their taps, so that another lab can start in this namespace.
    ///
    /// # Errors
    /// [`LabError::Command`] if the taps cannot be removed.
    pub async fn stop(mut self) -> Result<(), LabError> {
        for machine in &self.machines {
            machine.power_cut().await?;
        }
        self.tasks.shutdown().await;
        network::remove_taps(self.machines.len())
    }
}

/// The port of the SSH server for a machine's serial port.
fn console_port(index: usize) -> u16 {
    CONSOLE_FIRST_PORT + index as u16
}

fn hardware(index: usize, namespace: &Namespace, config: &LabConfig, accelerator: Accelerator) -> Hardware {
    let name = format!("lab-{index}");
    let run_dir = namespace.state_dir().join(&name);
    Hardware {
        uuid: format!("6c616200-0000-4000-8000-{index:012x}"),
        serial: format!("LAB{index:04}"),
        mac: format!("52:54:00:77:{:02x}:{:02x}", index >> 8, index & 0xff),
        tap: network::tap(index),
        firmware: config.firmware,
        network_rom: config.network_rom,
        memory_mb: config.memory_mb,
        accelerator,
        dir: config
            .dir
            .as_ref()
            .map_or_else(|| run_dir.clone(), |dir| dir.join(&name)),
        run_dir,
        tpm: config.tpm,
        name,
    }
}

fn drives(index: usize, dir: &Path, config: &LabConfig) -> Vec<Drive> {
    let buses: &[DriveBus] = match config.disk_kind {
        DiskKind::VirtioBlk => &[DriveBus::VirtioBlk],
        DiskKind::Nvme => &[DriveBus::Nvme],
        DiskKind::NvmeDetached => &[DriveBus::NvmeDetached],
        DiskKind::Both => &[DriveBus::VirtioBlk, DriveBus::Nvme],
    };
    let drive = |(n, bus): (usize, &DriveBus)| Drive {
        bus: *bus,
        path: dir.join(format!("disk{n}.raw")),
        serial: format!("LAB{index:04}-D{n}"),
        bytes: config.disk_bytes,
        broken: None,
    };
    buses.iter().enumerate().map(drive).collect()
}

/// 20 random characters, a length that every vendor's BMC accepts.
fn random_password(machine: &str) -> Result<SecretString, LabError> {
    let mut bytes = [0_u8; 10];
    let failed = |_| LabError::Machine {
        machine: machine.to_owned(),
        what: "make a password",
        detail: "the random number generator failed".into(),
    };
    random::source().fill(&mut bytes).map_err(failed)?;
    Ok(SecretString::from(hex::encode(bytes)))
}
