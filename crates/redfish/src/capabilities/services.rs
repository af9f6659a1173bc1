//! Assesses virtual media, BIOS and the services.

use serde_json::Value;

use super::assess::system_of;
use super::observe::{Observed, Reading};
use super::{Capability, Verdict, fail, not_offered, pass};
use crate::resource::Resource;
use crate::views::{Action, MediaKind, ServiceRoot};

/// The resource of a reading, or the verdict if there is none.
fn read<'a>(reading: &'a Reading, absent: &str) -> Result<&'a Resource, Verdict> {
    match reading {
        Reading::Read(resource) => Ok(resource),
        Reading::Absent => Err(not_offered(absent)),
        Reading::Failed(why) => Err(fail(why)),
    }
}

/// A verdict from steps, each of which may end the assessment.
fn either(outcome: Result<Verdict, Verdict>) -> Verdict {
    outcome.unwrap_or_else(|verdict| verdict)
}

fn count(resource: &Resource, list: &str) -> usize {
    let listed = resource.at(&[list]).and_then(Value::as_array).map_or(0, Vec::len);
    let claimed = resource.whole(&[&format!("{list}@odata.count")]);
    listed.max(claimed.and_then(|count| usize::try_from(count).ok()).unwrap_or(0))
}

pub(super) fn media(observed: &Observed, capability: Capability) -> Verdict {
    let kind = if capability == Capability::MediaCd {
        MediaKind::Cd
    } else {
        MediaKind::Usb
    };
    if observed.media_collections.is_empty() {
        return not_offered("neither the system nor its manager has virtual drives");
    }
    if observed.media.is_empty() {
        return not_offered("there are no virtual drives");
    }
    let slots: Vec<_> = observed.media.iter().filter(|slot| slot.accepts(kind)).collect();
    let Some(first) = slots.first() else {
        return not_offered("no virtual drive of this kind");
    };
    let slot = slots.iter().find(|slot| slot.insert().is_some()).unwrap_or(first);
    let means = if slot.insert().is_some() {
        "by InsertMedia"
    } else {
        "by PATCH"
    };
    pass(format!("{} drives, {means} at {}", slots.len(), slot.path()))
}

pub(super) fn bios(observed: &Observed) -> Verdict {
    either((|| {
        system_of(observed)?;
        let bios = read(&observed.bios, "the system names no BIOS")?;
        let attributes = bios
            .at(&["Attributes"])
            .and_then(Value::as_object)
            .map_or(0, serde_json::Map::len);
        if attributes == 0 {
            return Err(fail("the BIOS has no attributes"));
        }
        Ok(match bios.link(&["@Redfish.Settings", "SettingsObject"]) {
            Some(settings) => pass(format!("{attributes} attributes, set at {settings}")),
            None => not_offered(format!(
                "{attributes} attributes are readable, but the BIOS has no link to a settings object"
            )),
        })
    })())
}

pub(super) fn secure_boot(observed: &Observed) -> Verdict {
    either((|| {
        system_of(observed)?;
        let secure = read(&observed.secure_boot, "the system names no Secure Boot")?;
        Ok(match secure.flag(&["SecureBootEnable"]) {
            Some(true) => pass("on"),
            Some(false) => pass("off"),
            None => fail("SecureBootEnable is missing"),
        })
    })())
}

pub(super) fn accounts(observed: &Observed) -> Verdict {
    either((|| {
        let service = read(&observed.account_service, "the root names no account service")?;
        let accounts = read(&observed.accounts, "the account service names no accounts")?;
        let length = match (
            service.whole(&["MinPasswordLength"]),
            service.whole(&["MaxPasswordLength"]),
        ) {
            (Some(least), Some(most)) if most > 0 => format!(", passwords of {least} to {most} characters"),
            (Some(least), _) => format!(", passwords of {least} characters or more"),
            (None, Some(most)) => format!(", passwords of up to {most} characters"),
            (None, None) => String::new(),
        };
        Ok(pass(format!("{} listed{length}", count(accounts, "Members"))))
    })())
}

pub(super) fn sessions(observed: &Observed) -> Verdict {
    let root = ServiceRoot::from(observed.root.clone());
    match (&observed.session_service, root.sessions()) {
        (Reading::Read(service), _) if service.flag(&["ServiceEnabled"]) == Some(false) => {
            not_offered("the session service is switched off")
        }
        (Reading::Read(service), _) => match service.whole(&["SessionTimeout"]) {
            Some(timeout) => pass(format!("end after {timeout} s without a request")),
            None => pass("the time-out is unknown"),
        },
        (_, Some(_)) => pass("linked by the root"),
        (Reading::Failed(why), None) => fail(why),
        (Reading::Absent, None) => not_offered("each request carries user name and password"),
    }
}

pub(super) fn events(observed: &Observed) -> Verdict {
    either((|| {
        let service = read(&observed.event_service, "the root names no event service")?;
        let Some(uri) = service.text(&["ServerSentEventUri"]) else {
            return Err(not_offered("the event service has no ServerSentEventUri"));
        };
        if service.flag(&["ServiceEnabled"]) == Some(false) {
            return Err(not_offered("the event service is switched off"));
        }
        Ok(pass(uri))
    })())
}

pub(super) fn update(observed: &Observed, capability: Capability) -> Verdict {
    either((|| {
        let service = read(&observed.update_service, "the root names no update service")?;
        if service.flag(&["ServiceEnabled"]) == Some(false) {
            return Err(not_offered("the update service is switched off"));
        }
        let uri = |name: &str| match service.text(&[name]) {
            Some(uri) => pass(uri),
            None => not_offered(format!("the update service has no {name}")),
        };
        Ok(match capability {
            Capability::UpdateMultipart => uri("MultipartHttpPushUri"),
            Capability::UpdatePush => uri("HttpPushUri"),
            _ => match Action::find(service, "UpdateService.SimpleUpdate") {
                None => not_offered("the update service has no SimpleUpdate"),
                Some(action) => {
                    let protocols = action.allowable("TransferProtocol");
                    match protocols.is_empty() {
                        true => pass("SimpleUpdate"),
                        false => pass(format!("SimpleUpdate by {}", protocols.join(", "))),
                    }
                }
            },
        })
    })())
}

pub(super) fn console(observed: &Observed) -> Verdict {
    let mut ways: Vec<String> = Vec::new();
    if let Some(system) = observed.system.resource() {
        for protocol in ["SSH", "IPMI", "Telnet", "WebSocket"] {
            if system.flag(&["SerialConsole", protocol, "ServiceEnabled"]) == Some(true) {
                ways.push(protocol.to_owned());
            }
        }
    }
    for manager in &observed.managers {
        if manager.flag(&["SerialConsole", "ServiceEnabled"]) == Some(true) {
            ways.extend(manager.texts(&["SerialConsole", "ConnectTypesSupported"]));
        }
    }
    ways.sort();
    ways.dedup();
    if ways.is_empty() {
        not_offered("no console is switched on")
    } else {
        pass(ways.join(", "))
    }
}

pub(super) fn event_log(observed: &Observed) -> Verdict {
    if observed.logs.is_empty() {
        return not_offered("neither the system nor its manager has log services");
    }
    let names = || {
        let mut names: Vec<String> = observed.logs.iter().map(|(service, _)| service.id()).collect();
        names.sort();
        names.dedup();
        names.join(", ")
    };
    if observed.logs.iter().any(|(_, entries)| entries.resource().is_some()) {
        return pass(names());
    }
    let why = observed.logs.iter().find_map(|(_, entries)| match entries {
        Reading::Failed(why) => Some(why.clone()),
        _ => None,
    });
    match why {
        Some(why) => fail(why),
        None => not_offered(format!("no entries in {}", names())),
    }
}

pub(super) fn sensors(observed: &Observed) -> Verdict {
    // The same readings are often in both resources.
    let counted = |place: &str| -> usize {
        let here = observed.sensors.iter().filter(|(name, _)| name == place);
        let read = here.filter_map(|(_, reading)| reading.resource());
        read.map(|one| count(one, "Members") + count(one, "Temperatures") + count(one, "Fans"))
            .sum()
    };
    let (sensors, thermal) = (counted("Sensors"), counted("Thermal"));
    if sensors.max(thermal) > 0 {
        let place = if sensors >= thermal { "Sensors" } else { "Thermal" };
        return pass(format!("{} readings in {place}", sensors.max(thermal)));
    }
    let why = observed.sensors.iter().find_map(|(_, reading)| match reading {
        Reading::Failed(why) => Some(why.clone()),
        _ => None,
    });
    match why {
        Some(why) => fail(why),
        None => not_offered("no chassis has Sensors or Thermal with readings"),
    }
}
