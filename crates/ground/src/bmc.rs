//! One client, and so one session, for each BMC. It is kept between effects and closed after a time without use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rackwright_identity::Sealer;
use rackwright_ipmi::{Account, Ipmi, IpmiAddress, IpmiError, RequestLimiter};
use rackwright_lifecycle::{EventKind, NodeId, Power, Timestamp};
use rackwright_redfish::quirks::QuirkSet;
use rackwright_redfish::{
    BmcClient, BmcTarget, CertificateFingerprint, ErrorKind, Gates, PowerState, RedfishError, RetryPolicy, Settings,
    SystemEnvironment,
};
use rackwright_store::{BmcAccount, EventRow, NodeRecord, Spec};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::text::{SENTENCE_MAX, chain, cut};

/// Why a BMC cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BmcError {
    /// Redfish: the BMC, or the network on the way to it.
    #[error(transparent)]
    Redfish(#[from] RedfishError),
    /// The same over IPMI.
    #[error(transparent)]
    Ipmi(#[from] IpmiError),
    /// The BMC has an IPMI address, and IPMI lacks this function.
    #[error("this function needs Redfish, and the node has an IPMI address for its BMC")]
    NoRedfish,
    /// Its sealed password cannot be opened.
    #[error("the sealed BMC password cannot be opened; set it again with `rackwright apply`")]
    Password(#[source] rackwright_identity::SealError),
    /// The BMC refused name and password before, and they have not been changed since.
    #[error(
        "the BMC refused user name and password, and they are not sent again until a change (`rackwright node update`) \
         or a request (`rackwright node bmc-password rotate`)"
    )]
    LoginRefused,
    /// A password change is under way: either of two passwords may be valid.
    #[error("the password of the BMC is being changed; no other request is sent until the change has ended")]
    HalfChanged,
    /// No password was given, and none of the factory list has worked yet.
    #[error(
        "the password of the BMC is unknown; set it with `rackwright node update`, or add a login to try with \
         `rackwright bmc credentials add`"
    )]
    NoPassword,
    /// The node is doubted: its record may be older than the machine.
    #[error("the node is doubted, and no request is sent to its BMC until an operator resolves the doubt: {0}")]
    Doubted(String),
    /// The pinned fingerprint does not parse.
    #[error("the pinned certificate {0:?} is not \"sha256:\" and 64 hex digits")]
    Pin(String),
}

impl BmcError {
    /// A stable name for the kind of failure, and whether the same request may succeed later.
    #[must_use]
    pub fn code(&self) -> (&'static str, bool) {
        match self {
            Self::Redfish(error) => match error.kind() {
                ErrorKind::Retryable => ("bmc-unreachable", true),
                ErrorKind::Permanent => ("bmc-refused", true),
                ErrorKind::Security => ("bmc-security", false),
                ErrorKind::Bug => ("bug", false),
            },
            Self::LoginRefused => ("bmc-login-refused", false),
            Self::HalfChanged => ("bmc-password-pending", true),
            Self::NoPassword => ("bmc-no-credential", false),
            Self::Ipmi(IpmiError::NotInstalled) => ("ipmitool-missing", true),
            Self::Ipmi(IpmiError::InvalidAccount { .. }) => ("bmc-credential", false),
            Self::Ipmi(error) => match error.kind() {
                rackwright_ipmi::ErrorKind::Retryable => ("bmc-unreachable", true),
                rackwright_ipmi::ErrorKind::Permanent => ("bmc-refused", true),
                rackwright_ipmi::ErrorKind::Security => ("bmc-security", false),
            },
            Self::NoRedfish => ("bmc-no-redfish", false),
            Self::Doubted(_) => ("doubted", false),
            Self::Password(_) | Self::Pin(_) => ("bmc-credential", false),
        }
    }

    /// Whether the BMC has just refused name and password.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Redfish(RedfishError::Unauthorized { .. }))
    }

    /// The security event of this failure, if it is one. `message` describes the failure.
    #[must_use]
    pub fn security_event(&self, node: &NodeId, message: &str, now: Timestamp) -> Option<EventRow> {
        if self.is_refusal() {
            return Some(refused_event(node, message, now));
        }
        let Self::Redfish(RedfishError::CertificateChanged { .. }) = self else {
            return None;
        };
        Some(EventRow {
            at: now,
            kind: EventKind::SecurityBmcCertificateChanged,
            target: format!("nodes/{node}"),
            message: message.to_owned(),
            ..EventRow::default()
        })
    }

    /// The error and all its causes in one line.
    #[must_use]
    pub fn description(&self, address: &str) -> String {
        cut(&format!("BMC {address}: {}", chain(self)), SENTENCE_MAX)
    }
}

/// A BMC's power state as stored readings express it.
#[must_use]
pub fn power_of(state: &PowerState) -> Power {
    match state {
        PowerState::On => Power::On,
        PowerState::Off => Power::Off,
        _ => Power::Changing,
    }
}

/// An unused session is closed after this time: BMCs have few. A session that the BMC ended sooner is made again.
const SESSION_IDLE: Duration = Duration::from_secs(120);
/// Unused connections are closed after this time: each takes some 60 kB, and BMCs close them after a while, too.
const CONNECTION_IDLE: Duration = Duration::from_secs(2);
/// Time between two checks for unused sessions and connections.
const ROUND: Duration = Duration::from_secs(2);
/// Sessions that are closed at the same time.
const CLOSING: usize = 64;

/// Longest pause after requests without an answer: a minute, plus or minus half of that.
const GATE_WAIT_MAX: Duration = Duration::from_secs(90);

/// What a client is made from. A change makes a new client.
#[derive(PartialEq, Eq)]
struct Access {
    address: String,
    username: String,
    password: Vec<u8>,
    certificate: String,
    system: String,
    account: BmcAccount,
}

impl Access {
    fn of(spec: &Spec) -> Self {
        Self {
            address: spec.bmc_address.clone(),
            username: spec.bmc_username.clone(),
            password: spec.bmc_password.clone(),
            certificate: spec.bmc_certificate.clone(),
            system: spec.bmc_system.clone(),
            account: spec.account.clone(),
        }
    }
}

struct CachedClient {
    access: Access,
    client: Arc<BmcClient>,
    used_at: Instant,
    is_at_rest: bool,
}

/// The clients of all BMCs.
#[derive(Default)]
pub struct Bmcs {
    clients: Mutex<HashMap<NodeId, CachedClient>>,
    /// Clients that were replaced while an effect or a call used them. Each is closed after its last user.
    retired: Mutex<Vec<Arc<BmcClient>>>,
    /// `None`: the built-in profiles.
    quirks: Option<Arc<QuirkSet>>,
    /// Shared by all parts of the daemon: a silent BMC is left alone, and each BMC gets no more requests at once than it
    /// can bear.
    gates: Arc<Gates>,
}

impl Bmcs {
    /// Clients that use these profiles.
    pub fn new(quirks: Option<Arc<QuirkSet>>) -> Self {
        Self {
            quirks,
            ..Self::default()
        }
    }

    /// The client of a node's BMC. A new one is made when the access data have changed.
    ///
    /// # Errors
    /// The BMC does not answer, it refuses the login, or the node is doubted.
    pub async fn client(&self, record: &NodeRecord, sealer: &Sealer) -> Result<Arc<BmcClient>, BmcError> {
        if let Some(doubt) = &record.node.doubt {
            return Err(BmcError::Doubted(doubt.why.clone()));
        }
        let stale = {
            let mut clients = self.clients.lock().await;
            match clients.get_mut(&record.id) {
                Some(cached) if cached.access == Access::of(&record.spec) => {
                    cached.used_at = Instant::now();
                    cached.is_at_rest = false;
                    return Ok(cached.client.clone());
                }
                _ => clients.remove(&record.id),
            }
        };
        self.retire(stale).await;
        let client = Arc::new(self.connect(record, sealer).await?);
        let cached = CachedClient {
            access: Access::of(&record.spec),
            client: client.clone(),
            used_at: Instant::now(),
            is_at_rest: false,
        };
        let former = self.clients.lock().await.insert(record.id.clone(), cached);
        self.retire(former).await;
        Ok(client)
    }

    /// Closes a client now, or after its last user has ended.
    async fn retire(&self, cached: Option<CachedClient>) {
        let Some(CachedClient { client, .. }) = cached else {
            return;
        };
        if Arc::strong_count(&client) == 1 {
            close(client).await;
        } else {
            self.retired.lock().await.push(client);
        }
    }

    async fn connect(&self, record: &NodeRecord, sealer: &Sealer) -> Result<BmcClient, BmcError> {
        let target = target(&record.id, &record.spec, sealer)?;
        let settings = Settings {
            quirks: self.quirks.clone(),
            gates: Some(self.gates()),
            ..Settings::default()
        };
        Ok(BmcClient::connect(target, settings).await?)
    }

    /// Waits while the BMC is left alone after several requests without an answer. A request that is not sent is not a
    /// failed try.
    pub async fn until_open(&self, address: &str) {
        self.gates.until_open(address, &SystemEnvironment, GATE_WAIT_MAX).await;
    }

    /// The gates, for clients that are made elsewhere.
    #[must_use]
    pub fn gates(&self) -> Arc<Gates> {
        self.gates.clone()
    }

    /// Number of clients.
    pub async fn count(&self) -> usize {
        self.clients.lock().await.len()
    }

    /// Drops a node's client: the next use makes a new one. The former client is closed after its last user.
    pub async fn forget(&self, node: &NodeId) {
        let former = self.clients.lock().await.remove(node);
        self.retire(former).await;
    }

    /// Closes every session: a BMC has few of them to give.
    pub async fn close_all(&self) {
        let cached = self
            .clients
            .lock()
            .await
            .drain()
            .map(|(_, cached)| cached.client)
            .collect();
        close_many(cached).await;
        let retired = std::mem::take(&mut *self.retired.lock().await);
        close_many(retired).await;
    }

    /// Closes unused connections, and later unused sessions, until `stop`.
    pub async fn tidy(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(ROUND) => {}
            }
            self.close_idle(Instant::now()).await;
            self.gates.tidy();
        }
    }

    async fn close_idle(&self, now: Instant) {
        let idle = {
            let mut clients = self.clients.lock().await;
            // A part that uses the client holds a reference, too.
            let is_idle = |cached: &CachedClient, limit| {
                Arc::strong_count(&cached.client) == 1 && now.duration_since(cached.used_at) >= limit
            };
            for cached in clients
                .values_mut()
                .filter(|cached| !cached.is_at_rest && is_idle(cached, CONNECTION_IDLE))
            {
                cached.client.rest();
                cached.is_at_rest = true;
            }
            let idle = clients.extract_if(|_, cached| is_idle(cached, SESSION_IDLE));
            idle.map(|(_, cached)| cached.client).collect()
        };
        close_many(idle).await;
        let left = {
            let mut retired = self.retired.lock().await;
            retired
                .extract_if(.., |client| Arc::strong_count(client) == 1)
                .collect()
        };
        close_many(left).await;
    }
}

async fn close_many(all: Vec<Arc<BmcClient>>) {
    let mut closing = JoinSet::new();
    for client in all {
        if closing.len() >= CLOSING {
            closing.join_next().await;
        }
        closing.spawn(close(client));
    }
    while closing.join_next().await.is_some() {}
}

async fn close(client: Arc<BmcClient>) {
    if let Err(error) = client.close().await {
        tracing::debug!(bmc = client.address(), %error, "a BMC session could not be closed; it will time out");
    }
}

/// The address of the BMC of `node`, with its login. Every login except a password change goes through here.
///
/// # Errors
/// The BMC is an IPMI one; it has refused the login; its password is unknown or being changed; the password cannot be
/// opened; or the pinned certificate does not parse.
pub fn target(node: &NodeId, spec: &Spec, sealer: &Sealer) -> Result<BmcTarget, BmcError> {
    if is_ipmi(spec) {
        return Err(BmcError::NoRedfish);
    }
    let password = password(node, spec, sealer)?;
    Ok(BmcTarget {
        username: spec.bmc_username.clone(),
        password,
        ..target_without_login(spec)?
    })
}

/// The address of a BMC, without name and password.
///
/// # Errors
/// The pinned certificate does not parse.
pub fn target_without_login(spec: &Spec) -> Result<BmcTarget, BmcError> {
    let pin = match spec.bmc_certificate.as_str() {
        "" => None,
        text => Some(
            text.parse::<CertificateFingerprint>()
                .map_err(|_| BmcError::Pin(text.to_owned()))?,
        ),
    };
    Ok(BmcTarget {
        address: spec.bmc_address.clone(),
        username: String::new(),
        password: String::new().into(),
        certificate_sha256: pin,
        system: (!spec.bmc_system.is_empty()).then(|| spec.bmc_system.clone()),
    })
}

/// Refused where no login may be tried: see `credentials`.
fn password(node: &NodeId, spec: &Spec, sealer: &Sealer) -> Result<secrecy::SecretString, BmcError> {
    if spec.account.refused_at.is_some() {
        return Err(BmcError::LoginRefused);
    }
    if spec.account.pending.is_some() {
        return Err(BmcError::HalfChanged);
    }
    if is_unknown(spec) {
        return Err(BmcError::NoPassword);
    }
    sealer
        .open(&spec.bmc_password, &bmc_password_purpose(node))
        .map_err(BmcError::Password)
}

/// Whether the BMC is asked over IPMI instead of Redfish.
#[must_use]
pub fn is_ipmi(spec: &Spec) -> bool {
    IpmiAddress::is_ipmi(&spec.bmc_address)
}

/// The IPMI client of the BMC of `node`.
///
/// # Errors
/// The password cannot be opened or cannot be sent over IPMI; or the address cannot be used.
pub fn ipmi(node: &NodeId, spec: &Spec, sealer: &Sealer, limiter: &Arc<RequestLimiter>) -> Result<Ipmi, BmcError> {
    ipmi_at(&spec.bmc_address, node, spec, sealer, limiter)
}

/// The same at another address than the node's own, for what its BMC offers over IPMI beside Redfish.
///
/// # Errors
/// As [`ipmi`].
pub fn ipmi_at(
    address: &str,
    node: &NodeId,
    spec: &Spec,
    sealer: &Sealer,
    limiter: &Arc<RequestLimiter>,
) -> Result<Ipmi, BmcError> {
    let account = Account {
        username: spec.bmc_username.clone(),
        password: password(node, spec, sealer)?,
    };
    Ok(Ipmi::new(address.parse()?, account, limiter.clone())?)
}

/// The purpose to which a sealed BMC password is bound.
#[must_use]
pub fn bmc_password_purpose(id: &NodeId) -> String {
    format!("bmc-password:nodes/{id}")
}

/// No password is known: one of the factory list has to be found.
#[must_use]
pub fn is_unknown(spec: &Spec) -> bool {
    spec.bmc_password.is_empty() && !spec.bmc_address.is_empty()
}

/// The event of a refused login.
#[must_use]
pub fn refused_event(node: &NodeId, message: &str, now: Timestamp) -> EventRow {
    EventRow {
        at: now,
        kind: EventKind::SecurityBmcLoginRefused,
        target: format!("nodes/{node}"),
        message: format!(
            "{message}; this user name and password are not sent again: set the correct login with `rackwright node \
             update {node}`, or try once more with `rackwright node bmc-password rotate {node}`"
        ),
        ..EventRow::default()
    }
}

/// Settings of a client that reads at intervals: the schedule repeats a failed request, the client does not.
pub fn watch_settings(core: &Core) -> rackwright_redfish::Settings {
    rackwright_redfish::Settings {
        quirks: core.config.bmc_quirks.clone(),
        gates: Some(core.bmcs.gates()),
        ..brief_settings()
    }
}

fn brief_settings() -> rackwright_redfish::Settings {
    rackwright_redfish::Settings {
        request_timeout: Duration::from_secs(30),
        max_concurrent: 1,
        retry: RetryPolicy {
            retries: 0,
            busy_retries: 0,
            ..RetryPolicy::default()
        },
        ..rackwright_redfish::Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use axum::Json;
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::{delete, get, post};
    use rackwright_lifecycle::State;
    use secrecy::SecretString;
    use serde::Serialize;

    use super::*;
    use crate::testing;

    #[derive(Serialize)]
    struct Root {
        #[serde(rename = "Links")]
        links: Links,
    }

    #[derive(Serialize)]
    struct Links {
        #[serde(rename = "Sessions")]
        sessions: Link,
    }

    #[derive(Serialize)]
    struct Link {
        #[serde(rename = "@odata.id")]
        id: &'static str,
    }

    /// A BMC that only has sessions, and counts the open ones.
    async fn bmc(open: Arc<AtomicI64>) -> String {
        const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
        let root = || async {
            let sessions = Link { id: SESSIONS };
            Json(Root {
                links: Links { sessions },
            })
        };
        let (opened, closed) = (open.clone(), open);
        let login = move || async move {
            opened.fetch_add(1, Ordering::SeqCst);
            let location = format!("{SESSIONS}/1");
            (
                StatusCode::CREATED,
                [("X-Auth-Token", "t".to_owned()), ("Location", location)],
            )
        };
        let logout = move || async move {
            closed.fetch_sub(1, Ordering::SeqCst);
            StatusCode::NO_CONTENT
        };
        let app = Router::new()
            .route("/redfish/v1/", get(root))
            .route(SESSIONS, post(login))
            .route("/redfish/v1/SessionService/Sessions/1", delete(logout));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        format!("http://{address}")
    }

    /// A node with a BMC that counts its sessions.
    async fn counted(core: &testing::TestCore, open: &Arc<AtomicI64>) -> NodeRecord {
        let mut record = testing::node("n1", State::Available, None);
        record.spec.bmc_address = bmc(open.clone()).await;
        let password = SecretString::from("secret");
        let sealed = core.keys.sealer.seal(&password, &bmc_password_purpose(&"n1".into()));
        record.spec.bmc_password = sealed.unwrap();
        record
    }

    #[tokio::test]
    async fn client_is_kept_until_its_access_changes() {
        let core = testing::core().await;
        let open = Arc::new(AtomicI64::new(0));
        let mut record = counted(&core, &open).await;
        let sealer = &core.keys.sealer;
        let used = core.bmcs.client(&record, sealer).await.unwrap();
        record.spec.sku = "another".into();
        record.spec.tpm_ek = "sha256:00".into();
        let same = core.bmcs.client(&record, sealer).await.unwrap();
        assert!(Arc::ptr_eq(&used, &same));
        drop(same);
        // Another part forgets the client while an effect uses it.
        core.bmcs.forget(&"n1".into()).await;
        assert_eq!(open.load(Ordering::SeqCst), 1, "an effect uses the client");
        assert_eq!(used.get("/redfish/v1/Systems").await.unwrap_err().status(), Some(404));
        let fresh = core.bmcs.client(&record, sealer).await.unwrap();
        assert!(!Arc::ptr_eq(&used, &fresh));
        core.bmcs.close_idle(Instant::now()).await;
        assert_eq!(open.load(Ordering::SeqCst), 2, "both are used");
        drop(used);
        core.bmcs.close_idle(Instant::now()).await;
        assert_eq!(open.load(Ordering::SeqCst), 1);
        // Another account, while the old client is in use.
        record.spec.bmc_username = "other".into();
        let other = core.bmcs.client(&record, sealer).await.unwrap();
        assert!(!Arc::ptr_eq(&fresh, &other));
        assert_eq!(fresh.get("/redfish/v1/Systems").await.unwrap_err().status(), Some(404));
        drop((fresh, other));
        core.bmcs.forget(&"n1".into()).await;
        core.bmcs.close_idle(Instant::now()).await;
        assert_eq!(open.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn idle_session_is_closed_and_reopened_on_demand() {
        let core = testing::core().await;
        let open = Arc::new(AtomicI64::new(0));
        let record = counted(&core, &open).await;
        let sealer = &core.keys.sealer;
        let used = core.bmcs.client(&record, sealer).await.unwrap();
        assert_eq!(open.load(Ordering::SeqCst), 1);
        let later = Instant::now() + SESSION_IDLE;
        core.bmcs.close_idle(later).await;
        assert_eq!(open.load(Ordering::SeqCst), 1, "a step works with it");
        drop(used);
        core.bmcs.close_idle(Instant::now()).await;
        assert_eq!(open.load(Ordering::SeqCst), 1, "it was used a moment ago");
        core.bmcs.close_idle(Instant::now() + CONNECTION_IDLE).await;
        let rested = core.bmcs.client(&record, sealer).await.unwrap();
        // The resource does not exist, which the BMC answers over a new connection.
        assert_eq!(rested.get("/redfish/v1/Systems").await.unwrap_err().status(), Some(404));
        assert_eq!(open.load(Ordering::SeqCst), 1, "its session outlives its connections");
        drop(rested);
        let later = Instant::now() + SESSION_IDLE;
        core.bmcs.close_idle(later).await;
        assert_eq!(open.load(Ordering::SeqCst), 0);
        core.bmcs.client(&record, sealer).await.unwrap();
        assert_eq!(open.load(Ordering::SeqCst), 1);
    }
}
