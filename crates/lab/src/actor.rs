//! The task that owns one machine: only this task starts, controls and ends its QEMU process, one step at a time.
//!
//! Each boot is a separate QEMU process, after a reset as well as after a power-on: a reset by the guest ends the process
//! (`-action reboot=shutdown`), and the machine is started anew. So every boot uses the current boot override, drives and
//! media, and a one-time override is cleared when the process for that boot has started.
//!
//! (The alternative, boot indices set at run time before `system_reset`, cannot know when the firmware has read them:
//! SeaBIOS answers one reset with two or three resets of its own, and the last one counts.)

use super::machine::{MachineView, Media};
use super::process::{ProcessEvent, Running};
use super::qemu::{self, Drive, DriveBus, Hardware, PowerOn};
use super::{Firmware, LabError, nvram};
use rackwright_sim_bmc::{BootEnabled, BootOverride, BootTarget, PowerState, ResetRefused, ResetType};
use std::fs::File;
use tokio::sync::{mpsc, oneshot, watch};

type Reply = oneshot::Sender<Result<(), LabError>>;

/// A request to a machine.
#[derive(Debug)]
pub(crate) enum Command {
    /// Answered on acceptance; the outcome shows in the view.
    Reset {
        reset: ResetType,
        reply: oneshot::Sender<Result<(), ResetRefused>>,
    },
    SetBoot {
        boot: BootOverride,
        reply: Reply,
    },
    SetMedia {
        media: Option<Media>,
        reply: Reply,
    },
    SetHang {
        hang: bool,
        reply: Reply,
    },
    PowerCut {
        reply: Reply,
    },
    SwapDisk {
        index: usize,
        bytes: u64,
        reply: Reply,
    },
    RemoveDisk {
        index: usize,
        reply: Reply,
    },
    BreakDisk {
        index: usize,
        sector: u64,
        reply: Reply,
    },
}

/// The owner of one machine.
#[derive(Debug)]
pub(crate) struct Actor {
    hardware: Hardware,
    view: watch::Sender<MachineView>,
    running: Option<Running>,
    hang: bool,
    /// Whether the last power-on used HTTP as the network boot.
    http_booted: bool,
}

impl Actor {
    /// A machine that is off, with its drives and firmware variables created.
    pub(crate) fn new(
        hardware: Hardware,
        drives: Vec<Drive>,
    ) -> Result<(Self, watch::Receiver<MachineView>), LabError> {
        for drive in &drives {
            make_drive(drive)?;
        }
        if let Some(files) = qemu::firmware_files(hardware.firmware) {
            let vars = hardware.vars();
            std::fs::copy(files.vars, &vars).map_err(LabError::file("write", &vars))?;
        }
        let (view, receiver) = watch::channel(MachineView::new(drives));
        Ok((
            Self {
                hardware,
                view,
                running: None,
                hang: false,
                http_booted: false,
            },
            receiver,
        ))
    }

    /// Serves the machine until the last handle on it is dropped.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let event = async {
                match &mut self.running {
                    Some(running) => running.event().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                command = commands.recv() => match command {
                    Some(command) => self.obey(command).await,
                    None => break,
                },
                event = event => self.follow(event).await,
            }
        }
        self.power_off().await;
    }

    async fn obey(&mut self, command: Command) {
        match command {
            Command::Reset { reset, reply } => {
                let accepted = self.accept(reset);
                let go = accepted.is_ok();
                let _ = reply.send(accepted);
                if go {
                    self.reset(reset).await;
                }
            }
            Command::SetBoot { boot, reply } => {
                self.set_boot(boot);
                let _ = reply.send(Ok(()));
            }
            Command::SetMedia { media, reply } => _ = reply.send(self.set_media(media).await),
            Command::SetHang { hang, reply } => _ = reply.send(self.set_hang(hang).await),
            Command::PowerCut { reply } => {
                self.power_cut().await;
                let _ = reply.send(Ok(()));
            }
            Command::SwapDisk { index, bytes, reply } => _ = reply.send(self.swap_disk(index, bytes)),
            Command::RemoveDisk { index, reply } => _ = reply.send(self.remove_disk(index)),
            Command::BreakDisk { index, sector, reply } => _ = reply.send(self.break_disk(index, sector)),
        }
    }

    /// Reacts to an event that the machine caused itself.
    async fn follow(&mut self, event: ProcessEvent) {
        let machine = &self.hardware.name;
        match event {
            ProcessEvent::Shutdown(reason) if reason == "guest-reset" => self.restart().await,
            ProcessEvent::Shutdown(reason) => {
                tracing::debug!(machine, reason, "the guest shut down");
                self.power_off().await;
            }
            ProcessEvent::Ended => {
                tracing::warn!(machine, "QEMU ended unexpectedly");
                self.fault("run it", "QEMU ended unexpectedly; see qemu.log".into());
                self.power_cut().await;
            }
        }
    }

    /// Decides whether a reset applies, and if so shows the transitional state.
    fn accept(&self, reset: ResetType) -> Result<(), ResetRefused> {
        let on = self.running.is_some();
        if (reset == ResetType::On) == on {
            let power = if on { "On" } else { "Off" };
            return Err(ResetRefused::WrongState {
                power,
                reset: reset.as_str(),
            });
        }
        match reset {
            ResetType::On => self.show(PowerState::PoweringOn),
            ResetType::ForceOff | ResetType::PowerCycle => self.show(PowerState::PoweringOff),
            ResetType::GracefulShutdown | ResetType::ForceRestart => {}
        }
        Ok(())
    }

    async fn reset(&mut self, reset: ResetType) {
        match reset {
            ResetType::On => self.power_on().await,
            ResetType::ForceOff => self.power_off().await,
            ResetType::PowerCycle => self.power_cycle().await,
            ResetType::ForceRestart => self.restart().await,
            ResetType::GracefulShutdown => {
                if let Some(running) = &mut self.running
                    && let Err(detail) = running.press_power().await
                {
                    self.fault("press its power button", detail);
                }
            }
        }
    }

    async fn power_on(&mut self) {
        self.show(PowerState::PoweringOn);
        self.boot().await;
    }

    /// Starts a boot of the machine, which must be off.
    async fn boot(&mut self) {
        match self.start().await {
            Ok(running) => {
                let pid = running.pid();
                self.running = Some(running);
                self.view.send_modify(|view| {
                    view.power = PowerState::On;
                    view.pid = Some(pid);
                    view.fault = None;
                    view.boots += 1;
                    if view.boot.enabled == BootEnabled::Once {
                        view.boot = BootOverride::NONE;
                        view.boot_generation += 1;
                    }
                });
            }
            Err(detail) => {
                self.fault("start it", detail);
                self.show(PowerState::Off);
            }
        }
    }

    async fn start(&mut self) -> Result<Running, String> {
        let view = self.view.borrow().clone();
        let on = PowerOn {
            drives: &view.drives,
            media: view.media.as_ref().map(|media| media.path.as_path()),
            target: view.boot.effective(),
            hang: self.hang,
            http_boot: self.http_boot(view.boot),
        };
        if self.http_booted && !on.http_boot {
            nvram::forget_http_boot(&self.hardware.vars())
                .map_err(|error| format!("its HTTP boot entries: {error}"))?;
        }
        self.http_booted = on.http_boot;
        Running::start(&self.hardware, &on).await
    }

    async fn power_off(&mut self) {
        self.show(PowerState::PoweringOff);
        let spent = match self.running.take() {
            Some(running) => running.quit().await,
            None => 0.0,
        };
        self.is_off(spent);
    }

    async fn power_cut(&mut self) {
        let spent = match self.running.take() {
            Some(running) => running.kill().await,
            None => 0.0,
        };
        self.is_off(spent);
    }

    async fn power_cycle(&mut self) {
        self.power_off().await;
        self.power_on().await;
    }

    /// A reset: the power state stays On throughout.
    async fn restart(&mut self) {
        if let Some(running) = self.running.take() {
            let spent = running.quit().await;
            self.ended(spent);
        }
        self.boot().await;
    }

    fn set_boot(&mut self, boot: BootOverride) {
        self.view.send_modify(|view| {
            view.boot = boot;
            view.boot_generation += 1;
        });
    }

    /// Whether the next network boot must be HTTP instead of PXE.
    fn http_boot(&self, boot: BootOverride) -> bool {
        match boot.effective() {
            Some(BootTarget::UefiHttp) => true,
            Some(BootTarget::Pxe) => false,
            Some(BootTarget::Hdd | BootTarget::Cd) | None => self.hardware.firmware == Firmware::UefiHttp,
        }
    }

    async fn set_media(&mut self, media: Option<Media>) -> Result<(), LabError> {
        if let Some(running) = &mut self.running {
            let result = match &media {
                Some(media) => running.insert(&media.path).await,
                None => running.eject().await,
            };
            result.map_err(|detail| self.error("change its virtual media", detail))?;
        }
        let old = self.view.borrow().media.clone();
        if let Some(old) = old.filter(|old| media.as_ref().is_none_or(|media| media.path != old.path)) {
            let _ = std::fs::remove_file(&old.path);
        }
        self.view.send_modify(|view| view.media = media);
        Ok(())
    }

    async fn set_hang(&mut self, hang: bool) -> Result<(), LabError> {
        self.hang = hang;
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        running
            .set_hang(hang)
            .await
            .map_err(|detail| self.error("stop or continue its CPU", detail))
    }

    fn swap_disk(&mut self, index: usize, bytes: u64) -> Result<(), LabError> {
        let mut drive = self.pulled(index, "swap a drive")?;
        drive.bytes = bytes;
        make_drive(&drive)?;
        self.view.send_modify(|view| view.drives[index] = drive);
        Ok(())
    }

    fn remove_disk(&mut self, index: usize) -> Result<(), LabError> {
        let drive = self.pulled(index, "pull a drive")?;
        std::fs::remove_file(&drive.path).map_err(LabError::file("remove", &drive.path))?;
        self.view.send_modify(|view| _ = view.drives.remove(index));
        Ok(())
    }

    fn break_disk(&mut self, index: usize, sector: u64) -> Result<(), LabError> {
        self.pulled(index, "break a drive")?;
        self.view.send_modify(|view| view.drives[index].broken = Some(sector));
        Ok(())
    }

    fn pulled(&self, index: usize, what: &'static str) -> Result<Drive, LabError> {
        if self.running.is_some() {
            return Err(LabError::MachineIsOn {
                machine: self.hardware.name.clone(),
                what,
            });
        }
        let view = self.view.borrow();
        let missing = || LabError::Config {
            field: "drive index",
            detail: format!("there is no drive {index}"),
        };
        view.drives.get(index).cloned().ok_or_else(missing)
    }

    fn show(&self, power: PowerState) {
        self.view.send_modify(|view| view.power = power);
    }

    fn is_off(&self, spent: f64) {
        self.ended(spent);
        self.show(PowerState::Off);
    }

    fn ended(&self, spent: f64) {
        self.view.send_modify(|view| {
            view.pid = None;
            view.cpu_seconds_before += spent;
        });
    }

    fn fault(&self, what: &'static str, detail: String) {
        let error = self.error(what, detail);
        tracing::error!("{error}");
        self.view.send_modify(|view| view.fault = Some(error.to_string()));
    }

    fn error(&self, what: &'static str, detail: String) -> LabError {
        LabError::Machine {
            machine: self.hardware.name.clone(),
            what,
            detail,
        }
    }
}

/// Creates a drive's file anew: sparse, reading zeros.
fn make_drive(drive: &Drive) -> Result<(), LabError> {
    let detached = (drive.bus == DriveBus::NvmeDetached).then(|| drive.detached_path());
    for path in std::iter::once(&drive.path).chain(&detached) {
        let made = File::create(path).and_then(|file| file.set_len(drive.bytes));
        made.map_err(LabError::file("create the drive", path))?;
    }
    Ok(())
}
