//! The fleet: a datacenter of simulated machines in one process, each with its own BMC.
//!
//! An idle machine costs only memory: one timer wakes the next machine that is due, one socket serves all BMCs, and
//! values derived from a machine's number are computed on request.
//!
//! ```no_run
//! use rackwright_sim::fleet::{Fleet, FleetConfig, Profile};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let config = FleetConfig { nodes: 1000, profile: Profile::Vm, ..FleetConfig::default() };
//! let fleet = Fleet::start(config).await?;
//! println!("{}", fleet.node(0).url());
//! # Ok(())
//! # }
//! ```

mod cabling;
mod climate;
mod clock;
mod config;
mod describe;
mod dice;
mod drive;
mod error;
mod faults;
mod forgery;
mod host;
mod installed;
mod inventory;
mod machine;
mod node;
mod profile;
mod ramdisk;
mod serve;
mod shared;
mod tasks;
mod tls;
mod tpm;

pub use config::{BootFiles, BootMethod, FleetConfig, ImageData, MOST_NODES};
pub use describe::{DescribeError, Format};
pub use drive::{Concealed, DriveFault, SimDrive, SimDrives};
pub use error::FleetError;
pub use faults::{Script, ScriptError, ScriptFault};
pub use installed::{Installed, SystemUp, Systems};
pub use machine::{BootSource, Phase};
pub use node::Boot;
pub use profile::Profile;
pub use rackwright_agent::tpm::Attester;
pub use rackwright_sim_bmc::{AccessFault, AccountRules, ComponentFault, PowerState, UefiFault, UpdateSettings};
pub use shared::Payload;
pub use tpm::SimTpm;

use clock::{Clock, Timers};
use dice::Dice;
use host::Hosts;
use node::{Node, USER};
use rackwright_api::v1::{Attestation, EraseDrivesResult, Inventory};
use rackwright_sim_bmc::{self as bmc, Bmc, BootOverride, Limits};
use ramdisk::Ramdisk;
use rustls::pki_types::CertificateDer;
use serve::Member;
use shared::{Counters, Shared};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tls::Tls;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A running fleet. Dropping it ends the BMCs.
pub struct Fleet {
    members: Arc<[Member]>,
    shared: Arc<Shared>,
    port: u16,
    ssh_port: Option<u16>,
    tasks: JoinSet<()>,
    /// Its drop ends all software on the machines.
    _ending: watch::Sender<()>,
}

/// Counters of a fleet since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Requests to BMCs.
    pub requests: u64,
    /// Connections to BMCs.
    pub connections: u64,
    /// Boots in which the firmware has handed over.
    pub boots: u64,
}

impl Fleet {
    /// Starts the BMCs of `config.nodes` machines, all powered off. Without a boot server a network boot runs nothing.
    ///
    /// # Errors
    /// [`FleetError`].
    pub async fn start(config: FleetConfig) -> Result<Self, FleetError> {
        Self::launch(config, None, None).await
    }

    /// Starts the BMCs of machines that boot into `payload`.
    ///
    /// # Errors
    /// [`FleetError`].
    pub async fn with_payload(config: FleetConfig, payload: Arc<dyn Payload>) -> Result<Self, FleetError> {
        Self::launch(config, Some(payload), None).await
    }

    /// Starts the BMCs of machines with installed systems that `systems` simulates.
    ///
    /// # Errors
    /// [`FleetError`].
    pub async fn with_systems(config: FleetConfig, systems: Arc<dyn Systems>) -> Result<Self, FleetError> {
        Self::launch(config, None, Some(systems)).await
    }

    async fn launch(
        config: FleetConfig,
        payload: Option<Arc<dyn Payload>>,
        systems: Option<Arc<dyn Systems>>,
    ) -> Result<Self, FleetError> {
        config.check()?;
        let ramdisk = match config.boot_server {
            Some(server) => Some(Ramdisk::new(&config, server).await?),
            None => None,
        };
        let (ending, ended) = watch::channel(());
        let timing = config.profile.timing();
        let (dice, clock) = (Dice(config.seed), Clock::new(config.speed));
        let hosts = config.ssh_listen.map(|_| Arc::new(Hosts::new(&config, dice, clock)));
        let shared = Arc::new(Shared {
            dice,
            timing,
            sku: config.profile.sku(),
            clock,
            timers: Timers::default(),
            tls: config.tls.then(Tls::new).transpose()?,
            payload,
            systems: systems.or_else(|| hosts.clone().map(|hosts| hosts as _)),
            ramdisk,
            ended,
            counters: Counters::default(),
            config,
        });
        let limits = Limits {
            sessions: timing.sessions,
            session_timeout: timing.session_timeout,
            accounts: shared.config.accounts,
        };
        let member = |index: usize| {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let node = Node::new(index, Arc::clone(&shared));
            let host: Arc<dyn bmc::Host> = Arc::clone(&node) as _;
            let bmc = Arc::new(Bmc::new(host, limits));
            Member { node, bmc }
        };
        let members: Arc<[Member]> = (0..shared.config.nodes).map(member).collect();
        let listener = serve::listen(&shared)?;
        let port = serve::port(&listener)?;
        let mut tasks = JoinSet::new();
        let mut ssh_port = None;
        if let (Some(hosts), Some(address)) = (hosts, shared.config.ssh_listen) {
            let listener = host::listen(&shared.config, address)?;
            ssh_port = Some(serve::port(&listener)?);
            tasks.spawn(host::run(listener, Arc::clone(&members), hosts));
        }
        tasks.spawn(serve::run(listener, Arc::clone(&members), Arc::clone(&shared)));
        tasks.spawn(advance(Arc::clone(&members), Arc::clone(&shared)));
        if let Some(ramdisk) = &shared.ramdisk {
            tasks.spawn(ramdisk.relay());
        }
        Ok(Self {
            members,
            shared,
            port,
            ssh_port,
            tasks,
            _ending: ending,
        })
    }

    /// The number of machines.
    pub fn nodes(&self) -> usize {
        self.members.len()
    }

    /// One machine.
    ///
    /// # Panics
    /// If there is no such machine.
    pub fn node(&self, index: usize) -> SimNode {
        SimNode {
            node: Arc::clone(&self.members[index].node),
            bmc: Arc::clone(&self.members[index].bmc),
            port: self.port,
        }
    }

    /// The number of firmware updates that a machine's BMC ever began, and the installed versions.
    pub fn firmware(&self, index: usize) -> (u64, Vec<(String, String)>) {
        self.members[index].bmc.updates.summary()
    }

    /// Whether an update of a machine's firmware is in progress.
    pub fn is_updating(&self, index: usize) -> bool {
        self.members[index].bmc.updates.is_busy()
    }

    /// The number of AC cycles that a machine's BMC made.
    pub fn ac_cycles(&self, index: usize) -> u64 {
        self.members[index].bmc.updates.ac_cycles()
    }

    /// The port of all BMCs.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port of the SSH servers of all installed systems; `None` if there are none.
    pub fn ssh_port(&self) -> Option<u16> {
        self.ssh_port
    }

    /// The counters so far.
    pub fn totals(&self) -> Totals {
        let counters = &self.shared.counters;
        Totals {
            requests: counters.requests.load(Ordering::Relaxed),
            connections: counters.connections.load(Ordering::Relaxed),
            boots: counters.boots.load(Ordering::Relaxed),
        }
    }

    /// Ends all connections and the fleet's time.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Wakes machines when they are due.
async fn advance(members: Arc<[Member]>, shared: Arc<Shared>) {
    loop {
        let due = shared.timers.next(shared.clock).await;
        if let Some(member) = members.get(due as usize) {
            member.node.advance();
        }
        // Thousands of machines may be due at once, and the BMCs must answer meanwhile.
        tokio::task::consume_budget().await;
    }
}

/// A handle on one machine of a fleet.
#[derive(Clone)]
pub struct SimNode {
    node: Arc<Node>,
    bmc: Arc<Bmc>,
    port: u16,
}

/// A machine at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    pub phase: Phase,
    pub power: PowerState,
    pub boot: BootOverride,
    /// The number of boots begun, by power-on or reset.
    pub boots: u32,
}

impl SimNode {
    /// The machine's id in the control plane.
    pub fn name(&self) -> String {
        self.node.shared.name(self.node.index())
    }

    /// Its BMC's URL, without a path.
    pub fn url(&self) -> String {
        let scheme = if self.node.shared.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let address = self.node.shared.config.address(self.node.index());
        format!("{scheme}://{address}:{}", self.port)
    }

    pub fn bmc_address(&self) -> Ipv4Addr {
        self.node.shared.config.address(self.node.index())
    }

    /// The name of its BMC's account.
    pub fn user(&self) -> &'static str {
        USER
    }

    /// Whether a password is valid for an account of its BMC now. Does not count as a login.
    pub fn opens(&self, user: &str, password: &str) -> bool {
        self.bmc.opens(user, password)
    }

    /// The number of refused logins since the last good one, and whether the account is locked.
    pub fn refusals(&self, user: &str) -> (u32, bool) {
        self.bmc.refusals(user)
    }

    /// The factory password of its BMC's account.
    pub fn password(&self) -> String {
        self.node.shared.password(self.node.index())
    }

    /// Its BMC's certificate (DER); `None` if the BMCs use plain HTTP.
    ///
    /// # Errors
    /// [`FleetError::Tls`].
    pub fn certificate(&self) -> Result<Option<CertificateDer<'static>>, FleetError> {
        match self.node.shared.tls {
            Some(_) => self.node.secured().map(|secured| Some(secured.certificate.clone())),
            None => Ok(None),
        }
    }

    /// `sha256:` and the hexadecimal digest of the certificate.
    ///
    /// # Errors
    /// [`FleetError::Tls`].
    pub fn fingerprint(&self) -> Result<Option<String>, FleetError> {
        let certificate = self.certificate()?;
        Ok(certificate.as_ref().map(bmc::fingerprint))
    }

    /// MAC address of its first interface, lower case with colons.
    pub fn mac(&self) -> String {
        self.node.shared.mac(self.node.index(), 0)
    }

    /// SMBIOS UUID, lower case.
    pub fn uuid(&self) -> String {
        self.node.shared.uuid(self.node.index())
    }

    /// SMBIOS serial number.
    pub fn serial(&self) -> String {
        self.node.shared.serial(self.node.index())
    }

    /// Assigns an address on the host network, as a DHCP server does. It applies from the next boot.
    pub fn set_address(&self, address: Ipv4Addr) {
        self.node.set_address(address);
    }

    /// The kernel's boot id in its boot number `boot`.
    pub fn boot_id(&self, boot: u32) -> String {
        self.node.shared.boot_id(self.node.index(), boot)
    }

    /// Its state now.
    pub fn view(&self) -> NodeView {
        let machine = self.node.machine();
        NodeView {
            phase: machine.phase,
            power: machine.power(),
            boot: machine.boot,
            boots: machine.boots,
        }
    }

    /// Waits until its state satisfies `wanted`. States without duration may be missed.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&NodeView) -> bool) -> NodeView {
        loop {
            let changed = self.node.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let view = self.view();
            if wanted(&view) {
                return view;
            }
            changed.await;
        }
    }

    /// Its drives, as the agent sees them. The BMC lists the same drives, and they outlive boots.
    pub fn drives(&self) -> SimDrives {
        self.node.sim_drives()
    }

    /// Root on it creates a detached namespace full of data on its first drive. `opens`: the controller can attach it again.
    pub fn detach_namespace(&self, bytes: u64, opens: bool) -> Option<Arc<SimDrive>> {
        self.drives().detach_namespace(&self.name(), bytes, opens)
    }

    /// A USB stick full of data is plugged in.
    pub fn plug_stick(&self, serial: &str, bytes: u64) -> Arc<SimDrive> {
        self.drives().plug(&self.name(), serial, bytes)
    }

    /// Its BMC lists one more drive, which is behind a controller that hides it from every system.
    pub fn list_drive(&self, serial: &str, bytes: u64) {
        self.node.list_drive(serial, bytes);
    }

    /// Its BMC always reports power on, whatever the real state.
    pub fn report_power_on(&self, always: bool) {
        self.node.report_power_on(always);
    }

    /// Presses the power button: a machine that is off starts. Returns false if it does not.
    pub fn press_button(&self) -> bool {
        self.node.press_button()
    }

    /// Takes its power away at once, as a failed power supply does.
    pub fn power_cut(&self) {
        self.node.cut();
    }

    /// The running system resets it; `false` if none runs.
    pub fn restart(&self) -> bool {
        self.node.restart()
    }

    /// The agent's installation on it, if that is bootable.
    pub fn installed(&self) -> Option<Arc<Installed>> {
        self.node.installed()
    }

    /// Changes the installed system that it boots, as software on it could; `false` if there is none.
    pub fn change_installed(&self, change: impl FnOnce(&mut Installed)) -> bool {
        self.node.change_installed(change)
    }

    /// Its address on the host network, once one is assigned.
    pub fn address(&self) -> Option<IpAddr> {
        self.node.address().map(Into::into)
    }

    /// The number of script faults that occurred; permanent faults do not count.
    pub fn faults_triggered(&self) -> u32 {
        self.node.triggered()
    }

    /// Sets its BMC's behaviour for removals.
    pub fn set_access_fault(&self, fault: AccessFault) {
        self.bmc.set_access_fault(fault);
    }

    /// Adds a component that signs its firmware with its own key; the BMC lists it from now on.
    ///
    /// # Errors
    /// The key could not be made.
    pub fn fit_component(&self, name: &str) -> Result<(), String> {
        self.bmc.fit_component(name)
    }

    /// Root on it writes other firmware to a component.
    pub fn write_component(&self, name: &str, firmware: &str) {
        self.bmc.write_component(name, firmware);
    }

    /// Sets the behaviour of a component.
    pub fn set_component_fault(&self, name: &str, fault: ComponentFault) {
        self.bmc.set_component_fault(name, fault);
    }

    /// Sets its BMC's behaviour for changes of boot options and keys.
    pub fn set_uefi_fault(&self, fault: UefiFault) {
        self.bmc.set_uefi_fault(fault);
    }

    /// Root on it adds a boot option before all others.
    pub fn add_boot_option(&self, name: &str, device: &str) {
        self.bmc.add_boot_option(name, device);
    }

    /// Root on it adds a certificate to the keys that allow programs to start.
    pub fn add_key_in_db(&self, pem: &str) {
        self.bmc.add_key_in_db(pem);
    }

    /// Root on the machine switches Secure Boot on or off.
    pub fn switch_secure_boot(&self, on: bool) {
        self.bmc.switch_secure_boot(on);
    }

    /// Names of its boot options in their order, the number of keys in `db`, and whether Secure Boot is on.
    pub fn uefi(&self) -> (Vec<String>, usize, bool) {
        self.bmc.uefi()
    }

    /// Root on it creates an administrator account on its BMC, in band.
    pub fn add_account(&self, user: &str, password: &str) {
        self.bmc.add_account(user, password);
    }

    /// Root on it adds an SSH key to the factory account of its BMC.
    pub fn add_key(&self, key: &str) {
        self.bmc.add_key(key);
    }

    /// Root on it subscribes a destination to its BMC's events.
    pub fn add_subscription(&self, destination: &str) {
        self.bmc.add_subscription(destination);
    }

    /// Root on it admits the users of a directory to its BMC.
    pub fn add_directory(&self, address: &str) {
        self.bmc.add_directory(address);
    }

    /// Root on it opens a session at its BMC; returns the token.
    pub fn add_session(&self, user: &str) -> Option<String> {
        self.bmc.add_session(user)
    }

    /// Root on it makes its BMC insert a virtual medium.
    pub fn add_media(&self, url: &str) {
        self.node.add_media(url);
    }

    /// Root on it opens the host interface of its BMC.
    pub fn open_host_interface(&self) {
        self.bmc.open_host_interface();
    }

    /// Root on it lets itself administer its BMC over KCS.
    pub fn open_kcs(&self) {
        self.bmc.open_kcs();
    }

    /// Whether root on it may administer its BMC over KCS.
    pub fn is_kcs_open(&self) -> bool {
        self.bmc.is_kcs_open()
    }

    /// Whether a session with that token is open at its BMC.
    pub fn admits_token(&self, token: &str) -> bool {
        self.bmc.admits_token(token)
    }

    /// The medium in its BMC's virtual drive.
    pub fn media(&self) -> Option<String> {
        self.node.machine().media.map(String::from)
    }

    /// The names of accounts that can log in to its BMC.
    pub fn users(&self) -> Vec<String> {
        self.bmc.users()
    }

    /// The remaining changes on its BMC: subscriptions, keys, whether a directory is enabled, whether the host interface is
    /// open.
    pub fn left(&self) -> (usize, usize, bool, bool) {
        self.bmc.left()
    }

    /// Plugs the cable of its first card into this port of a switch that sends LLDP. A running agent notices at once.
    pub fn cable_to(&self, switch: &str, port: &str) {
        self.node.cabling.plug(&self.mac(), switch, port);
    }

    /// From now on its agent changes each inventory before sending it.
    pub fn forge_inventory(&self, change: impl Fn(&mut Inventory) + Send + Sync + 'static) {
        self.node.forgery.set_inventory(change);
    }

    /// From now on its agent claims this address. Its connections still come from the machine's own address.
    pub fn forge_address(&self, address: Ipv4Addr) {
        self.node.forgery.set_address(address);
    }

    /// From now on its agent erases nothing, and `change` edits a report of a crypto erase of every drive, which it sends.
    pub fn forge_erase(&self, change: impl Fn(&mut EraseDrivesResult) + Send + Sync + 'static) {
        self.node.forgery.set_erased(change);
    }

    /// From now on its agent changes each answer to a challenge before sending it.
    pub fn forge_attestation(&self, change: impl Fn(&mut Attestation) + Send + Sync + 'static) {
        self.node.forgery.set_attestation(change);
    }

    /// From now on its BMC refuses all virtual media, or accepts them again.
    pub fn refuse_media(&self, always: bool) {
        self.node.refuse_media(always);
    }

    /// Its TPM; none if it has none.
    pub fn tpm(&self) -> Option<SimTpm> {
        self.node.tpm()
    }

    /// Changes its board: from the next boot it has this TPM, or none.
    pub fn set_tpm(&self, tpm: Option<SimTpm>) {
        self.node.set_tpm(tpm);
    }

    /// From now on its agent is honest.
    pub fn end_forgeries(&self) {
        self.node.forgery.end();
    }

    /// The hardware that its agent finds.
    pub fn inventory(&self) -> Inventory {
        inventory::inventory(&self.node, &self.drives())
    }

    /// Installs a system on its first drive, which boots from then on.
    pub fn install(&self, installed: Installed) {
        self.node.install_system(installed);
    }

    /// Sets whether the first drive is bootable with a system that no agent has written.
    pub fn set_installed(&self, boots: bool) {
        self.node.install(boots);
    }
}
