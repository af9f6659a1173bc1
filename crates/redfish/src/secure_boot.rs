//! UEFI Secure Boot: state, key databases, certificates.

use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::retry::Repeat;
use rackwright_redfish_wire::tls::CertificateFingerprint;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Serialize;
use serde_json::json;

use crate::client::BmcClient;
use crate::resource::Resource;
use crate::views::{Action, ActionInfo, SecureBoot};

/// Most key databases that are read; the standard knows twelve.
const DATABASES_MAX: usize = 32;
/// Most certificates of a database that are read.
const CERTIFICATES_MAX: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecureBootState {
    /// Whether it applies from the next start; none if the BMC does not report it.
    pub enabled: Option<bool>,
    /// Whether it applied to the last start; none if the BMC does not report it.
    pub in_force: Option<bool>,
    /// `SetupMode`, `UserMode`, `AuditMode`, `DeployedMode`.
    pub mode: Option<String>,
    /// Values that `SecureBoot.ResetKeys` accepts; empty if it is not offered or has no list.
    pub resets: Vec<String>,
    /// Whether the BMC lists its key databases.
    pub has_databases: bool,
}

/// A certificate in a key database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecureBootCertificate {
    /// Id of the database: `PK`, `KEK`, `db`, `dbx`, or one of their defaults.
    pub database: String,
    /// Link to the certificate.
    pub path: String,
    /// The certificate's subject.
    pub subject: Option<String>,
    /// SHA-256 of the certificate; none if the BMC does not show the certificate itself.
    pub sha256: Option<CertificateFingerprint>,
}

/// An operation on all keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum KeysReset {
    /// Restore the factory keys.
    ToDefault,
    /// Empty every database.
    DeleteAll,
    /// Delete the platform key, which leads to `SetupMode`.
    DeletePlatformKey,
}

impl KeysReset {
    /// The value in Redfish's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToDefault => "ResetAllKeysToDefault",
            Self::DeleteAll => "DeleteAllKeys",
            Self::DeletePlatformKey => "DeletePK",
        }
    }
}

/// The SHA-256 of the first certificate in a PEM text; none if there is no certificate.
pub fn pem_fingerprint(pem: &str) -> Option<CertificateFingerprint> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    Some(CertificateFingerprint::of(&certificate))
}

impl BmcClient {
    async fn secure_boot_resource(&self) -> Result<Option<SecureBoot>, RedfishError> {
        let Some(link) = self.system().await?.resource().link(&["SecureBoot"]) else {
            return Ok(None);
        };
        match self.get(&link).await {
            Ok(resource) => Ok(Some(resource.into())),
            Err(failure) if matches!(failure.status(), Some(404 | 405 | 501)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn no_secure_boot(&self, what: &str) -> RedfishError {
        RedfishError::NotOffered {
            bmc: self.address(),
            what: what.to_owned(),
            offered: "nothing equivalent".to_owned(),
        }
    }

    /// The state of Secure Boot. None: the BMC does not offer it.
    ///
    /// # Errors
    /// Those of [`system`](Self::system) and [`get`](Self::get).
    pub async fn secure_boot(&self) -> Result<Option<SecureBootState>, RedfishError> {
        let Some(secure) = self.secure_boot_resource().await? else {
            return Ok(None);
        };
        Ok(Some(SecureBootState {
            enabled: secure.is_enabled(),
            in_force: secure.is_in_force(),
            mode: secure.mode(),
            resets: match secure.reset_keys() {
                Some(action) => self.kinds_of_reset(&action).await,
                None => Vec::new(),
            },
            has_databases: secure.databases().is_some(),
        }))
    }

    async fn kinds_of_reset(&self, action: &Action) -> Vec<String> {
        let inline = action.allowable("ResetKeysType");
        match (&action.info, inline.is_empty()) {
            (Some(info), true) => match self.get(info).await {
                Ok(info) => ActionInfo::from(info).allowable("ResetKeysType"),
                Err(_) => inline,
            },
            _ => inline,
        }
    }

    /// Enables or disables Secure Boot from the next start and reads the setting back. Returns whether a request was sent.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if there is no Secure Boot; [`RedfishError::NotApplied`] if another value reads back.
    pub async fn set_secure_boot(&self, enabled: bool) -> Result<bool, RedfishError> {
        let Some(secure) = self.secure_boot_resource().await? else {
            return Err(self.no_secure_boot("Secure Boot"));
        };
        if secure.is_enabled() == Some(enabled) {
            return Ok(false);
        }
        self.patch(secure.resource(), &json!({"SecureBootEnable": enabled}))
            .await?;
        let fresh = SecureBoot::from(self.get(secure.path()).await?);
        // Some BMCs show the new setting only after the next start; without a value the check is left until then.
        match fresh.is_enabled() {
            Some(seen) if seen != enabled && fresh.resource().at(&["@Redfish.Settings"]).is_none() => {
                Err(RedfishError::NotApplied {
                    bmc: self.address(),
                    path: secure.path().to_owned(),
                    property: "SecureBootEnable".to_owned(),
                    wanted: enabled.to_string(),
                    seen: match fresh.mode() {
                        Some(mode) => format!("{seen} (in {mode})"),
                        None => seen.to_string(),
                    },
                })
            }
            _ => Ok(true),
        }
    }

    /// Resets or deletes the keys of all databases. Applies from the next start.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if the BMC does not list this reset; otherwise the BMC's error.
    pub async fn reset_secure_boot_keys(&self, reset: KeysReset) -> Result<(), RedfishError> {
        let secure = self.secure_boot_resource().await?;
        let Some(action) = secure.as_ref().and_then(SecureBoot::reset_keys) else {
            return Err(self.no_secure_boot("a reset of Secure Boot keys"));
        };
        let kinds = self.kinds_of_reset(&action).await;
        if !kinds.is_empty() && !kinds.iter().any(|kind| kind == reset.as_str()) {
            return Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: format!("SecureBoot.ResetKeys as {}", reset.as_str()),
                offered: kinds.join(", "),
            });
        }
        let body = json!({"ResetKeysType": reset.as_str()});
        self.post(&action.target, &body, Repeat::Always).await.map(drop)
    }

    async fn key_databases(&self) -> Result<Option<Vec<Resource>>, RedfishError> {
        let secure = self.secure_boot_resource().await?;
        let Some(link) = secure.as_ref().and_then(SecureBoot::databases) else {
            return Ok(None);
        };
        let mut links = self.member_links(&link).await?;
        links.truncate(DATABASES_MAX);
        let mut databases = Vec::new();
        for (_, database) in self.get_each(&links).await {
            databases.push(database?);
        }
        Ok(Some(databases))
    }

    /// The certificates in the key databases. None: the BMC does not list them.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub async fn secure_boot_certificates(&self) -> Result<Option<Vec<SecureBootCertificate>>, RedfishError> {
        let Some(databases) = self.key_databases().await? else {
            return Ok(None);
        };
        let mut found = Vec::new();
        for database in databases {
            let Some(link) = database.link(&["Certificates"]) else {
                continue;
            };
            let mut links = self.member_links(&link).await?;
            links.truncate(CERTIFICATES_MAX);
            for (path, certificate) in self.get_each(&links).await {
                let certificate = certificate?;
                found.push(SecureBootCertificate {
                    database: database_id(&database),
                    path,
                    subject: certificate.fact(&["Subject", "CommonName"]),
                    sha256: certificate
                        .text(&["CertificateString"])
                        .and_then(|pem| pem_fingerprint(&pem)),
                });
            }
        }
        Ok(Some(found))
    }

    /// Adds a certificate to a key database. Applies from the next start.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if there is no such database; otherwise the BMC's error.
    pub async fn enrol_secure_boot_certificate(&self, database: &str, pem: &str) -> Result<(), RedfishError> {
        let databases = self.key_databases().await?.unwrap_or_default();
        let wanted = databases.iter().find(|one| database_id(one) == database);
        let Some(link) = wanted.and_then(|one| one.link(&["Certificates"])) else {
            return Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: format!("certificates in the Secure Boot database {database}"),
                offered: databases.iter().map(database_id).collect::<Vec<_>>().join(", "),
            });
        };
        let body = json!({"CertificateString": pem, "CertificateType": "PEM"});
        self.post(&link, &body, Repeat::IfRefused).await.map(drop)
    }
}

pub(crate) fn database_id(database: &Resource) -> String {
    database.text(&["DatabaseId"]).unwrap_or_else(|| database.id())
}
