//! The BMC's data about itself and its machine, and its event log.

use serde::Serialize;

use crate::client::Ipmi;
use crate::error::IpmiError;

/// Maximum number of event log entries to keep: the newest.
const ENTRIES_MAX: usize = 4096;
/// Maximum length of a value, in characters. Longer values are cut.
const VALUE_MAX: usize = 128;

const INFO: [&str; 2] = ["mc", "info"];
const GUID: [&str; 2] = ["mc", "guid"];
const FRU: [&str; 3] = ["fru", "print", "0"];
const SEL: [&str; 2] = ["sel", "elist"];
const SOL: [&str; 2] = ["sol", "info"];

/// The BMC itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Controller {
    /// The BMC's manufacturer, if `ipmitool` knows the number.
    pub manufacturer: Option<String>,
    /// The BMC's product name, if `ipmitool` knows the number.
    pub product: Option<String>,
    /// The version of the BMC's firmware.
    pub firmware: Option<String>,
    /// The version of IPMI.
    pub ipmi: Option<String>,
}

/// The machine, according to its first field-replaceable unit (FRU).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Fru {
    /// The machine's manufacturer.
    pub manufacturer: Option<String>,
    /// The machine's model.
    pub product: Option<String>,
    /// The machine's serial number.
    pub serial: Option<String>,
}

/// One entry of the event log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SelEntry {
    /// The number of the entry, hexadecimal.
    pub id: String,
    /// Date and time by the BMC's clock, in `ipmitool`'s format.
    pub at: String,
    /// The sensor of the entry.
    pub sensor: String,
    pub event: String,
}

fn text(value: &str) -> Option<String> {
    let plain: String = value.chars().filter(|c| !c.is_control()).take(VALUE_MAX).collect();
    let plain = plain.trim();
    let is_filler = [
        "",
        "0",
        "unknown",
        "not available",
        "n/a",
        "none",
        "to be filled by o.e.m.",
    ]
    .contains(&plain.to_ascii_lowercase().as_str());
    (!is_filler && !plain.to_ascii_lowercase().starts_with("unknown (")).then(|| plain.to_owned())
}

/// The value of the first name that has one.
fn value(answer: &str, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| {
        answer.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == *name).then(|| text(value)).flatten()
        })
    })
}

fn controller(answer: &str) -> Option<Controller> {
    let read = Controller {
        manufacturer: value(answer, &["Manufacturer Name"]),
        product: value(answer, &["Product Name"]),
        firmware: value(answer, &["Firmware Revision"]),
        ipmi: value(answer, &["IPMI Version"]),
    };
    // Every BMC reports both.
    (read.firmware.is_some() && read.ipmi.is_some()).then_some(read)
}

fn guid(answer: &str) -> Option<String> {
    let guid = value(answer, &["System GUID"])?.to_ascii_lowercase();
    let lengths: Vec<usize> = guid.split('-').map(str::len).collect();
    let is_one = lengths == [8, 4, 4, 4, 12] && guid.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit());
    // All zeros or all ones mean that there is no GUID.
    let is_set = guid.bytes().any(|b| b != b'0' && b != b'-') && guid.bytes().any(|b| b != b'f' && b != b'-');
    (is_one && is_set).then_some(guid)
}

fn fru(answer: &str) -> Fru {
    Fru {
        manufacturer: value(answer, &["Product Manufacturer", "Board Mfg"]),
        product: value(answer, &["Product Name", "Board Product"]),
        serial: value(answer, &["Product Serial", "Chassis Serial", "Board Serial"]),
    }
}

fn entries(answer: &str) -> Vec<SelEntry> {
    let lines: Vec<&str> = answer.lines().collect();
    lines
        .iter()
        .skip(lines.len().saturating_sub(ENTRIES_MAX))
        .filter_map(|line| {
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            let [id, date, time, sensor, event @ ..] = parts.as_slice() else {
                return None;
            };
            let is_id = !id.is_empty() && id.bytes().all(|b| b.is_ascii_hexdigit());
            is_id.then(|| SelEntry {
                id: (*id).to_owned(),
                at: text(&format!("{date} {time}")).unwrap_or_default(),
                sensor: text(sensor).unwrap_or_default(),
                event: text(&event.join(" ")).unwrap_or_default(),
            })
        })
        .collect()
}

impl Ipmi {
    /// Reads the BMC's own data.
    ///
    /// # Errors
    /// The BMC or the connection failed.
    pub async fn controller(&self) -> Result<Controller, IpmiError> {
        let answer = self.ask(&INFO).await?;
        controller(&answer).ok_or_else(|| self.unreadable(&INFO, &answer))
    }

    /// Reads the system's GUID, usually the SMBIOS UUID. Returns `None` if the BMC has no GUID. `ipmitool` detects the
    /// byte order.
    ///
    /// # Errors
    /// The BMC or the connection failed.
    pub async fn guid(&self) -> Result<Option<String>, IpmiError> {
        match self.ask(&GUID).await {
            Ok(answer) => Ok(guid(&answer)),
            // The command is optional (IPMI 2.0, section 20.8).
            Err(IpmiError::Failed { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the machine's data, as far as the BMC has them.
    ///
    /// # Errors
    /// The BMC or the connection failed.
    pub async fn fru(&self) -> Result<Fru, IpmiError> {
        match self.ask(&FRU).await {
            Ok(answer) => Ok(fru(&answer)),
            // The FRU is empty or damaged: ipmitool exits with 1.
            Err(IpmiError::Failed { .. }) => Ok(Fru::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads whether the BMC offers the serial console.
    ///
    /// # Errors
    /// The BMC or the connection failed.
    pub async fn offers_console(&self) -> Result<bool, IpmiError> {
        match self.ask(&SOL).await {
            Ok(answer) => Ok(value(&answer, &["Enabled"]).as_deref() == Some("true")),
            // The payload is optional (IPMI 2.0, section 15).
            Err(IpmiError::Failed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the event log, oldest entry first. A long log is cut to the newest 4096 entries.
    ///
    /// # Errors
    /// The BMC or the connection failed.
    pub async fn event_log(&self) -> Result<Vec<SelEntry>, IpmiError> {
        self.ask(&SEL).await.map(|answer| entries(&answer))
    }

    /// Empties the event log.
    ///
    /// # Errors
    /// The BMC or the connection failed.
    pub async fn clear_event_log(&self) -> Result<(), IpmiError> {
        self.ask(&["sel", "clear"]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Output of ipmitool 1.8.19 for ipmi_sim 2.0.33.
    const MC_INFO: &str = "Device ID                 : 0\nDevice Revision           : 3\nFirmware Revision         : 9.08\n\
                           IPMI Version              : 2.0\nManufacturer ID           : 4753\n\
                           Manufacturer Name         : MontaVista Software, Inc.\n\
                           Product ID                : 3842 (0x0f02)\nProduct Name              : Unknown (0xF02)\n";

    #[test]
    fn a_controller_is_read_and_placeholder_values_are_not() {
        let read = controller(MC_INFO).unwrap();
        assert_eq!(read.manufacturer.as_deref(), Some("MontaVista Software, Inc."));
        assert_eq!((read.product, read.firmware.as_deref()), (None, Some("9.08")));
        assert_eq!(controller("Firmware Revision : 9.08"), None);
    }

    #[test]
    fn a_guid_is_one_or_none() {
        let of = |guid_: &str| guid(&format!("System GUID   : {guid_}\nGUID Encoding : IPMI\n"));
        let known = "efcdab89-6745-23a1-efcd-ab89674523a1";
        assert_eq!(of(&known.to_ascii_uppercase()).as_deref(), Some(known));
        for none in [
            "00000000-0000-0000-0000-000000000000",
            "efcdab89",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn the_machine_is_the_product_before_its_board() {
        let answer = " Chassis Serial        : C1\n Board Mfg Date        : Mon Jan  1 00:00:00 1996\n \
                      Board Mfg             : Maker\n Board Product         : Board\n Board Serial          : B1\n \
                      Product Manufacturer  : \n Product Name          : Server\n Product Serial        : To be filled by O.E.M.\n";
        let read = fru(answer);
        assert_eq!(
            (read.manufacturer.as_deref(), read.product.as_deref()),
            (Some("Maker"), Some("Server"))
        );
        assert_eq!(read.serial.as_deref(), Some("C1"));
        assert_eq!(
            fru(" Device not present (Invalid data field in request)"),
            Fru::default()
        );
    }

    #[test]
    fn the_event_log_is_a_table() {
        let answer = "   1 | 11/23/2026 | 07:00:00 | Power Unit #0x01 | Power off/down | Asserted\n\
                      \n  1f | Pre-Init  |0000000012| Memory #0x02 | Uncorrectable ECC | Asserted\nSEL has no entries\n";
        let read = entries(answer);
        assert_eq!(read.len(), 2);
        assert_eq!(
            (read[0].at.as_str(), read[0].sensor.as_str()),
            ("11/23/2026 07:00:00", "Power Unit #0x01")
        );
        assert_eq!(
            (read[1].id.as_str(), read[1].event.as_str()),
            ("1f", "Uncorrectable ECC Asserted")
        );
        let many = "1|d|t|s|e\n".repeat(ENTRIES_MAX + 5);
        assert_eq!(entries(&many).len(), ENTRIES_MAX);
    }

    proptest! {
        #[test]
        fn any_answer_parses_or_is_an_error(answer in "(?s).{0,200}") {
            let _ = (controller(&answer), guid(&answer), fru(&answer), entries(&answer));
        }
    }
}
