//! Boot options and Secure Boot keys as a machine's BMC shows them, and changes that root on the machine makes to them.

use super::firmware::{Firmware, with};
use super::reply::{Fault, empty, json};
use super::resources::collection;
use super::routes::{Bmc, To};
use axum::extract::Path;
use axum::response::Response;
use http::{StatusCode, Uri};
use serde_json::{Value, json};

pub(super) const OPTIONS: &str = "/redfish/v1/Systems/1/BootOptions";

/// The BMC's behaviour when boot options and keys are changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UefiFault {
    /// It carries out every change.
    #[default]
    None,
    /// It does not remove boot options, and a new boot order applies from the next start.
    KeepsOptions,
    /// It does not remove boot options or change the boot order.
    KeepsOrder,
    /// It does not remove or reset keys.
    KeepsKeys,
    /// It does not remove a single key; the database can be reset.
    ResetsKeysOnly,
    /// Its list of key databases is not readable.
    FailsKeys,
}

#[derive(Debug, Clone)]
struct BootOption {
    number: u16,
    name: String,
    device: String,
}

/// The boot options of one machine.
#[derive(Debug, Clone)]
pub(super) struct BootOptions {
    all: Vec<BootOption>,
    order: Vec<u16>,
    /// The order from the next start.
    waiting: Option<Vec<u16>>,
    pub(super) fault: UefiFault,
}

impl Default for BootOptions {
    fn default() -> Self {
        let option = |number, name: &str, device: &str| BootOption {
            number,
            name: name.to_owned(),
            device: device.to_owned(),
        };
        Self {
            all: vec![
                option(
                    0,
                    "UEFI PXE IPv4",
                    "PciRoot(0x0)/Pci(0x2,0x0)/MAC(525400000000,0x1)/IPv4(0.0.0.0)",
                ),
                option(
                    1,
                    "UEFI Disk",
                    "PciRoot(0x0)/Pci(0x3,0x0)/NVMe(0x1,00-00-00-00-00-00-00-00)",
                ),
            ],
            order: vec![0, 1],
            waiting: None,
            fault: UefiFault::None,
        }
    }
}

fn reference(number: u16) -> String {
    format!("Boot{number:04X}")
}

impl BootOptions {
    /// Handles a start of the machine.
    pub(super) fn started(&mut self) {
        if let Some(order) = self.waiting.take() {
            self.order = order;
        }
    }

    /// The order as the system shows it.
    pub(super) fn order(&self) -> Vec<String> {
        self.order.iter().map(|number| reference(*number)).collect()
    }

    /// Sets a new order of known options.
    pub(super) fn reorder(&mut self, wanted: &Value) -> Result<(), Fault> {
        let path = "Boot.BootOrder";
        let Value::Array(list) = wanted else {
            return Err(Fault::wrong_type(path, wanted));
        };
        if self.fault == UefiFault::KeepsOrder {
            return Err(Fault::not_writable(path));
        }
        let mut order = Vec::new();
        for one in list {
            let found = self.all.iter().find(|option| *one == reference(option.number).as_str());
            order.push(found.ok_or_else(|| Fault::not_in_list(path, &one.to_string()))?.number);
        }
        match self.fault {
            UefiFault::KeepsOptions => self.waiting = Some(order),
            _ => self.order = order,
        }
        Ok(())
    }

    fn leave(&mut self, name: &str, device: &str) {
        let number = self
            .all
            .iter()
            .map(|option| option.number)
            .max()
            .map_or(0, |most| most + 1);
        self.all.push(BootOption {
            number,
            name: name.to_owned(),
            device: device.to_owned(),
        });
        self.order.insert(0, number);
    }

    fn find(&self, id: &str) -> Option<&BootOption> {
        self.all.iter().find(|option| reference(option.number) == id)
    }

    fn remove(&mut self, id: &str) -> Result<(), Fault> {
        let number = self.find(id).map(|option| option.number);
        let number = number.ok_or_else(|| Fault::not_found(&format!("{OPTIONS}/{id}")))?;
        if matches!(self.fault, UefiFault::KeepsOptions | UefiFault::KeepsOrder) {
            return Err(Fault::method("DELETE"));
        }
        self.all.retain(|option| option.number != number);
        self.order.retain(|one| *one != number);
        Ok(())
    }
}

/// Actions of root on the machine.
impl Bmc {
    fn on_firmware(&self, mut act: impl FnMut(&mut Firmware)) {
        self.host.firmware(&mut |firmware| act(firmware));
    }

    /// Sets the BMC's behaviour for changes.
    pub fn set_uefi_fault(&self, fault: UefiFault) {
        self.on_firmware(|firmware| firmware.boot.fault = fault);
    }

    /// Adds a boot option before all others.
    pub fn add_boot_option(&self, name: &str, device: &str) {
        self.on_firmware(|firmware| firmware.boot.leave(name, device));
    }

    /// Adds a certificate to the keys that allow programs to start.
    pub fn add_key_in_db(&self, pem: &str) {
        self.on_firmware(|firmware| firmware.keys.entry("db").or_default().insert(0, Some(pem.to_owned())));
    }

    /// Switches Secure Boot on or off from the next start.
    pub fn switch_secure_boot(&self, on: bool) {
        self.on_firmware(|firmware| firmware.secure_next = on);
    }

    /// Names of the boot options in their order, the number of keys in `db`, and whether Secure Boot is on.
    pub fn uefi(&self) -> (Vec<String>, usize, bool) {
        let mut seen = (Vec::new(), 0, false);
        self.on_firmware(|firmware| {
            let boot = &firmware.boot;
            let name = |number: &u16| boot.find(&reference(*number)).map(|option| option.name.clone());
            seen = (
                boot.order.iter().filter_map(name).collect(),
                firmware.keys.get("db").map_or(0, Vec::len),
                firmware.secure_next,
            );
        });
        seen
    }
}

// ---- boot options ----

pub(super) async fn options(To(bmc): To) -> Result<Response, Fault> {
    let ids: Vec<String> = with(bmc.host.as_ref(), OPTIONS, |firmware| {
        firmware
            .boot
            .all
            .iter()
            .map(|option| reference(option.number))
            .collect()
    })?;
    let kind = "#BootOptionCollection.BootOptionCollection";
    let members = ids.iter().map(String::as_str);
    Ok(json(
        StatusCode::OK,
        &collection(OPTIONS, kind, "Boot options", members),
    ))
}

pub(super) async fn option(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let found = with(bmc.host.as_ref(), uri.path(), |firmware| {
        firmware.boot.find(&id).cloned()
    })?;
    let option = found.ok_or_else(|| Fault::not_found(uri.path()))?;
    Ok(json(
        StatusCode::OK,
        &json!({
            "@odata.id": uri.path(),
            "@odata.type": "#BootOption.v1_0_4.BootOption",
            "Id": id,
            "Name": "Boot option",
            "BootOptionReference": id,
            "BootOptionEnabled": true,
            "DisplayName": option.name,
            "UefiDevicePath": option.device,
        }),
    ))
}

pub(super) async fn remove_option(To(bmc): To, Path(id): Path<String>, uri: Uri) -> Result<Response, Fault> {
    with(bmc.host.as_ref(), uri.path(), |firmware| firmware.boot.remove(&id))??;
    Ok(empty(StatusCode::NO_CONTENT))
}
