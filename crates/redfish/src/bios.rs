//! BIOS settings: read, checked against the registry, written as one difference.
//!
//! A written setting is pending until the machine's next start (POST); read it again after the start to be sure. If any
//! part of a request is invalid, nothing is written.

use std::collections::BTreeMap;
use std::time::Duration;

use rackwright_redfish_wire::address::last_segment;
use rackwright_redfish_wire::environment::Poll;
use rackwright_redfish_wire::error::RedfishError;
use rackwright_redfish_wire::json;
use rackwright_redfish_wire::retry::Repeat;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::client::BmcClient;
use crate::quirks::BiosLock;
use crate::resource::Resource;
use crate::task::TaskHandle;
use crate::views::{AttributeRegistry, AttributeRule, Bios, BiosValue};

/// Usual name of the registry of BIOS attributes. Some BIOSes refer to it by another name than the registry's own.
const REGISTRY: &str = "BiosAttributeRegistry";

/// Rules of a registry, by attribute name.
pub type BiosRules = BTreeMap<String, AttributeRule>;

/// The BIOS settings as the BMC reports them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BiosState {
    /// The BIOS resource.
    pub path: String,
    /// The resource to which changes are written.
    pub settings_path: String,
    /// Values in force. Some BMCs know them only after the machine has started.
    pub current: BTreeMap<String, BiosValue>,
    /// Pending values that differ from those in force.
    pub pending: BTreeMap<String, BiosValue>,
    /// Name of the registry that describes the attributes.
    pub registry: Option<String>,
    /// The apply times that the BMC supports; empty if it offers no choice.
    pub apply_times: Vec<String>,
    /// Whether all attributes can be reset.
    pub can_reset: bool,
    /// Whether BIOS passwords can be changed.
    pub can_change_password: bool,
}

/// The result of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BiosChange {
    /// The attributes that were written; empty if every value is already in force or pending.
    pub written: BTreeMap<String, BiosValue>,
    /// Attributes that can be written only after one more start, because a lock on them must be opened first.
    pub held_back: Vec<String>,
    /// Paths on the BMC where the job that applies the change is found; empty if the BMC names none.
    pub job: Vec<String>,
}

impl BmcClient {
    async fn bios_resource(&self) -> Result<Option<Bios>, RedfishError> {
        let Some(link) = self.system().await?.resource().link(&["Bios"]) else {
            return Ok(None);
        };
        match self.get(&link).await {
            Ok(resource) => Ok(Some(resource.into())),
            Err(failure) if matches!(failure.status(), Some(404 | 405 | 501)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn no_bios(&self, what: &str) -> RedfishError {
        RedfishError::NotOffered {
            bmc: self.address(),
            what: what.to_owned(),
            offered: "nothing equivalent".to_owned(),
        }
    }

    /// The BIOS settings, with the pending ones. None: the BMC does not offer them.
    ///
    /// # Errors
    /// Those of [`system`](Self::system) and [`get`](Self::get).
    pub async fn bios(&self) -> Result<Option<BiosState>, RedfishError> {
        let Some(bios) = self.bios_resource().await? else {
            return Ok(None);
        };
        let current = bios.attributes();
        let named = match bios.settings_object() {
            Some(link) => Some(link),
            None => self
                .profile()
                .await?
                .bios_settings
                .as_ref()
                .map(|name| format!("{}/{name}", bios.path().trim_end_matches('/'))),
        };
        let pending = match &named {
            Some(link) => self.pending(link, &current).await?,
            None => BTreeMap::new(),
        };
        Ok(Some(BiosState {
            path: bios.path().to_owned(),
            settings_path: named.unwrap_or_else(|| bios.path().to_owned()),
            pending,
            registry: bios.registry(),
            apply_times: bios.apply_times(),
            can_reset: bios.reset().is_some(),
            can_change_password: bios.change_password().is_some(),
            current,
        }))
    }

    /// The pending values of a settings object. Some BMCs list all attributes there, some only the pending ones, and some
    /// show the object only while a value is pending.
    async fn pending(
        &self,
        link: &str,
        current: &BTreeMap<String, BiosValue>,
    ) -> Result<BTreeMap<String, BiosValue>, RedfishError> {
        let settings = match self.get(link).await {
            Ok(settings) => Bios::from(settings),
            Err(failure) if matches!(failure.status(), Some(404 | 405)) => return Ok(BTreeMap::new()),
            Err(failure) => return Err(failure),
        };
        let differs =
            |(name, value): &(String, BiosValue)| current.get(name).map(ToString::to_string) != Some(value.to_string());
        Ok(settings.attributes().into_iter().filter(differs).collect())
    }

    /// The allowed values of the attributes. None: the BMC has no readable registry.
    ///
    /// # Errors
    /// The BMC can no longer be reached.
    pub async fn bios_rules(&self, state: &BiosState) -> Result<Option<BiosRules>, RedfishError> {
        let found = self.find_rules(state).await;
        match found {
            Ok(rules) => Ok(rules.filter(|rules| !rules.is_empty())),
            Err(failure) if failure.is_fatal_for_walk() => Err(failure),
            Err(_) => Ok(None),
        }
    }

    async fn find_rules(&self, state: &BiosState) -> Result<Option<BiosRules>, RedfishError> {
        let root = self.service_root().await?;
        let Some(registries) = root.resource().link(&["Registries"]) else {
            return Ok(None);
        };
        let files = self.member_links(&registries).await?;
        let Some(file) = registry_file(&files, state.registry.as_deref()) else {
            return Ok(None);
        };
        let file = self.get(&file).await?;
        let Some(link) = english_link(&file) else {
            return Ok(None);
        };
        let registry = AttributeRegistry::from(self.get(&link).await?);
        Ok(Some(registry.rules()))
    }

    /// Writes all differences from `wanted` (by attribute name) in one request. They apply from the next start.
    ///
    /// # Errors
    /// [`RedfishError::UnfitSettings`] lists every invalid setting, and nothing is written;
    /// [`RedfishError::NotApplied`] if an accepted value is not pending.
    pub async fn set_bios(
        &self,
        state: &BiosState,
        wanted: &BTreeMap<String, String>,
    ) -> Result<BiosChange, RedfishError> {
        if difference(state, &BiosRules::new(), wanted).next().is_none() {
            return Ok(BiosChange::default());
        }
        let rules = self.bios_rules(state).await?.unwrap_or_default();
        let locks = &self.profile().await?.bios_locks;
        let mut change = plan(state, &rules, locks, wanted).map_err(|faults| RedfishError::UnfitSettings {
            bmc: self.address(),
            faults,
        })?;
        if change.written.is_empty() {
            return Ok(change);
        }
        // Read for its ETag: the settings object may be another resource than the one already read.
        let place = match self.get(&state.settings_path).await {
            Ok(place) => place,
            Err(failure) if matches!(failure.status(), Some(404 | 405)) => {
                Resource::new(state.settings_path.clone(), None, json!({}))
            }
            Err(failure) => return Err(failure),
        };
        let reply = self.patch(&place, &body(&change.written, &state.apply_times)).await?;
        change.job = TaskHandle::of(&reply, self.bmc()).map_or_else(Vec::new, |task| task.places());
        self.confirm(state, &rules, &change.written).await?;
        Ok(change)
    }

    /// Checks that each accepted value is in force or pending. If the settings object shows no values, the BMC's answer
    /// is trusted: the reading after the next start decides.
    async fn confirm(
        &self,
        state: &BiosState,
        rules: &BiosRules,
        written: &BTreeMap<String, BiosValue>,
    ) -> Result<(), RedfishError> {
        let settings = self.settings();
        let limit = settings.read_back_timeout;
        let mut poll = Poll::new(&*settings.environment, settings.poll_first, settings.poll_cap, limit);
        loop {
            let Some(now) = self.bios().await? else { return Ok(()) };
            let stray = written.iter().find(|(name, value)| {
                let seen = now.pending.get(*name).or_else(|| now.current.get(*name));
                !seen.is_some_and(|seen| seen == *value || is_same(rules, name, seen, &value.to_string()))
            });
            let Some((name, value)) = stray else { return Ok(()) };
            if now.pending.is_empty() && now.settings_path != now.path && !self.lists_pending(&now).await? {
                return Ok(());
            }
            if !poll.pause(None).await {
                let seen = now.pending.get(name).or_else(|| now.current.get(name));
                return Err(RedfishError::NotApplied {
                    bmc: self.address(),
                    path: state.settings_path.clone(),
                    property: name.clone(),
                    wanted: value.to_string(),
                    seen: seen.map_or_else(|| "nothing".to_owned(), ToString::to_string),
                });
            }
        }
    }

    /// Waits for the end of the job that applies written settings; it ends some time after the start. `places` may come from
    /// another process. A job that the BMC has forgotten counts as successful.
    ///
    /// # Errors
    /// [`RedfishError::TaskFailed`] with the job's messages; [`RedfishError::WaitedTooLong`] if it did not end.
    pub async fn wait_bios_job(&self, places: &[String], timeout: Duration) -> Result<(), RedfishError> {
        let task = TaskHandle::at(places, self.bmc())?;
        self.wait_task(&task, timeout).await.map(drop)
    }

    async fn lists_pending(&self, state: &BiosState) -> Result<bool, RedfishError> {
        match self.get(&state.settings_path).await {
            Ok(settings) => Ok(settings.at(&["Attributes"]).is_some()),
            Err(failure) if matches!(failure.status(), Some(404 | 405)) => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Resets every attribute to its default. The reset applies from the next start.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if there is no such action; otherwise the BMC's error.
    pub async fn reset_bios(&self) -> Result<(), RedfishError> {
        let bios = self.bios_resource().await?;
        let Some(action) = bios.as_ref().and_then(Bios::reset) else {
            return Err(self.no_bios("a reset of the BIOS settings"));
        };
        // Without a body some BMCs answer 400 or 415.
        self.post(&action.target, &json!({}), Repeat::Always).await.map(drop)
    }

    /// Changes a BIOS password, which is named as the BMC names it.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if there is no such action; otherwise the BMC's error, without the passwords.
    pub async fn change_bios_password(
        &self,
        name: &str,
        old: &SecretString,
        new: &SecretString,
    ) -> Result<(), RedfishError> {
        let bios = self.bios_resource().await?;
        let Some(action) = bios.as_ref().and_then(Bios::change_password) else {
            return Err(self.no_bios("a change of BIOS passwords"));
        };
        let body = json!({
            "PasswordName": name, "OldPassword": old.expose_secret(), "NewPassword": new.expose_secret()
        });
        self.post(&action.target, &body, Repeat::Never).await.map(drop)
    }
}

/// Whether a value that the BMC shows is the wished one, by its name or by its display name.
fn is_same(rules: &BiosRules, name: &str, seen: &BiosValue, wanted: &str) -> bool {
    let seen = seen.to_string();
    seen == wanted || rules.get(name).is_some_and(|rule| rule.is_same(&seen, wanted))
}

/// The requested settings that differ from the pending value, or from the value in force if none is pending.
fn difference<'a>(
    state: &'a BiosState,
    rules: &'a BiosRules,
    wanted: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = (&'a String, &'a String)> {
    wanted.iter().filter(|(name, value)| {
        let seen = state.pending.get(*name).or_else(|| state.current.get(*name));
        !seen.is_some_and(|seen| is_same(rules, name, seen, value))
    })
}

/// The settings to write, or all faults of the request.
fn plan(
    state: &BiosState,
    rules: &BiosRules,
    locks: &[BiosLock],
    wanted: &BTreeMap<String, String>,
) -> Result<BiosChange, Vec<String>> {
    let (mut change, mut faults) = (BiosChange::default(), Vec::new());
    for (name, value) in difference(state, rules, wanted) {
        match fit(state, rules, name, value) {
            Ok(value) => {
                change.written.insert(name.clone(), value);
            }
            Err(fault) => faults.push(format!("{name} = {value:?}: {fault}")),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    unlock_first(state, locks, &mut change);
    Ok(change)
}

fn fit(state: &BiosState, rules: &BiosRules, name: &str, value: &str) -> Result<BiosValue, String> {
    let current = state.current.get(name);
    match (rules.get(name), current) {
        (Some(rule), _) if rule.read_only => {
            let seen = current.map_or_else(|| "unknown".to_owned(), |seen| format!("{:?}", seen.to_string()));
            Err(format!("it is read-only and cannot be changed (its value is {seen})"))
        }
        (Some(rule), _) => {
            let seen = current.map(ToString::to_string);
            let value = rule.spelled(value, seen.as_deref());
            rule.fit(value).map_err(|fault| format!("it {fault}"))
        }
        (None, Some(BiosValue::Flag(_))) => match value {
            "true" => Ok(BiosValue::Flag(true)),
            "false" => Ok(BiosValue::Flag(false)),
            _ => Err("it takes true or false".to_owned()),
        },
        (None, Some(BiosValue::Number(_))) => value
            .parse()
            .map(BiosValue::Number)
            .map_err(|_| "it takes a whole number".to_owned()),
        (None, Some(BiosValue::Text(_))) => Ok(BiosValue::Text(value.to_owned())),
        (None, None) => {
            let folded = name.to_ascii_lowercase();
            let like = state.current.keys().chain(rules.keys());
            let similar = like.into_iter().find(|other| other.to_ascii_lowercase() == folded);
            Err(match similar {
                Some(similar) => format!("this BIOS has no such attribute; did you mean {similar}?"),
                None => "this BIOS has no such attribute".to_owned(),
            })
        }
    }
}

/// A closed lock is opened alone, and the rest follows after the next start. Settings that close a lock are written
/// last.
fn unlock_first(state: &BiosState, locks: &[BiosLock], change: &mut BiosChange) {
    let is_closed = |lock: &&BiosLock| {
        let seen = state.current.get(&lock.attribute);
        seen.is_some_and(|seen| seen.to_string() != lock.unlocked)
    };
    let is_lock = |name: &str| locks.iter().any(|lock| lock.attribute == name);
    if change.written.keys().all(|name| is_lock(name)) {
        return;
    }
    let closed: Vec<&BiosLock> = locks.iter().filter(is_closed).collect();
    let (opening, rest): (BTreeMap<_, _>, BTreeMap<_, _>) = if closed.is_empty() {
        let all = std::mem::take(&mut change.written);
        let (last, now): (BTreeMap<_, _>, BTreeMap<_, _>) = all.into_iter().partition(|(name, _)| is_lock(name));
        (now, last)
    } else {
        let open = closed.iter().map(|lock| {
            let value = match state.current.get(&lock.attribute) {
                Some(BiosValue::Flag(_)) => BiosValue::Flag(lock.unlocked == "true"),
                Some(BiosValue::Number(_)) => lock
                    .unlocked
                    .parse()
                    .map_or_else(|_| BiosValue::Text(lock.unlocked.clone()), BiosValue::Number),
                _ => BiosValue::Text(lock.unlocked.clone()),
            };
            (lock.attribute.clone(), value)
        });
        (open.collect(), std::mem::take(&mut change.written))
    };
    // Pending values need not be sent again.
    change.written = opening
        .into_iter()
        .filter(|(name, value)| state.pending.get(name) != Some(value))
        .collect();
    change.held_back = rest.into_keys().collect();
}

fn body(written: &BTreeMap<String, BiosValue>, apply_times: &[String]) -> Value {
    let attributes: Map<String, Value> = written
        .iter()
        .map(|(name, value)| (name.clone(), value.json()))
        .collect();
    let mut body = json!({"Attributes": attributes});
    if apply_times.iter().any(|time| time == "OnReset") {
        body["@Redfish.SettingsApplyTime"] = json!({"ApplyTime": "OnReset"});
    }
    body
}

/// The registry's name without its version: some BIOSes and their registry file differ in the version.
fn family(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// The link to a registry's file among the links to all registries.
fn registry_file(files: &[String], name: Option<&str>) -> Option<String> {
    let id = |link: &String| last_segment(link).to_owned();
    let named = name.and_then(|name| {
        let exact = files.iter().find(|link| id(link) == name);
        exact.or_else(|| files.iter().find(|link| family(&id(link)) == family(name)))
    });
    let mut like = files.iter().filter(|link| id(link).starts_with(REGISTRY));
    let only = match (like.next(), like.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    };
    named.or(only).cloned()
}

/// The location of a registry in English, or in its first language.
fn english_link(file: &Resource) -> Option<String> {
    let places = match file.at(&["Location"]) {
        Some(Value::Array(places)) => places.as_slice(),
        _ => return None,
    };
    let link = |place: &Value| json::link(place, &["Uri"]);
    let is_english = |place: &&Value| {
        let language = json::text(place, &["Language"]).unwrap_or_default();
        language.to_ascii_lowercase().starts_with("en")
    };
    let best = places.iter().filter(is_english).find_map(link);
    best.or_else(|| places.iter().find_map(link))
}

#[cfg(test)]
mod tests;
