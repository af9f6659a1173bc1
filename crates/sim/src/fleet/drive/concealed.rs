//! Places on drives that an erase could miss: host protected areas, detached namespaces, USB sticks.

use super::{NOWHERE, SimDrive, SimDrives};
use rackwright_agent::drives::hidden::HiddenArea;
use std::sync::{Arc, Mutex, PoisonError};

/// How a drive or a part of it is hidden from the running system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concealed {
    /// It is not hidden.
    No,
    /// A host protected area: only this many bytes are shown.
    Shrunk {
        shown_bytes: u64,
        /// Whether the drive opens it on request.
        opens: bool,
    },
    /// A namespace that is attached to no controller.
    Detached {
        /// Whether the controller attaches it on request.
        opens: bool,
    },
}

impl SimDrive {
    /// A further namespace of the drive, detached and full of data.
    fn detached_namespace(&self, machine: &str, bytes: u64, opens: bool) -> Self {
        let name = format!("{}n2", self.controller);
        let namespace = Self {
            node: [NOWHERE, machine, &name].iter().collect(),
            controller: self.controller.clone(),
            name,
            concealed: Mutex::new(Concealed::Detached { opens }),
            ..Self::new(machine, 0, self.model, self.serial.clone(), bytes)
        };
        namespace.fill_with_data();
        namespace
    }

    /// A USB stick full of data.
    fn stick(machine: &str, serial: &str, bytes: u64) -> Self {
        let stick = Self {
            node: [NOWHERE, machine, "sda"].iter().collect(),
            controller: "usb1".to_owned(),
            name: "sda".to_owned(),
            transport: "usb",
            ..Self::new(machine, 0, "Stick", serial.to_owned(), bytes)
        };
        stick.fill_with_data();
        stick
    }

    /// How it is hidden from the running system.
    pub fn concealed(&self) -> Concealed {
        *self.concealed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hides it from the running system.
    pub fn conceal(&self, how: Concealed) {
        *self.concealed.lock().unwrap_or_else(PoisonError::into_inner) = how;
    }

    pub(super) fn shown_bytes(&self) -> u64 {
        match self.concealed() {
            Concealed::Shrunk { shown_bytes, .. } => shown_bytes,
            _ => self.size_bytes,
        }
    }

    /// Opens the hidden part, if there is one.
    pub(super) fn open_hidden(&self) -> Option<HiddenArea> {
        let (what, opens) = match self.concealed() {
            Concealed::No => return None,
            Concealed::Shrunk { shown_bytes, opens } => {
                let bytes = self.size_bytes - shown_bytes;
                (format!("host protected area of {bytes} bytes"), opens)
            }
            Concealed::Detached { opens } => (format!("detached namespace 2 of {} bytes", self.size_bytes), opens),
        };
        if opens {
            self.conceal(Concealed::No);
        }
        Some(HiddenArea {
            drive: format!("drive {} (serial number {})", self.name, self.serial),
            controllers: vec![self.controller.clone()],
            what,
            closed: (!opens).then(|| "the area could not be opened: command aborted".to_owned()),
            // In this simulation a sanitize reaches only its own namespace.
            reached_by: &[],
        })
    }
}

impl SimDrives {
    /// Creates a detached namespace full of data on the first drive.
    pub(in crate::fleet) fn detach_namespace(&self, machine: &str, bytes: u64, opens: bool) -> Option<Arc<SimDrive>> {
        let first = self.drives.first()?;
        Some(self.add(first.detached_namespace(machine, bytes, opens)))
    }

    /// Plugs in a stick full of data.
    pub(in crate::fleet) fn plug(&self, machine: &str, serial: &str, bytes: u64) -> Arc<SimDrive> {
        self.add(SimDrive::stick(machine, serial, bytes))
    }

    fn add(&self, drive: SimDrive) -> Arc<SimDrive> {
        let drive = Arc::new(drive);
        let mut more = self.more.lock().unwrap_or_else(PoisonError::into_inner);
        more.push(Arc::clone(&drive));
        drive
    }
}
