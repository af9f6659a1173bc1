//! Boot override: written to the resource and with the values that the BMC lists, and verified by reading back.

use std::fmt;

use rackwright_redfish_wire::environment::Poll;
use rackwright_redfish_wire::error::RedfishError;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::client::BmcClient;
use crate::quirks::{BootPayload, Profile};
use crate::resource::Resource;
use crate::views::{BootMode, BootView, PowerState, System};

const TARGET: &str = "BootSourceOverrideTarget";
const ENABLED: &str = "BootSourceOverrideEnabled";
const MODE: &str = "BootSourceOverrideMode";
const HTTP_URI: &str = "HttpBootUri";

/// What to boot from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum BootTarget {
    /// The network, by PXE.
    Pxe,
    /// The network, by UEFI HTTP Boot.
    UefiHttp,
    /// The disk: Redfish's target `Hdd`.
    Disk,
    /// A CD, virtual or not.
    Cd,
    /// The boot order: the override is cleared.
    None,
}

/// How long an override holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Persistence {
    /// For one boot.
    Once,
    /// Until it is changed.
    Continuous,
    /// Not at all.
    Disabled,
}

impl Persistence {
    fn as_str(self) -> &'static str {
        match self {
            Self::Once => "Once",
            Self::Continuous => "Continuous",
            Self::Disabled => "Disabled",
        }
    }
}

impl fmt::Display for BootTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A difference between the written and the read value that is known to be harmless.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deviation {
    /// The property below `Boot`.
    pub property: String,
    /// The written value.
    pub wanted: String,
    /// The value that was read.
    pub seen: String,
    /// Why the difference is harmless.
    pub note: String,
}

/// The result of setting a boot override.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootOutcome {
    /// The resource that was written: the system or its settings object.
    pub written_to: String,
    /// Whether a request was necessary.
    pub changed: bool,
    /// The persistence in force. `Once` if `Continuous` was requested but is not offered: the override must then be
    /// set again before every boot.
    pub persistence: Persistence,
    /// The override as read back.
    pub after: BootView,
    /// Known differences from the request.
    pub deviations: Vec<Deviation>,
    /// The machine's power state at that reading; none if the override is not read from the system.
    pub power: Option<PowerState>,
}

/// The expected reading, in the BMC's own values.
#[derive(Debug, Clone)]
struct Plan {
    target: String,
    persistence: Persistence,
    mode: Option<BootMode>,
    http_uri: Option<Value>,
}

/// The resource to which overrides are written.
struct BootResource {
    resource: Resource,
    view: BootView,
    /// A settings object may be stale, so it is written even if its values are the wanted ones.
    is_settings: bool,
}

impl BmcClient {
    /// The boot override in force, and the values that the BMC allows.
    ///
    /// # Errors
    /// Those of [`system`](Self::system).
    pub async fn boot(&self) -> Result<BootView, RedfishError> {
        let place = self.boot_place(self.system().await?).await?;
        if place.is_settings {
            Ok(self.system().await?.boot().completed_by(&place.view))
        } else {
            Ok(place.view)
        }
    }

    /// Sets the boot override and verifies it by reading it back.
    ///
    /// Without a mode, the mode stays unchanged. A BMC without `Continuous` gets `Once`, which the outcome reports.
    ///
    /// # Errors
    /// [`RedfishError::NotOffered`] if the BMC does not list the target, [`RedfishError::NotApplied`] if the BMC
    /// accepts but reads back a difference that no quirk file knows; otherwise the BMC's last error.
    pub async fn set_boot(
        &self,
        target: BootTarget,
        persistence: Persistence,
        mode: Option<BootMode>,
    ) -> Result<BootOutcome, RedfishError> {
        self.write_boot(target, persistence, mode, None).await
    }

    /// Sets UEFI HTTP Boot from a given URI, on BMCs that support a URI.
    ///
    /// # Errors
    /// Those of [`set_boot`](Self::set_boot); [`RedfishError::NotOffered`] if there is no `HttpBootUri`.
    pub async fn set_http_boot(&self, uri: &str, persistence: Persistence) -> Result<BootOutcome, RedfishError> {
        self.write_boot(BootTarget::UefiHttp, persistence, Some(BootMode::Uefi), Some(uri))
            .await
    }

    async fn write_boot(
        &self,
        target: BootTarget,
        persistence: Persistence,
        mode: Option<BootMode>,
        http_uri: Option<&str>,
    ) -> Result<BootOutcome, RedfishError> {
        let profile = self.profile().await?;
        let planned = |place: &BootResource| {
            let mut plan = self.plan(profile, &place.view, target, persistence, http_uri)?;
            plan.mode = mode.filter(|_| place.view.knows_mode || !place.view.allowed_modes.is_empty());
            Ok(plan)
        };
        let is_met = |place: &BootResource, plan: &Plan| !place.is_settings && plan.is_met_by(&place.view);
        let mut place = self.boot_place(self.system_to_change(|_| false).await?).await?;
        let mut plan = match planned(&place) {
            Ok(plan) if !is_met(&place, &plan) => plan,
            // "Nothing to send" and "not possible" must not rest on an earlier reading.
            _ => {
                place = self.boot_place(self.system().await?).await?;
                let plan = planned(&place)?;
                if is_met(&place, &plan) {
                    return self.outcome(&place, &plan, None, place.view.clone(), Vec::new());
                }
                plan
            }
        };
        match self.send_boot(profile, &place, &plan).await {
            Ok(()) => {}
            // A BMC without a list of values may still not know Continuous.
            Err(failure) if plan.persistence == Persistence::Continuous && failure.status() == Some(400) => {
                plan.persistence = Persistence::Once;
                self.send_boot(profile, &place, &plan).await.map_err(|_| failure)?;
            }
            Err(failure) => return Err(failure),
        }
        self.verify_boot(profile, &place, &plan).await
    }

    async fn boot_place(&self, system: System) -> Result<BootResource, RedfishError> {
        let mut own = system.boot();
        if let Some(link) = system.settings() {
            match self.get(&link).await {
                Ok(settings) => {
                    let view = BootView::read(&settings);
                    if view.holds_override {
                        let view = view.completed_by(&own);
                        return Ok(BootResource {
                            resource: settings,
                            view,
                            is_settings: true,
                        });
                    }
                    own = own.completed_by(&view);
                }
                Err(failure) if failure.is_fatal_for_walk() => return Err(failure),
                Err(_) => {}
            }
        }
        if own.holds_override {
            return Ok(BootResource {
                resource: system.resource().clone(),
                view: own,
                is_settings: false,
            });
        }
        Err(RedfishError::MissingProperty {
            bmc: self.address(),
            path: system.path().to_owned(),
            property: "Boot.BootSourceOverrideTarget",
            consequence: "its boot device cannot be chosen",
        })
    }

    fn plan(
        &self,
        profile: &Profile,
        view: &BootView,
        target: BootTarget,
        persistence: Persistence,
        http_uri: Option<&str>,
    ) -> Result<Plan, RedfishError> {
        let is_clearing = target == BootTarget::None || persistence == Persistence::Disabled;
        let (target, persistence) = if is_clearing {
            (BootTarget::None, Persistence::Disabled)
        } else {
            (target, persistence)
        };
        let not_offered = |what: String, offered: String| RedfishError::NotOffered {
            bmc: self.address(),
            what,
            offered,
        };
        let word = choose_target(target, &view.allowed_targets, profile)
            .ok_or_else(|| not_offered(format!("boot target {target}"), view.allowed_targets.join(", ")))?;
        if http_uri.is_some() && !view.knows_http_boot_uri {
            return Err(not_offered(
                "an HttpBootUri".to_owned(),
                "only the URI from DHCP".to_owned(),
            ));
        }
        // A URI that remains from an earlier override must not take effect again.
        let stale = view.http_boot_uri.is_some().then_some(Value::Null);
        let offers = |word: &str| view.allowed_enabled.is_empty() || listed(&view.allowed_enabled, word).is_some();
        let persistence = match persistence {
            Persistence::Continuous if !offers("Continuous") => Persistence::Once,
            other => other,
        };
        Ok(Plan {
            target: word,
            persistence,
            mode: None,
            http_uri: http_uri.map(|uri| json!(uri)).or(stale),
        })
    }

    /// Tries the forms of the override in turn while the BMC rejects the form.
    async fn send_boot(&self, profile: &Profile, place: &BootResource, plan: &Plan) -> Result<(), RedfishError> {
        let mut refusal = None;
        for boot in payloads(profile.boot_payload, &place.view, place.is_settings, plan) {
            match self.patch(&place.resource, &json!({"Boot": boot})).await {
                Ok(reply) => return self.finish(&reply, self.settings().read_back_timeout).await,
                // The first refusal is for the form that the BMC should prefer, so it is the most useful one.
                Err(failure) if matches!(failure.status(), Some(400 | 422 | 500)) => {
                    refusal.get_or_insert(failure);
                }
                Err(failure) => return Err(failure),
            }
        }
        Err(refusal.unwrap_or_else(|| RedfishError::NotOffered {
            bmc: self.address(),
            what: "a known form of boot override".to_owned(),
            offered: String::new(),
        }))
    }

    async fn verify_boot(
        &self,
        profile: &Profile,
        place: &BootResource,
        plan: &Plan,
    ) -> Result<BootOutcome, RedfishError> {
        let settings = self.settings();
        let limit = settings.read_back_timeout;
        let mut poll = Poll::new(&*settings.environment, settings.poll_first, settings.poll_cap, limit);
        let mut mode_sent_again = false;
        loop {
            let fresh = self.get(place.resource.path()).await?;
            let after = BootView::read(&fresh).completed_by(&place.view);
            let (known, unknown) = differences(profile, plan, &after);
            let Some(first) = unknown.first() else {
                return self.outcome(place, plan, Some(&fresh), after, known);
            };
            // On some BMCs setting the target changes the mode: the mode is then sent again alone.
            if first.property == MODE && unknown.len() == 1 && !mode_sent_again {
                mode_sent_again = true;
                self.patch(
                    &fresh,
                    &json!({"Boot": {MODE: first.wanted, ENABLED: plan.persistence.as_str()}}),
                )
                .await?;
                continue;
            }
            if !poll.pause(None).await {
                return Err(RedfishError::NotApplied {
                    bmc: self.address(),
                    path: place.resource.path().to_owned(),
                    property: first.property.clone(),
                    wanted: first.wanted.clone(),
                    seen: first.seen.clone(),
                });
            }
        }
    }

    fn outcome(
        &self,
        place: &BootResource,
        plan: &Plan,
        read_back: Option<&Resource>,
        after: BootView,
        deviations: Vec<Deviation>,
    ) -> Result<BootOutcome, RedfishError> {
        for Deviation {
            property,
            wanted,
            seen,
            note,
        } in &deviations
        {
            tracing::info!(bmc = %self.bmc(), property, wanted, seen, note, "boot override reads back differently");
        }
        let read = read_back.unwrap_or(&place.resource);
        Ok(BootOutcome {
            written_to: place.resource.path().to_owned(),
            changed: read_back.is_some(),
            persistence: plan.persistence,
            after,
            deviations,
            power: (!place.is_settings).then(|| PowerState::read(read.text(&["PowerState"]))),
        })
    }
}

impl Plan {
    fn is_clearing(&self) -> bool {
        self.persistence == Persistence::Disabled
    }

    fn is_met_by(&self, view: &BootView) -> bool {
        let reads =
            |value: &Option<String>, word: &str| value.as_deref().is_some_and(|text| text.eq_ignore_ascii_case(word));
        let rest = self.http_uri.is_none() && self.mode.is_none_or(|mode| reads(&view.mode, mode.as_str()));
        let enabled = reads(&view.enabled, self.persistence.as_str());
        rest && enabled && (self.is_clearing() || reads(&view.target, &self.target))
    }
}

fn listed<'a>(list: &'a [String], word: &str) -> Option<&'a String> {
    list.iter().find(|one| one.eq_ignore_ascii_case(word))
}

/// The BMC's value for a target; none if the BMC does not offer the target.
pub(crate) fn choose_target(target: BootTarget, allowed: &[String], profile: &Profile) -> Option<String> {
    let cd: Vec<&str> = profile.cd_boot_targets.iter().map(String::as_str).collect();
    let words: &[&str] = match target {
        BootTarget::Pxe => &["Pxe"],
        BootTarget::UefiHttp => &["UefiHttp"],
        BootTarget::Disk => &["Hdd"],
        BootTarget::Cd => &cd,
        // Clearing needs no target.
        BootTarget::None => return Some("None".to_owned()),
    };
    if allowed.is_empty() {
        return words.first().map(|word| (*word).to_owned());
    }
    let forced = || words.iter().find_map(|word| listed(&profile.forced_boot_targets, word));
    words
        .iter()
        .find_map(|word| listed(allowed, word))
        .or_else(forced)
        .cloned()
}

/// The forms of the override to try. The profile's preferred form comes first.
fn payloads(first: BootPayload, before: &BootView, is_settings: bool, plan: &Plan) -> Vec<Map<String, Value>> {
    let enabled = plan.persistence.as_str();
    let with = |properties: &[(&str, Option<&str>)]| {
        let given = properties
            .iter()
            .filter_map(|(name, value)| Some(((*name).to_owned(), json!((*value)?))));
        let mut boot: Map<String, Value> = given.collect();
        if let Some(uri) = &plan.http_uri {
            boot.insert(HTTP_URI.to_owned(), uri.clone());
        }
        boot
    };
    let wanted_mode = plan.mode.map(BootMode::as_str);
    let changed_mode = wanted_mode.filter(|mode| before.mode.as_deref() != Some(mode));
    let any_mode = wanted_mode.or(before.mode.as_deref());
    let target = Some(plan.target.as_str());
    let changed_enabled = (is_settings || before.enabled.as_deref() != Some(enabled)).then_some(enabled);
    let with_enabled = with(&[(TARGET, target), (ENABLED, Some(enabled)), (MODE, changed_mode)]);
    let full = with(&[(TARGET, target), (ENABLED, Some(enabled)), (MODE, any_mode)]);
    let changed = if plan.is_clearing() {
        with(&[(ENABLED, Some(enabled)), (MODE, changed_mode)])
    } else {
        with(&[(TARGET, target), (ENABLED, changed_enabled), (MODE, changed_mode)])
    };
    let target_only = with(&[(TARGET, target), (MODE, changed_mode)]);
    let forms = match first {
        BootPayload::Changed => [changed, with_enabled, full, target_only],
        BootPayload::WithEnabled => [with_enabled, changed, full, target_only],
        BootPayload::Full => [full, with_enabled, changed, target_only],
    };
    let mut distinct: Vec<Map<String, Value>> = Vec::new();
    for form in forms {
        // Without Enabled an override may have no effect: such a form comes last, and only if Enabled already reads
        // as wanted.
        let complete = form.contains_key(ENABLED) || plan.is_clearing() || changed_enabled.is_none();
        if complete && !distinct.contains(&form) {
            distinct.push(form);
        }
    }
    distinct
}

/// The differences between reading and plan: the known ones, then the others.
fn differences(profile: &Profile, plan: &Plan, after: &BootView) -> (Vec<Deviation>, Vec<Deviation>) {
    let mut all: Vec<(&str, String, Option<&String>)> = Vec::new();
    let cleared_by_target = plan.is_clearing() && after.target.as_deref().is_none_or(|target| target == "None");
    all.push((ENABLED, plan.persistence.as_str().to_owned(), after.enabled.as_ref()));
    if !plan.is_clearing() {
        all.push((TARGET, plan.target.clone(), after.target.as_ref()));
    }
    if let Some(mode) = plan.mode {
        all.push((MODE, mode.as_str().to_owned(), after.mode.as_ref()));
    }
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for (property, wanted, seen) in all {
        let seen = seen.map_or("null", String::as_str);
        if wanted.eq_ignore_ascii_case(seen) {
            continue;
        }
        let quirk = profile.boot_read_back.iter().find(|quirk| {
            quirk.property == property && quirk.wanted == wanted && quirk.seen.eq_ignore_ascii_case(seen)
        });
        let note = match quirk {
            Some(quirk) => Some(quirk.note.clone()),
            None if cleared_by_target && property == ENABLED => Some("the boot target is cleared".to_owned()),
            None if property == MODE && seen == "null" => Some("the BMC does not report the boot mode".to_owned()),
            None => None,
        };
        let list = if note.is_some() { &mut known } else { &mut unknown };
        let (property, seen) = (property.to_owned(), seen.to_owned());
        list.push(Deviation {
            property,
            wanted,
            seen,
            note: note.unwrap_or_default(),
        });
    }
    (known, unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(target: &str, enabled: &str, mode: &str) -> BootView {
        let text = |text: &str| Some(text.to_owned());
        BootView {
            target: text(target),
            enabled: text(enabled),
            mode: text(mode),
            ..BootView::default()
        }
    }

    fn plan(target: &str, persistence: Persistence, mode: Option<BootMode>) -> Plan {
        Plan {
            target: target.to_owned(),
            persistence,
            mode,
            http_uri: None,
        }
    }

    fn forms(first: BootPayload, before: &BootView, plan: &Plan) -> Vec<String> {
        payloads(first, before, false, plan)
            .into_iter()
            .map(|form| Value::Object(form).to_string())
            .collect()
    }

    #[test]
    fn only_changed_fields_are_written_first() {
        let before = view("Hdd", "Once", "UEFI");
        let forms = forms(
            BootPayload::Changed,
            &before,
            &plan("Pxe", Persistence::Once, Some(BootMode::Uefi)),
        );
        assert_eq!(forms[0], r#"{"BootSourceOverrideTarget":"Pxe"}"#);
        assert_eq!(
            forms[1],
            r#"{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}"#
        );
        assert!(forms[2].contains(r#""BootSourceOverrideMode":"UEFI""#));
        assert_eq!(forms.len(), 3);
    }

    #[test]
    fn profiles_choose_the_first_form() {
        let before = view("None", "Disabled", "Legacy");
        let target_plan = plan("Pxe", Persistence::Once, None);
        let full = r#"{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"Legacy"}"#;
        assert_eq!(forms(BootPayload::Full, &before, &target_plan)[0], full);
        let short = r#"{"BootSourceOverrideTarget":"Pxe","BootSourceOverrideEnabled":"Once"}"#;
        assert_eq!(forms(BootPayload::WithEnabled, &before, &target_plan)[0], short);
        // No form sends a target alone if the override would stay disabled.
        assert!(
            forms(BootPayload::Changed, &before, &target_plan)
                .iter()
                .all(|form| form.contains("Once"))
        );
    }

    #[test]
    fn clearing_disables_the_override_first() {
        let target_plan = plan("None", Persistence::Disabled, None);
        let forms = forms(BootPayload::Changed, &view("Pxe", "Once", "UEFI"), &target_plan);
        assert_eq!(forms[0], r#"{"BootSourceOverrideEnabled":"Disabled"}"#);
        assert_eq!(forms.last().unwrap(), r#"{"BootSourceOverrideTarget":"None"}"#);
    }

    #[test]
    fn targets_have_the_names_of_the_bmc() {
        let owned = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let standard = Profile::default();
        let forcing = Profile {
            forced_boot_targets: owned(&["UefiHttp"]),
            ..Profile::default()
        };
        let usb_first = Profile {
            cd_boot_targets: owned(&["UsbCd", "Cd"]),
            ..Profile::default()
        };
        let some = owned(&["None", "Pxe", "Cd", "UsbCd", "hdd"]);
        let choose = |target, profile| choose_target(target, &some, profile);
        assert_eq!(choose(BootTarget::Disk, &standard).as_deref(), Some("hdd"));
        assert_eq!(choose(BootTarget::Cd, &standard).as_deref(), Some("Cd"));
        assert_eq!(choose(BootTarget::Cd, &usb_first).as_deref(), Some("UsbCd"));
        assert_eq!(choose(BootTarget::UefiHttp, &standard), None);
        assert_eq!(choose(BootTarget::UefiHttp, &forcing).as_deref(), Some("UefiHttp"));
        assert_eq!(
            choose_target(BootTarget::UefiHttp, &[], &standard).as_deref(),
            Some("UefiHttp")
        );
    }

    #[test]
    fn known_differences_are_distinguished_from_others() {
        let mut profile = Profile::default();
        let target_plan = plan("Pxe", Persistence::Once, Some(BootMode::Uefi));
        let reading = view("UefiBootNext", "Once", "UEFI");
        let (known, unknown) = differences(&profile, &target_plan, &reading);
        assert_eq!((known.len(), unknown.len()), (0, 1));
        profile.boot_read_back.push(crate::quirks::ReadBack {
            property: TARGET.to_owned(),
            wanted: "Pxe".to_owned(),
            seen: "UefiBootNext".to_owned(),
            note: "as expected".to_owned(),
        });
        let (known, unknown) = differences(&profile, &target_plan, &reading);
        assert_eq!((known.len(), unknown.len()), (1, 0));
        let cleared = differences(
            &profile,
            &plan("None", Persistence::Disabled, None),
            &view("None", "Once", "UEFI"),
        );
        assert_eq!((cleared.0.len(), cleared.1.len()), (1, 0));
        let not_cleared = differences(
            &profile,
            &plan("None", Persistence::Disabled, None),
            &view("Pxe", "Once", "UEFI"),
        );
        assert_eq!(not_cleared.1.len(), 1);
    }
}
