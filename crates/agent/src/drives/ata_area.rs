//! Capacity that an ATA drive hides: host protected area, Accessible Max Address, and device configuration overlay.
//!
//! ATA/ATAPI Command Set 2 (ACS-2): READ NATIVE MAX ADDRESS (EXT), SET MAX ADDRESS EXT, DEVICE CONFIGURATION IDENTIFY and
//! RESTORE. ACS-3 replaces them by GET NATIVE MAX ADDRESS EXT and SET ACCESSIBLE MAX ADDRESS EXT. Opened areas stay open:
//! the next boot sees the whole drive.

use std::fs::File;
use std::io;
use std::time::Duration;

use rackwright_api::v1::EraseMethod;

use super::ata::{AtaTransport, IDENTIFY_DEVICE, PASS_THROUGH_16, PROTOCOL_NON_DATA, PROTOCOL_PIO_IN, SECTOR, command};
use crate::disk::{le16, le64};
use crate::ioctl::ScsiData;

const READ_NATIVE_MAX: u8 = 0xF8;
const READ_NATIVE_MAX_EXT: u8 = 0x27;
const SET_MAX: u8 = 0xF9;
const SET_MAX_EXT: u8 = 0x37;
const ACCESSIBLE_MAX: u8 = 0x78;
const GET_NATIVE: u16 = 0;
const SET_ACCESSIBLE: u16 = 1;
const DEVICE_CONFIGURATION: u8 = 0xB1;
const DCO_RESTORE: u16 = 0xC0;
const DCO_IDENTIFY: u16 = 0xC2;
/// Flag in the device register: the address is an LBA.
const LBA: u8 = 0x40;
/// The new size survives a power cycle.
const PERSISTENT: u16 = 1;
const TIMEOUT: Duration = Duration::from_secs(15);
/// SECURITY ERASE UNIT erases up to the native size. Only the enhanced mode reaches the area hidden by the overlay.
const SECURE_ERASE_METHODS: &[EraseMethod] = &[EraseMethod::AtaSecureEraseEnhanced, EraseMethod::AtaSecureErase];
const ENHANCED_METHODS: &[EraseMethod] = &[EraseMethod::AtaSecureEraseEnhanced];

/// A hidden area, opened or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Description of the area.
    pub what: String,
    /// Why the area is still hidden; `None` if it was opened.
    pub closed: Option<String>,
    /// The methods that erase the area while it is hidden.
    pub reached_by: &'static [EraseMethod],
}

/// Size and size-related features of a drive, as it reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    sectors: u64,
    sector_bytes: u64,
    /// The supported commands that hide capacity.
    host_protected: bool,
    accessible_max: bool,
    overlay: bool,
    is_48_bit: bool,
}

/// Registers of a command without data.
#[derive(Clone, Copy)]
struct Registers {
    command: u8,
    features: u16,
    count: u16,
    lba: u64,
    is_48_bit: bool,
}

impl Registers {
    fn of(command: u8, features: u16, is_48_bit: bool) -> Self {
        Self {
            command,
            features,
            count: 0,
            lba: 0,
            is_48_bit,
        }
    }

    /// Builds ATA PASS-THROUGH (16), SAT-4, 12.2.2. CK_COND makes the drive's registers come back.
    fn pass_through(self) -> [u8; 16] {
        let lba = self.lba.to_le_bytes();
        let [features, count] = [self.features.to_be_bytes(), self.count.to_be_bytes()];
        // In a 28-bit command, the upper four address bits are in the device register.
        let (extend, device) = if self.is_48_bit {
            (1, LBA)
        } else {
            (0, LBA | lba[3] & 0xF)
        };
        let [high_3, high_4, high_5] = if self.is_48_bit {
            [lba[3], lba[4], lba[5]]
        } else {
            [0; 3]
        };
        [
            PASS_THROUGH_16,
            PROTOCOL_NON_DATA << 1 | extend,
            0x20,
            features[0],
            features[1],
            count[0],
            count[1],
            high_3,
            lba[0],
            high_4,
            lba[1],
            high_5,
            lba[2],
            device,
            self.command,
            0,
        ]
    }

    /// Sends the command and returns the address in the drive's answer.
    fn send(self, drive: &dyn AtaTransport) -> io::Result<u64> {
        let back = drive.registers(&self.pass_through(), TIMEOUT)?;
        let mut lba = [back[7], back[9], back[11], back[6], back[8], back[10], 0, 0];
        if !self.is_48_bit {
            lba[3..].fill(0);
            lba[3] = back[12] & 0xF;
        }
        Ok(u64::from_le_bytes(lba))
    }
}

fn sizes(drive: &dyn AtaTransport) -> io::Result<Sizes> {
    let mut data = [0; SECTOR];
    drive.pass(
        &command(IDENTIFY_DEVICE, PROTOCOL_PIO_IN),
        ScsiData::In(&mut data),
        TIMEOUT,
    )?;
    let word = |index: usize| le16(&data, index * 2);
    let is_48_bit = word(83) & 1 << 10 != 0;
    // Word 106 is valid if bit 14 is set and bit 15 clear. If bit 12 is set, words 117 and 118 hold the words per logical
    // sector.
    let has_large_sectors = word(106) & 0xD000 == 0x5000;
    let sector_words = u64::from(word(117)) | u64::from(word(118)) << 16;
    Ok(Sizes {
        sectors: if is_48_bit {
            le64(&data, 200) & 0xFFFF_FFFF_FFFF
        } else {
            u64::from(word(60)) | u64::from(word(61)) << 16
        },
        sector_bytes: if has_large_sectors { sector_words * 2 } else { 512 },
        host_protected: word(82) & 1 << 10 != 0,
        accessible_max: word(119) & 0xC100 == 0x4100,
        overlay: word(83) & 1 << 11 != 0,
        is_48_bit,
    })
}

/// Number of sectors that can be opened without changing the device configuration.
fn native_sectors(drive: &dyn AtaTransport, sizes: &Sizes) -> io::Result<u64> {
    let native = if sizes.accessible_max {
        Registers::of(ACCESSIBLE_MAX, GET_NATIVE, true).send(drive)?
    } else if sizes.host_protected && sizes.is_48_bit {
        Registers::of(READ_NATIVE_MAX_EXT, 0, true).send(drive)?
    } else if sizes.host_protected {
        Registers::of(READ_NATIVE_MAX, 0, false).send(drive)?
    } else {
        return Ok(sizes.sectors);
    };
    // Saturates in case of an implausibly large address.
    Ok(native.saturating_add(1).max(sizes.sectors))
}

/// Native capacity in bytes; 0 if the drive does not report it.
pub fn native_bytes(drive: &File) -> u64 {
    let native = sizes(drive).and_then(|sizes| Ok(native_sectors(drive, &sizes)? * sizes.sector_bytes));
    native.unwrap_or(0)
}

fn set_sectors(drive: &dyn AtaTransport, sizes: &Sizes, sectors: u64) -> io::Result<()> {
    let set = |command, features, is_48_bit| Registers {
        count: if features == 0 { PERSISTENT } else { 0 },
        lba: sectors.saturating_sub(1),
        ..Registers::of(command, features, is_48_bit)
    };
    if sizes.accessible_max {
        return set(ACCESSIBLE_MAX, SET_ACCESSIBLE, true).send(drive).map(drop);
    }
    // SET MAX ADDRESS is refused unless the previous command is READ NATIVE MAX ADDRESS.
    native_sectors(drive, sizes)?;
    let command = if sizes.is_48_bit { SET_MAX_EXT } else { SET_MAX };
    set(command, 0, sizes.is_48_bit).send(drive).map(drop)
}

/// Number of sectors after a restore of the drive's configuration.
fn configured_sectors(drive: &dyn AtaTransport) -> io::Result<u64> {
    let mut data = [0; SECTOR];
    let mut pass = command(DEVICE_CONFIGURATION, PROTOCOL_PIO_IN);
    pass[4] = DCO_IDENTIFY as u8;
    drive.pass(&pass, ScsiData::In(&mut data), TIMEOUT)?;
    Ok((le64(&data, 6) & 0xFFFF_FFFF_FFFF).saturating_add(1))
}

/// Opens the hidden areas of a drive. Returns each area, and whether the drive's size has changed.
///
/// # Errors
/// The drive does not answer as ATA.
pub fn open(drive: &dyn AtaTransport) -> io::Result<(Vec<Area>, bool)> {
    let before = sizes(drive)?;
    let mut areas = Vec::new();
    let native = match native_sectors(drive, &before) {
        Ok(native) => native,
        Err(error) => {
            areas.push(Area {
                what: "possible hidden capacity".into(),
                closed: Some(format!("the drive's native size cannot be read: {error}")),
                reached_by: SECURE_ERASE_METHODS,
            });
            return Ok((areas, false));
        }
    };
    let bytes = |sectors: u64| sectors.saturating_mul(before.sector_bytes);
    if native > before.sectors {
        let closed = set_sectors(drive, &before, native).err();
        areas.push(Area {
            what: format!("host protected area of {} bytes", bytes(native - before.sectors)),
            closed: closed.map(|error| format!("the area could not be opened: {error}; a power cycle may help")),
            reached_by: SECURE_ERASE_METHODS,
        });
    }
    let mut wanted = native;
    // If firmware locked the configuration at its start, it cannot be read now and is skipped.
    if before.overlay
        && let Ok(configured) = configured_sectors(drive)
        && configured > native
    {
        let restored = Registers::of(DEVICE_CONFIGURATION, DCO_RESTORE, false).send(drive);
        areas.push(Area {
            what: format!(
                "{} bytes hidden by the device configuration",
                bytes(configured - native)
            ),
            closed: restored
                .err()
                .map(|error| format!("the device configuration could not be restored: {error}")),
            reached_by: ENHANCED_METHODS,
        });
        wanted = configured;
    }
    if areas.is_empty() {
        return Ok((areas, false));
    }
    let after = sizes(drive)?;
    if after.sectors < wanted && areas.iter().all(|area| area.closed.is_none()) {
        for area in &mut areas {
            area.closed = Some(format!("the drive still reports {} bytes", bytes(after.sectors)));
        }
    }
    Ok((areas, after.sectors != before.sectors))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A drive of 1000 sectors that reports fewer.
    struct Fake {
        /// Words 82, 83 and 119 of the identify data.
        words: [u16; 3],
        shown: Cell<u64>,
        native: Cell<u64>,
        real: u64,
        refuses: Option<u8>,
        sent: RefCell<Vec<u8>>,
    }

    const HPA: u16 = 1 << 10;
    const BITS_48: u16 = 1 << 10;
    const DCO: u16 = 1 << 11;

    fn fake(words: [u16; 3], shown: u64, native: u64) -> Fake {
        Fake {
            words,
            shown: shown.into(),
            native: native.into(),
            real: 1000,
            refuses: None,
            sent: RefCell::default(),
        }
    }

    impl AtaTransport for Fake {
        fn pass(&self, command: &[u8; 16], data: ScsiData<'_>, _: Duration) -> io::Result<()> {
            let ScsiData::In(data) = data else { panic!() };
            match command[14] {
                IDENTIFY_DEVICE => {
                    for (at, word) in [(82, self.words[0]), (83, self.words[1]), (119, self.words[2])] {
                        data[at * 2..at * 2 + 2].copy_from_slice(&word.to_le_bytes());
                    }
                    data[200..208].copy_from_slice(&self.shown.get().to_le_bytes());
                    data[120..124].copy_from_slice(&(self.shown.get() as u32).to_le_bytes());
                }
                DEVICE_CONFIGURATION if self.refuses != Some(DEVICE_CONFIGURATION) => {
                    assert_eq!(command[4], 0xC2);
                    data[6..14].copy_from_slice(&(self.real - 1).to_le_bytes());
                }
                _ => return Err(io::Error::other("aborted")),
            }
            Ok(())
        }

        fn registers(&self, command: &[u8; 16], _: Duration) -> io::Result<[u8; 14]> {
            assert_eq!((command[0], command[2]), (0x85, 0x20));
            let (code, before) = (command[14], self.sent.borrow().last().copied());
            self.sent.borrow_mut().push(code);
            if self.refuses == Some(code) {
                return Err(io::Error::other("aborted"));
            }
            let requested_max = u64::from_le_bytes([command[8], command[10], command[12], command[7], 0, 0, 0, 0]);
            match (code, command[4]) {
                (SET_MAX_EXT, _) => {
                    assert_eq!((before, command[1], command[6]), (Some(READ_NATIVE_MAX_EXT), 7, 1));
                    self.shown.set(requested_max + 1);
                }
                (SET_MAX, _) => self.shown.set(requested_max + 1),
                (ACCESSIBLE_MAX, 1) => self.shown.set(requested_max + 1),
                (DEVICE_CONFIGURATION, 0xC0) => {
                    self.native.set(self.real);
                    self.shown.set(self.real);
                }
                _ => {}
            }
            let lba = (self.native.get() - 1).to_le_bytes();
            let mut back = [0; 14];
            (back[7], back[9], back[11]) = (lba[0], lba[1], lba[2]);
            Ok(back)
        }
    }

    #[test]
    fn each_kind_of_hidden_area_is_opened() {
        let kinds = [
            ([HPA, BITS_48, 0], 600, 1000, "host protected area of 204800 bytes"),
            ([HPA, 0, 0], 600, 1000, "host protected area of 204800 bytes"),
            ([0, BITS_48, 0x4100], 600, 1000, "host protected area of 204800 bytes"),
            (
                [HPA, BITS_48 | DCO, 0],
                900,
                900,
                "51200 bytes hidden by the device configuration",
            ),
        ];
        for (words, shown, native, what) in kinds {
            let fake = fake(words, shown, native);
            let (areas, changed) = open(&fake).unwrap();
            assert_eq!((areas.len(), changed, fake.shown.get()), (1, true, 1000), "{areas:?}");
            assert_eq!((areas[0].what.as_str(), &areas[0].closed), (what, &None));
        }
        let both = fake([HPA, BITS_48 | DCO, 0], 600, 900);
        let (areas, _) = open(&both).unwrap();
        assert!(
            areas.len() == 2 && areas.iter().all(|area| area.closed.is_none()),
            "{areas:?}"
        );
        assert_eq!(both.shown.get(), 1000);
    }

    #[test]
    fn a_drive_that_hides_nothing_is_left_as_it_is() {
        for words in [[0, BITS_48, 0], [HPA, BITS_48, 0], [HPA, BITS_48 | DCO, 0x4100]] {
            let fake = fake(words, 1000, 1000);
            assert_eq!(open(&fake).unwrap(), (Vec::new(), false));
            assert!(
                !fake
                    .sent
                    .borrow()
                    .iter()
                    .any(|code| [SET_MAX_EXT, DEVICE_CONFIGURATION].contains(code))
            );
        }
    }

    #[test]
    fn areas_that_cannot_be_opened_or_read_are_reported() {
        for (code, reached_by) in [
            (SET_MAX_EXT, SECURE_ERASE_METHODS),
            (READ_NATIVE_MAX_EXT, SECURE_ERASE_METHODS),
        ] {
            let mut fake = fake([HPA, BITS_48, 0], 600, 1000);
            fake.refuses = Some(code);
            let (areas, changed) = open(&fake).unwrap();
            assert!(areas[0].closed.is_some() && !changed, "{areas:?}");
            assert_eq!(areas[0].reached_by, reached_by);
        }
        let mut locked = fake([HPA, BITS_48 | DCO, 0], 900, 900);
        locked.refuses = Some(DEVICE_CONFIGURATION);
        assert_eq!(open(&locked).unwrap(), (Vec::new(), false), "firmware locked it");
    }
}
