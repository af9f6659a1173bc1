//! One client and so one session for each BMC, kept between effects and closed when nothing was wanted of it for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rackwright_identity::Sealer;
use rackwright_lifecycle::{Power, Timestamp};
use rackwright_redfish::{BmcClient, BmcTarget, CertificateFingerprint, ErrorKind, PowerState, RedfishError, Settings};
use rackwright_store::{EventRow, NodeRecord, Spec};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::grpc::nodes::bmc_password_purpose;
use crate::text::{SENTENCE_MAX, cut};

/// Why a BMC cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum BmcError {
    /// The BMC or the way there.
    #[error(transparent)]
    Redfish(#[from] RedfishError),
    /// Its password cannot be opened.
    #[error("the sealed BMC password cannot be opened; set it again with `rackwright apply`")]
    Password(#[source] rackwright_identity::SealError),
    /// The pinned fingerprint is none.
    #[error("the pinned certificate {0:?} is not \"sha256:\" and 64 hex digits")]
    Pin(String),
}

impl BmcError {
    /// A stable word for the kind of failure, and whether the same again may help.
    #[must_use]
    pub fn code(&self) -> (&'static str, bool) {
        match self {
            Self::Redfish(error) => match error.kind() {
                ErrorKind::Retryable => ("bmc-unreachable", true),
                ErrorKind::Permanent => ("bmc-refused", true),
                ErrorKind::Security => ("bmc-security", false),
                ErrorKind::Bug => ("bug", false),
            },
            Self::Password(_) | Self::Pin(_) => ("bmc-credential", false),
        }
    }

    /// What whoever watches the site's security has to hear of, in the words that tell of the failure.
    #[must_use]
    pub fn security_event(&self, node: &str, message: &str, now: Timestamp) -> Option<EventRow> {
        let Self::Redfish(RedfishError::CertificateChanged { .. }) = self else {
            return None;
        };
        Some(EventRow {
            at: now,
            kind: "security.bmc-certificate-changed".into(),
            target: format!("nodes/{node}"),
            message: message.to_owned(),
            ..EventRow::default()
        })
    }

    /// The whole story in one line.
    #[must_use]
    pub fn told(&self, address: &str) -> String {
        let mut text = format!("BMC {address}: {self}");
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        cut(&text, SENTENCE_MAX)
    }
}

/// Power, as the stored readings have it.
#[must_use]
pub fn power_of(state: &PowerState) -> Power {
    match state {
        PowerState::On => Power::On,
        PowerState::Off => Power::Off,
        _ => Power::Changing,
    }
}

/// A session that is not used is closed after this: BMCs have few of them. One that the BMC ended sooner is made again.
const IDLE: Duration = Duration::from_secs(120);
/// Connections that are not used are closed after this: they take some 60 kB, and BMCs close them after a while, too.
const REST: Duration = Duration::from_secs(2);
/// Between looks for either.
const ROUND: Duration = Duration::from_secs(2);
/// Sessions that are being closed at once.
const CLOSING: usize = 64;

struct Kept {
    spec: Spec,
    client: Arc<BmcClient>,
    used_at: Instant,
    is_at_rest: bool,
}

/// The clients.
#[derive(Default)]
pub struct Bmcs {
    clients: Mutex<HashMap<String, Kept>>,
}

impl Bmcs {
    /// The client of a node's BMC, made when there is none for what is known of the BMC now.
    ///
    /// # Errors
    /// The BMC does not answer or does not let us in.
    pub async fn client(&self, record: &NodeRecord, sealer: &Sealer) -> Result<Arc<BmcClient>, BmcError> {
        let stale = {
            let mut clients = self.clients.lock().await;
            match clients.get_mut(&record.id) {
                Some(kept) if kept.spec == record.spec => {
                    kept.used_at = Instant::now();
                    kept.is_at_rest = false;
                    return Ok(kept.client.clone());
                }
                _ => clients.remove(&record.id),
            }
        };
        close(stale).await;
        let client = Arc::new(connect(record, sealer).await?);
        let kept = Kept {
            spec: record.spec.clone(),
            client: client.clone(),
            used_at: Instant::now(),
            is_at_rest: false,
        };
        let former = self.clients.lock().await.insert(record.id.clone(), kept);
        close(former).await;
        Ok(client)
    }

    /// How many clients are kept.
    pub async fn count(&self) -> usize {
        self.clients.lock().await.len()
    }

    /// Closes the session with a node's BMC.
    pub async fn forget(&self, node: &str) {
        let former = self.clients.lock().await.remove(node);
        close(former).await;
    }

    /// Closes every session: a BMC has few of them to give.
    pub async fn close_all(&self) {
        let all = self.clients.lock().await.drain().map(|(_, kept)| kept).collect();
        close_many(all).await;
    }

    /// Closes connections, and later sessions, that nobody uses, until told to stop.
    pub async fn tidy(&self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(ROUND) => {}
            }
            self.close_idle(Instant::now()).await;
        }
    }

    async fn close_idle(&self, now: Instant) {
        let idle = {
            let mut clients = self.clients.lock().await;
            // Whoever works with a client holds it, too.
            let is_idle =
                |kept: &Kept, limit| Arc::strong_count(&kept.client) == 1 && now.duration_since(kept.used_at) >= limit;
            for kept in clients
                .values_mut()
                .filter(|kept| !kept.is_at_rest && is_idle(kept, REST))
            {
                kept.client.rest();
                kept.is_at_rest = true;
            }
            let idle = clients.extract_if(|_, kept| is_idle(kept, IDLE));
            idle.map(|(_, kept)| kept).collect()
        };
        close_many(idle).await;
    }
}

async fn close_many(all: Vec<Kept>) {
    let mut closing = JoinSet::new();
    for kept in all {
        if closing.len() >= CLOSING {
            closing.join_next().await;
        }
        closing.spawn(close(Some(kept)));
    }
    while closing.join_next().await.is_some() {}
}

async fn close(kept: Option<Kept>) {
    if let Some(kept) = kept
        && let Err(error) = kept.client.close().await
    {
        tracing::debug!(bmc = kept.client.address(), %error, "a BMC session could not be closed; it will time out");
    }
}

async fn connect(record: &NodeRecord, sealer: &Sealer) -> Result<BmcClient, BmcError> {
    let target = target(&record.id, &record.spec, sealer)?;
    Ok(BmcClient::connect(target, Settings::default()).await?)
}

/// Where the BMC of `node` is, and how to get in.
///
/// # Errors
/// The password cannot be opened, or the pinned certificate is none.
pub fn target(node: &str, spec: &Spec, sealer: &Sealer) -> Result<BmcTarget, BmcError> {
    let password = sealer
        .open(&spec.bmc_password, &bmc_password_purpose(node))
        .map_err(BmcError::Password)?;
    let pin = match spec.bmc_certificate.as_str() {
        "" => None,
        text => Some(
            text.parse::<CertificateFingerprint>()
                .map_err(|_| BmcError::Pin(text.to_owned()))?,
        ),
    };
    Ok(BmcTarget {
        address: spec.bmc_address.clone(),
        username: spec.bmc_username.clone(),
        password,
        certificate_sha256: pin,
        system: (!spec.bmc_system.is_empty()).then(|| spec.bmc_system.clone()),
    })
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

    /// A BMC that has sessions and nothing else; counts the open ones.
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

    #[tokio::test]
    async fn a_session_that_nobody_uses_is_closed_and_made_again_when_it_is_wanted() {
        let core = testing::core().await;
        let open = Arc::new(AtomicI64::new(0));
        let mut record = testing::node("n1", State::Available, None);
        record.spec.bmc_address = bmc(open.clone()).await;
        let sealer = &core.keys.sealer;
        let password = SecretString::from("secret");
        record.spec.bmc_password = sealer.seal(&password, &bmc_password_purpose("n1")).unwrap();
        let used = core.bmcs.client(&record, sealer).await.unwrap();
        assert_eq!(open.load(Ordering::SeqCst), 1);
        let later = Instant::now() + IDLE;
        core.bmcs.close_idle(later).await;
        assert_eq!(open.load(Ordering::SeqCst), 1, "somebody works with it");
        drop(used);
        core.bmcs.close_idle(Instant::now()).await;
        assert_eq!(open.load(Ordering::SeqCst), 1, "it was used a moment ago");
        core.bmcs.close_idle(Instant::now() + REST).await;
        let rested = core.bmcs.client(&record, sealer).await.unwrap();
        // There is no such thing, which the BMC says over a new connection.
        assert_eq!(rested.get("/redfish/v1/Systems").await.unwrap_err().status(), Some(404));
        assert_eq!(open.load(Ordering::SeqCst), 1, "its session outlives its connections");
        drop(rested);
        let later = Instant::now() + IDLE;
        core.bmcs.close_idle(later).await;
        assert_eq!(open.load(Ordering::SeqCst), 0);
        core.bmcs.client(&record, sealer).await.unwrap();
        assert_eq!(open.load(Ordering::SeqCst), 1);
    }
}
