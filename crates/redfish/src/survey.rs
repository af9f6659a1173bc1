//! What an address answers before anybody has said who he is: the certificate and the open service root.
//!
//! Nothing secret is sent, so that this may be asked of any address. DSP0266 has the root open to everybody; a service that
//! wants a password first is not told one.

use serde::Serialize;

use crate::client::BmcClient;
use crate::error::RedfishError;
use crate::resource::Resource;
use crate::settings::Settings;
use crate::tls::{CertificateFingerprint, NO_SHARED_CIPHER};
use crate::views::ServiceRoot;

/// What a Redfish service says of itself to everybody.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ServiceFacts {
    /// `RedfishVersion`.
    pub redfish_version: Option<String>,
    /// `Vendor`, or where the root does not say the first name under `Oem`.
    pub vendor: Option<String>,
    /// `Product`.
    pub product: Option<String>,
    /// `UUID` of the service.
    pub uuid: Option<String>,
}

/// What an address answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The certificate that was shown; none over plain HTTP.
    pub certificate: Option<CertificateFingerprint>,
    /// What the service says of itself; none: it is no Redfish service, or does not say so openly.
    pub service: Option<ServiceFacts>,
    /// Why there is no service, in a sentence without an end.
    pub why_not: String,
}

impl BmcClient {
    /// Looks at an address without credentials.
    ///
    /// # Errors
    /// Nothing answers, or not in time: whatever does answer, and is no Redfish, is no failure.
    pub async fn survey(address: &str, settings: Settings) -> Result<Survey, RedfishError> {
        let client = Self::nobody(address, settings)?;
        let root = client.open_root().await;
        let certificate = client.observed_fingerprint();
        let survey = |service, why_not: String| Survey {
            certificate,
            service,
            why_not,
        };
        match root {
            Ok(root) if is_service_root(&root) => Ok(survey(Some(facts(root)), String::new())),
            Ok(_) => Ok(survey(
                None,
                "what it answers is JSON and no Redfish service root".to_owned(),
            )),
            Err(failure) if matches!(failure.status(), Some(401 | 403)) => {
                let why = "it wants a password before it says what it is; none is sent to it";
                Ok(survey(None, why.to_owned()))
            }
            Err(failure @ RedfishError::Unreachable { .. }) => Err(failure),
            Err(failure) => match why_not(&failure) {
                Some(why) => Ok(survey(None, why)),
                None => Err(failure),
            },
        }
    }
}

/// What the failure says of whoever answers there; none: nobody does, or he has said nothing.
fn why_not(failure: &RedfishError) -> Option<String> {
    match failure {
        RedfishError::Tls { .. } => Some("it does not speak TLS that is still safe".to_owned()),
        RedfishError::NoSharedCipher { .. } => Some(NO_SHARED_CIPHER.to_owned()),
        RedfishError::TimedOut { limit_s, .. } => {
            Some(format!("it took the connection and did not answer within {limit_s} s"))
        }
        RedfishError::Broken { .. } => Some("it took the connection and ended it without an answer".to_owned()),
        RedfishError::Status { status, .. } => Some(format!("/redfish/v1/ is answered with HTTP {status}")),
        RedfishError::ForeignRedirect { .. } => Some("it sends whoever asks to another host".to_owned()),
        RedfishError::NotJson { .. } => Some("what it answers is no JSON".to_owned()),
        RedfishError::BodyTooLarge { .. } | RedfishError::TooComplex { .. } => {
            Some("its answer is larger than any service root".to_owned())
        }
        _ => None,
    }
}

/// Whether a resource can be taken for a service root: it says so by type or version, and leads somewhere.
fn is_service_root(root: &Resource) -> bool {
    let kind = root.text(&["@odata.type"]).unwrap_or_default();
    let says_so = kind.starts_with("#ServiceRoot.") || root.text(&["RedfishVersion"]).is_some();
    let view = ServiceRoot::from(root.clone());
    says_so
        && [view.systems(), view.chassis(), view.managers()]
            .iter()
            .any(Option::is_some)
}

fn facts(root: Resource) -> ServiceFacts {
    let root = ServiceRoot::from(root);
    ServiceFacts {
        redfish_version: root.redfish_version(),
        vendor: root.vendor().or_else(|| root.oem_names().into_iter().next()),
        product: root.product(),
        uuid: root.resource().fact(&["UUID"]).map(|uuid| uuid.to_ascii_lowercase()),
    }
}
