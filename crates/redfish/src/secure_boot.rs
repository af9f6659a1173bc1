//! UEFI Secure Boot: state, key databases, certificates.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Serialize;
use serde_json::json;

use crate::client::BmcClient;
use crate::error::RedfishError;
use crate::resource::Resource;
use crate::retry::Repeat;
use crate::tls::CertificateFingerprint;
use crate::views::{Action, ActionInfo, SecureBoot};

/// Most databases of keys that are read; the standard knows twelve.
const DATABASES_MAX: usize = 32;
/// Most certificates of a database that are read.
const CERTIFICATES_MAX: usize = 128;

/// How Secure Boot stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecureBootState {
    /// From the next start on; absent where the BMC does not say.
    pub enabled: Option<bool>,
    /// For the last start; absent where the BMC does not say.
    pub in_force: Option<bool>,
    /// `SetupMode`, `UserMode`, `AuditMode`, `DeployedMode`.
    pub mode: Option<String>,
    /// What `SecureBoot.ResetKeys` takes; empty where it is not offered or does not say.
    pub resets: Vec<String>,
    /// Whether it lists its databases of keys.
    pub has_databases: bool,
}

/// A certificate in a database of keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecureBootCertificate {
    /// Id of the database: `PK`, `KEK`, `db`, `dbx`, or one of their defaults.
    pub database: String,
    /// Link to the certificate.
    pub path: String,
    /// Whom it names.
    pub subject: Option<String>,
    /// SHA-256 of the certificate; absent where the BMC does not show the certificate itself.
    pub sha256: Option<CertificateFingerprint>,
}

/// What can be done to all keys at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum KeysReset {
    /// Back to what the machine came with.
    ToDefault,
    /// Every database is emptied.
    DeleteAll,
    /// The platform key is taken away, which leads to `SetupMode`.
    DeletePlatformKey,
}

impl KeysReset {
    /// As Redfish spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ToDefault => "ResetAllKeysToDefault",
            Self::DeleteAll => "DeleteAllKeys",
            Self::DeletePlatformKey => "DeletePK",
        }
    }
}

/// The SHA-256 of the first certificate in a PEM text; absent where there is none.
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
            offered: "nothing of the kind".to_owned(),
        }
    }

    /// How Secure Boot stands. None: this BMC does not offer it.
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

    /// Has Secure Boot count, or not, from the next start on, and reads that back. Answers whether anything was sent.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] where there is none; [`RedfishError::NotApplied`] if it reads back otherwise.
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
        // Some show what is wanted only after the next start; what says nothing is judged then.
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

    /// Resets or deletes the keys of all databases. It counts from the next start on.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] where the BMC does not list it; else what it said.
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

    /// The certificates in the databases of keys. None: this BMC does not list them.
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

    /// Adds a certificate to a database of keys. It counts from the next start on.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] where there is no such database; else what the BMC said.
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
