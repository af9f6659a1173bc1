//! One machine: power, POST, boot. Pure functions: time is an argument, and nothing here waits.
//!
//! | from | by | to |
//! |---|---|---|
//! | Off | `On` | PoweringOn, Post, Booting, Up |
//! | Post, Hung, Booting, Up | `ForceRestart` | Post, Booting, Up |
//! | the same and PoweringOn, ShuttingDown | `ForceOff` | PoweringOff, Off |
//! | Post, Hung, Booting, Up | `PowerCycle` | PoweringOff, PoweringOn, Post, Booting, Up |
//! | Up | `GracefulShutdown` | ShuttingDown, PoweringOff, Off |
//!
//! The boot override is read when POST begins, at power-on and at every reset; a one-time override is then cleared.

use super::profile::{Phase as Timed, Timing};
use rackwright_sim_bmc::{BootEnabled, BootOverride, BootTarget, PowerState, ResetRefused, ResetType};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootSource {
    /// The first drive.
    Disk,
    /// PXE.
    Network,
    /// UEFI HTTP Boot.
    Http,
    /// The virtual CD.
    Media,
}

/// The phase of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Off,
    PoweringOn,
    /// The firmware's self-test.
    Post,
    /// A POST that never ends.
    Hung,
    /// The firmware has handed over, and the loaded system starts.
    Booting(BootSource),
    /// The booted system runs.
    Up(BootSource),
    /// The operating system shuts down.
    ShuttingDown,
    PoweringOff,
}

impl Phase {
    fn power(self) -> PowerState {
        match self {
            Self::Off => PowerState::Off,
            Self::PoweringOn => PowerState::PoweringOn,
            Self::Post | Self::Hung | Self::Booting(_) | Self::Up(_) => PowerState::On,
            Self::ShuttingDown | Self::PoweringOff => PowerState::PoweringOff,
        }
    }
}

/// The circumstances of a machine's transitions.
#[derive(Clone, Copy)]
pub(super) struct MachineContext<'a> {
    /// Milliseconds of the fleet's time.
    pub(super) now_ms: u64,
    pub(super) timing: &'a Timing,
    /// A number from 0 to 1 for the n-th random duration of this machine.
    pub(super) chance: &'a dyn Fn(u64) -> f64,
    /// Whether the POST that begins now hangs.
    pub(super) hangs: &'a dyn Fn() -> bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Machine {
    pub(super) phase: Phase,
    pub(super) boot: BootOverride,
    pub(super) boot_generation: u32,
    /// Boots so far, including the current one.
    pub(super) boots: u32,
    /// Whether the first drive is bootable.
    pub(super) disk_boots: bool,
    /// URL in the virtual media drive.
    pub(super) media: Option<Box<str>>,
    /// When the phase ends, in milliseconds; `None` for a phase that only a request ends.
    pub(super) due_ms: Option<u64>,
    /// The target of the current boot.
    target: Option<BootTarget>,
    /// Whether power returns after it is off.
    cycling: bool,
    /// Number of phases with a random duration so far.
    timed: u32,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Off,
            boot: BootOverride::NONE,
            boot_generation: 1,
            boots: 0,
            disk_boots: false,
            media: None,
            due_ms: None,
            target: None,
            cycling: false,
            timed: 0,
        }
    }

    pub(super) fn power(&self) -> PowerState {
        self.phase.power()
    }

    /// Whether its power is about to change without a request.
    pub(super) fn is_moving(&self) -> bool {
        matches!(self.phase, Phase::PoweringOn | Phase::ShuttingDown | Phase::PoweringOff)
    }

    pub(super) fn set_boot(&mut self, boot: BootOverride) {
        self.boot = boot;
        self.boot_generation = self.boot_generation.wrapping_add(1);
    }

    /// Whether a reset applies now.
    ///
    /// # Errors
    /// [`ResetRefused::WrongState`].
    pub(super) fn check(&self, reset: ResetType) -> Result<(), ResetRefused> {
        let applies = match reset {
            ResetType::On => self.phase == Phase::Off,
            ResetType::ForceOff => !matches!(self.phase, Phase::Off | Phase::PoweringOff),
            ResetType::GracefulShutdown | ResetType::ForceRestart | ResetType::PowerCycle => {
                self.power() == PowerState::On
            }
        };
        if applies {
            return Ok(());
        }
        Err(ResetRefused::WrongState {
            power: self.power().as_str(),
            reset: reset.as_str(),
        })
    }

    /// Carries out a reset that applies.
    ///
    /// # Errors
    /// [`ResetRefused::WrongState`].
    pub(super) fn reset(&mut self, reset: ResetType, context: &MachineContext<'_>) -> Result<(), ResetRefused> {
        self.check(reset)?;
        match reset {
            ResetType::On => self.enter(Phase::PoweringOn, Timed::PowerOn, context),
            ResetType::ForceOff | ResetType::PowerCycle => {
                self.cycling = reset == ResetType::PowerCycle;
                self.enter(Phase::PoweringOff, Timed::PowerOff, context);
            }
            ResetType::ForceRestart => self.post(context),
            // Without a running operating system, the power button is ignored.
            ResetType::GracefulShutdown => {
                if matches!(self.phase, Phase::Up(_)) {
                    self.cycling = false;
                    self.enter(Phase::ShuttingDown, Timed::Shutdown, context);
                }
            }
        }
        Ok(())
    }

    /// Ends the phase if it is due; `false` if none is. If a boot begins by this, it is in `phase`.
    pub(super) fn tick(&mut self, context: &MachineContext<'_>) -> bool {
        let Some(due_ms) = self.due_ms.take_if(|due| *due <= context.now_ms) else {
            return false;
        };
        // The next phase begins at the due time, even if this call is late.
        let context = &MachineContext {
            now_ms: due_ms,
            ..*context
        };
        match self.phase {
            Phase::PoweringOn => self.post(context),
            Phase::Post => self.enter(Phase::Booting(self.source()), Timed::Boot, context),
            Phase::Booting(source) => self.phase = Phase::Up(source),
            Phase::ShuttingDown => self.enter(Phase::PoweringOff, Timed::PowerOff, context),
            Phase::PoweringOff if self.cycling => {
                self.cycling = false;
                self.enter(Phase::PoweringOn, Timed::PowerOn, context);
            }
            Phase::PoweringOff => self.phase = Phase::Off,
            Phase::Off | Phase::Hung | Phase::Up(_) => {}
        }
        true
    }

    /// Cuts the power at once.
    pub(super) fn cut(&mut self) {
        self.phase = Phase::Off;
        self.due_ms = None;
        self.cycling = false;
    }

    /// The running system resets the machine; `false` if none runs.
    pub(super) fn restart(&mut self, context: &MachineContext<'_>) -> bool {
        let runs = matches!(self.phase, Phase::Up(_) | Phase::Booting(_));
        if runs {
            self.post(context);
        }
        runs
    }

    /// The running system powers the machine off; `false` if none runs.
    pub(super) fn switch_off(&mut self, context: &MachineContext<'_>) -> bool {
        let runs = matches!(self.phase, Phase::Up(_));
        if runs {
            self.cycling = false;
            self.enter(Phase::PoweringOff, Timed::PowerOff, context);
        }
        runs
    }

    /// No server on the network offers a boot: the firmware continues with the drive, if that is bootable.
    pub(super) fn falls_through(&mut self, context: &MachineContext<'_>) {
        let tried = matches!(
            self.phase,
            Phase::Booting(BootSource::Network | BootSource::Http) | Phase::Up(BootSource::Network | BootSource::Http)
        );
        if tried && self.disk_boots {
            self.enter(Phase::Booting(BootSource::Disk), Timed::Boot, context);
        }
    }

    fn post(&mut self, context: &MachineContext<'_>) {
        self.boots = self.boots.wrapping_add(1);
        self.target = self.boot.effective();
        if self.boot.enabled == BootEnabled::Once {
            self.set_boot(BootOverride::NONE);
        }
        if (context.hangs)() {
            self.phase = Phase::Hung;
            self.due_ms = None;
        } else {
            self.enter(Phase::Post, Timed::Post, context);
        }
    }

    /// The order of the lab's machines: drive, network, virtual media; the override's target comes first. The network
    /// is always tried: only the attempt shows whether a server answers.
    fn source(&self) -> BootSource {
        let disk = self.disk_boots.then_some(BootSource::Disk);
        let media = self.media.is_some().then_some(BootSource::Media);
        let named = match self.target {
            Some(BootTarget::Pxe) => Some(BootSource::Network),
            Some(BootTarget::UefiHttp) => Some(BootSource::Http),
            Some(BootTarget::Cd) => media,
            Some(BootTarget::Hdd) | None => disk,
        };
        named.or(disk).unwrap_or(BootSource::Network)
    }

    fn enter(&mut self, phase: Phase, timed: Timed, context: &MachineContext<'_>) {
        self.timed = self.timed.wrapping_add(1);
        let chance = (context.chance)(u64::from(self.timed));
        self.phase = phase;
        self.due_ms = Some(context.now_ms.saturating_add(context.timing.length_ms(timed, chance)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::Profile;
    use super::*;

    const PXE_ONCE: BootOverride = BootOverride {
        target: Some(BootTarget::Pxe),
        enabled: BootEnabled::Once,
    };

    /// A machine with its own clock and the times of the `vm` profile without jitter.
    struct Bench {
        machine: Machine,
        now_ms: u64,
        hangs: bool,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                machine: Machine::new(),
                now_ms: 1000,
                hangs: false,
            }
        }

        fn with<T>(&mut self, act: impl FnOnce(&mut Machine, &MachineContext<'_>) -> T) -> T {
            let hangs = self.hangs;
            let context = MachineContext {
                now_ms: self.now_ms,
                timing: Profile::Vm.timing(),
                chance: &|_| 0.5,
                hangs: &|| hangs,
            };
            act(&mut self.machine, &context)
        }

        fn reset(&mut self, reset: ResetType) -> Result<(), ResetRefused> {
            self.with(|machine, context| machine.reset(reset, context))
        }

        /// Runs until no phase has a due time; returns the phases.
        fn rest(&mut self) -> Vec<Phase> {
            let mut phases = vec![self.machine.phase];
            while let Some(due_ms) = self.machine.due_ms {
                assert!(due_ms >= self.now_ms);
                self.now_ms = due_ms;
                assert!(self.with(Machine::tick));
                phases.push(self.machine.phase);
            }
            assert!(!self.with(Machine::tick));
            phases
        }
    }

    #[test]
    fn power_takes_its_time_and_shows_it() {
        let mut bench = Bench::new();
        bench.reset(ResetType::On).unwrap();
        assert_eq!(bench.machine.power(), PowerState::PoweringOn);
        assert!(!bench.with(Machine::tick), "not yet");
        let network = BootSource::Network;
        let phases = [
            Phase::PoweringOn,
            Phase::Post,
            Phase::Booting(network),
            Phase::Up(network),
        ];
        assert_eq!(bench.rest(), phases);
        bench.reset(ResetType::GracefulShutdown).unwrap();
        assert_eq!(bench.machine.power(), PowerState::PoweringOff);
        assert_eq!(bench.rest(), [Phase::ShuttingDown, Phase::PoweringOff, Phase::Off]);
    }

    #[test]
    fn inapplicable_requests_are_refused_and_change_nothing() {
        let mut bench = Bench::new();
        let refused = |bench: &mut Bench, reset| {
            let before = bench.machine.clone();
            assert!(bench.reset(reset).is_err(), "{reset:?} in {:?}", before.phase);
            assert_eq!(bench.machine, before);
        };
        for reset in ResetType::ALL.into_iter().filter(|reset| *reset != ResetType::On) {
            refused(&mut bench, reset);
        }
        bench.reset(ResetType::On).unwrap();
        for reset in [ResetType::On, ResetType::ForceRestart, ResetType::PowerCycle] {
            refused(&mut bench, reset);
        }
        bench.rest();
        refused(&mut bench, ResetType::On);
        bench.reset(ResetType::ForceOff).unwrap();
        refused(&mut bench, ResetType::ForceOff);
        assert_eq!(bench.rest(), [Phase::PoweringOff, Phase::Off]);
    }

    #[test]
    fn an_override_for_once_ends_with_the_reset_that_uses_it() {
        let mut bench = Bench::new();
        bench.machine.disk_boots = true;
        bench.machine.set_boot(PXE_ONCE);
        bench.reset(ResetType::On).unwrap();
        assert_eq!(bench.machine.boot, PXE_ONCE, "nothing has been reset yet");
        assert_eq!(bench.rest().last(), Some(&Phase::Up(BootSource::Network)));
        assert_eq!(bench.machine.boot, BootOverride::NONE);
        bench.reset(ResetType::ForceRestart).unwrap();
        assert_eq!(bench.rest().last(), Some(&Phase::Up(BootSource::Disk)));

        // Set after the reset, during POST: the override is for the next boot.
        bench.reset(ResetType::ForceRestart).unwrap();
        bench.machine.set_boot(PXE_ONCE);
        assert_eq!(bench.rest().last(), Some(&Phase::Up(BootSource::Disk)));
        assert_eq!(bench.machine.boot, PXE_ONCE);
        bench.reset(ResetType::PowerCycle).unwrap();
        assert_eq!(bench.rest().last(), Some(&Phase::Up(BootSource::Network)));
        assert_eq!(bench.machine.boots, 4);
    }

    #[test]
    fn a_continuous_override_stays() {
        let mut bench = Bench::new();
        bench.machine.media = Some("http://10.0.0.1/x.iso".into());
        bench.machine.set_boot(BootOverride {
            target: Some(BootTarget::Cd),
            enabled: BootEnabled::Continuous,
        });
        bench.reset(ResetType::On).unwrap();
        for _ in 0..3 {
            assert_eq!(bench.rest().last(), Some(&Phase::Up(BootSource::Media)));
            bench.reset(ResetType::ForceRestart).unwrap();
        }
    }

    #[test]
    fn a_power_cycle_goes_through_off_and_forcing_it_off_ends_it() {
        let mut bench = Bench::new();
        bench.reset(ResetType::On).unwrap();
        bench.rest();
        bench.reset(ResetType::PowerCycle).unwrap();
        let phases = bench.rest();
        assert_eq!(phases[..2], [Phase::PoweringOff, Phase::PoweringOn]);
        bench.reset(ResetType::PowerCycle).unwrap();
        bench.now_ms = bench.machine.due_ms.unwrap();
        bench.with(Machine::tick);
        bench.reset(ResetType::ForceOff).unwrap();
        assert_eq!(bench.rest(), [Phase::PoweringOff, Phase::Off]);
    }

    #[test]
    fn a_post_that_hangs_ends_by_a_reset_only() {
        let mut bench = Bench::new();
        bench.hangs = true;
        bench.reset(ResetType::On).unwrap();
        assert_eq!(bench.rest(), [Phase::PoweringOn, Phase::Hung]);
        assert_eq!(bench.machine.power(), PowerState::On);
        bench.reset(ResetType::GracefulShutdown).unwrap();
        assert_eq!(bench.machine.phase, Phase::Hung, "the button has no effect");
        bench.hangs = false;
        bench.reset(ResetType::ForceRestart).unwrap();
        assert_eq!(bench.rest().last(), Some(&Phase::Up(BootSource::Network)));
    }

    #[test]
    fn a_running_system_can_reset_and_lose_power() {
        let mut bench = Bench::new();
        assert!(!bench.with(|machine, context| machine.restart(context)));
        bench.reset(ResetType::On).unwrap();
        bench.rest();
        assert!(bench.with(|machine, context| machine.restart(context)));
        assert_eq!((bench.machine.phase, bench.machine.boots), (Phase::Post, 2));
        bench.machine.cut();
        assert_eq!(bench.rest(), [Phase::Off]);
        assert!(!bench.with(|machine, context| machine.switch_off(context)));
        bench.reset(ResetType::On).unwrap();
        bench.rest();
        assert!(bench.with(|machine, context| machine.switch_off(context)));
        assert_eq!(bench.rest(), [Phase::PoweringOff, Phase::Off]);
    }

    #[test]
    fn a_network_without_a_boot_file_leads_to_the_drive() {
        for (disk_boots, end) in [(true, BootSource::Disk), (false, BootSource::Network)] {
            let mut bench = Bench::new();
            bench.machine.disk_boots = disk_boots;
            bench.machine.set_boot(PXE_ONCE);
            bench.reset(ResetType::On).unwrap();
            assert_eq!(bench.rest().last(), Some(&Phase::Up(BootSource::Network)));
            bench.with(|machine, context| machine.falls_through(context));
            assert_eq!(bench.rest().last(), Some(&Phase::Up(end)));
            bench.with(|machine, context| machine.falls_through(context));
            assert_eq!(bench.rest().last(), Some(&Phase::Up(end)), "once is enough");
        }
    }
}
