//! Reads the certificate and the service root of an address, without a login.
//!
//! No secret is sent, so any address may be surveyed. By DSP0266 the service root is readable without a login. A service
//! that requires a password for the service root gets no password.

use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::tls::{CertificateFingerprint, NO_SHARED_CIPHER};
use serde::Serialize;

use crate::client::BmcClient;
use crate::resource::Resource;
use crate::settings::Settings;
use crate::views::ServiceRoot;

/// The facts that a Redfish service reports without a login.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ServiceFacts {
    pub redfish_version: Option<String>,
    /// `Vendor`; without it, the first name under `Oem`.
    pub vendor: Option<String>,
    pub product: Option<String>,
    /// `UUID` of the service.
    pub uuid: Option<String>,
}

/// What an address answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The certificate of the address; none over plain HTTP.
    pub certificate: Option<CertificateFingerprint>,
    /// The service's facts. `None`: not a Redfish service, or one that hides its service root.
    pub service: Option<ServiceFacts>,
    /// Why `service` is `None`, as a sentence without its full stop; otherwise empty.
    pub reason: String,
}

impl BmcClient {
    /// Surveys an address without credentials.
    ///
    /// # Errors
    /// No answer, or none in time. An answer that is not Redfish is not an error.
    pub async fn survey(address: &str, settings: Settings) -> Result<Survey, RedfishError> {
        let client = Self::anonymous(address, settings)?;
        let root = client.open_root().await;
        let certificate = client.observed_fingerprint();
        let survey = |service, reason: String| Survey {
            certificate,
            service,
            reason,
        };
        match root {
            Ok(root) if is_service_root(&root) => Ok(survey(Some(facts(root)), String::new())),
            Ok(_) => Ok(survey(
                None,
                "the answer is JSON, but not a Redfish service root".to_owned(),
            )),
            Err(failure) if matches!(failure.status(), Some(401 | 403)) => {
                let why = "it requires a password for its service root; no password was sent";
                Ok(survey(None, why.to_owned()))
            }
            Err(failure @ RedfishError::Unreachable { .. }) => Err(failure),
            Err(failure) => match reason(&failure) {
                Some(why) => Ok(survey(None, why)),
                None => Err(failure),
            },
        }
    }
}

/// Why an address that answered is no Redfish service; `None` if the address did not answer.
fn reason(failure: &RedfishError) -> Option<String> {
    match failure {
        RedfishError::Tls { .. } => Some("it supports no safe version or cipher of TLS".to_owned()),
        RedfishError::NoSharedCipher { .. } => Some(NO_SHARED_CIPHER.to_owned()),
        RedfishError::TimedOut { limit_s, .. } => Some(format!(
            "it accepted the connection and did not answer within {limit_s} s"
        )),
        RedfishError::Broken { .. } => Some("it accepted the connection and closed it without an answer".to_owned()),
        RedfishError::Status { status, .. } => Some(format!("/redfish/v1/ is answered with HTTP {status}")),
        RedfishError::ForeignRedirect { .. } => Some("it redirects requests to another host".to_owned()),
        RedfishError::NotJson { .. } => Some("its answer is not a JSON object".to_owned()),
        RedfishError::BodyTooLarge { .. } | RedfishError::TooComplex { .. } => {
            Some("its answer is larger or more complex than the limits allow".to_owned())
        }
        _ => None,
    }
}

/// Whether a resource is a service root: it has the type or a Redfish version, and links to systems, chassis or managers.
fn is_service_root(root: &Resource) -> bool {
    let kind = root.text(&["@odata.type"]).unwrap_or_default();
    let has_type = kind.starts_with("#ServiceRoot.") || root.text(&["RedfishVersion"]).is_some();
    let view = ServiceRoot::from(root.clone());
    has_type
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
