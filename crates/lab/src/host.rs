//! A machine of the lab as its BMC sees it.

use super::machine::{Machine, Media};
use super::media;
use super::qemu::{MANUFACTURER, MODEL};
use crate::Firmware;
use async_trait::async_trait;
use rackwright_sim_bmc::{
    Accepted, BootOverride, ConsoleKind, Description, Drive, Faults, Host, MediaRefused, MemoryModule, Nic, PowerState,
    Processor, RequestFault, RequestLine, ResetRefused, ResetType, State, same,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// A machine, its BMC's faults, and the largest image that the BMC accepts.
pub(crate) struct LabHost {
    pub(crate) machine: Machine,
    pub(crate) faults: watch::Receiver<Faults>,
    pub(crate) media_bytes: u64,
    pub(crate) console: ConsoleKind,
    /// The Unix socket of the serial port.
    pub(crate) serial: PathBuf,
}

#[async_trait]
impl Host for LabHost {
    fn description(&self) -> Description {
        let machine = &self.machine;
        let drives = machine.view().drives.into_iter().map(|drive| Drive {
            manufacturer: "QEMU",
            model: drive.bus.model(),
            protocol: drive.bus.protocol(),
            serial: drive.serial,
            bytes: drive.bytes,
        });
        Description {
            name: machine.name().to_owned(),
            manufacturer: MANUFACTURER,
            model: MODEL,
            bmc_model: "Lab BMC",
            serial: machine.serial().to_owned(),
            uuid: machine.uuid().to_owned(),
            uefi: machine.firmware().is_uefi(),
            secure_boot: machine.firmware() == Firmware::UefiSecureBoot,
            tpm: machine.tpm(),
            reset_types: &ResetType::ALL,
            console: Some(self.console),
            processors: vec![Processor {
                id: "CPU0".to_owned(),
                kind: "CPU",
                manufacturer: "QEMU",
                model: "QEMU Virtual CPU",
                cores: 1,
                threads: 1,
            }],
            memory: vec![MemoryModule {
                id: "DIMM0".to_owned(),
                manufacturer: "QEMU",
                mib: machine.memory_mb(),
            }],
            nics: vec![Nic {
                id: "NIC0".to_owned(),
                mac: machine.mac().to_owned(),
            }],
            drives: drives.collect(),
        }
    }

    fn state(&self) -> State {
        let view = self.machine.view();
        State {
            power: view.power,
            powered: view.pid.is_some(),
            boot: view.boot,
            boot_generation: view.boot_generation,
            media: view.media.map(|media| media.url),
            fault: view.fault,
        }
    }

    fn user(&self) -> &str {
        &self.machine.bmc().user
    }

    fn admits(&self, user: &str, password: &str) -> bool {
        let access = self.machine.bmc();
        same(&access.user, user) & same(access.password(), password)
    }

    async fn reset(&self, reset: ResetType) -> Result<Accepted, ResetRefused> {
        self.machine.reset(reset).await.map(|()| Accepted::Silently)
    }

    async fn set_boot(&self, boot: BootOverride) -> Result<(), String> {
        self.machine.set_boot(boot).await.map_err(|error| error.to_string())
    }

    async fn insert_media(&self, url: &str) -> Result<(), MediaRefused> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("media-{}.iso", NEXT.fetch_add(1, Ordering::Relaxed));
        let path = self.machine.run_dir().join(name);
        if let Err(why) = media::fetch(url, &path, self.media_bytes).await {
            let _ = tokio::fs::remove_file(&path).await;
            return Err(MediaRefused::Unreachable(why));
        }
        let url = url.to_owned();
        let inserted = self.machine.insert_media(Media { url, path }).await;
        inserted.map_err(|error| MediaRefused::Failed(error.to_string()))
    }

    async fn eject_media(&self) -> Result<(), String> {
        self.machine.eject_media().await.map_err(|error| error.to_string())
    }

    async fn wait_power_change(&self, known: PowerState) -> PowerState {
        let mut machine = self.machine.watch();
        let seen = machine.wait_for(|view| view.power != known).await;
        let other = seen.map(|view| view.power).ok();
        match other {
            Some(power) => power,
            // The machine is gone, and its BMC too.
            None => std::future::pending().await,
        }
    }

    fn serial(&self) -> Option<&Path> {
        Some(&self.serial)
    }

    async fn inject_fault(&self, _: RequestLine<'_>) -> RequestFault {
        let mut faults = self.faults.clone();
        let delay = faults.borrow().delay;
        if delay > Duration::ZERO {
            tokio::time::sleep(delay).await;
        }
        let _ = faults.wait_for(|faults| !faults.silent).await;
        RequestFault::None
    }
}
