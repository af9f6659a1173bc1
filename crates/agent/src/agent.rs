//! Runs the agent once the network is up: identity, registration, and then one stream after another.

use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rackwright_api::v1::agent_service_client::AgentServiceClient;
use rackwright_api::v1::{Hello, Inventory, RegisterRequest, RegisterResponse};
use secrecy::ExposeSecret as _;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::Channel;

use crate::clock;
use crate::cmdline::{Endpoint, Mac, Settings};
use crate::disk::marker::Marker;
use crate::host::{Host, Presence};
use crate::identity::{self, Authority, Identity, IdentityError, Request};
use crate::jobs::runner::JobRunner;
use crate::ledger::LedgerError;
use crate::machine::Machine;
use crate::medium::BootSecretStore;
use crate::net::neighbours::NeighbourReport;
use crate::session::{self, Session, SessionError};
use crate::tpm::Attester;

/// Version of the agent, as reported to the control plane.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Time limit for drivers and drives to report the machine's contents.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(300);
/// The control plane may be unreachable for this long before the first registration; afterwards there is no limit.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(300);
const REGISTER_CALL_TIMEOUT: Duration = Duration::from_secs(20);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// After a stream of at least this duration the next pause is the shortest.
const STABLE_STREAM: Duration = Duration::from_secs(30);
const DEFAULT_HEARTBEAT_S: u32 = 5;
const MAX_HEARTBEAT_S: u32 = 60;

/// Why the agent ended. A healthy agent ends only with the machine.
#[derive(Debug, Error)]
pub enum AgentError {
    /// The agent has no identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The control plane refused the token.
    #[error("registration refused, {code:?}: {message}; boot the machine again to get a new token")]
    Refused {
        /// gRPC code of the control plane.
        code: Code,
        /// Message of the control plane.
        message: String,
    },
    /// The control plane was not reached in time.
    #[error("not registered within {waited:?}: {last}")]
    Unreachable {
        /// Time spent on attempts.
        waited: Duration,
        /// Reason of the last failure.
        last: String,
    },
    /// A driver or a drive did not answer in time.
    #[error(
        "the machine's hardware could not be read within {MACHINE_TIMEOUT:?}: a driver or a drive hangs; see the \
         kernel's messages on the console"
    )]
    MachineStuck,
    /// A part of the agent panicked.
    #[error("a part of the agent panicked: {0}")]
    Panicked(#[from] JoinError),
}

/// Runs the agent. `settled` completes when the kernel's drivers have found their devices; drives are read only after that.
///
/// # Errors
/// [`AgentError`]. The function never returns otherwise.
pub async fn run(
    settings: Settings,
    machine: Machine,
    settled: impl Future<Output = ()> + Send,
) -> Result<Infallible, AgentError> {
    let machine = Arc::new(machine);
    let ledger = machine.host.ledger()?;
    let (sender, neighbours) = watch::channel(None);
    machine.host.watch_neighbours(sender);
    let read_machine = async {
        let machine = Arc::clone(&machine);
        let reading = async {
            settled.await;
            let read = move || {
                let found = (markers(&machine), machine.host.inventory(&*machine.drives));
                (found, machine.host.attester())
            };
            spawn_blocking(read).await
        };
        let found = timeout(MACHINE_TIMEOUT, reading)
            .await
            .map_err(|_| AgentError::MachineStuck)?;
        Ok::<_, AgentError>(found?)
    };
    let (registered, found) = tokio::join!(registration(&settings, &machine), read_machine);
    let (registered, ((markers, inventory), attester)) = (registered?, found?);
    let (attester, tpm_fault) = match attester {
        Ok(attester) => (attester, String::new()),
        Err(fault) => {
            tracing::warn!("the TPM cannot be used: {fault}");
            (None, fault)
        }
    };
    let Registered {
        authority,
        identity,
        connection,
    } = registered;
    let Settings {
        endpoints, mac, token, ..
    } = settings;
    let servers: Vec<_> = endpoints.into_iter().map(|endpoint| endpoint.server).collect();
    // The token is used up and no longer needed.
    drop(token);
    let runner = JobRunner::new(Arc::clone(&machine), ledger);
    // When the agent ends, its running job is stopped with it.
    let _abandoned = AbandonOnDrop(Arc::clone(&runner));
    raise_generation(&runner, &identity.registration, &markers);
    let key_sha256 = identity.key_sha256()?;
    let hello = Hello {
        csr_pem: identity.request()?,
        tpm: attester.as_ref().map(|attester| attester.keys()),
        tpm_fault,
        ..hello(&machine, servers.first().map_or("", String::as_str), mac)
    };
    let agent = Connected {
        servers,
        authority,
        identity: Mutex::new(identity),
        connection: Mutex::new(connection),
        runner,
        hello,
        inventory,
        machine,
        attester,
        secret: BootSecretStore::default(),
        key_sha256,
        neighbours,
    };
    agent.stream_forever().await
}

/// Stops the running job when the agent ends.
struct AbandonOnDrop(Arc<JobRunner>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// The valid generation is the highest of the control plane's, the ledger's and the drives'.
fn raise_generation(runner: &JobRunner, registration: &RegisterResponse, markers: &[Marker]) {
    runner.raise_generation(registration.claim_generation);
    for marker in markers {
        if marker.counts(&registration.node, registration.claim_generation) {
            runner.raise_generation(marker.generation);
        } else {
            tracing::warn!(
                drive = marker.drive,
                generation = marker.generation,
                "ignored the claim generation on the drive: it is implausible or belongs to another node"
            );
        }
    }
}

fn markers(machine: &Machine) -> Vec<Marker> {
    let drives = &machine.drives;
    drives.list().iter().filter_map(|facts| drives.marker(facts)).collect()
}

fn hello(machine: &Machine, server: &str, mac: Option<Mac>) -> Hello {
    let Presence { address, mac } = machine.host.presence(server, mac);
    Hello {
        boot_id: machine.host.boot_id(),
        address: text(address),
        mac: text(mac),
        agent_version: VERSION.to_owned(),
        ready_uptime_s: machine.host.uptime_s(),
        ..Hello::default()
    }
}

/// Returns an empty text for an unknown value.
fn text(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// The CA and an identity: the one stored by an earlier agent of this boot, or a new one for the token.
struct Registered {
    authority: Authority,
    identity: Identity,
    /// Connection of the registration. The control plane accepts it without a certificate.
    connection: Option<Connection>,
}

/// An open connection and the server's URL.
struct Connection {
    server: String,
    client: AgentServiceClient<Channel>,
}

async fn registration(settings: &Settings, machine: &Arc<Machine>) -> Result<Registered, AgentError> {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut endpoints = settings.endpoints.iter().cycle();
    // All attempts use one key, also those of an agent that restarts in this boot: an answer may be lost after the token
    // was used, and the control plane repeats the answer only for the same key.
    let request = match machine.host.stored_key() {
        Some(key) => Request::of(key)?,
        None => Request::new()?,
    };
    if let Err(error) = machine.host.store_key(&request.key_pem) {
        tracing::warn!("the key could not be stored: {error}");
    }
    loop {
        let Some(endpoint) = endpoints.next() else {
            return Err(AgentError::Unreachable {
                waited: begun.elapsed(),
                last: "no server is known".to_owned(),
            });
        };
        let last = match try_registration(settings, endpoint, machine, &request).await {
            Ok(registered) => return Ok(registered),
            Err(RegistrationError::Final(error)) => return Err(error),
            Err(RegistrationError::Retry(why)) => why,
        };
        tracing::warn!("not registered yet: {last}");
        if begun.elapsed() > REGISTER_TIMEOUT {
            return Err(AgentError::Unreachable {
                waited: begun.elapsed(),
                last,
            });
        }
        tokio::time::sleep(clock::jittered(pause)).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

enum RegistrationError {
    Retry(String),
    Final(AgentError),
}

async fn try_registration(
    settings: &Settings,
    endpoint: &Endpoint,
    machine: &Arc<Machine>,
    request: &Request,
) -> Result<Registered, RegistrationError> {
    let (url, sha256) = (endpoint.ca_url.clone(), settings.ca_sha256);
    let fetched = spawn_blocking(move || identity::fetch_authority(&url, &sha256)).await;
    let authority = match fetched.map_err(|error| RegistrationError::Final(error.into()))? {
        Ok(authority) => authority,
        Err(error @ IdentityError::Fetch { .. }) => return Err(RegistrationError::Retry(error.to_string())),
        Err(error) => return Err(RegistrationError::Final(error.into())),
    };
    set_clock(&*machine.host, &authority);
    if let Some(identity) = machine.host.stored_identity() {
        return Ok(Registered {
            authority,
            identity,
            connection: None,
        });
    }
    let mut client = session::connect(&*machine.host, &endpoint.server, &authority.pem, None)
        .await
        .map_err(|error| RegistrationError::Retry(error.to_string()))?;
    let mut call = tonic::Request::new(RegisterRequest {
        token: settings.token.expose_secret().to_owned(),
        csr_pem: request.csr_pem.clone(),
        mac: text(machine.host.presence(&endpoint.server, settings.mac).mac),
        system_uuid: machine.host.system_uuid(),
        boot_id: machine.host.boot_id(),
        agent_version: VERSION.to_owned(),
    });
    call.set_timeout(REGISTER_CALL_TIMEOUT);
    let answer = client.register(call).await.map_err(|status| match status.code() {
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Unknown
        | Code::Internal
        | Code::Cancelled
        | Code::Aborted
        | Code::ResourceExhausted => RegistrationError::Retry(format!("{:?}: {}", status.code(), status.message())),
        code => RegistrationError::Final(AgentError::Refused {
            code,
            message: status.message().to_owned(),
        }),
    })?;
    adjust_clock(&*machine.host, answer.metadata());
    let identity = Identity::new(request.key_pem.clone(), answer.into_inner());
    // The file only matters for an agent that restarts.
    if let Err(error) = machine.host.store_identity(&identity) {
        tracing::warn!("the identity could not be stored: {error}");
    }
    tracing::info!(
        node = identity.registration.node,
        generation = identity.registration.claim_generation,
        "registered"
    );
    let server = endpoint.server.clone();
    Ok(Registered {
        authority,
        identity,
        connection: Some(Connection { server, client }),
    })
}

/// Corrects a clock that is certainly wrong; see [`clock`].
fn set_clock(host: &dyn Host, authority: &Authority) {
    let Some(valid) = authority.validity else { return };
    let Some(time) = clock::correction(clock::unix_s(), valid, authority.date.as_deref()) else {
        return;
    };
    match host.set_clock(time) {
        Ok(()) => {
            tracing::warn!("the clock was outside the CA certificate's validity and was set to the boot server's time")
        }
        Err(error) => tracing::warn!("the clock is outside the CA certificate's validity and cannot be set: {error}"),
    }
}

/// Sets the clock from the control plane's answer; see [`clock`].
fn adjust_clock(host: &dyn Host, answer: &tonic::metadata::MetadataMap) {
    let date = answer.get("date").and_then(|date| date.to_str().ok());
    let Some(time) = clock::adjustment(clock::unix_s(), date) else {
        return;
    };
    match host.set_clock(time) {
        Ok(()) => tracing::warn!("the clock differed from the control plane's clock and was corrected"),
        Err(error) => tracing::warn!("the clock differs from the control plane's clock and cannot be set: {error}"),
    }
}

struct Connected {
    /// Tried in order, repeatedly.
    servers: Vec<String>,
    authority: Authority,
    identity: Mutex<Identity>,
    /// For the first stream, if it goes to the same server.
    connection: Mutex<Option<Connection>>,
    runner: Arc<JobRunner>,
    hello: Hello,
    inventory: Inventory,
    machine: Arc<Machine>,
    attester: Option<Arc<dyn Attester>>,
    secret: BootSecretStore,
    key_sha256: String,
    neighbours: watch::Receiver<NeighbourReport>,
}

impl Connected {
    async fn stream_forever(&self) -> Result<Infallible, AgentError> {
        let mut pause = FIRST_PAUSE;
        let mut place = 0;
        loop {
            let begun = Instant::now();
            let server = &self.servers[place];
            let (before, from_here) = self.servers.split_at(place);
            self.runner.sharing().set_servers([from_here, before].concat());
            let Err(error) = self.stream(server).await;
            tracing::warn!("disconnected from {server}: {error}");
            place = (place + 1) % self.servers.len();
            pause = if begun.elapsed() > STABLE_STREAM {
                FIRST_PAUSE
            } else {
                pause
            };
            tokio::time::sleep(clock::jittered(pause)).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    async fn stream(&self, server: &str) -> Result<Infallible, SessionError> {
        let (credentials, heartbeat_s) = {
            let identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
            (identity.credentials(&self.authority), identity.registration.heartbeat_s)
        };
        self.runner.set_credentials(credentials.clone());
        let made = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let client = match made.filter(|made| made.server == server) {
            Some(made) => made.client,
            None => session::connect(&*self.machine.host, server, &credentials.ca_pem, Some(&credentials)).await?,
        };
        let heartbeat_s = if heartbeat_s == 0 {
            DEFAULT_HEARTBEAT_S
        } else {
            heartbeat_s.min(MAX_HEARTBEAT_S)
        };
        let session = Session {
            runner: &self.runner,
            host: &self.machine.host,
            hello: &self.hello,
            inventory: &self.inventory,
            attester: self.attester.as_ref(),
            secret: &self.secret,
            key_sha256: &self.key_sha256,
            heartbeat: Duration::from_secs(heartbeat_s.into()),
            neighbours: &self.neighbours,
        };
        session
            .run(
                client,
                || self.machine.host.mark("ready"),
                |renewed| self.renew(renewed),
            )
            .await
    }

    /// Stores a renewed certificate. The current stream continues; new connections use the new certificate.
    fn renew(&self, renewed: RegisterResponse) {
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        self.runner.raise_generation(renewed.claim_generation);
        if !identity.renew(renewed) {
            tracing::warn!("the renewed certificate is invalid; the agent keeps the current certificate");
            return;
        }
        self.runner.set_credentials(identity.credentials(&self.authority));
        if let Err(error) = self.machine.host.store_identity(&identity) {
            tracing::warn!("the renewed identity could not be stored: {error}");
        }
    }
}
