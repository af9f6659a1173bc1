//! Examines one address: whether it answers, whether it is Redfish over TLS, and only then which machine it is.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::bmc::BmcError;
use rackwright_ground::core::Core;
use rackwright_ground::keys::purposes::login_purpose;
use rackwright_ground::text::{NAME_MAX, SENTENCE_MAX, cut};
use rackwright_lifecycle::OperationId;
use rackwright_redfish::{
    BmcClient, BmcTarget, CertificateFingerprint, Machine, RedfishError, RetryPolicy, ServiceFacts, Settings, Survey,
};
use rackwright_store::FindingRow;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::logins::{Candidate, Logins};
use super::spec::Target;

/// Longest time for one BMC, including logins and reading.
const LOOK_MAX: Duration = Duration::from_secs(180);
/// Most MAC addresses kept of a machine.
const MACS_MAX: usize = 64;

/// The facts about one BMC and its machine, as stored with a finding.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Body {
    /// Fingerprint of the TLS certificate: `sha256:` and 64 hex digits; empty over plain HTTP.
    pub certificate: String,
    /// Maker of the BMC's software.
    pub vendor: String,
    /// Name of the service.
    pub product: String,
    /// Redfish version that the service claims.
    pub redfish_version: String,
    pub service_uuid: String,
    /// Maker of the machine.
    pub manufacturer: String,
    /// Model of the machine.
    pub model: String,
    /// Serial number of the machine.
    pub serial: String,
    /// UUID of the machine.
    pub uuid: String,
    /// MAC addresses of the machine.
    pub macs: Vec<String>,
    /// Version of the BMC's firmware.
    pub bmc_firmware: String,
    /// User name of the login that the BMC accepted.
    pub username: String,
    /// Name for the node.
    pub name: String,
    /// Name of the rack; empty: not given.
    pub rack: String,
    /// Rack unit; 0: not given.
    pub unit: u16,
    /// SKU of the machine; empty: not given.
    pub sku: String,
    /// Path of the system, if it was given.
    pub system: String,
    /// Labels for the node.
    pub labels: BTreeMap<String, String>,
    /// Source of the address.
    pub source: String,
}

/// A login, as it is sealed with a finding.
#[derive(Serialize, Deserialize)]
pub struct GoodLogin {
    pub username: String,
    pub password: String,
}

pub enum LookResult {
    /// Nothing answers.
    Silent,
    /// A service answers.
    Found(Box<FindingRow>),
    /// This process cannot open connections at the moment.
    Local(io::Error),
}

/// State that all looks of a discovery share.
pub struct Looker {
    /// The control plane.
    pub core: Arc<Core>,
    /// Identifier of the discovery.
    pub discovery: OperationId,
    /// Source of logins.
    pub logins: Box<dyn Logins>,
    /// Most logins tried at one BMC.
    pub tries: i64,
    /// Login tries by former processes in this discovery, by place.
    pub tried: std::collections::HashMap<String, i64>,
    /// Addresses of nodes. No login is tried there: nodes have their own logins.
    pub nodes: HashSet<String>,
    /// Limits the number of BMCs that are contacted in parallel.
    pub turns: Semaphore,
}

/// Whether an error has a local cause, so the address is not at fault.
fn is_local(error: &io::Error, target: &Target) -> bool {
    // EMFILE, ENFILE, ENOBUFS, ENOMEM. EADDRNOTAVAIL means that no source port is left; with IPv6 also that no route
    // exists.
    let is_v4 = target.ip().is_some_and(|ip| ip.is_ipv4());
    let has_no_port = is_v4 && error.kind() == io::ErrorKind::AddrNotAvailable;
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12)) || has_no_port
}

impl Looker {
    fn settings(&self) -> Settings {
        let answer = Duration::from_secs(self.core.config.discovery.answer_timeout_s);
        Settings {
            // The target accepted a connection a moment ago. A target that then stays silent, even in TLS, is slow to
            // answer, not unreachable.
            connect_timeout: answer + Duration::from_secs(1),
            request_timeout: answer,
            max_concurrent: 2,
            // Hidden repeats of a login are forbidden: the BMC counts each try.
            retry: RetryPolicy {
                retries: 0,
                busy_retries: 0,
                ..RetryPolicy::default()
            },
            quirks: self.core.config.bmc_quirks.clone(),
            ..Settings::default()
        }
    }

    /// Looks at a target.
    pub async fn look(&self, target: &Target) -> LookResult {
        let limit = Duration::from_millis(self.core.config.discovery.connect_timeout_ms);
        match timeout(limit, TcpStream::connect((target.host.as_str(), target.port))).await {
            Ok(Ok(stream)) => drop(stream),
            Ok(Err(error)) if is_local(&error, target) => return LookResult::Local(error),
            Ok(Err(error)) => return self.silent(target, &error.to_string()),
            Err(_) => return self.silent(target, &format!("no connection within {} ms", limit.as_millis())),
        }
        let mut row = FindingRow {
            discovery: self.discovery.clone(),
            place: target.place.clone(),
            address: target.url.clone(),
            tries: self.tried.get(&target.place).copied().unwrap_or_default(),
            ..FindingRow::default()
        };
        // The semaphore is never closed; if it were, all BMCs would be contacted at once.
        let _turn = self.turns.acquire().await;
        let mut body = details(target);
        let probed = timeout(LOOK_MAX, self.ask(target, &mut row, &mut body)).await;
        match probed {
            Ok(true) => {}
            Ok(false) => return self.silent(target, "the host accepted the first connection and refused the second"),
            Err(_) => set_state(
                &mut row,
                "unreadable",
                &format!("the BMC could not be read within {} s", LOOK_MAX.as_secs()),
            ),
        }
        row.body = serde_json::to_string(&body).unwrap_or_else(|_| "{}".to_owned());
        LookResult::Found(Box::new(row))
    }

    /// The result for a target that does not answer. A target from the address table becomes a finding; others are only
    /// counted.
    fn silent(&self, target: &Target, why: &str) -> LookResult {
        if target.details.source != "csv" {
            return LookResult::Silent;
        }
        let mut row = FindingRow {
            discovery: self.discovery.clone(),
            place: target.place.clone(),
            address: target.url.clone(),
            body: serde_json::to_string(&details(target)).unwrap_or_else(|_| "{}".to_owned()),
            ..FindingRow::default()
        };
        set_state(&mut row, "unreachable", why);
        LookResult::Found(Box::new(row))
    }

    /// Returns false if the address does not answer after all.
    async fn ask(&self, target: &Target, row: &mut FindingRow, body: &mut Body) -> bool {
        let survey = match self.survey(target, row).await {
            Ok(survey) => survey,
            Err(RedfishError::Unreachable { .. }) => return false,
            Err(error) => {
                set_state(row, "unreadable", &description(error, &target.url));
                return true;
            }
        };
        body.certificate = survey.certificate.map(|c| format!("sha256:{c}")).unwrap_or_default();
        let Some(service) = &survey.service else {
            set_state(row, "not-redfish", &survey.reason);
            return true;
        };
        note_service(body, service);
        if self.nodes.contains(&row.address) {
            set_state(row, "read", "");
            return true;
        }
        let candidates = self.logins.candidates(service, &target.details.login).await;
        self.log_in(row, body, survey.certificate, candidates).await;
        true
    }

    /// Reads the public service root. A loopback address may use plain HTTP: an emulator or a tunnel.
    async fn survey(&self, target: &Target, row: &mut FindingRow) -> Result<Survey, RedfishError> {
        let survey = BmcClient::survey(&target.url, self.settings()).await?;
        let is_loopback = target.ip().is_some_and(|ip| ip.is_loopback());
        let has_tls = survey.certificate.is_some() || target.url.starts_with("http://");
        if survey.service.is_some() || has_tls || !is_loopback {
            return Ok(survey);
        }
        let plain = target.url.replacen("https://", "http://", 1);
        let by_http = BmcClient::survey(&plain, self.settings()).await?;
        if by_http.service.is_none() {
            return Ok(survey);
        }
        row.address = plain;
        Ok(by_http)
    }

    async fn log_in(
        &self,
        row: &mut FindingRow,
        body: &mut Body,
        certificate: Option<CertificateFingerprint>,
        candidates: Vec<Candidate>,
    ) {
        if candidates.is_empty() {
            let why = "no login is known for this BMC: its machine is unknown";
            return set_state(row, "login-needed", why);
        }
        let had = row.tries;
        for candidate in candidates {
            if row.tries >= self.tries {
                break;
            }
            // Stored first: if this process ends now, the next one does not exceed the allowed tries.
            if let Err(error) = self.core.store.record_login_try(row).await {
                return set_state(row, "unreadable", &format!("no login was tried: {error}"));
            }
            row.tries += 1;
            let bmc = BmcTarget {
                address: row.address.clone(),
                username: candidate.username.clone(),
                password: candidate.password.clone(),
                certificate_sha256: certificate,
                system: Some(body.system.clone()).filter(|system| !system.is_empty()),
            };
            match self.read(bmc).await {
                Ok(machine) => return self.note_machine(row, body, machine, &candidate),
                Err(RedfishError::Unauthorized { .. }) => {}
                Err(error @ RedfishError::PasswordChangeRequired { .. }) => {
                    return set_state(row, "login-refused", &description(error, &row.address.clone()));
                }
                Err(error) => return set_state(row, "unreadable", &description(error, &row.address.clone())),
            }
        }
        let why = match row.tries - had {
            0 if row.tries == 1 => {
                "1 login was tried before this process started: no further login is tried".to_owned()
            }
            0 => format!(
                "{} logins were tried before this process started: no further login is tried",
                row.tries
            ),
            1 => "the login was refused".to_owned(),
            some => format!("{some} logins were refused"),
        };
        set_state(row, "login-refused", &why);
    }

    async fn read(&self, bmc: BmcTarget) -> Result<Machine, RedfishError> {
        let client = BmcClient::connect(bmc, self.settings()).await?;
        let machine = client.machine().await;
        if let Err(error) = client.close().await {
            tracing::debug!(%error, "a BMC session could not be closed; it will time out");
        }
        machine
    }

    fn note_machine(&self, row: &mut FindingRow, body: &mut Body, machine: Machine, login: &Candidate) {
        let short = |text: Option<String>| cut(&text.unwrap_or_default(), NAME_MAX);
        let identity = machine.identity;
        body.manufacturer = short(identity.manufacturer);
        body.model = short(identity.model);
        body.serial = short(identity.serial);
        body.uuid = short(identity.uuid);
        body.bmc_firmware = short(identity.bmc_firmware);
        let macs = machine.macs.iter().take(MACS_MAX);
        body.macs = macs.map(|mac| mac.to_string().to_ascii_lowercase()).collect();
        body.username.clone_from(&login.username);
        let good = GoodLogin {
            username: login.username.clone(),
            password: login.password.expose_secret().to_owned(),
        };
        let text = serde_json::to_string(&good).unwrap_or_default();
        let purpose = login_purpose(&row.discovery, &row.place);
        match self.core.keys.sealer.seal(&text.into(), &purpose) {
            Ok(sealed) => {
                row.login = sealed;
                set_state(row, "read", "");
            }
            Err(error) => set_state(row, "unreadable", &format!("the login cannot be stored: {error}")),
        }
    }
}

fn description(error: RedfishError, address: &str) -> String {
    BmcError::Redfish(error).description(address)
}

fn set_state(row: &mut FindingRow, state: &str, why: &str) {
    state.clone_into(&mut row.state);
    row.why = cut(why, SENTENCE_MAX);
}

fn details(target: &Target) -> Body {
    let details = &target.details;
    Body {
        name: details.name.clone(),
        rack: details.rack.clone(),
        unit: details.unit,
        sku: details.sku.clone(),
        system: details.system.clone(),
        labels: details.labels.clone(),
        source: details.source.clone(),
        ..Body::default()
    }
}

fn note_service(body: &mut Body, service: &ServiceFacts) {
    let short = |text: &Option<String>| cut(text.as_deref().unwrap_or_default(), NAME_MAX);
    body.vendor = short(&service.vendor);
    body.product = short(&service.product);
    body.redfish_version = short(&service.redfish_version);
    body.service_uuid = short(&service.uuid);
}
