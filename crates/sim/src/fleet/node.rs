//! One machine of a fleet, and the machine as its BMC sees it. Nothing of it runs while nothing happens to it: it is a few
//! hundred bytes until a request or the fleet's timer comes.

use super::FleetError;
use super::dice::Purpose;
use super::drive::{SimDrive, SimDrives};
use super::faults::{Chances, Moment, Part};
use super::installed::{Installed, SystemUp};
use super::machine::{Around, BootSource, Machine, Phase};
use super::profile::{Parts, Sku};
use super::shared::Shared;
use super::tasks::Tasks;
use crate::bmc::{
    Accepted, Asked, BootOverride, Description, Drive, Host, MediaRefused, MemoryModule, Nic, Ordeal, Processor,
    ResetRefused, ResetType, State, Task, same,
};
use async_trait::async_trait;
use rustls::pki_types::CertificateDer;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::Notify;

/// The name of each BMC's one account.
pub(super) const USER: &str = "admin";

/// One machine.
pub(super) struct Node {
    pub(super) index: u32,
    pub(super) shared: Arc<Shared>,
    certificate: OnceLock<CertificateDer<'static>>,
    /// Told whenever the machine has changed.
    pub(super) changed: Notify,
    pub(super) connections: AtomicU32,
    /// Made when they are first asked for.
    drives: OnceLock<SimDrives>,
    requests: AtomicU32,
    chances: Chances,
    inner: Mutex<Inner>,
}

/// What changes about it.
struct Inner {
    machine: Machine,
    tasks: Tasks,
    installed: Option<Arc<Installed>>,
    /// Its address on the host network, since it was first given one.
    address: Option<Ipv4Addr>,
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
    pub(super) fn new(index: u32, shared: Arc<Shared>) -> Self {
        Self {
            index,
            chances: Chances::new(&shared.config.faults),
            shared,
            certificate: OnceLock::new(),
            changed: Notify::new(),
            connections: AtomicU32::new(0),
            drives: OnceLock::new(),
            requests: AtomicU32::new(0),
            inner: Mutex::new(Inner {
                machine: Machine::new(),
                tasks: Tasks::default(),
                installed: None,
                address: None,
            }),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn index(&self) -> usize {
        self.index as usize
    }

    /// The machine now.
    pub(super) fn machine(&self) -> Machine {
        self.inner().machine.clone()
    }

    /// Lets something happen to the machine, and then whatever is due by it. Boots that begin are told to the payload
    /// once nothing is locked any more.
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
        let ran = inner.machine.running();
        let result = act(&mut inner, &around);
        let (mut boots, mut ups) = (Vec::new(), Vec::new());
        while inner.machine.tick(&around) {
            if let Phase::Booting(source) = inner.machine.phase {
                boots.push(Boot {
                    node: self.index(),
                    number: inner.machine.boots,
                    source,
                });
            }
            ups.extend(self.system_up(&inner));
        }
        if !inner.machine.is_moving() {
            inner.tasks.settle();
        }
        if let Some(due_ms) = inner.machine.due_ms.filter(|due| before != Some(*due)) {
            shared.timers.set(due_ms, self.index);
        }
        let down = ran.is_some() && ran != inner.machine.running();
        drop(inner);
        for boot in &boots {
            shared.counters.boots.fetch_add(1, Ordering::Relaxed);
            if let Some(payload) = &shared.payload {
                payload.boots(boot);
            }
        }
        if let Some(systems) = &shared.systems {
            if down {
                systems.down(self.index());
            }
            ups.iter().for_each(|system| systems.up(system));
        }
        self.changed.notify_waiters();
        result
    }

    /// The system that has just come up from the drive.
    fn system_up(&self, inner: &Inner) -> Option<SystemUp> {
        let installed = inner.installed.clone()?;
        let boot = inner.machine.boots;
        (inner.machine.phase == Phase::Up(BootSource::Disk)).then(|| SystemUp {
            node: self.index(),
            boot,
            boot_id: self.shared.boot_id(self.index(), boot),
            address: inner.address.map(Into::into),
            installed,
        })
    }

    /// Takes note of the address that it was given.
    pub(super) fn set_address(&self, address: Ipv4Addr) {
        self.inner().address = Some(address);
    }

    /// The system on its drives that boots.
    pub(super) fn installed(&self) -> Option<Arc<Installed>> {
        self.inner().installed.clone()
    }

    /// Changes the system on its drives; `false` if there is none.
    pub(super) fn change_installed(&self, change: impl FnOnce(&mut Installed)) -> bool {
        let mut inner = self.inner();
        let installed = inner.installed.as_mut();
        installed.map(|installed| change(Arc::make_mut(installed))).is_some()
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

    /// Does what is due.
    pub(super) fn wake(&self) {
        self.with(|_, _| ());
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

    /// Whether the first drive holds something that boots.
    pub(super) fn install(&self, boots: bool) {
        self.with(|inner, _| inner.machine.disk_boots = boots);
    }

    /// Puts a system on a drive.
    pub(super) fn install_system(&self, installed: Installed) {
        self.with(|inner, _| {
            inner.machine.disk_boots = true;
            inner.installed = Some(Arc::new(installed));
        });
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
            SimDrives(listed.map(drive).collect())
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
            tpm: false,
            reset_types: sku.reset_types,
            processors: processors(sku),
            memory: (0..sku.modules.count).map(module).collect(),
            nics: (0..sku.nics).map(nic).collect(),
            drives: self.drives(sku),
        };
        for part in self.shared.config.faults.lacks(self.moment()) {
            lose(&mut description, part);
        }
        description
    }

    fn state(&self) -> State {
        let machine = self.machine();
        State {
            power: machine.power(),
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
        // Nothing boots from it here, so that it need not be had: only what cannot be a URL is refused.
        let well_formed = url
            .parse::<http::Uri>()
            .is_ok_and(|uri| uri.scheme_str() == Some("http"));
        if !well_formed {
            let why = "only the HTTP transfer protocol is supported".to_owned();
            return Err(MediaRefused::Unreachable(why));
        }
        self.with(|inner, _| inner.machine.media = Some(url.into()));
        Ok(())
    }

    async fn eject_media(&self) -> Result<(), String> {
        self.with(|inner, _| inner.machine.media = None);
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

    fn clock_skew_s(&self) -> i64 {
        self.shared.config.faults.clock_skew_s(self.moment())
    }

    fn forget_task(&self, number: u64) -> bool {
        self.inner().tasks.forget(number)
    }
}

impl Node {
    /// The BMC's certificate, made when it is first asked for.
    pub(super) fn certificate(&self) -> Result<&CertificateDer<'static>, FleetError> {
        if let Some(made) = self.certificate.get() {
            return Ok(made);
        }
        let Some(tls) = &self.shared.tls else {
            let detail = "the BMCs speak plain HTTP".to_owned();
            return Err(FleetError::Tls { detail });
        };
        let index = self.index();
        let made = tls.certificate(&self.shared.name(index), self.shared.config.address(index))?;
        // Of two that were made at once, one is kept, and both callers get that one.
        Ok(self.certificate.get_or_init(|| made))
    }
}
