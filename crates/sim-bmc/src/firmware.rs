//! BIOS attributes that are pending until the next POST, their registry, Secure Boot and its keys. After DMTF's schemas
//! Bios, AttributeRegistry, SecureBoot and SecureBootDatabase (DSP8010).

use super::host::Host;
use super::reply::{Fault, empty, json};
use super::resources::collection;
use super::routes::{Object, To};
use super::uefi::{self, BootOptions, UefiFault};
use axum::Router;
use axum::extract::Path;
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderValue, StatusCode, Uri, header};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const TASKS: &str = super::tasks::TASKS;
const BIOS: &str = "/redfish/v1/Systems/1/Bios";
const SETTINGS: &str = "/redfish/v1/Systems/1/Bios/Settings";
const RESET_BIOS: &str = "/redfish/v1/Systems/1/Bios/Actions/Bios.ResetBios";
const REGISTRIES: &str = "/redfish/v1/Registries";
const REGISTRY: &str = "BiosAttributeRegistry.v1_0_0";
const SECURE: &str = "/redfish/v1/Systems/1/SecureBoot";
const RESET_KEYS: &str = "/redfish/v1/Systems/1/SecureBoot/Actions/SecureBoot.ResetKeys";
const DATABASES: [&str; 4] = ["PK", "KEK", "db", "dbx"];
/// Most certificates of a database.
const MOST_KEYS: usize = 64;

/// An attribute: its name, its initial value and its rule.
struct Attribute {
    name: &'static str,
    default: fn() -> Value,
    rule: Rule,
}

enum Rule {
    Words(&'static [&'static str]),
    Fixed(&'static [&'static str]),
    Number(i64, i64),
    Flag,
    Text(usize),
}

const ON_OFF: &[&str] = &["Enabled", "Disabled"];

const ATTRIBUTES: &[Attribute] = &[
    Attribute {
        name: "AcpiSrat",
        default: || json!("Enabled"),
        rule: Rule::Words(ON_OFF),
    },
    Attribute {
        name: "AssetTag",
        default: || json!(""),
        rule: Rule::Text(32),
    },
    Attribute {
        name: "BootMode",
        default: || json!("Uefi"),
        rule: Rule::Fixed(&["Uefi", "Legacy"]),
    },
    Attribute {
        name: "NumaPerSocket",
        default: || json!(1),
        rule: Rule::Number(1, 4),
    },
    Attribute {
        name: "PowerProfile",
        default: || json!("Balanced"),
        rule: Rule::Words(&["Balanced", "Performance", "Efficiency"]),
    },
    Attribute {
        name: "QuietBoot",
        default: || json!(true),
        rule: Rule::Flag,
    },
    Attribute {
        name: "Sriov",
        default: || json!("Disabled"),
        rule: Rule::Words(ON_OFF),
    },
];

/// Numbers of these jobs begin here: jobs of resets and updates have smaller numbers.
const FIRST_JOB: u64 = 2_000_000;

/// The job that applies settings, on BMCs that make each change a job.
#[derive(Debug, Clone)]
struct Job {
    number: u64,
    lasts: Duration,
    progress: Progress,
}

#[derive(Debug, Clone)]
enum Progress {
    /// Waiting for the next start.
    Scheduled,
    /// Since a start. The values that it will apply; none: the job will fail.
    Running(Instant, Option<BTreeMap<&'static str, Value>>),
    Completed,
    Failed,
}

impl Job {
    fn document(&self) -> Value {
        let (state, status, percent) = match self.progress {
            Progress::Scheduled => ("Pending", "OK", 0),
            Progress::Running(..) => ("Running", "OK", 50),
            Progress::Completed => ("Completed", "OK", 100),
            Progress::Failed => ("Exception", "Critical", 100),
        };
        let why = json!([{
            "MessageId": "Bios.1.0.SettingsRefused",
            "Message": "The settings do not go with the memory that is fitted.",
            "MessageSeverity": "Critical",
        }]);
        json!({
            "@odata.id": format!("{TASKS}/{}", self.number),
            "@odata.type": "#Task.v1_7_1.Task",
            "Id": self.number.to_string(),
            "Name": "BIOS settings",
            "TaskState": state,
            "TaskStatus": status,
            "PercentComplete": percent,
            "Messages": if state == "Exception" { why } else { json!([]) },
        })
    }
}

/// The BIOS settings of one machine.
#[derive(Debug, Clone)]
pub struct Firmware {
    current: BTreeMap<&'static str, Value>,
    pending: BTreeMap<&'static str, Value>,
    pub(super) secure_next: bool,
    secure_now: bool,
    /// By database: certificates as PEM; none for a factory certificate.
    pub(super) keys: BTreeMap<&'static str, Vec<Option<String>>>,
    pub(super) boot: BootOptions,
    /// The number of machine starts seen so far.
    starts: u32,
    job: Option<Job>,
}

impl Default for Firmware {
    fn default() -> Self {
        Self {
            current: ATTRIBUTES.iter().map(|one| (one.name, (one.default)())).collect(),
            pending: BTreeMap::new(),
            secure_next: false,
            secure_now: false,
            keys: factory_keys(),
            boot: BootOptions::default(),
            starts: 0,
            job: None,
        }
    }
}

fn factory_keys() -> BTreeMap<&'static str, Vec<Option<String>>> {
    DATABASES
        .iter()
        .map(|name| (*name, vec![None; usize::from(*name != "dbx")]))
        .collect()
}

impl Firmware {
    /// Handles the machine's start number `starts`. Pending values apply now or at the end of their job, unless the
    /// firmware `ignores` them: then the job fails.
    pub fn started(&mut self, starts: u32, mut ignores: impl FnMut() -> bool) {
        self.end_job();
        if self.starts == starts {
            return;
        }
        self.starts = starts;
        self.boot.started();
        let pending = std::mem::take(&mut self.pending);
        let is_ignored = !pending.is_empty() && ignores();
        match &mut self.job {
            Some(job) if matches!(job.progress, Progress::Scheduled) => {
                let new_versions = (!is_ignored).then_some(pending);
                job.progress = Progress::Running(Instant::now() + job.lasts, new_versions);
            }
            _ if is_ignored => {}
            _ => self.current.extend(pending),
        }
        if is_ignored {
            return;
        }
        // Without a platform key there is no key to verify with.
        self.secure_now = self.secure_next && self.has_platform_key();
    }

    /// Ends the job if its time is over.
    fn end_job(&mut self) {
        let Some(job) = &mut self.job else { return };
        let Progress::Running(until, new_versions) = &mut job.progress else {
            return;
        };
        if Instant::now() < *until {
            return;
        }
        let new_versions = new_versions.take();
        job.progress = match new_versions {
            Some(_) => Progress::Completed,
            None => Progress::Failed,
        };
        self.current.extend(new_versions.unwrap_or_default());
    }

    /// A new job for the pending values, in place of the previous one.
    fn schedule(&mut self, lasts: Duration) -> Value {
        let before = self.job.as_ref().map_or(FIRST_JOB, |job| job.number);
        let job = Job {
            number: before + 1,
            lasts,
            progress: Progress::Scheduled,
        };
        self.job.insert(job).document()
    }

    fn has_platform_key(&self) -> bool {
        self.keys.get("PK").is_some_and(|keys| !keys.is_empty())
    }

    fn set_pending(&mut self, attributes: &Map<String, Value>) -> Result<(), Fault> {
        let mut checked = Vec::new();
        for (name, value) in attributes {
            let path = format!("Attributes.{name}");
            let one = ATTRIBUTES.iter().find(|one| one.name == name);
            let one = one.ok_or_else(|| Fault::unknown_property(&path))?;
            let refused = || Fault::not_in_list(&path, &value.to_string());
            match (&one.rule, value) {
                (Rule::Fixed(_), _) => return Err(Fault::not_writable(&path)),
                (Rule::Words(words), Value::String(word)) if words.contains(&word.as_str()) => {}
                (Rule::Number(least, most), Value::Number(number)) => {
                    let fits = number.as_i64().is_some_and(|n| (*least..=*most).contains(&n));
                    if !fits {
                        return Err(refused());
                    }
                }
                (Rule::Flag, Value::Bool(_)) => {}
                (Rule::Text(longest), Value::String(text)) if text.chars().count() <= *longest => {}
                (Rule::Words(_) | Rule::Text(_), Value::String(_)) => return Err(refused()),
                _ => return Err(Fault::wrong_type(&path, value)),
            }
            checked.push((one.name, value.clone()));
        }
        for (name, value) in checked {
            if self.current.get(name) == Some(&value) {
                self.pending.remove(name);
            } else {
                self.pending.insert(name, value);
            }
        }
        Ok(())
    }
}

/// Runs `act` on the machine's firmware; a machine without settings has no such resource.
pub(super) fn with<T>(host: &dyn Host, path: &str, mut act: impl FnMut(&mut Firmware) -> T) -> Result<T, Fault> {
    let mut made = None;
    host.firmware(&mut |firmware| made = Some(act(firmware)));
    made.ok_or_else(|| Fault::not_found(path))
}

/// The settings job of this number, if there is one.
pub(super) fn job(host: &dyn Host, id: &str) -> Option<Value> {
    let found = with(host, TASKS, |firmware| {
        let job = firmware.job.as_ref().filter(|job| job.number.to_string() == id);
        job.map(Job::document)
    });
    found.ok().flatten()
}

pub(super) fn routes(router: Router) -> Router {
    let database = "/redfish/v1/Systems/1/SecureBoot/SecureBootDatabases/{database}";
    router
        .route(BIOS, get(bios))
        .route(SETTINGS, get(settings).patch(change))
        .route(RESET_BIOS, post(reset))
        .route(REGISTRIES, get(registries))
        .route(
            "/redfish/v1/Registries/BiosAttributeRegistry.v1_0_0",
            get(registry_file),
        )
        .route(
            "/redfish/v1/Registries/BiosAttributeRegistry.v1_0_0.json",
            get(registry),
        )
        .route(SECURE, get(secure_boot).patch(change_secure_boot))
        .route(RESET_KEYS, post(reset_keys))
        .route("/redfish/v1/Systems/1/SecureBoot/SecureBootDatabases", get(databases))
        .route(database, get(read_database))
        .route(&format!("{database}/Certificates"), get(certificates).post(enrol))
        .route(
            &format!("{database}/Certificates/{{number}}"),
            get(certificate).delete(remove_certificate),
        )
        .route(
            &format!("{database}/Actions/SecureBootDatabase.ResetKeys"),
            post(reset_database),
        )
        .route(uefi::OPTIONS, get(uefi::options))
        .route(
            "/redfish/v1/Systems/1/BootOptions/{id}",
            get(uefi::option).delete(uefi::remove_option),
        )
}

async fn bios(To(bmc): To) -> Result<Response, Fault> {
    let current = with(bmc.host.as_ref(), BIOS, |firmware| firmware.current.clone())?;
    Ok(json(
        StatusCode::OK,
        &json!({
            "@odata.id": BIOS,
            "@odata.type": "#Bios.v1_2_0.Bios",
            "Id": "Bios",
            "Name": "BIOS settings in force",
            "AttributeRegistry": REGISTRY,
            "Attributes": current,
            "@Redfish.Settings": {
                "@odata.type": "#Settings.v1_3_5.Settings",
                "SettingsObject": {"@odata.id": SETTINGS},
                "SupportedApplyTimes": ["OnReset"],
            },
            "Actions": {"#Bios.ResetBios": {"target": RESET_BIOS}},
        }),
    ))
}

/// Without `Attributes` while no value is pending, as on some BMCs.
async fn settings(To(bmc): To) -> Result<Response, Fault> {
    let pending = with(bmc.host.as_ref(), SETTINGS, |firmware| firmware.pending.clone())?;
    let mut body = json!({
        "@odata.id": SETTINGS,
        "@odata.type": "#Bios.v1_2_0.Bios",
        "Id": "Settings",
        "Name": "BIOS settings that wait for the next start",
        "AttributeRegistry": REGISTRY,
    });
    if !pending.is_empty() {
        body["Attributes"] = json!(pending);
    }
    Ok(json(StatusCode::OK, &body))
}

async fn change(To(bmc): To, Object(body): Object) -> Result<Response, Fault> {
    for name in body.keys() {
        if name != "Attributes" && name != "@Redfish.SettingsApplyTime" {
            return Err(Fault::unknown_property(name));
        }
    }
    let time = body
        .get("@Redfish.SettingsApplyTime")
        .and_then(|time| time.get("ApplyTime"));
    if let Some(time) = time.filter(|time| *time != "OnReset") {
        return Err(Fault::not_in_list(
            "@Redfish.SettingsApplyTime.ApplyTime",
            &time.to_string(),
        ));
    }
    let attributes = match body.get("Attributes") {
        Some(Value::Object(attributes)) => attributes,
        Some(other) => return Err(Fault::wrong_type("Attributes", other)),
        None => return Err(Fault::missing_property("Attributes")),
    };
    if bmc.host.settings_are_busy() {
        return Err(Fault::settings_wait());
    }
    with(bmc.host.as_ref(), SETTINGS, |firmware| firmware.set_pending(attributes))??;
    let Some(lasts) = bmc.host.settings_jobs_last() else {
        return Ok(empty(StatusCode::NO_CONTENT));
    };
    let job = with(bmc.host.as_ref(), SETTINGS, |firmware| firmware.schedule(lasts))?;
    let mut response = json(StatusCode::ACCEPTED, &job);
    if let Some(place) = job["@odata.id"].as_str()
        && let Ok(place) = HeaderValue::try_from(place)
    {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

async fn reset(To(bmc): To, Object(_): Object) -> Result<Response, Fault> {
    with(bmc.host.as_ref(), RESET_BIOS, |firmware| {
        let defaults = ATTRIBUTES.iter().map(|one| (one.name, (one.default)()));
        let current = &firmware.current;
        firmware.pending = defaults
            .filter(|(name, value)| current.get(name) != Some(value))
            .collect();
    })?;
    Ok(empty(StatusCode::NO_CONTENT))
}

async fn registries(To(bmc): To) -> Result<Response, Fault> {
    with(bmc.host.as_ref(), REGISTRIES, |_| ())?;
    let members = [REGISTRY].into_iter();
    let kind = "#MessageRegistryFileCollection.MessageRegistryFileCollection";
    Ok(json(
        StatusCode::OK,
        &collection(REGISTRIES, kind, "Registries", members),
    ))
}

async fn registry_file(To(bmc): To, uri: Uri) -> Result<Response, Fault> {
    with(bmc.host.as_ref(), uri.path(), |_| ())?;
    Ok(json(
        StatusCode::OK,
        &json!({
            "@odata.id": uri.path(),
            "@odata.type": "#MessageRegistryFile.v1_1_3.MessageRegistryFile",
            "Id": REGISTRY,
            "Name": "BIOS attribute registry file",
            "Languages": ["en"],
            "Registry": "BiosAttributeRegistry.1.0",
            "Location": [{"Language": "en", "Uri": format!("{REGISTRIES}/{REGISTRY}.json")}],
        }),
    ))
}

async fn registry(To(bmc): To, uri: Uri) -> Result<Response, Fault> {
    with(bmc.host.as_ref(), uri.path(), |_| ())?;
    let attributes: Vec<Value> = ATTRIBUTES.iter().map(described).collect();
    Ok(json(
        StatusCode::OK,
        &json!({
            "@odata.id": uri.path(),
            "@odata.type": "#AttributeRegistry.v1_3_6.AttributeRegistry",
            "Id": REGISTRY,
            "Name": "BIOS attribute registry",
            "Language": "en",
            "OwningEntity": "Rackwright",
            "RegistryVersion": "1.0.0",
            "RegistryEntries": {"Attributes": attributes, "Menus": [], "Dependencies": []},
        }),
    ))
}

fn described(one: &Attribute) -> Value {
    let mut entry = json!({
        "AttributeName": one.name,
        "DisplayName": one.name,
        "DefaultValue": (one.default)(),
        "ReadOnly": matches!(one.rule, Rule::Fixed(_)),
        "ResetRequired": true,
    });
    let words = |words: &[&str]| {
        let word = |word: &&str| json!({"ValueName": word, "ValueDisplayName": word});
        json!(words.iter().map(word).collect::<Vec<_>>())
    };
    match one.rule {
        Rule::Words(list) | Rule::Fixed(list) => {
            entry["Type"] = json!("Enumeration");
            entry["Value"] = words(list);
        }
        Rule::Number(least, most) => {
            entry["Type"] = json!("Integer");
            entry["LowerBound"] = json!(least);
            entry["UpperBound"] = json!(most);
        }
        Rule::Flag => entry["Type"] = json!("Boolean"),
        Rule::Text(longest) => {
            entry["Type"] = json!("String");
            entry["MaxLength"] = json!(longest);
        }
    }
    entry
}

// ---- Secure Boot ----

async fn secure_boot(To(bmc): To) -> Result<Response, Fault> {
    let machine = bmc.host.description();
    if !machine.uefi {
        return Err(Fault::not_found(SECURE));
    }
    let word = |on: bool| if on { "Enabled" } else { "Disabled" };
    let mode = |user: bool| if user { "UserMode" } else { "SetupMode" };
    let mut body = json!({
        "@odata.id": SECURE,
        "@odata.type": "#SecureBoot.v1_1_0.SecureBoot",
        "Id": "SecureBoot",
        "Name": "UEFI Secure Boot",
        "SecureBootEnable": machine.secure_boot,
        "SecureBootCurrentBoot": word(machine.secure_boot),
        "SecureBootMode": mode(machine.secure_boot),
    });
    if let Ok(firmware) = with(bmc.host.as_ref(), SECURE, |firmware| firmware.clone()) {
        body["SecureBootEnable"] = json!(firmware.secure_next);
        body["SecureBootCurrentBoot"] = json!(word(firmware.secure_now));
        body["SecureBootMode"] = json!(mode(firmware.has_platform_key()));
        body["SecureBootDatabases"] = json!({"@odata.id": format!("{SECURE}/SecureBootDatabases")});
        body["Actions"] = json!({"#SecureBoot.ResetKeys": {
            "target": RESET_KEYS,
            "ResetKeysType@Redfish.AllowableValues": ["ResetAllKeysToDefault", "DeleteAllKeys", "DeletePK"],
        }});
    }
    Ok(json(StatusCode::OK, &body))
}

async fn change_secure_boot(To(bmc): To, Object(body): Object) -> Result<Response, Fault> {
    let mut enabled = None;
    for (name, value) in &body {
        match (name.as_str(), value) {
            ("SecureBootEnable", Value::Bool(on)) => enabled = Some(*on),
            ("SecureBootEnable", other) => return Err(Fault::wrong_type(name, other)),
            _ => return Err(Fault::not_writable(name)),
        }
    }
    with(bmc.host.as_ref(), SECURE, |firmware| {
        firmware.secure_next = enabled.unwrap_or(firmware.secure_next)
    })?;
    Ok(empty(StatusCode::NO_CONTENT))
}

async fn reset_keys(To(bmc): To, Object(body): Object) -> Result<Response, Fault> {
    const ACTION: &str = "SecureBoot.ResetKeys";
    let Some(Value::String(kind)) = body.get("ResetKeysType") else {
        return Err(Fault::missing_parameter(ACTION, "ResetKeysType"));
    };
    let bad = || Fault::bad_parameter(ACTION, "ResetKeysType", kind);
    with(bmc.host.as_ref(), RESET_KEYS, |firmware| {
        match kind.as_str() {
            "ResetAllKeysToDefault" => firmware.keys = factory_keys(),
            "DeleteAllKeys" => firmware.keys.values_mut().for_each(Vec::clear),
            "DeletePK" => firmware.keys.entry("PK").or_default().clear(),
            _ => return Err(bad()),
        }
        Ok(empty(StatusCode::NO_CONTENT))
    })?
}

async fn databases(To(bmc): To, uri: Uri) -> Result<Response, Fault> {
    let fault = with(bmc.host.as_ref(), uri.path(), |firmware| firmware.boot.fault)?;
    if fault == UefiFault::FailsKeys {
        return Err(Fault::internal("the databases cannot be read"));
    }
    let kind = "#SecureBootDatabaseCollection.SecureBootDatabaseCollection";
    let members = DATABASES.into_iter();
    Ok(json(
        StatusCode::OK,
        &collection(uri.path(), kind, "Secure Boot databases", members),
    ))
}

/// The keys of an existing database.
fn keys(bmc: &To, database: &str, uri: &Uri) -> Result<Vec<Option<String>>, Fault> {
    let found = with(bmc.0.host.as_ref(), uri.path(), |firmware| {
        firmware.keys.get(database).cloned()
    })?;
    found.ok_or_else(|| Fault::not_found(uri.path()))
}

async fn read_database(bmc: To, Path(database): Path<String>, uri: Uri) -> Result<Response, Fault> {
    keys(&bmc, &database, &uri)?;
    Ok(json(
        StatusCode::OK,
        &json!({
            "@odata.id": uri.path(),
            "@odata.type": "#SecureBootDatabase.v1_0_1.SecureBootDatabase",
            "Id": database,
            "Name": "Secure Boot database",
            "DatabaseId": database,
            "Certificates": {"@odata.id": format!("{}/Certificates", uri.path())},
            "Actions": {"#SecureBootDatabase.ResetKeys": {
                "target": format!("{}/Actions/SecureBootDatabase.ResetKeys", uri.path()),
                "ResetKeysType@Redfish.AllowableValues": ["ResetAllKeysToDefault", "DeleteAllKeys"],
            }},
        }),
    ))
}

async fn certificates(bmc: To, Path(database): Path<String>, uri: Uri) -> Result<Response, Fault> {
    let count = keys(&bmc, &database, &uri)?.len();
    let numbers: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
    let kind = "#CertificateCollection.CertificateCollection";
    let members = numbers.iter().map(String::as_str);
    Ok(json(
        StatusCode::OK,
        &collection(uri.path(), kind, "Certificates", members),
    ))
}

async fn certificate(bmc: To, Path((database, number)): Path<(String, String)>, uri: Uri) -> Result<Response, Fault> {
    let all = keys(&bmc, &database, &uri)?;
    let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let one = index
        .and_then(|index| all.get(index))
        .ok_or_else(|| Fault::not_found(uri.path()))?;
    Ok(json(
        StatusCode::OK,
        &json!({
            "@odata.id": uri.path(),
            "@odata.type": "#Certificate.v1_8_0.Certificate",
            "Id": number,
            "Name": "Certificate",
            "CertificateType": "PEM",
            "CertificateString": one,
            "Subject": {"CommonName": one.is_none().then(|| format!("Rackwright Factory {database}"))},
        }),
    ))
}

/// Later certificates move up, as on some BMCs.
async fn remove_certificate(
    bmc: To,
    Path((database, number)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Fault> {
    with(bmc.0.host.as_ref(), uri.path(), |firmware| {
        if matches!(firmware.boot.fault, UefiFault::KeepsKeys | UefiFault::ResetsKeysOnly) {
            return Err(Fault::method("DELETE"));
        }
        let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        let keys = firmware.keys.iter_mut().find(|(name, _)| **name == database);
        match (keys, index) {
            (Some((_, keys)), Some(index)) if index < keys.len() => {
                keys.remove(index);
                Ok(empty(StatusCode::NO_CONTENT))
            }
            _ => Err(Fault::not_found(uri.path())),
        }
    })?
}

async fn reset_database(
    bmc: To,
    Path(database): Path<String>,
    uri: Uri,
    Object(body): Object,
) -> Result<Response, Fault> {
    const ACTION: &str = "SecureBootDatabase.ResetKeys";
    let Some(Value::String(kind)) = body.get("ResetKeysType") else {
        return Err(Fault::missing_parameter(ACTION, "ResetKeysType"));
    };
    let bad = || Fault::bad_parameter(ACTION, "ResetKeysType", kind);
    with(bmc.0.host.as_ref(), uri.path(), |firmware| {
        if firmware.boot.fault == UefiFault::KeepsKeys {
            return Err(Fault::insufficient_privilege());
        }
        let keys = firmware.keys.iter_mut().find(|(name, _)| **name == database);
        let (name, keys) = keys.ok_or_else(|| Fault::not_found(uri.path()))?;
        match kind.as_str() {
            "ResetAllKeysToDefault" => *keys = factory_keys().remove(name).unwrap_or_default(),
            "DeleteAllKeys" => keys.clear(),
            _ => return Err(bad()),
        }
        Ok(empty(StatusCode::NO_CONTENT))
    })?
}

async fn enrol(bmc: To, Path(database): Path<String>, uri: Uri, Object(body): Object) -> Result<Response, Fault> {
    keys(&bmc, &database, &uri)?;
    let pem = match body.get("CertificateString") {
        Some(Value::String(pem)) if pem.starts_with("-----BEGIN CERTIFICATE-----") => pem.clone(),
        Some(other) => return Err(Fault::wrong_type("CertificateString", other)),
        None => return Err(Fault::missing_property("CertificateString")),
    };
    with(bmc.0.host.as_ref(), uri.path(), |firmware| {
        let keys = firmware.keys.iter_mut().find(|(name, _)| **name == database);
        match keys {
            Some((_, keys)) if keys.len() < MOST_KEYS => {
                keys.push(Some(pem.clone()));
                Ok(empty(StatusCode::CREATED))
            }
            _ => Err(Fault::internal("the database is full")),
        }
    })?
}
