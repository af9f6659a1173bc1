//! The boot device of the next boots.

use crate::address::Firmware;
use crate::client::Ipmi;
use crate::error::IpmiError;

/// The IPMI boot devices used by this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootDevice {
    /// No override: the machine's own boot order.
    None,
    /// The network, by PXE.
    Pxe,
    Disk,
    /// A CD.
    Cdrom,
    /// Another device, by its selector.
    Other(u8),
}

impl BootDevice {
    /// Parses the selector of the boot flags (IPMI 2.0, table 28-14, parameter 5, data 2).
    fn of(selector: u8) -> Self {
        match selector {
            0 => Self::None,
            1 => Self::Pxe,
            2 => Self::Disk,
            5 => Self::Cdrom,
            other => Self::Other(other),
        }
    }

    /// `ipmitool`'s name of the device. The error is the selector of a device that is only read.
    fn word(self) -> Result<&'static str, u8> {
        match self {
            Self::None => Ok("none"),
            Self::Pxe => Ok("pxe"),
            Self::Disk => Ok("disk"),
            Self::Cdrom => Ok("cdrom"),
            Self::Other(selector) => Err(selector),
        }
    }
}

/// The duration of an override.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// For one boot.
    Once,
    /// Until another override is set.
    Continuous,
}

/// The boot flags, as read from the BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootFlags {
    /// The BMC marks the flags as valid.
    pub is_valid: bool,
    /// The flags apply to more than one boot.
    pub is_persistent: bool,
    /// The flags request a UEFI boot.
    pub is_uefi: bool,
    /// The boot device.
    pub device: BootDevice,
}

/// The result of setting the boot device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootOutcome {
    /// The flags, as read back.
    pub seen: BootFlags,
    /// Flags that read back differently without proving that the setting was refused.
    pub deviations: Vec<&'static str>,
}

const READ: [&str; 4] = ["chassis", "bootparam", "get", "5"];
/// Set System Boot Options, parameter 3 "boot flag valid bit clearing", bit 3: keep the flags even if no power command
/// follows within 60 s (IPMI 2.0, table 28-14). A node may wait longer than that to be switched on.
const NO_EXPIRY: [&str; 5] = ["raw", "0x00", "0x08", "0x03", "0x08"];

/// Parses the five bytes instead of the text beside them.
fn parse(answer: &str) -> Option<BootFlags> {
    let data = answer
        .lines()
        .find_map(|line| line.trim().strip_prefix("Boot parameter data:"))?
        .trim();
    if data.len() != 10 || !data.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let byte = |n: usize| u8::from_str_radix(data.get(2 * n..2 * n + 2)?, 16).ok();
    let (first, second) = (byte(0)?, byte(1)?);
    Some(BootFlags {
        is_valid: first & 0x80 != 0,
        is_persistent: first & 0x40 != 0,
        is_uefi: first & 0x20 != 0,
        device: BootDevice::of(second >> 2 & 0x0f),
    })
}

impl Ipmi {
    /// Reads the boot flags.
    ///
    /// # Errors
    /// The BMC or the connection failed.
    pub async fn boot(&self) -> Result<BootFlags, IpmiError> {
        let answer = self.ask(&READ).await?;
        parse(&answer).ok_or_else(|| self.unreadable(&READ, &answer))
    }

    /// Sets the boot device and reads it back. It is set even if it already reads so, because flags that are about to
    /// expire read the same.
    ///
    /// # Errors
    /// The BMC or the connection failed; [`IpmiError::UnknownBootDevice`]: `ipmitool` cannot set the device;
    /// [`IpmiError::NotApplied`]: another device reads back.
    pub async fn set_boot(&self, device: BootDevice, persistence: Persistence) -> Result<BootOutcome, IpmiError> {
        let is_uefi = self.address().firmware() == Firmware::Uefi;
        let is_persistent = persistence == Persistence::Continuous;
        let word = device.word().map_err(|selector| IpmiError::UnknownBootDevice {
            bmc: self.place(),
            selector,
        })?;
        let mut options = Vec::new();
        if device != BootDevice::None {
            options.extend(is_uefi.then_some("efiboot"));
            options.extend(is_persistent.then_some("persistent"));
        }
        let options = format!("options={}", options.join(","));
        match self.ask(&NO_EXPIRY).await {
            // The parameter is optional.
            Err(IpmiError::Failed { words, .. }) => {
                tracing::debug!(bmc = self.place(), words, "boot flags may expire after 60 s");
            }
            other => drop(other?),
        }
        if options == "options=" {
            self.ask(&["chassis", "bootdev", word]).await?;
        } else {
            self.ask(&["chassis", "bootdev", word, &options]).await?;
        }
        let seen = self.boot().await?;
        if seen.device != device {
            return Err(IpmiError::NotApplied {
                bmc: self.place(),
                wanted: format!("boot device {device:?}"),
                seen: format!("{:?}", seen.device),
            });
        }
        let mut deviations = Vec::new();
        if device != BootDevice::None {
            let differing = [
                (!seen.is_valid, "the boot flags are marked as invalid"),
                (seen.is_uefi != is_uefi, "the firmware type differs"),
                (seen.is_persistent != is_persistent, "the persistence differs"),
            ];
            deviations.extend(differing.iter().filter(|(is, _)| *is).map(|(_, what)| *what));
        }
        Ok(BootOutcome { seen, deviations })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::Account;

    fn flags(data: &str) -> Option<BootFlags> {
        let words = " Boot Flags :\n   - Boot Flag Invalid\n   - Boot Device Selector : Force PXE\n";
        parse(&format!(
            "Boot parameter version: 1\nBoot parameter 5 is valid/unlocked\nBoot parameter data: {data}\n{words}"
        ))
    }

    #[test]
    fn flags_are_read_from_their_bytes() {
        let all = flags("e004000000").unwrap();
        assert!(all.is_valid && all.is_persistent && all.is_uefi);
        assert_eq!(all.device, BootDevice::Pxe);
        let simulated = flags("0014000000").unwrap();
        assert!(!simulated.is_valid && !simulated.is_persistent && !simulated.is_uefi);
        assert_eq!(simulated.device, BootDevice::Cdrom);
        assert_eq!(flags("8000000000").unwrap().device, BootDevice::None);
        // Bit 7 of the second byte is "clear CMOS", and bits 0 and 1 are locks. None belongs to the selector.
        assert_eq!(flags("808b000000").unwrap().device, BootDevice::Disk);
        assert_eq!(flags("8018000000").unwrap().device, BootDevice::Other(6));
    }

    #[tokio::test]
    async fn a_device_without_a_name_in_ipmitool_is_not_sent() {
        let account = Account {
            username: "admin".to_owned(),
            password: "secret".into(),
        };
        let address = "ipmi://10.0.0.7".parse().unwrap();
        // Each command would fail with another error.
        let client = Ipmi::new(address, account, Arc::default())
            .unwrap()
            .with_program("/nowhere/ipmitool");
        let failure = client
            .set_boot(BootDevice::Other(6), Persistence::Once)
            .await
            .unwrap_err();
        assert!(
            matches!(failure, IpmiError::UnknownBootDevice { selector: 6, .. }),
            "{failure}"
        );
        let text = failure.to_string();
        assert!(
            text.contains("selector 6 cannot be set") && !text.contains("accepted"),
            "{text}"
        );
    }

    #[test]
    fn malformed_answers_have_no_flags() {
        for data in ["", "e0", "zz04000000", "e00400000000", "é04000000"] {
            assert_eq!(flags(data), None, "{data}");
        }
        assert_eq!(parse("Boot parameter 5 is valid"), None);
    }
}
