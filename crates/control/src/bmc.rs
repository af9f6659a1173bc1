//! One client and so one session for each BMC, kept between effects and closed at the end.

use std::collections::HashMap;
use std::sync::Arc;

use rackwright_identity::Sealer;
use rackwright_redfish::{BmcClient, BmcTarget, CertificateFingerprint, RedfishError, Settings};
use rackwright_store::{NodeRecord, Spec};
use tokio::sync::Mutex;

use crate::grpc::nodes::bmc_password_purpose;

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

struct Kept {
    spec: Spec,
    client: Arc<BmcClient>,
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
            match clients.get(&record.id) {
                Some(kept) if kept.spec == record.spec => return Ok(kept.client.clone()),
                _ => clients.remove(&record.id),
            }
        };
        close(stale).await;
        let client = Arc::new(connect(record, sealer).await?);
        let kept = Kept {
            spec: record.spec.clone(),
            client: client.clone(),
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
        let all: Vec<_> = self.clients.lock().await.drain().collect();
        for (_, kept) in all {
            close(Some(kept)).await;
        }
    }
}

async fn close(kept: Option<Kept>) {
    if let Some(kept) = kept
        && let Err(error) = kept.client.close().await
    {
        tracing::debug!(bmc = kept.client.address(), %error, "a BMC session could not be closed; it will time out");
    }
}

async fn connect(record: &NodeRecord, sealer: &Sealer) -> Result<BmcClient, BmcError> {
    let spec = &record.spec;
    let password = sealer
        .open(&spec.bmc_password, &bmc_password_purpose(&record.id))
        .map_err(BmcError::Password)?;
    let pin = match spec.bmc_certificate.as_str() {
        "" => None,
        text => Some(
            text.parse::<CertificateFingerprint>()
                .map_err(|_| BmcError::Pin(text.to_owned()))?,
        ),
    };
    let target = BmcTarget {
        address: spec.bmc_address.clone(),
        username: spec.bmc_username.clone(),
        password,
        certificate_sha256: pin,
        system: (!spec.bmc_system.is_empty()).then(|| spec.bmc_system.clone()),
    };
    Ok(BmcClient::connect(target, Settings::default()).await?)
}
