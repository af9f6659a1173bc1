//! Switches with NETCONF over SSH (RFC 6241, RFC 6242) and the OpenConfig models of VLANs on Ethernet interfaces.
//!
//! | module | what it does |
//! |---|---|
//! | `ssh` | the connection: the pinned host key, the login, the subsystem `netconf` |
//! | `frame` | the bounds of messages in the stream |
//! | `xml` | messages as trees of elements |
//! | `session` | capabilities, requests, answers and errors |
//! | `openconfig` | the filter, the reading and the change of ports |

mod frame;
#[cfg(test)]
mod hostile;
mod openconfig;
mod session;
mod ssh;
mod xml;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::driver::{Applied, PortDriver};
use crate::error::PortsError;
use crate::model::{Change, SwitchConfig, SwitchReading, Version, difference, verify};

use openconfig::Port;
pub(crate) use session::Session;
pub use ssh::{HostKey, HostKeyError, Login, SshAddress, SshAddressError, SshSettings};
use xml::Space;

/// Time between two tries while another session has locked the configuration, and between two readings of ports that are
/// not yet in operation.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum time of the switch for the operation of a changed port.
const SETTLE: Duration = Duration::from_secs(5);

/// The settings of a switch with NETCONF.
#[derive(Debug, Clone)]
pub struct NetconfSettings {
    /// The switch's name in the site.
    pub switch: String,
    /// The connection.
    pub ssh: SshSettings,
    /// The VLANs with ports that the site isolates from each other. The models have no setting for it.
    pub isolated: BTreeSet<u16>,
    /// The time limit of one call.
    pub timeout: Duration,
}

/// A driver for a switch with NETCONF and OpenConfig.
#[derive(Debug)]
pub struct Netconf {
    settings: NetconfSettings,
    /// The switch lets only one session change it, so changes by this process wait here and not at the switch's lock.
    turn: Mutex<()>,
}

/// The configurations of a switch that a session locks and changes.
#[derive(Debug, Clone, Copy)]
struct Target {
    /// The configuration that is edited: `candidate` or `running`.
    edited: &'static str,
    /// An edit of the running configuration can fail in the middle if it is not undone.
    rollback: bool,
    /// The running configuration may change while the candidate is locked.
    lock_running: bool,
}

/// Maximum time for the first answer in the framing of NETCONF 1.1.
const FIRST: Duration = Duration::from_secs(3);

type Ports = BTreeMap<String, Port>;

impl Netconf {
    /// Creates a driver with these settings. It does not connect yet.
    #[must_use]
    pub fn new(settings: NetconfSettings) -> Self {
        Self {
            settings,
            turn: Mutex::new(()),
        }
    }

    async fn with_timeout<T>(&self, work: impl Future<Output = Result<T, PortsError>>) -> Result<T, PortsError> {
        let late = || PortsError::Timeout {
            switch: self.settings.switch.clone(),
            seconds: self.settings.timeout.as_secs(),
        };
        tokio::time::timeout(self.settings.timeout, work)
            .await
            .map_err(|_| late())?
    }

    async fn connect(&self) -> Result<Session, PortsError> {
        match answering(self.open(true).await?).await? {
            Some(session) => Ok(session),
            None => self.open(false).await,
        }
    }

    async fn open(&self, offers_chunks: bool) -> Result<Session, PortsError> {
        let (stream, connection) = ssh::connect(&self.settings.switch, &self.settings.ssh).await?;
        let (stream, connection) = (Box::new(stream), Box::new(connection));
        Session::over(&self.settings.switch, stream, connection, offers_chunks).await
    }

    /// Reads the ports: their running configuration and their state, or their configuration in another datastore.
    async fn ports(&self, session: &mut Session, datastore: Option<&str>) -> Result<Ports, PortsError> {
        let filter = openconfig::filter();
        let request = match datastore {
            None => format!("<get>{filter}</get>"),
            Some(name) => format!("<get-config><source><{name}/></source>{filter}</get-config>"),
        };
        let answer = session.call(&request).await?;
        let data = answer
            .child(Space::Base, "data")
            .ok_or_else(|| session.not_understood("it has no data"))?;
        openconfig::ports(data, &self.settings.isolated).map_err(|what| session.not_understood(&what))
    }

    pub(crate) async fn reading(&self, session: &mut Session) -> Result<SwitchReading, PortsError> {
        Ok(reading(&self.ports(session, None).await?))
    }

    fn check_isolation(&self, config: &SwitchConfig) -> Result<(), PortsError> {
        let is_given = |vlan| self.settings.isolated.contains(vlan);
        let wrong = config
            .ports
            .iter()
            .find(|(_, access)| access.isolated && !is_given(&access.vlan));
        match wrong {
            None => Ok(()),
            Some((port, access)) => Err(PortsError::NotIsolated {
                switch: self.settings.switch.clone(),
                port: port.clone(),
                access: *access,
            }),
        }
    }

    fn target(&self, session: &Session) -> Result<Target, PortsError> {
        let found = session.capabilities;
        if found.candidate {
            return Ok(Target {
                edited: "candidate",
                rollback: found.rollback_on_error,
                lock_running: found.writable_running,
            });
        }
        let lacks = |what| {
            Err(PortsError::Incapable {
                switch: self.settings.switch.clone(),
                what,
            })
        };
        match (found.writable_running, found.rollback_on_error) {
            (true, true) => Ok(Target {
                edited: "running",
                rollback: true,
                lock_running: false,
            }),
            (true, false) => lacks("the NETCONF capability :candidate or :rollback-on-error"),
            (false, _) => lacks("the NETCONF capability :candidate or :writable-running"),
        }
    }

    /// Locks the configurations. While another session has a lock, this tries again for half of the time limit.
    async fn lock(&self, session: &mut Session, target: Target) -> Result<(), PortsError> {
        let deadline = Instant::now() + self.settings.timeout / 2;
        if target.lock_running {
            lock_one(session, "running", deadline).await?;
        }
        lock_one(session, target.edited, deadline).await?;
        if target.edited == "candidate" {
            // Without this, changes that another session left there would be committed as well.
            session.order("<discard-changes/>").await?;
        }
        Ok(())
    }

    async fn apply_config(&self, config: &SwitchConfig) -> Result<Applied, PortsError> {
        self.check_isolation(config)?;
        let _turn = self.turn.lock().await;
        let session = self.connect().await?;
        self.apply_over(session, config).await
    }

    async fn apply_over(&self, mut session: Session, config: &SwitchConfig) -> Result<Applied, PortsError> {
        let target = self.target(&session)?;
        let before = self.ports(&mut session, None).await?;
        let mut changed = !difference(&self.settings.switch, config, &reading(&before))?.is_empty();
        let mut is_saved = self.is_saved(&mut session, config).await?;
        if changed || !is_saved {
            self.lock(&mut session, target).await?;
            let before = self.ports(&mut session, None).await?;
            let changes = difference(&self.settings.switch, config, &reading(&before))?;
            changed = !changes.is_empty();
            if changed {
                write(&mut session, target, &changes, &before, config.version).await?;
                is_saved = !session.capabilities.startup;
            }
            if !is_saved {
                let copy = "<copy-config><target><startup/></target><source><running/></source></copy-config>";
                session.order(copy).await?;
            }
        }
        let after = self.settled(&mut session, config).await?;
        let seen = reading(&after);
        verify(&self.settings.switch, config, &seen)?;
        let mut proven = config.ports.keys().filter_map(|name| after.get(name));
        let operational = proven.all(|port| port.is_operational);
        // The end of the session also ends its locks.
        session.close().await;
        Ok(Applied {
            changed,
            operational,
            reading: seen,
        })
    }

    /// Whether the switch would start with these ports. A switch without a configuration for its start stores each change.
    async fn is_saved(&self, session: &mut Session, config: &SwitchConfig) -> Result<bool, PortsError> {
        if !session.capabilities.startup {
            return Ok(true);
        }
        let stored = self.ports(session, Some("startup")).await?;
        Ok(config.ports.iter().all(|(name, access)| {
            let state = stored.get(name).map(|port| &port.state);
            state.is_some_and(|state| state.is(*access) && state.version == Some(config.version))
        }))
    }

    /// Reads the ports until those of the document are in operation. Returns the last reading if this takes too long.
    async fn settled(&self, session: &mut Session, config: &SwitchConfig) -> Result<Ports, PortsError> {
        let deadline = Instant::now() + SETTLE;
        loop {
            let seen = self.ports(session, None).await?;
            if verify(&self.settings.switch, config, &reading(&seen)).is_ok() || Instant::now() >= deadline {
                return Ok(seen);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

#[async_trait]
impl PortDriver for Netconf {
    fn switch(&self) -> &str {
        &self.settings.switch
    }

    async fn apply(&self, config: &SwitchConfig) -> Result<Applied, PortsError> {
        self.with_timeout(self.apply_config(config)).await
    }

    async fn read(&self) -> Result<SwitchReading, PortsError> {
        let read = async {
            let mut session = self.connect().await?;
            let seen = self.reading(&mut session).await?;
            session.close().await;
            Ok(seen)
        };
        self.with_timeout(read).await
    }
}

/// Returns the session if it answers. Some servers (yuma123 2.13) lose the first request if it arrives together with the
/// capabilities and has the framing of NETCONF 1.1. The framing of 1.0 does not have this fault.
async fn answering(mut session: Session) -> Result<Option<Session>, PortsError> {
    if !session.is_chunked {
        return Ok(Some(session));
    }
    // A request for nothing. Any answer will do.
    let first = session.call("<get><filter type=\"subtree\"/></get>");
    match tokio::time::timeout(FIRST, first).await {
        Ok(Ok(_) | Err(PortsError::Refused { .. })) => Ok(Some(session)),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok(None),
    }
}

/// A configured port that is not in operation has another reading than the configured one, so the whole reading shows the
/// switch's behaviour.
fn reading(ports: &Ports) -> SwitchReading {
    let state = |(name, port): (&String, &Port)| (name.clone(), port.state.clone());
    SwitchReading {
        ports: ports.iter().map(state).collect(),
        in_effect: true,
    }
}

async fn lock_one(session: &mut Session, datastore: &str, deadline: Instant) -> Result<(), PortsError> {
    let request = format!("<lock><target><{datastore}/></target></lock>");
    loop {
        match session.order(&request).await {
            Err(PortsError::Locked { .. }) if Instant::now() < deadline => tokio::time::sleep(PAUSE).await,
            result => return result,
        }
    }
}

/// Sets ports in one transaction.
async fn write(
    session: &mut Session,
    target: Target,
    changes: &[Change],
    before: &Ports,
    version: Version,
) -> Result<(), PortsError> {
    let config = openconfig::edit(changes, before, version);
    let edited = target.edited;
    let option = if target.rollback {
        "<error-option>rollback-on-error</error-option>"
    } else {
        ""
    };
    session
        .order(&format!(
            "<edit-config><target><{edited}/></target>{option}<config>{config}</config></edit-config>"
        ))
        .await?;
    if edited == "candidate" {
        session.order("<commit/>").await?;
    }
    Ok(())
}
