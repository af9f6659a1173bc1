//! NVMe Sanitize and Format NVM (NVM Express base specification 2.0, 5.24 and 5.14).
//!
//! Sanitize clears every namespace of the subsystem, and Format may do so too (Identify Controller, FNA). Such a command is
//! refused while the controller has other listed namespaces.

use std::fs::File;
use std::io;
use std::time::Duration;

use rackwright_api::v1::EraseMethod;

use super::MethodError;
use crate::disk::{le16, le32};
use crate::ioctl::{self, NvmeCommand};
use crate::jobs::control::JobControl;

const GET_LOG_PAGE: u8 = 0x02;
pub(super) const IDENTIFY: u8 = 0x06;
const FORMAT: u8 = 0x80;
const SANITIZE: u8 = 0x84;
pub(super) const IDENTIFY_BYTES: usize = 4096;
const IDENTIFY_NAMESPACE: u32 = 0;
pub(super) const IDENTIFY_CONTROLLER: u32 = 1;
const SANITIZE_LOG: u32 = 0x81;
const SANITIZE_LOG_BYTES: usize = 512;
const SANITIZE_EXIT_FAILURE: u32 = 1;
const SANITIZE_BLOCK: u32 = 2;
const SANITIZE_CRYPTO: u32 = 4;
const FORMAT_USER_DATA: u32 = 1;
const FORMAT_CRYPTO: u32 = 2;
/// Interval between queries of a sanitizing drive's progress.
const POLL: Duration = Duration::from_millis(500);
/// Format returns at its end; large drives without crypto erase may take hours.
const FORMAT_TIMEOUT_MS: u32 = 4 * 3600 * 1000;

/// Sends admin commands; tests use a fake.
pub trait Admin {
    /// Returns the NVMe status, 0 for success.
    ///
    /// # Errors
    /// The command did not reach the drive.
    fn admin(&self, command: &NvmeCommand, data: &mut [u8]) -> io::Result<u16>;
}

impl Admin for File {
    fn admin(&self, command: &NvmeCommand, data: &mut [u8]) -> io::Result<u16> {
        ioctl::nvme_admin(self, command, data)
    }
}

/// Capabilities of a namespace and its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvme {
    namespace: u32,
    sanitize_crypto: bool,
    sanitize_block: bool,
    format: bool,
    format_crypto: bool,
    format_reaches_all: bool,
    /// Bits of Format's dword 10 that keep the present block format.
    format_keep: u32,
}

impl Nvme {
    /// Identifies an open namespace; `None` if it does not answer as NVMe.
    pub fn probe(file: &File) -> Option<Self> {
        Self::identify(file, ioctl::nvme_namespace(file).ok()?).ok()
    }

    fn identify(admin: &dyn Admin, namespace: u32) -> Result<Self, MethodError> {
        let mut controller = vec![0; IDENTIFY_BYTES];
        let identify = |namespace, what| NvmeCommand {
            opcode: IDENTIFY,
            namespace,
            dwords: [what, 0, 0],
            timeout_ms: 0,
        };
        succeed(
            "identify controller",
            admin.admin(&identify(0, IDENTIFY_CONTROLLER), &mut controller)?,
        )?;
        let mut own = vec![0; IDENTIFY_BYTES];
        succeed(
            "identify namespace",
            admin.admin(&identify(namespace, IDENTIFY_NAMESPACE), &mut own)?,
        )?;
        let (oacs, sanicap, fna) = (le16(&controller, 256), le32(&controller, 328), controller[524]);
        let (flbas, dps) = (u32::from(own[26]), u32::from(own[29]));
        // Format index bits 3:0 and 6:5, metadata setting bit 4; protection type bits 2:0 and its position bit 3.
        let format_index = (flbas & 0xF) | (flbas >> 5 & 3) << 12;
        Ok(Self {
            namespace,
            sanitize_crypto: sanicap & 1 != 0,
            sanitize_block: sanicap & 2 != 0,
            format: oacs & 2 != 0,
            format_crypto: fna & 4 != 0,
            format_reaches_all: fna & 3 != 0,
            format_keep: format_index | (flbas >> 4 & 1) << 4 | (dps & 7) << 5 | (dps >> 3 & 1) << 8,
        })
    }

    /// The supported methods, strongest first.
    pub fn methods(&self) -> Vec<EraseMethod> {
        let offered = [
            (self.sanitize_crypto, EraseMethod::NvmeSanitizeCrypto),
            (self.sanitize_block, EraseMethod::NvmeSanitizeBlock),
            (self.format && self.format_crypto, EraseMethod::NvmeFormatCrypto),
            (self.format, EraseMethod::NvmeFormatUserData),
        ];
        offered
            .into_iter()
            .filter_map(|(offered, method)| offered.then_some(method))
            .collect()
    }

    /// Runs one method to its end. `shared_with` lists the other namespaces of the controller.
    ///
    /// # Errors
    /// [`MethodError`]
    pub fn execute(
        &self,
        admin: &dyn Admin,
        method: EraseMethod,
        shared_with: &[String],
        control: &JobControl,
    ) -> Result<(), MethodError> {
        let alone = |reaches_all: bool| match shared_with {
            [] => Ok(()),
            _ if !reaches_all => Ok(()),
            others => Err(MethodError::Unsupported(format!(
                "the method would also erase {}",
                others.join(", ")
            ))),
        };
        if !self.methods().contains(&method) {
            return Err(MethodError::Unsupported(
                "the controller does not offer this method".into(),
            ));
        }
        match method {
            EraseMethod::NvmeSanitizeCrypto => alone(true).and_then(|()| sanitize(admin, SANITIZE_CRYPTO, control)),
            EraseMethod::NvmeSanitizeBlock => alone(true).and_then(|()| sanitize(admin, SANITIZE_BLOCK, control)),
            EraseMethod::NvmeFormatCrypto => {
                alone(self.format_reaches_all).and_then(|()| self.format(admin, FORMAT_CRYPTO))
            }
            EraseMethod::NvmeFormatUserData => {
                alone(self.format_reaches_all).and_then(|()| self.format(admin, FORMAT_USER_DATA))
            }
            _ => Err(MethodError::Unsupported("not an NVMe method".into())),
        }
    }

    fn format(&self, admin: &dyn Admin, erase: u32) -> Result<(), MethodError> {
        let dwords = [self.format_keep | erase << 9, 0, 0];
        let command = NvmeCommand {
            opcode: FORMAT,
            namespace: self.namespace,
            dwords,
            timeout_ms: FORMAT_TIMEOUT_MS,
        };
        succeed("format", admin.admin(&command, &mut [])?)
    }
}

/// Starts a sanitize and follows its log. If the job must end, the drive continues: a sanitize cannot be stopped.
fn sanitize(admin: &dyn Admin, action: u32, control: &JobControl) -> Result<(), MethodError> {
    let command = |action| NvmeCommand {
        opcode: SANITIZE,
        namespace: 0,
        dwords: [action, 0, 0],
        timeout_ms: 0,
    };
    if sanitize_log(admin)?.status == SanitizeStatus::Failed {
        succeed(
            "sanitize, leaving failure mode",
            admin.admin(&command(SANITIZE_EXIT_FAILURE), &mut [])?,
        )?;
    }
    succeed("sanitize", admin.admin(&command(action), &mut [])?)?;
    loop {
        let log = sanitize_log(admin)?;
        match log.status {
            SanitizeStatus::Done => return Ok(()),
            SanitizeStatus::InProgress => {}
            SanitizeStatus::Failed => return Err(MethodError::Failed("the drive reports that sanitize failed".into())),
            SanitizeStatus::Never => {
                return Err(MethodError::Failed(
                    "the drive accepted the sanitize command but reports no sanitize".into(),
                ));
            }
        }
        control.check()?;
        #[expect(
            clippy::disallowed_methods,
            reason = "an erase has a thread of its own; NVMe sends no event here"
        )]
        std::thread::sleep(POLL);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum SanitizeStatus {
    Never,
    Done,
    InProgress,
    Failed,
}

struct SanitizeLog {
    status: SanitizeStatus,
}

fn sanitize_log(admin: &dyn Admin) -> Result<SanitizeLog, MethodError> {
    let mut log = vec![0; SANITIZE_LOG_BYTES];
    let dwords_less_one = (SANITIZE_LOG_BYTES as u32 / 4 - 1) << 16;
    let command = NvmeCommand {
        opcode: GET_LOG_PAGE,
        namespace: u32::MAX,
        dwords: [SANITIZE_LOG | dwords_less_one, 0, 0],
        timeout_ms: 0,
    };
    succeed("sanitize log", admin.admin(&command, &mut log)?)?;
    let status = match le16(&log, 2) & 7 {
        0 => SanitizeStatus::Never,
        1 | 4 => SanitizeStatus::Done,
        2 => SanitizeStatus::InProgress,
        _ => SanitizeStatus::Failed,
    };
    Ok(SanitizeLog { status })
}

pub(super) fn succeed(what: &str, status: u16) -> Result<(), MethodError> {
    if status == 0 {
        Ok(())
    } else {
        Err(MethodError::Failed(format!("{what}: NVMe status {status:#06x}")))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::jobs::control::StopReason;

    /// A controller that follows the specification: offers the methods in its identify data, and sanitizes for two polls.
    #[derive(Default)]
    struct Fake {
        sanicap: u32,
        oacs: u16,
        fna: u8,
        flbas: u8,
        log: RefCell<Vec<u16>>,
        sent: RefCell<Vec<(u8, u32, u32)>>,
    }

    impl Admin for Fake {
        fn admin(&self, command: &NvmeCommand, data: &mut [u8]) -> io::Result<u16> {
            self.sent
                .borrow_mut()
                .push((command.opcode, command.namespace, command.dwords[0]));
            match (command.opcode, command.dwords[0]) {
                (IDENTIFY, IDENTIFY_CONTROLLER) => {
                    data[256..258].copy_from_slice(&self.oacs.to_le_bytes());
                    data[328..332].copy_from_slice(&self.sanicap.to_le_bytes());
                    data[524] = self.fna;
                }
                (IDENTIFY, _) => data[26] = self.flbas,
                (GET_LOG_PAGE, _) => {
                    let mut log = self.log.borrow_mut();
                    let status = if log.len() > 1 { log.remove(0) } else { log[0] };
                    data[2..4].copy_from_slice(&status.to_le_bytes());
                }
                _ => {}
            }
            Ok(0)
        }
    }

    #[test]
    fn methods_follow_the_identify_data() {
        let fake = Fake {
            sanicap: 3,
            oacs: 2,
            fna: 4,
            ..Fake::default()
        };
        use EraseMethod::*;
        let all = [
            NvmeSanitizeCrypto,
            NvmeSanitizeBlock,
            NvmeFormatCrypto,
            NvmeFormatUserData,
        ];
        assert_eq!(Nvme::identify(&fake, 1).unwrap().methods(), all);
        let none = Nvme::identify(&Fake::default(), 1).unwrap();
        assert!(none.methods().is_empty());
        let refused = none.execute(&Fake::default(), NvmeFormatCrypto, &[], &JobControl::without_listener());
        assert!(matches!(refused, Err(MethodError::Unsupported(_))));
    }

    #[test]
    fn sanitize_is_followed_to_its_end() {
        let fake = Fake {
            sanicap: 1,
            log: vec![3, 2, 2, 1].into(),
            ..Fake::default()
        };
        let nvme = Nvme::identify(&fake, 1).unwrap();
        nvme.execute(
            &fake,
            EraseMethod::NvmeSanitizeCrypto,
            &[],
            &JobControl::without_listener(),
        )
        .unwrap();
        let sanitizes: Vec<u32> = fake
            .sent
            .borrow()
            .iter()
            .filter(|s| s.0 == SANITIZE)
            .map(|s| s.2)
            .collect();
        assert_eq!(sanitizes, [SANITIZE_EXIT_FAILURE, SANITIZE_CRYPTO]);
        for (log, what) in [(vec![0, 3], "failed"), (vec![0, 0], "reports no sanitize")] {
            let fake = Fake {
                sanicap: 1,
                log: log.into(),
                ..Fake::default()
            };
            let error = nvme
                .execute(
                    &fake,
                    EraseMethod::NvmeSanitizeCrypto,
                    &[],
                    &JobControl::without_listener(),
                )
                .unwrap_err();
            assert!(error.to_string().contains(what), "{error}");
        }
        let stopped = JobControl::without_listener();
        stopped.stop(StopReason::Deadline);
        let fake = Fake {
            sanicap: 1,
            log: vec![1, 2].into(),
            ..Fake::default()
        };
        let error = nvme
            .execute(&fake, EraseMethod::NvmeSanitizeCrypto, &[], &stopped)
            .unwrap_err();
        assert!(matches!(error, MethodError::Stopped(StopReason::Deadline)));
    }

    #[test]
    fn other_namespaces_are_never_cleared() {
        let others = ["nvme0n2".to_owned()];
        let fake = Fake {
            sanicap: 3,
            oacs: 2,
            fna: 4 | 1,
            log: vec![1].into(),
            ..Fake::default()
        };
        let nvme = Nvme::identify(&fake, 1).unwrap();
        for method in nvme.methods() {
            let error = nvme
                .execute(&fake, method, &others, &JobControl::without_listener())
                .unwrap_err();
            assert!(error.to_string().contains("nvme0n2"), "{error}");
        }
        let own_only = Fake {
            oacs: 2,
            ..Fake::default()
        };
        let nvme = Nvme::identify(&own_only, 3).unwrap();
        nvme.execute(
            &own_only,
            EraseMethod::NvmeFormatUserData,
            &others,
            &JobControl::without_listener(),
        )
        .unwrap();
    }

    #[test]
    fn format_keeps_the_block_format() {
        let fake = Fake {
            oacs: 2,
            fna: 4,
            flbas: 0b0011_0010,
            ..Fake::default()
        };
        let nvme = Nvme::identify(&fake, 5).unwrap();
        nvme.execute(
            &fake,
            EraseMethod::NvmeFormatCrypto,
            &[],
            &JobControl::without_listener(),
        )
        .unwrap();
        let sent = *fake.sent.borrow().last().unwrap();
        assert_eq!(sent, (FORMAT, 5, 1 << 12 | 2 << 9 | 1 << 4 | 2));
    }
}
