//! One machine of a fleet, and the machine as its BMC sees it. Nothing of it runs while nothing happens to it: it is a few
//! hundred bytes until a request or the fleet's timer comes.

use super::FleetError;
use super::cabling::Cabling;
use super::dice::Purpose;
use super::drive::{SimDrive, SimDrives};
use super::faults::{Chances, Moment, Part};
use super::forgery::Forgery;
use super::installed::{Installed, SystemUp};
use super::machine::{Around, BootSource, Machine, Phase};
use super::profile::{Parts, Phase as Timed, Sku};
use super::ramdisk::fetch;
use super::shared::Shared;
use super::tasks::Tasks;
use super::tls::Secured;
use super::tpm::SimTpm;
use crate::bmc::{
    Accepted, Asked, BootOverride, Climate, ConsoleWay, Description, Drive, Firmware, Host, MediaRefused, MemoryModule,
    Nic, Ordeal, PowerState, Processor, ResetRefused, ResetType, State, Task, UpdateWays, same,
};
use async_trait::async_trait;
use rackwright_tpm::medium;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// The name of each BMC's one account.
pub(super) const USER: &str = "admin";

/// One machine.
pub(super) struct Node {
    pub(super) index: u32,
    pub(super) shared: Arc<Shared>,
    secured: OnceLock<Secured>,
    /// Told whenever the machine has changed.
    pub(super) changed: Notify,
    pub(super) connections: AtomicU32,
    /// Made when they are first asked for.
    drives: OnceLock<SimDrives>,
    /// Drives that the BMC lists and that no system sees.
    listed: Mutex<Vec<Drive>>,
    /// Whether the BMC says on, whatever is so.
    says_on: AtomicBool,
    /// Whether the BMC refuses media.
    no_media: AtomicBool,
    requests: AtomicU32,
    chances: Chances,
    pub(super) forgery: Forgery,
    pub(super) cabling: Cabling,
    /// The TPM of a board that was changed; else it follows from the machine's UUID.
    board: Mutex<Option<Box<Option<SimTpm>>>>,
    me: Weak<Self>,
    /// The boot that runs, by its number; 0 while nothing does.
    runs: AtomicU32,
    /// Made when somebody first asks for it: most machines are never asked.
    firmware: Mutex<Option<Box<Firmware>>>,
    inner: Mutex<Inner>,
    /// Held by whoever tells what has happened, so that it is told in order.
    telling: Mutex<()>,
}

/// What changes about it.
struct Inner {
    machine: Machine,
    tasks: Tasks,
    /// Whether something boots from the first drive that no agent has written.
    installed_by_hand: bool,
    /// Its address on the host network, since it was first given one.
    address: Option<Ipv4Addr>,
    /// Whether an installed system was told to be up.
    system_is_up: bool,
    /// What an agent reads of the medium in the virtual drive: thousands of machines have no room for the whole.
    sector: Box<[u8]>,
    /// What has happened and was not told yet.
    news: VecDeque<News>,
}

/// What is told of a machine.
enum News {
    Boots(Boot),
    SystemUp(Box<SystemUp>),
    SystemDown,
}

/// A boot whose firmware has handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boot {
    /// The machine's index.
    pub node: usize,
    /// Counts the machine's boots from 1.
    pub number: u32,
    /// Where it boots from.
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
            telling: Mutex::default(),
            chances: Chances::new(&shared.config.faults),
            shared,
            secured: OnceLock::new(),
            changed: Notify::new(),
            connections: AtomicU32::new(0),
            drives: OnceLock::new(),
            listed: Mutex::default(),
            says_on: AtomicBool::new(false),
            no_media: AtomicBool::new(false),
            requests: AtomicU32::new(0),
            inner: Mutex::new(Inner {
                machine: Machine::new(),
                tasks: Tasks::default(),
                installed_by_hand: false,
                address: None,
                system_is_up: false,
                sector: Box::default(),
                news: VecDeque::new(),
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

    /// Lets something happen to the machine, and then whatever is due by it. What comes of it is told once the machine is
    /// not locked any more.
    fn with<T>(&self, act: impl FnOnce(&mut Inner, &Around<'_>) -> T) -> T {
        let shared = &self.shared;
        let chance = |count| shared.dice.fraction(self.index(), Purpose::Duration, count);
        let around = Around {
            now_ms: shared.clock.now_ms(),
            timing: shared.timing,
            chance: &chance,
            hangs: &|| shared.config.faults.hangs(self.moment()),
        };
        let mut inner = self.inner();
        let before = inner.machine.due_ms;
        let mut was = (inner.machine.phase, inner.machine.boots);
        let result = act(&mut inner, &around);
        self.note(&mut inner, &mut was);
        inner.machine.disk_boots = inner.installed_by_hand || self.installed().is_some();
        while inner.machine.tick(&around) {
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
        self.tell();
        result
    }

    /// Notes what is to be told of a machine that was at another phase, or in another boot, before.
    fn note(&self, inner: &mut Inner, was: &mut (Phase, u32)) {
        let now = (inner.machine.phase, inner.machine.boots);
        if std::mem::replace(was, now) == now {
            return;
        }
        let (phase, number) = now;
        let runs = matches!(phase, Phase::Booting(_) | Phase::Up(_));
        self.runs.store(if runs { number } else { 0 }, Ordering::SeqCst);
        if std::mem::take(&mut inner.system_is_up) {
            inner.news.push_back(News::SystemDown);
        }
        match phase {
            Phase::Booting(source) => inner.news.push_back(News::Boots(Boot {
                node: self.index(),
                number,
                source,
            })),
            Phase::Up(BootSource::Disk) => {
                if let Some(installed) = self.installed() {
                    inner.system_is_up = true;
                    inner.news.push_back(News::SystemUp(Box::new(SystemUp {
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

    /// Tells what has happened. Who finds another one telling leaves it to that one.
    fn tell(&self) {
        while !self.inner().news.is_empty() {
            let Ok(_telling) = self.telling.try_lock() else { return };
            loop {
                let news = self.inner().news.pop_front();
                let Some(news) = news else { break };
                self.tell_one(&news);
            }
        }
    }

    fn tell_one(&self, news: &News) {
        let shared = &self.shared;
        match news {
            News::Boots(boot) => {
                shared.counters.boots.fetch_add(1, Ordering::Relaxed);
                if let Some(payload) = &shared.payload {
                    payload.boots(boot);
                }
                let network = matches!(boot.source, BootSource::Network | BootSource::Http);
                if let (Some(ramdisk), Some(me), true) = (&shared.ramdisk, self.me.upgrade(), network) {
                    ramdisk.boot(me, *boot);
                }
            }
            News::SystemUp(system) => {
                if let Some(systems) = &shared.systems {
                    systems.up(system);
                }
            }
            News::SystemDown => {
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

    /// Waits until a boot is over, or the fleet.
    pub(super) async fn left(&self, number: u32) {
        let mut ended = self.shared.ended.clone();
        tokio::select! {
            () = self.reached(|_| !self.runs(number)) => {}
            // Nothing is ever sent: it ends with the fleet that holds the sender.
            _ = ended.changed() => {}
        }
    }

    /// Waits until the machine is as wanted. States that last no time may be missed.
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

    /// Nothing is there for a boot from the network: on to the drive.
    pub(super) fn falls_through(&self, number: u32) {
        self.with(|inner, around| {
            if inner.machine.boots == number {
                inner.machine.disk_boots = inner.installed_by_hand || self.installed().is_some();
                inner.machine.falls_through(around);
            }
        });
    }

    /// What runs in this boot, and no other, resets the machine.
    pub(super) fn restart_of(&self, number: u32) -> bool {
        self.with(|inner, around| self.runs(number) && inner.machine.restart(around))
    }

    /// What runs in this boot, and no other, switches the machine off.
    pub(super) fn switch_off_of(&self, number: u32) -> bool {
        self.with(|inner, around| self.runs(number) && inner.machine.switch_off(around))
    }

    /// Takes note of the address that it was given.
    pub(super) fn set_address(&self, address: Ipv4Addr) {
        self.inner().address = Some(address);
    }

    /// Its address on the host network.
    pub(super) fn address(&self) -> Option<Ipv4Addr> {
        self.inner().address
    }

    /// The system on its drives that boots.
    pub(super) fn installed(&self) -> Option<Arc<Installed>> {
        self.drives.get().and_then(SimDrives::installed)
    }

    /// Changes the system that boots, as what runs on it may; `false` if there is none.
    pub(super) fn change_installed(&self, change: impl FnOnce(&mut Installed)) -> bool {
        let drives = self.sim_drives();
        let holder = drives.all().iter().find(|drive| drive.installed().is_some());
        holder.is_some_and(|drive| drive.change_installed(change))
    }

    /// Puts a system on its first drive.
    pub(super) fn install_system(&self, installed: Installed) {
        if let Some(first) = self.sim_drives().all().first() {
            first.install(installed);
        }
        self.wake();
    }

    /// How long a drive's erase command takes, in the world's time.
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

    /// How often a fault of the script has struck it.
    pub(super) fn struck(&self) -> u32 {
        self.chances.struck()
    }

    /// Does what is due.
    pub(super) fn wake(&self) {
        self.with(|_, _| ());
    }

    /// Switches the machine on, past the BMC.
    pub(super) fn press_button(&self) -> bool {
        self.with(|inner, around| {
            inner.machine.phase == Phase::Off && inner.machine.reset(ResetType::On, around).is_ok()
        })
    }

    /// Takes the power away at once.
    pub(super) fn cut(&self) {
        self.with(|inner, _| {
            inner.machine.cut();
            inner.tasks.fail();
        });
    }

    /// What runs resets the machine.
    pub(super) fn restart(&self) -> bool {
        self.with(|inner, around| inner.machine.restart(around))
    }

    /// Puts a medium into the virtual drive, past the BMC's own checks.
    pub(super) fn leave_media(&self, url: &str) {
        self.with(|inner, _| {
            inner.machine.media = Some(url.into());
            inner.sector = Box::default();
        });
    }

    /// The sector of the medium in the virtual drive that an agent looks at; empty: there is none.
    pub(super) fn sector(&self) -> Box<[u8]> {
        self.inner().sector.clone()
    }

    /// Whether the BMC refuses every medium from now on.
    pub(super) fn refuse_media(&self, always: bool) {
        self.no_media.store(always, Ordering::SeqCst);
    }

    /// Whether the first drive holds something that boots.
    pub(super) fn install(&self, boots: bool) {
        self.with(|inner, _| inner.installed_by_hand = boots);
    }

    /// The BMC lists one more drive, which stands behind a controller that hides it; an empty serial number is not listed.
    pub(super) fn list_drive(&self, serial: &str, bytes: u64) {
        let drive = Drive {
            manufacturer: "Rackwright",
            model: "Simulated Disk",
            serial: serial.to_owned(),
            bytes,
            protocol: Some("SAS"),
        };
        // Made of what the BMC lists at first.
        self.sim_drives();
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).push(drive);
    }

    /// The BMC says on from now on, whatever is so.
    pub(super) fn say_on(&self, always: bool) {
        self.says_on.store(always, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// The drives that the BMC lists, for the agent.
    pub(super) fn sim_drives(&self) -> SimDrives {
        let make = || {
            let name = self.shared.name(self.index());
            let listed = self.description().drives.into_iter().enumerate();
            let ailment = self.shared.config.faults.ailment(self.moment());
            let drive = |(n, drive): (usize, Drive)| {
                let made = SimDrive::new(&name, n, drive.model, drive.serial, drive.bytes);
                Arc::new(made.ailing(ailment))
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

/// Takes the last part of a kind out.
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
            console: self.shared.config.sol_port.map(ConsoleWay::Ipmi),
            processors: processors(sku),
            memory: (0..sku.modules.count).map(module).collect(),
            nics: (0..sku.nics).map(nic).collect(),
            drives: self.drives(sku),
        };
        for part in self.shared.config.faults.lacks(self.moment()) {
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
            power: if self.says_on.load(Ordering::SeqCst) {
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
        self.with(|inner, around| {
            inner.machine.check(reset)?;
            let stuck = self.shared.config.faults.sticks(self.moment());
            if !stuck {
                inner.machine.reset(reset, around)?;
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

    async fn suffer(&self, asked: Asked<'_>) -> Ordeal {
        let shared = &self.shared;
        shared.counters.requests.fetch_add(1, Ordering::Relaxed);
        let count = self.requests.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let chance = shared.dice.fraction(self.index(), Purpose::Answer, u64::from(count));
        let (late, ordeal) = shared.config.faults.request(asked, self.moment());
        let delay = shared.clock.lasts(shared.timing.answer(chance) + late);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        ordeal
    }

    fn tasks(&self) -> Option<Vec<Task>> {
        Some(self.inner().tasks.list())
    }

    fn updates(&self) -> Option<UpdateWays> {
        self.shared.config.updates
    }

    async fn power_other_than(&self, known: PowerState) -> PowerState {
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
    /// The BMC's certificate and what takes connections by it, made when they are first asked for.
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
        // Of two that were made at once, one is kept, and both callers get that one.
        Ok(self.secured.get_or_init(|| made))
    }
}
