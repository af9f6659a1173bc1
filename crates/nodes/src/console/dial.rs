//! Opens the serial port of a node, in a way that its BMC offers.
//!
//! A new way is a new arm of [`open`]. Each way ends in a [`Line`].

use rackwright_ground::bmc::{self, BmcError};
use rackwright_ground::core::Core;
use rackwright_ground::text::{SENTENCE_MAX, chain, cut};
use rackwright_ipmi::Ipmi;
use rackwright_lifecycle::EventKind;
use rackwright_redfish::{BmcClient, BmcHints, ConsoleOffer, Settings, SshConsole, WebConsole};
use rackwright_serial::{DialError, Line, SshTarget, handshake};
use rackwright_store::NodeRecord;
use url::Url;

use crate::console::Consoles;
use crate::credentials;

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The request to the BMC failed.
    #[error("{description}")]
    Bmc {
        /// The whole message.
        description: String,
        /// Whether a retry may help soon.
        is_retryable: bool,
    },
    /// The BMC offers no usable console.
    #[error("{0}")]
    NotOffered(String),
    /// The BMC's SSH server refused this login a short while ago.
    #[error(
        "{0}; user name and password are sent again after some minutes, or after a change with `rackwright node update`"
    )]
    LoginHeld(String),
    /// The connection to the BMC's SSH server failed.
    #[error("{}", description(.0))]
    Ssh(#[source] DialError),
    /// Another process stored a host key first. The next try checks whether both saw the same key.
    #[error("another replica stored the SSH host key of {0} meanwhile")]
    KeyKept(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] rackwright_store::StoreError),
}

impl LineError {
    fn of_bmc(error: &BmcError, address: &str) -> Self {
        Self::Bmc {
            description: error.description(address),
            is_retryable: error.code().1,
        }
    }

    /// Whether a retry may help soon.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Bmc { is_retryable, .. } => *is_retryable,
            Self::Store(_) | Self::KeyKept(_) => true,
            Self::NotOffered(_) | Self::LoginHeld(_) => false,
            Self::Ssh(error) => error.is_retryable(),
        }
    }
}

fn description(error: &DialError) -> String {
    cut(&chain(error), SENTENCE_MAX)
}

/// Opens the serial port by the way that the BMC offers.
///
/// # Errors
/// The BMC offers no console, does not answer, or shows another host key; another host key also adds an event.
pub async fn open(core: &Core, record: &NodeRecord) -> Result<Line, LineError> {
    if bmc::is_ipmi(&record.spec) {
        let client = bmc::ipmi(&record.id, &record.spec, &core.keys.sealer, &core.ipmi);
        return by_ipmi(record, client).await;
    }
    if let Some(why) = core.feature::<Consoles>().refusal(record) {
        return Err(LineError::LoginHeld(why));
    }
    let address = &record.spec.bmc_address;
    let offer = match offer(core, record).await {
        Ok(offer) => offer,
        Err(error) => {
            credentials::store_refusal(core, &record.id, &record.spec, &error).await?;
            return Err(LineError::of_bmc(&error, address));
        }
    };
    if let Some(ssh) = offer.ssh {
        by_ssh(core, record, ssh).await
    } else if let Some(web) = &offer.web {
        by_web(core, record, web).await
    } else if let Some(port) = offer.ipmi_port {
        by_sol(core, record, port).await
    } else {
        Err(LineError::NotOffered(format!(
            "BMC {address} offers no serial console; if the BMC has a console on its SSH server, add a profile with \
             `console_ssh`"
        )))
    }
}

/// A separate client without a session: the runner's client may be replaced or closed at any time.
fn client(core: &Core, record: &NodeRecord) -> Result<BmcClient, BmcError> {
    let target = bmc::target(&record.id, &record.spec, &core.keys.sealer)?;
    let settings = Settings {
        quirks: core.config.bmc_quirks.clone(),
        gates: Some(core.bmcs.gates()),
        ..Settings::default()
    };
    Ok(BmcClient::for_polling(target, settings, &BmcHints::default())?)
}

/// The consoles that the BMC offers.
async fn offer(core: &Core, record: &NodeRecord) -> Result<ConsoleOffer, BmcError> {
    let client = client(core, record)?;
    let offer = client.console().await;
    let _ = client.close().await;
    Ok(offer?)
}

/// Opens a console that a BMC with Redfish offers only over IPMI, with the same account.
async fn by_sol(core: &Core, record: &NodeRecord, port: u16) -> Result<Line, LineError> {
    let address = &record.spec.bmc_address;
    let host = Url::parse(address)
        .ok()
        .and_then(|url| Some(url.host_str()?.to_owned()));
    let host = host.ok_or_else(|| LineError::NotOffered(format!("BMC address {address:?} names no host")))?;
    let place = format!("ipmi://{host}:{port}");
    let client = bmc::ipmi_at(&place, &record.id, &record.spec, &core.keys.sealer, &core.ipmi);
    by_ipmi(record, client).await
}

/// Opens the console over IPMI. If another client has the console open, the error states this and the caller tries
/// again.
async fn by_ipmi(record: &NodeRecord, client: Result<Ipmi, BmcError>) -> Result<Line, LineError> {
    let opened = match client {
        Ok(client) => client.console().await.map_err(BmcError::Ipmi),
        Err(error) => Err(error),
    };
    let console = opened.map_err(|error| LineError::of_bmc(&error, &record.spec.bmc_address))?;
    Ok(Box::new(console))
}

/// Opens the console over HTTP with the login that the BMC accepted a moment ago. If the BMC requires a session, it
/// ends with the line.
async fn by_web(core: &Core, record: &NodeRecord, web: &WebConsole) -> Result<Line, LineError> {
    let opened = match client(core, record) {
        Ok(client) => client.open_console(web).await.map_err(BmcError::from),
        Err(error) => Err(error),
    };
    let line = opened.map_err(|error| LineError::of_bmc(&error, &record.spec.bmc_address))?;
    Ok(Box::new(line))
}

async fn by_ssh(core: &Core, record: &NodeRecord, ssh: SshConsole) -> Result<Line, LineError> {
    let address = &record.spec.bmc_address;
    let host = host_of(record);
    let host = host.ok_or_else(|| LineError::NotOffered(format!("BMC address {address:?} names no host")))?;
    let target = bmc::target(&record.id, &record.spec, &core.keys.sealer);
    let target = target.map_err(|error| LineError::of_bmc(&error, address))?;
    let ssh_target = SshTarget {
        host: host.clone(),
        port: ssh.port,
        user: target.username,
        password: target.password,
        host_key: core.store.console_pin(&record.uid, &host).await?,
        commands: ssh.commands,
    };
    let met = match handshake(&ssh_target).await {
        Ok(met) => met,
        Err(error @ DialError::HostKeyChanged { .. }) => {
            let target = format!("nodes/{}", record.id);
            core.event(EventKind::SecurityBmcHostKeyChanged, &target, &error.to_string())
                .await;
            return Err(LineError::Ssh(error));
        }
        Err(error) => return Err(LineError::Ssh(error)),
    };
    if ssh_target.host_key.is_none() {
        // Stored before the password is sent: an impostor at the BMC's address gets the password once at most, and is
        // detected later.
        store_host_key(core, record, &host, met.host_key()).await?;
    }
    met.open(&ssh_target).await.map_err(|error| {
        if matches!(error, DialError::Refused { .. }) {
            core.feature::<Consoles>().refused(record, description(&error));
        }
        LineError::Ssh(error)
    })
}

async fn store_host_key(core: &Core, record: &NodeRecord, host: &str, host_key: &str) -> Result<(), LineError> {
    let mut tx = core.store.write().await?;
    if !tx.keep_console_pin(&record.uid, host, host_key).await? {
        return Err(LineError::KeyKept(host.to_owned()));
    }
    core.commit(tx).await?;
    tracing::info!(node = %record.id, %host, host_key, "the SSH host key of a console is stored");
    Ok(())
}

/// The host of a node's BMC, without brackets. The console's host key is stored under this name.
#[must_use]
pub fn host_of(record: &NodeRecord) -> Option<String> {
    let url = Url::parse(&record.spec.bmc_address).ok()?;
    Some(url.host_str()?.trim_matches(['[', ']']).to_owned())
}
