//! ATA secure erase (ACS-4, 7.37 and following) by ATA PASS-THROUGH (16) of SAT-4.
//!
//! The agent sets a password on the drive and erases the drive with it; a successful erase removes the password. An
//! interrupted run leaves the password set. The password is a constant, so that the next run (or a person with
//! `hdparm --security-disable rackwright`) can continue.

use std::fs::File;
use std::io;
use std::time::Duration;

use rackwright_api::v1::EraseMethod;

use super::MethodError;
use crate::disk::le16;
use crate::ioctl::{self, ScsiData};
use crate::jobs::control::JobControl;

const PASSWORD: &[u8] = b"rackwright";
pub(super) const SECTOR: usize = 512;
pub(super) const IDENTIFY_DEVICE: u8 = 0xEC;
const SECURITY_SET_PASSWORD: u8 = 0xF1;
const SECURITY_ERASE_PREPARE: u8 = 0xF3;
const SECURITY_ERASE_UNIT: u8 = 0xF4;
const SECURITY_DISABLE_PASSWORD: u8 = 0xF6;
pub(super) const PASS_THROUGH_16: u8 = 0x85;
pub(super) const PROTOCOL_NON_DATA: u8 = 3;
pub(super) const PROTOCOL_PIO_IN: u8 = 4;
const PROTOCOL_PIO_OUT: u8 = 5;
const COMMAND_TIMEOUT: Duration = Duration::from_secs(15);
/// Added to the erase time that the drive reports.
const ERASE_MARGIN: Duration = Duration::from_secs(1800);
/// Time limit for a drive that reports no erase time.
const ERASE_UNKNOWN: Duration = Duration::from_secs(12 * 3600);

/// Sends an ATA command; tests use a fake.
pub trait AtaTransport {
    /// # Errors
    /// The drive or the kernel refuses the command.
    fn pass(&self, command: &[u8; 16], data: ScsiData<'_>, timeout: Duration) -> io::Result<()>;

    /// Sends a command without data. Returns the ATA Status Return descriptor.
    ///
    /// # Errors
    /// The drive or the kernel refuses the command, or the controller does not return the drive's registers.
    fn registers(&self, command: &[u8; 16], timeout: Duration) -> io::Result<[u8; 14]>;
}

impl AtaTransport for File {
    fn pass(&self, command: &[u8; 16], data: ScsiData<'_>, timeout: Duration) -> io::Result<()> {
        ioctl::scsi(self, command, data, timeout)
    }

    fn registers(&self, command: &[u8; 16], timeout: Duration) -> io::Result<[u8; 14]> {
        ioctl::ata_registers(self, command, timeout)
    }
}

/// Capabilities of a drive, from its identify data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ata {
    supported: bool,
    enhanced: bool,
    normal_time: Duration,
    enhanced_time: Duration,
}

/// Current security state of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Security {
    enabled: bool,
    frozen: bool,
    expired: bool,
}

impl Ata {
    /// Identifies an open drive; `None` if it does not answer as ATA.
    pub fn probe(file: &File) -> Option<Self> {
        identify(file).ok().map(|(ata, _)| ata)
    }

    /// The supported methods, strongest first.
    pub fn methods(&self) -> Vec<EraseMethod> {
        let offered = [
            (self.enhanced, EraseMethod::AtaSecureEraseEnhanced),
            (true, EraseMethod::AtaSecureErase),
        ];
        offered
            .into_iter()
            .filter_map(|(offered, method)| (self.supported && offered).then_some(method))
            .collect()
    }

    /// Erases the drive. A started command runs to its end; a stopped job does not start it.
    ///
    /// # Errors
    /// [`MethodError`]
    pub fn execute(
        &self,
        drive: &dyn AtaTransport,
        method: EraseMethod,
        control: &JobControl,
    ) -> Result<(), MethodError> {
        let enhanced = method == EraseMethod::AtaSecureEraseEnhanced;
        if !self.methods().contains(&method) {
            return Err(MethodError::Unsupported("the drive does not offer this method".into()));
        }
        let (_, security) = identify(drive)?;
        if security.frozen {
            return Err(MethodError::Unsupported(
                "the firmware froze the drive's security state".into(),
            ));
        }
        if security.expired {
            return Err(MethodError::Unsupported(
                "too many wrong passwords; the drive needs a power cycle".into(),
            ));
        }
        control.check()?;
        if !security.enabled {
            drive.pass(
                &command(SECURITY_SET_PASSWORD, PROTOCOL_PIO_OUT),
                ScsiData::Out(&password_block(false)),
                COMMAND_TIMEOUT,
            )?;
        }
        let time = if enhanced { self.enhanced_time } else { self.normal_time };
        let erased = drive
            .pass(
                &command(SECURITY_ERASE_PREPARE, PROTOCOL_NON_DATA),
                ScsiData::None,
                COMMAND_TIMEOUT,
            )
            .and_then(|()| {
                drive.pass(
                    &command(SECURITY_ERASE_UNIT, PROTOCOL_PIO_OUT),
                    ScsiData::Out(&password_block(enhanced)),
                    time,
                )
            });
        let (_, after) = identify(drive)?;
        if after.enabled {
            let disable = command(SECURITY_DISABLE_PASSWORD, PROTOCOL_PIO_OUT);
            let disabled = drive.pass(&disable, ScsiData::Out(&password_block(false)), COMMAND_TIMEOUT);
            let state = if disabled.is_ok() {
                "password removed again"
            } else {
                "password still set"
            };
            let why = erased.err().map_or_else(
                || "the drive is still locked after the erase".to_owned(),
                |error| error.to_string(),
            );
            return Err(MethodError::Failed(format!("{why} ({state})")));
        }
        Ok(erased?)
    }
}

fn identify(drive: &dyn AtaTransport) -> Result<(Ata, Security), MethodError> {
    let mut data = [0; SECTOR];
    drive.pass(
        &command(IDENTIFY_DEVICE, PROTOCOL_PIO_IN),
        ScsiData::In(&mut data),
        COMMAND_TIMEOUT,
    )?;
    let word = |index: usize| le16(&data, index * 2);
    let status = word(128);
    // Words 89 and 90 are in units of two minutes. If bit 15 is set, the value has 15 bits, otherwise 8. 0 means unknown.
    let time = |word: u16| {
        let units = if word & 0x8000 != 0 { word & 0x7FFF } else { word & 0xFF };
        if units == 0 {
            ERASE_UNKNOWN
        } else {
            Duration::from_secs(u64::from(units) * 120) + ERASE_MARGIN
        }
    };
    let supported = word(82) & 2 != 0 && status & 1 != 0;
    let ata = Ata {
        supported,
        enhanced: status & 0x20 != 0,
        normal_time: time(word(89)),
        enhanced_time: time(word(90)),
    };
    let security = Security {
        enabled: status & 2 != 0,
        frozen: status & 8 != 0,
        expired: status & 0x10 != 0,
    };
    Ok((ata, security))
}

/// Builds an ATA PASS-THROUGH (16) command; a command with data transfers one sector.
pub(super) fn command(ata_command: u8, protocol: u8) -> [u8; 16] {
    let mut command = [0; 16];
    command[0] = PASS_THROUGH_16;
    command[1] = protocol << 1;
    // T_DIR (from the drive), BYT_BLOK (blocks), T_LENGTH 2 (in the count field).
    command[2] = match protocol {
        PROTOCOL_PIO_IN => 0x0E,
        PROTOCOL_PIO_OUT => 0x06,
        _ => 0,
    };
    command[6] = u8::from(protocol != PROTOCOL_NON_DATA);
    command[14] = ata_command;
    command
}

/// The data of the security commands: the user password, and bit 1 of word 0 for the enhanced erase.
fn password_block(enhanced: bool) -> [u8; SECTOR] {
    let mut block = [0; SECTOR];
    block[0] = if enhanced { 2 } else { 0 };
    block[2..2 + PASSWORD.len()].copy_from_slice(PASSWORD);
    block
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A drive with the security feature set: word 128 as its state, and a log of commands.
    struct Fake {
        status: Cell<u16>,
        refuse_erase: bool,
        log: RefCell<Vec<u8>>,
    }

    impl Fake {
        fn new(status: u16) -> Self {
            Self {
                status: status.into(),
                refuse_erase: false,
                log: RefCell::default(),
            }
        }
    }

    impl AtaTransport for Fake {
        fn pass(&self, command: &[u8; 16], data: ScsiData<'_>, _: Duration) -> io::Result<()> {
            self.log.borrow_mut().push(command[14]);
            match (command[14], data) {
                (IDENTIFY_DEVICE, ScsiData::In(data)) => {
                    assert_eq!((command[0], command[1], command[2], command[6]), (0x85, 8, 0x0E, 1));
                    data[164] = 2;
                    data[178] = 3;
                    data[256..258].copy_from_slice(&self.status.get().to_le_bytes());
                }
                (SECURITY_SET_PASSWORD, ScsiData::Out(block)) => {
                    assert_eq!(&block[2..12], PASSWORD);
                    self.status.set(self.status.get() | 2);
                }
                (SECURITY_ERASE_PREPARE, ScsiData::None) => assert_eq!((command[1], command[2], command[6]), (6, 0, 0)),
                (SECURITY_ERASE_UNIT, ScsiData::Out(_)) if self.refuse_erase => {
                    return Err(io::Error::other("aborted"));
                }
                (SECURITY_ERASE_UNIT | SECURITY_DISABLE_PASSWORD, ScsiData::Out(_)) => {
                    self.status.set(self.status.get() & !2)
                }
                other => panic!("{other:?}"),
            }
            Ok(())
        }

        fn registers(&self, _: &[u8; 16], _: Duration) -> io::Result<[u8; 14]> {
            Err(io::Error::other("no registers"))
        }
    }

    fn run(fake: &Fake, method: EraseMethod) -> Result<(), MethodError> {
        let (ata, _) = identify(fake).unwrap();
        ata.execute(fake, method, &JobControl::without_listener())
    }

    #[test]
    fn erases_and_comes_out_unlocked() {
        let fake = Fake::new(0x21);
        run(&fake, EraseMethod::AtaSecureEraseEnhanced).unwrap();
        assert_eq!(
            fake.log.borrow()[2..],
            [
                SECURITY_SET_PASSWORD,
                SECURITY_ERASE_PREPARE,
                SECURITY_ERASE_UNIT,
                IDENTIFY_DEVICE
            ]
        );
        let (ata, security) = identify(&fake).unwrap();
        assert!(!security.enabled);
        assert_eq!(ata.normal_time, Duration::from_secs(360) + ERASE_MARGIN);
        assert_eq!(ata.enhanced_time, ERASE_UNKNOWN);
    }

    #[test]
    fn unsupported_and_failed_commands_are_errors() {
        assert!(
            matches!(
                run(&Fake::new(0x29), EraseMethod::AtaSecureErase),
                Err(MethodError::Unsupported(_))
            ),
            "frozen"
        );
        assert!(
            matches!(
                run(&Fake::new(0x31), EraseMethod::AtaSecureErase),
                Err(MethodError::Unsupported(_))
            ),
            "expired"
        );
        assert!(matches!(
            run(&Fake::new(0x01), EraseMethod::AtaSecureEraseEnhanced),
            Err(MethodError::Unsupported(_))
        ));
        assert!(identify(&Fake::new(0)).unwrap().0.methods().is_empty());
        let refusing = Fake {
            refuse_erase: true,
            ..Fake::new(0x01)
        };
        let error = run(&refusing, EraseMethod::AtaSecureErase).unwrap_err();
        assert!(error.to_string().contains("password removed again"), "{error}");
        assert_eq!(refusing.status.get() & 2, 0);
    }

    #[test]
    fn an_interrupted_erase_is_resumed() {
        let fake = Fake::new(0x03);
        run(&fake, EraseMethod::AtaSecureErase).unwrap();
        assert!(!fake.log.borrow().contains(&SECURITY_SET_PASSWORD));
    }
}
