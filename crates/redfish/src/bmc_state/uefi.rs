//! Firmware variables that decide what the machine starts: boot options and their order, Secure Boot and its keys.
//!
//! Root on the machine can change each of them. A BMC shows the values that the firmware reported at its last start, so a
//! change from a running system may show only after the next start.

use rackwright_redfish_wire::address::last_segment;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::json;
use rackwright_redfish_wire::retry::Repeat;
use rackwright_redfish_wire::tls::CertificateFingerprint;
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};

use super::read::{Found, unread};
use crate::client::BmcClient;
use crate::resource::Resource;
use crate::secure_boot::{database_id, pem_fingerprint};
use crate::views::{Action, SecureBoot, System};

/// The database of revoked programs. It holds hundreds of entries.
const REVOKED: &str = "dbx";
/// Databases without bare hashes of programs.
const WITHOUT_HASHES: [&str; 2] = ["PK", "KEK"];
/// Statuses that mean that the BMC does not offer a function.
const NOT_OFFERED: [u16; 5] = [400, 403, 404, 405, 501];

/// A value that a BMC may hide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown<T> {
    /// The complete value.
    Known(T),
    /// The BMC does not show it.
    NotOffered,
    /// The reason why it could not be read.
    Unread(String),
}

/// The settings that decide what a machine starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UefiState {
    /// The boot options.
    pub options: Shown<Vec<UefiBootOption>>,
    /// The persistent boot order: references of boot options.
    pub order: Shown<Vec<String>>,
    /// Whether Secure Boot is on, and its mode.
    pub secure_boot: Shown<UefiSecureBoot>,
    /// The keys of Secure Boot.
    pub keys: Shown<UefiKeys>,
}

/// One boot option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UefiBootOption {
    /// The reference in the boot order: `Boot0001`.
    pub reference: String,
    /// The name for people.
    pub name: String,
    /// The UEFI device path; empty if the BMC does not show it.
    pub device: String,
    /// The resource.
    pub path: String,
}

/// The state of Secure Boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UefiSecureBoot {
    /// Whether it applies from the next start; none if the BMC does not report it.
    pub enabled: Option<bool>,
    /// `SetupMode`, `UserMode`, `AuditMode` or `DeployedMode`.
    pub mode: Option<String>,
}

/// The keys of Secure Boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UefiKeys {
    /// Keys and hashes that let programs start, or let databases be changed.
    pub entries: Vec<UefiKey>,
    /// The number of entries in the database of revoked programs; none if the BMC has no such database.
    pub revoked: Option<u64>,
    /// The resource of each database by its id.
    pub databases: Vec<(String, String)>,
}

/// One entry of a database of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UefiKey {
    /// Id of the database: `PK`, `KEK`, `db`.
    pub database: String,
    /// The subject of a certificate; the kind of a hash.
    pub name: String,
    /// `sha256:` and the digest of a certificate; otherwise the BMC's description.
    pub identity: String,
    /// The resource.
    pub path: String,
}

impl BmcClient {
    /// Reads the settings that decide what the machine starts.
    pub(super) async fn read_uefi(&self, system: &System) -> Result<UefiState, RedfishError> {
        let order = match system.resource().at(&["Boot", "BootOrder"]) {
            Some(Value::Array(_)) => Shown::Known(system.boot().order),
            _ => Shown::NotOffered,
        };
        let found = self
            .find_members(system.resource().link(&["Boot", "BootOptions"]), None)
            .await?;
        let options = found.shown(|all| all.into_iter().filter_map(boot_option).collect());
        let secure = self.find_secure_boot(system).await?;
        let keys = match &secure {
            Found::Present(resource) => self.read_keys_of_secure_boot(resource).await?,
            Found::NotOffered => Shown::NotOffered,
            Found::Unread(why) => Shown::Unread(why.clone()),
        };
        let secure_boot = secure.shown(|resource| {
            let secure = SecureBoot::from(resource);
            UefiSecureBoot {
                enabled: secure.is_enabled(),
                mode: secure.mode(),
            }
        });
        Ok(UefiState {
            options,
            order,
            secure_boot,
            keys,
        })
    }

    /// Some BMCs link a resource that they do not implement, and answer so.
    async fn find_secure_boot(&self, system: &System) -> Result<Found<Resource>, RedfishError> {
        let Some(link) = system.resource().link(&["SecureBoot"]) else {
            return Ok(Found::NotOffered);
        };
        match self.get(&link).await {
            Ok(resource) => Ok(Found::Present(resource)),
            Err(failure) if matches!(failure.status(), Some(404 | 405 | 410 | 501)) => Ok(Found::NotOffered),
            Err(failure) => unread(failure),
        }
    }

    async fn read_keys_of_secure_boot(&self, secure: &Resource) -> Result<Shown<UefiKeys>, RedfishError> {
        let Some(link) = secure.link(&["SecureBootDatabases"]) else {
            return Ok(Shown::NotOffered);
        };
        // Default databases are not read: they do not let any program start.
        let is_in_force = |value: &Value| json::link(value, &[]).is_some_and(|path| !is_default(&path));
        let databases = match self.find_some_members(&link, is_in_force).await? {
            Found::Present(databases) => databases,
            Found::NotOffered => return Ok(Shown::NotOffered),
            Found::Unread(why) => return Ok(Shown::Unread(why)),
        };
        let mut keys = UefiKeys::default();
        for database in databases {
            let id = database_id(&database);
            keys.databases.push((id.clone(), database.path().to_owned()));
            if id == REVOKED {
                match self.count_of(&database).await? {
                    Found::Present(count) => keys.revoked = Some(count),
                    Found::NotOffered => {}
                    Found::Unread(why) => return Ok(Shown::Unread(why)),
                }
                continue;
            }
            let lists = ["Certificates", "Signatures"];
            let read = lists.iter().take(if WITHOUT_HASHES.contains(&&*id) { 1 } else { 2 });
            for list in read {
                match self.find_members(database.link(&[list]), None).await? {
                    Found::Present(entries) => keys.entries.extend(entries.iter().map(|entry| key(&id, entry))),
                    Found::NotOffered => {}
                    Found::Unread(why) => return Ok(Shown::Unread(why)),
                }
            }
        }
        Ok(Shown::Known(keys))
    }

    /// The number of entries of a database, without reading them.
    async fn count_of(&self, database: &Resource) -> Result<Found<u64>, RedfishError> {
        let mut count = 0;
        for list in ["Certificates", "Signatures"] {
            match self.find(database.link(&[list])).await? {
                Found::Present(list) => {
                    let members = list.at(&["Members"]).and_then(Value::as_array).map_or(0, Vec::len);
                    count += list.whole(&["Members@odata.count"]).unwrap_or(members as u64);
                }
                Found::NotOffered => {}
                Found::Unread(why) => return Ok(Found::Unread(why)),
            }
        }
        Ok(Found::Present(count))
    }

    /// Removes a boot option, unless another option has taken its place.
    ///
    /// # Errors
    /// The BMC's refusal.
    pub async fn remove_boot_option(&self, option: &UefiBootOption) -> Result<(), RedfishError> {
        match self.get(&option.path).await {
            Ok(resource) if boot_option(resource.clone()).as_ref() == Some(option) => {
                self.remove_at(&option.path).await
            }
            Ok(_) => Ok(()),
            Err(failure) => already_gone(failure),
        }
    }

    /// Moves these boot options to the front, in this order; the others keep their order.
    ///
    /// # Errors
    /// The BMC's refusal.
    pub async fn put_boot_order(&self, first: &[String]) -> Result<(), RedfishError> {
        let system = self.system().await?;
        let now = system.boot().order;
        let others = now.iter().filter(|one| !first.contains(one));
        let wanted: Vec<&String> = first.iter().chain(others).collect();
        if wanted.iter().copied().eq(now.iter()) {
            return Ok(());
        }
        let body = json!({"Boot": {"BootOrder": wanted}});
        let reply = match (self.patch(system.resource(), &body).await, system.settings()) {
            (Ok(reply), _) => reply,
            (Err(failure), Some(link))
                if failure
                    .refusal_status()
                    .is_some_and(|status| NOT_OFFERED.contains(&status)) =>
            {
                let settings = self.get(&link).await?;
                self.patch(&settings, &body).await.map_err(|_| failure)?
            }
            (Err(failure), _) => return Err(failure),
        };
        self.finish(&reply, self.settings().read_back_timeout).await
    }

    /// Removes a key, unless another key has taken its place. If the BMC cannot remove a single key, the database is reset
    /// to the factory keys.
    ///
    /// # Errors
    /// The BMC's refusal to remove the key.
    pub async fn remove_secure_boot_key(&self, entry: &UefiKey, database: &str) -> Result<(), RedfishError> {
        match self.get(&entry.path).await {
            Ok(resource) if key(&entry.database, &resource) == *entry => {}
            Ok(_) => return Ok(()),
            Err(failure) => return already_gone(failure),
        }
        match self.remove_at(&entry.path).await {
            Err(failure)
                if failure
                    .refusal_status()
                    .is_some_and(|status| NOT_OFFERED.contains(&status)) =>
            {
                self.reset_secure_boot_database(database).await.map_err(|_| failure)
            }
            other => other,
        }
    }

    /// Resets one key database to the factory keys.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if the BMC has no such action; otherwise the BMC's refusal.
    pub async fn reset_secure_boot_database(&self, path: &str) -> Result<(), RedfishError> {
        let database = self.get(path).await?;
        let Some(action) = Action::find(&database, "SecureBootDatabase.ResetKeys") else {
            return Err(RedfishError::NotOffered {
                bmc: self.address(),
                what: format!("a reset of the keys at {path}"),
                offered: "no such action".to_owned(),
            });
        };
        let body = json!({"ResetKeysType": "ResetAllKeysToDefault"});
        let reply = self.post(&action.target, &body, Repeat::Always).await?;
        self.finish(&reply, self.settings().read_back_timeout).await
    }

    async fn remove_at(&self, path: &str) -> Result<(), RedfishError> {
        self.delete(path).await.or_else(already_gone)
    }
}

fn already_gone(failure: RedfishError) -> Result<(), RedfishError> {
    match failure.status() {
        Some(404 | 410) => Ok(()),
        _ => Err(failure),
    }
}

fn is_default(path: &str) -> bool {
    last_segment(path).ends_with("Default")
}

fn boot_option(resource: Resource) -> Option<UefiBootOption> {
    let text = |name| resource.text(&[name]).unwrap_or_default();
    let reference = resource.text(&["BootOptionReference"]).unwrap_or_else(|| resource.id());
    let name = resource.text(&["DisplayName"]).unwrap_or_else(|| text("Name"));
    (!reference.is_empty()).then(|| UefiBootOption {
        reference,
        name,
        device: text("UefiDevicePath"),
        path: resource.path().to_owned(),
    })
}

fn key(database: &str, entry: &Resource) -> UefiKey {
    let pem = entry.text(&["CertificateString"]);
    let subject = entry.fact(&["Subject", "CommonName"]);
    let (name, identity) = match (entry.text(&["SignatureString"]), pem) {
        (Some(hash), _) => {
            let kind = entry.text(&["SignatureType"]).unwrap_or_else(|| "hash".to_owned());
            (kind, hash.to_ascii_lowercase())
        }
        (None, Some(pem)) => {
            // A text that is not a certificate is identified by its own hash.
            let of_text = || CertificateFingerprint::of(&CertificateDer::from(pem.as_bytes()));
            let digest = pem_fingerprint(&pem).unwrap_or_else(of_text);
            (subject.unwrap_or_else(|| "certificate".to_owned()), digest.to_string())
        }
        (None, None) => (subject.unwrap_or_else(|| "certificate".to_owned()), described(entry)),
    };
    UefiKey {
        database: database.to_owned(),
        name,
        identity,
        path: entry.path().to_owned(),
    }
}

/// The BMC's description of a certificate that it does not show.
fn described(entry: &Resource) -> String {
    let mut parts = Vec::new();
    for name in ["Fingerprint", "SerialNumber", "ValidNotBefore", "ValidNotAfter"] {
        parts.extend(entry.text(&[name]).map(|text| format!("{name} {text}")));
    }
    for name in ["Subject", "Issuer"] {
        for field in ["CommonName", "Organization", "OrganizationalUnit", "Country"] {
            let text = entry.text(&[name, field]);
            parts.extend(text.map(|text| format!("{name}.{field} {text}")));
        }
    }
    parts.join(", ")
}
