//! One machine of a fleet, and its view for the BMC. A machine runs no code while it is idle: it is a few hundred bytes
//! until a request or the fleet's timer comes.

use super::FleetError;
use super::cabling::Cabling;
use super::dice::Purpose;
use super::drive::{SimDrive, SimDrives};
use super::faults::{Chances, Moment, Part};
use super::forgery::Forgery;
use super::installed::{Installed, SystemUp};
use super::machine::{BootSource, Machine, MachineContext, Phase};
use super::profile::{Parts, Phase as Timed, Sku};
use super::ramdisk::fetch;
use super::shared::Shared;
use super::tasks::Tasks;
use super::tls::Secured;
use super::tpm::SimTpm;
use async_trait::async_trait;
use rackwright_agent::efi::vars::EfiVars;
use rackwright_sim_bmc::{
    Accepted, BootOverride, Climate, ConsoleKind, Description, Drive, Firmware, Host, MediaRefused, MemoryModule, Nic,
    PowerState, Processor, RequestFault, RequestLine, ResetRefused, ResetType, State, Task, UpdateSettings, same,
};
use rackwright_tpm::medium;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// The account name on every BMC.
pub(super) const USER: &str = "admin";

/// One machine.
pub(super) struct Node {
    pub(super) index: u32,
    pub(super) shared: Arc<Shared>,
    secured: OnceLock<Secured>,
    /// Notified when the machine has changed.
    pub(super) changed: Notify,
    pub(super) connections: AtomicU32,
    /// Created on first use.
    drives: OnceLock<SimDrives>,
    /// Drives that the BMC lists and that no system sees.
    listed: Mutex<Vec<Drive>>,
    /// Whether the BMC always reports power on.
    reports_power_on: AtomicBool,
    /// Whether the BMC refuses media.
    no_media: AtomicBool,
    requests: AtomicU32,
    chances: Chances,
    pub(super) forgery: Forgery,
    pub(super) cabling: Cabling,
    /// The TPM of a replaced board; otherwise the TPM is derived from the machine's UUID.
    board: Mutex<Option<Box<Option<SimTpm>>>>,
    me: Weak<Self>,
    /// The number of the current boot; 0 while none runs.
    runs: AtomicU32,
    /// Created on first use: most machines never need it.
    firmware: Mutex<Option<Box<Firmware>>>,
    inner: Mutex<Inner>,
    /// Held by the task that delivers events, so that they are delivered in order.
    sending: Mutex<()>,
}

/// The changing state of the machine.
struct Inner {
    machine: Machine,
    tasks: Tasks,
    /// Whether the first drive is bootable with a system that no agent has written.
    installed_by_hand: bool,
    /// Its address on the host network, once one is assigned.
    address: Option<Ipv4Addr>,
    /// Whether an installed system was reported as up.
    system_is_up: bool,
    /// The part of the virtual medium that an agent reads: thousands of machines have no room for the whole.
    sector: Box<[u8]>,
    /// Events that are not delivered yet.
    events: VecDeque<NodeEvent>,
}

/// An event of a machine.
enum NodeEvent {
    Boots(Boot),
    SystemUp(Box<SystemUp>),
    SystemDown,
}

/// A boot in which the firmware has handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boot {
    /// The machine's index.
    pub node: usize,
    /// Counts the machine's boots from 1.
    pub number: u32,
    /// The source of the boot.
    pub source: BootSource,
}

impl Node {
    pub(super) fn new(index: u32, shared: Arc<Shared>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            index,
            me: Weak::clone(me),
            runs: AtomicU32::new(0),
            firmware: Mutex::default(),
            forgery: Forgery::default(),
            cabling: Cabling::default(),
            board: Mutex::default(),
            sending: Mutex::default(),
            chances: Chances::new(&shared.config.faults),
            shared,
            secured: OnceLock::new(),
            changed: Notify::new(),
            connections: AtomicU32::new(0),
            drives: OnceLock::new(),
            listed: Mutex::default(),
            reports_power_on: AtomicBool::new(false),
            no_media: AtomicBool::new(false),
            requests: AtomicU32::new(0),
            inner: Mutex::new(Inner {
                machine: Machine::new(),
                tasks: Tasks::default(),
                installed_by_hand: false,
                address: None,
                system_is_up: false,
                sector: Box::default(),
                events: VecDeque::new(),
            }),
        })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn index(&self) -> usize {
        self.index as usize
    }

    /// Its TPM, if it has one.
    pub(super) fn tpm(&self) -> Option<SimTpm> {
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        match &*board {
            Some(changed) => (**changed).clone(),
            None if self.shared.config.tpm => Some(SimTpm::new(self.shared.uuid(self.index()).as_bytes())),
            None => None,
        }
    }

    /// Its UEFI variables, if they are shown.
    pub(super) fn efivars(&self) -> Option<EfiVars> {
        let folders = self.shared.config.efivars.as_ref()?;
        Some(EfiVars::new(folders.join(self.index().to_string())))
    }

    /// Clears the TPM; false: there is none.
    pub(super) fn clear_tpm(&self) -> Result<bool, String> {
        let Some(mut tpm) = self.tpm() else { return Ok(false) };
        let kept = tpm.clear();
        self.set_tpm(Some(tpm));
        kept.map(|()| true)
    }

    pub(super) fn set_tpm(&self, tpm: Option<SimTpm>) {
        *self.board.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(tpm));
    }

    /// The machine now.
    pub(super) fn machine(&self) -> Machine {
        self.inner().machine.clone()
    }

    /// Applies an action to the machine, and then all transitions that are due. Their events are delivered after the
    /// machine is unlocked.
    fn with<T>(&self, act: impl FnOnce(&mut Inner, &MachineContext<'_>) -> T) -> T {
        let shared = &self.shared;
        let chance = |count| shared.dice.fraction(self.index(), Purpose::Duration, count);
        let context = MachineContext {
            now_ms: shared.clock.now_ms(),
            timing: shared.timing,
            chance: &chance,
            hangs: &|| shared.config.faults.hangs(self.moment()),
        };
        let mut inner = self.inner();
        let before = inner.machine.due_ms;
        let mut was = (inner.machine.phase, inner.machine.boots);
        let result = act(&mut inner, &context);
        self.note(&mut inner, &mut was);
        inner.machine.disk_boots = inner.installed_by_hand || self.installed().is_some();
        while inner.machine.tick(&context) {
            self.note(&mut inner, &mut was);
        }
        if !inner.machine.is_moving() {
            inner.tasks.settle();
        }
        if let Some(due_ms) = inner.machine.due_ms.filter(|due| before != Some(*due)) {
            shared.timers.set(due_ms, self.index);
        }
        drop(inner);
        self.changed.notify_waiters();
        self.send_events();
        result
    }

    /// Notes the events of a machine that was in phase and boot `was` before.
    fn note(&self, inner: &mut Inner, was: &mut (Phase, u32)) {
        let now = (inner.machine.phase, inner.machine.boots);
        if std::mem::replace(was, now) == now {
            return;
        }
        let (phase, number) = now;
        let runs = matches!(phase, Phase::Booting(_) | Phase::Up(_));
        self.runs.store(if runs { number } else { 0 }, Ordering::SeqCst);
        if std::mem::take(&mut inner.system_is_up) {
            inner.events.push_back(NodeEvent::SystemDown);
        }
        match phase {
            Phase::Booting(source) => inner.events.push_back(NodeEvent::Boots(Boot {
                node: self.index(),
                number,
                source,
            })),
            Phase::Up(BootSource::Disk) => {
                if let Some(installed) = self.installed() {
                    inner.system_is_up = true;
                    inner.events.push_back(NodeEvent::SystemUp(Box::new(SystemUp {
                        node: self.index(),
                        boot: number,
                        boot_id: self.shared.boot_id(self.index(), number),
                        address: inner.address.map(Into::into),
                        installed,
                    })));
                }
            }
            _ => {}
        }
    }

    /// Delivers the events. If another task is delivering, that task delivers these too.
    fn send_events(&self) {
        while !self.inner().events.is_empty() {
            let Ok(_sending) = self.sending.try_lock() else { return };
            loop {
                let events = self.inner().events.pop_front();
                let Some(events) = events else { break };
                self.send_event(&events);
            }
        }
    }

    fn send_event(&self, events: &NodeEvent) {
        let shared = &self.shared;
        match events {
            NodeEvent::Boots(boot) => {
                shared.counters.boots.fetch_add(1, Ordering::Relaxed);
                if let Some(payload) = &shared.payload {
                    payload.boots(boot);
                }
                let network = matches!(boot.source, BootSource::Network | BootSource::Http);
                if let (Some(ramdisk), Some(me), true) = (&shared.ramdisk, self.me.upgrade(), network) {
                    ramdisk.boot(me, *boot);
                }
            }
            NodeEvent::SystemUp(system) => {
                if let Some(systems) = &shared.systems {
                    systems.up(system);
                }
            }
            NodeEvent::SystemDown => {
                if let Some(systems) = &shared.systems {
                    systems.down(self.index());
                }
            }
        }
    }

    /// Whether a boot still runs.
    pub(super) fn runs(&self, number: u32) -> bool {
        self.runs.load(Ordering::SeqCst) == number
    }

    /// Waits until a boot or the fleet ends.
    pub(super) async fn left(&self, number: u32) {
        let mut ended = self.shared.ended.clone();
        tokio::select! {
            () = self.reached(|_| !self.runs(number)) => {}
            // No value is ever sent: the channel ends with the fleet, which holds the sender.
            _ = ended.changed() => {}
        }
    }

    /// Waits until the machine is in a wanted state. States without duration may be missed.
    pub(super) async fn reached(&self, mut wanted: impl FnMut(&Machine) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if wanted(&self.inner().machine) {
                return;
            }
            changed.await;
        }
    }

    /// A network boot without an offer: continues with the drive.
    pub(super) fn falls_through(&self, number: u32) {
        self.with(|inner, context| {
            if inner.machine.boots == number {
                inner.machine.disk_boots = inner.installed_by_hand || self.installed().is_some();
                inner.machine.falls_through(context);
            }
        });
    }

    /// Software of this boot, and no other, resets the machine.
    pub(super) fn restart_of(&self, number: u32) -> bool {
        self.with(|inner, context| self.runs(number) && inner.machine.restart(context))
    }

    /// Software of this boot, and no other, powers the machine off.
    pub(super) fn switch_off_of(&self, number: u32) -> bool {
        self.with(|inner, context| self.runs(number) && inner.machine.switch_off(context))
    }

    /// Stores the assigned address.
    pub(super) fn set_address(&self, address: Ipv4Addr) {
        self.inner().address = Some(address);
    }

    /// Its address on the host network.
    pub(super) fn address(&self) -> Option<Ipv4Addr> {
        self.inner().address
    }

    /// The bootable system on its drives.
    pub(super) fn installed(&self) -> Option<Arc<Installed>> {
        self.drives.get().and_then(SimDrives::installed)
    }

    /// Changes the bootable system, as software on it could; `false` if there is none.
    pub(super) fn change_installed(&self, change: impl FnOnce(&mut Installed)) -> bool {
        let drives = self.sim_drives();
        let holder = drives.all().iter().find(|drive| drive.installed().is_some());
        holder.is_some_and(|drive| drive.change_installed(change))
    }

    /// Installs a system on its first drive.
    pub(super) fn install_system(&self, installed: Installed) {
        if let Some(first) = self.sim_drives().all().first() {
            first.install(installed);
        }
        self.advance();
    }

    /// Duration of a drive's erase command, in real time.
    pub(super) fn erasing(&self) -> Duration {
        let count = u64::from(self.runs.load(Ordering::Relaxed));
        let chance = self.shared.dice.fraction(self.index(), Purpose::Erase, count);
        let length_ms = self.shared.timing.length_ms(Timed::Erase, chance);
        self.shared.clock.lasts(Duration::from_millis(length_ms))
    }

    /// The machine now, for the fault script.
    pub(super) fn moment(&self) -> Moment<'_> {
        Moment {
            node: self.index(),
            now_ms: self.shared.clock.now_ms(),
            dice: self.shared.dice,
            chances: &self.chances,
        }
    }

    /// The number of script faults that occurred.
    pub(super) fn triggered(&self) -> u32 {
        self.chances.triggered()
    }

    /// Performs all transitions that are due.
    pub(super) fn advance(&self) {
        self.with(|_, _| ());
    }

    /// Powers the machine on without the BMC.
    pub(super) fn press_button(&self) -> bool {
        self.with(|inner, context| {
            inner.machine.phase == Phase::Off && inner.machine.reset(ResetType::On, context).is_ok()
        })
    }

    /// Cuts the power at once.
    pub(super) fn cut(&self) {
        self.with(|inner, _| {
            inner.machine.cut();
            inner.tasks.fail();
        });
    }

    /// The running system resets the machine.
    pub(super) fn restart(&self) -> bool {
        self.with(|inner, context| inner.machine.restart(context))
    }

    /// Inserts a virtual medium without the BMC's own checks.
    pub(super) fn add_media(&self, url: &str) {
        self.with(|inner, _| {
            inner.machine.media = Some(url.into());
            inner.sector = Box::default();
        });
    }

    /// The sector of the virtual medium that an agent reads; empty: there is no medium.
    pub(super) fn sector(&self) -> Box<[u8]> {
        self.inner().sector.clone()
    }

    /// Sets whether the BMC refuses all media.
    pub(super) fn refuse_media(&self, always: bool) {
        self.no_media.store(always, Ordering::SeqCst);
    }

    /// Sets whether the first drive is bootable.
    pub(super) fn install(&self, boots: bool) {
        self.with(|inner, _| inner.installed_by_hand = boots);
    }

    /// The BMC lists one more drive, which is behind a controller that hides it; an empty serial number is not listed.
    pub(super) fn list_drive(&self, serial: &str, bytes: u64) {
        let drive = Drive {
            manufacturer: "Rackwright",
            model: "Simulated Disk",
            serial: serial.to_owned(),
            bytes,
            protocol: Some("SAS"),
        };
        // Created now, from the BMC's original list.
        self.sim_drives();
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).push(drive);
    }

    /// Sets whether the BMC always reports power on.
    pub(super) fn report_power_on(&self, always: bool) {
        self.reports_power_on.store(always, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// The BMC's listed drives, for the agent.
    pub(super) fn sim_drives(&self) -> SimDrives {
        let make = || {
            let name = self.shared.name(self.index());
            let listed = self.description().drives.into_iter().enumerate();
            let drive_fault = self.shared.config.faults.drive_fault(self.moment());
            let drive = |(n, drive): (usize, Drive)| {
                let made = SimDrive::new(&name, n, drive.model, drive.serial, drive.bytes);
                Arc::new(made.with_fault(drive_fault))
            };
            SimDrives::new(listed.map(drive))
        };
        self.drives.get_or_init(make).clone()
    }

    fn drives(&self, sku: &Sku) -> Vec<Drive> {
        let each = sku.drives.iter();
        let each = each.flat_map(|(parts, bytes)| std::iter::repeat_n((*parts, *bytes), parts.count));
        let drive = |(n, (parts, bytes)): (usize, (Parts, u64))| Drive {
            manufacturer: parts.manufacturer,
            model: parts.model,
            serial: format!("{}D{n:02}", self.shared.serial(self.index())),
            bytes,
            protocol: Some("NVMe"),
        };
        each.enumerate().map(drive).collect()
    }
}

fn processors(sku: &Sku) -> Vec<Processor> {
    let part = |kind, name: &str, parts: Parts, cores| {
        let one = |n| Processor {
            id: format!("{name}{n}"),
            kind,
            manufacturer: parts.manufacturer,
            model: parts.model,
            cores,
            threads: cores * 2,
        };
        (0..parts.count).map(one).collect::<Vec<_>>()
    };
    let mut found = part("CPU", "CPU", sku.cpus, sku.cores);
    found.extend(part("GPU", "GPU", sku.gpus, 0));
    found
}

/// Removes the last part of a kind.
fn lose(description: &mut Description, part: Part) {
    let processor = |description: &mut Description, kind| {
        let last = description.processors.iter().rposition(|part| part.kind == kind);
        if let Some(index) = last {
            description.processors.remove(index);
        }
    };
    match part {
        Part::Cpu => processor(description, "CPU"),
        Part::Gpu => processor(description, "GPU"),
        Part::Dimm => _ = description.memory.pop(),
        Part::Nic => _ = description.nics.pop(),
        Part::Drive => _ = description.drives.pop(),
    }
}

#[async_trait]
impl Host for Node {
    fn description(&self) -> Description {
        let (sku, index) = (self.shared.sku, self.index());
        let module = |n| MemoryModule {
            id: format!("DIMM{n}"),
            manufacturer: sku.modules.manufacturer,
            mib: sku.module_mib,
        };
        let nic = |n| Nic {
            id: format!("NIC{n}"),
            mac: self.shared.mac(index, n),
        };
        let mut description = Description {
            name: self.shared.name(index),
            manufacturer: sku.manufacturer,
            model: sku.model,
            bmc_model: sku.bmc_model,
            serial: self.shared.serial(index),
            uuid: self.shared.uuid(index),
            uefi: true,
            secure_boot: false,
            tpm: self.shared.config.tpm,
            reset_types: sku.reset_types,
            console: self.shared.config.sol_port.map(ConsoleKind::Ipmi),
            processors: processors(sku),
            memory: (0..sku.modules.count).map(module).collect(),
            nics: (0..sku.nics).map(nic).collect(),
            drives: self.drives(sku),
        };
        for part in self.shared.config.faults.missing_parts(self.moment()) {
            lose(&mut description, part);
        }
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        description.drives.extend(listed.iter().cloned());
        description
    }

    fn climate(&self) -> Option<Climate> {
        Some(super::climate::climate(
            self.shared.config.profile,
            self.machine().phase,
        ))
    }

    fn state(&self) -> State {
        let machine = self.machine();
        State {
            power: if self.reports_power_on.load(Ordering::SeqCst) {
                PowerState::On
            } else {
                machine.power()
            },
            powered: !matches!(machine.phase, Phase::Off | Phase::PoweringOn),
            boot: machine.boot,
            boot_generation: u64::from(machine.boot_generation),
            media: machine.media.map(String::from),
            fault: None,
        }
    }

    fn user(&self) -> &str {
        USER
    }

    fn admits(&self, user: &str, password: &str) -> bool {
        same(USER, user) & same(&self.shared.password(self.index()), password)
    }

    async fn reset(&self, reset: ResetType) -> Result<Accepted, ResetRefused> {
        let as_task = self.shared.timing.resets_are_tasks;
        self.with(|inner, context| {
            inner.machine.check(reset)?;
            let stuck = self.shared.config.faults.sticks(self.moment());
            if !stuck {
                inner.machine.reset(reset, context)?;
            }
            if !as_task {
                return Ok(Accepted::Silently);
            }
            inner.tasks.fail();
            Ok(Accepted::AsTask(inner.tasks.begin(reset, stuck)))
        })
    }

    async fn set_boot(&self, boot: BootOverride) -> Result<(), String> {
        self.with(|inner, _| inner.machine.set_boot(boot));
        Ok(())
    }

    async fn insert_media(&self, url: &str) -> Result<(), MediaRefused> {
        if self.no_media.load(Ordering::SeqCst) {
            return Err(MediaRefused::Failed("virtual media are not licensed".to_owned()));
        }
        let from = self.shared.config.address(self.index());
        let sector = fetch::part(url, from, medium::PLACE, medium::SECTOR).await;
        let sector = sector.map_err(MediaRefused::Unreachable)?;
        self.with(|inner, _| {
            inner.machine.media = Some(url.into());
            inner.sector = sector.into();
        });
        Ok(())
    }

    async fn eject_media(&self) -> Result<(), String> {
        self.with(|inner, _| {
            inner.machine.media = None;
            inner.sector = Box::default();
        });
        Ok(())
    }

    async fn inject_fault(&self, request_line: RequestLine<'_>) -> RequestFault {
        let shared = &self.shared;
        shared.counters.requests.fetch_add(1, Ordering::Relaxed);
        let count = self.requests.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let chance = shared.dice.fraction(self.index(), Purpose::Answer, u64::from(count));
        let (late, request_fault) = shared.config.faults.request(request_line, self.moment());
        let delay = shared.clock.lasts(shared.timing.answer(chance) + late);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        request_fault
    }

    fn tasks(&self) -> Option<Vec<Task>> {
        Some(self.inner().tasks.list())
    }

    fn updates(&self) -> Option<UpdateSettings> {
        self.shared.config.updates
    }

    async fn wait_power_change(&self, known: PowerState) -> PowerState {
        self.reached(|machine| machine.power() != known).await;
        self.machine().power()
    }

    fn has_settings(&self) -> bool {
        true
    }

    fn firmware(&self, act: &mut dyn FnMut(&mut Firmware)) {
        let starts = self.machine().boots;
        let mut firmware = self.firmware.lock().unwrap_or_else(PoisonError::into_inner);
        let firmware = firmware.get_or_insert_default();
        firmware.started(starts, || self.shared.config.faults.ignores_settings(self.moment()));
        act(firmware);
    }

    fn settings_are_busy(&self) -> bool {
        self.shared.config.faults.settings_are_busy(self.moment())
    }

    fn settings_jobs_last(&self) -> Option<std::time::Duration> {
        self.shared.config.settings_jobs
    }

    fn is_down(&self) -> bool {
        self.shared.config.faults.is_down(self.moment())
    }

    fn clock_skew_s(&self) -> i64 {
        self.shared.config.faults.clock_skew_s(self.moment())
    }

    fn forget_task(&self, number: u64) -> bool {
        self.inner().tasks.forget(number)
    }
}

impl Node {
    /// The BMC's certificate and its TLS acceptor, created on first use.
    pub(super) fn secured(&self) -> Result<&Secured, FleetError> {
        if let Some(made) = self.secured.get() {
            return Ok(made);
        }
        let Some(tls) = &self.shared.tls else {
            let detail = "the BMCs speak plain HTTP".to_owned();
            return Err(FleetError::Tls { detail });
        };
        let index = self.index();
        let made = tls.secure(&self.shared.name(index), self.shared.config.address(index))?;
        // If two callers create it at once, one is kept and both get that one.
        Ok(self.secured.get_or_init(|| made))
    }
}
