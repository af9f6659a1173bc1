//! Assesses the observed resources. Pure functions.

use super::observe::{Observed, Reading};
use super::{Capability, Detected, Finding, Outcome, Report, Verdict, boot, fail, not_offered, pass, services};
use crate::power::{PowerGoal, choose};
use crate::quirks::Equipment;
use crate::views::{Action, ActionInfo, Manager, ServiceRoot, System};

/// Assesses every capability by the observed resources.
pub fn assess(observed: &Observed) -> Report {
    let judge = |capability: &Capability| {
        let (outcome, detail) = verdict(observed, *capability);
        Finding {
            capability: *capability,
            outcome,
            detail,
            note: observed.profile.notes.get(capability).cloned(),
        }
    };
    let mut report = Report {
        detected: detected(observed),
        profiles: observed.profile.names.clone(),
        findings: Capability::ALL.iter().map(judge).collect(),
        missing_for_deploy: Vec::new(),
    };
    report.missing_for_deploy = missing(&report);
    report
}

fn detected(observed: &Observed) -> Detected {
    let root = ServiceRoot::from(observed.root.clone());
    let system = observed.system.resource().cloned().map(System::from);
    let manager = observed.managers.first().cloned().map(Manager::from);
    let of = |read: fn(&System) -> Option<String>| system.as_ref().and_then(read);
    Detected {
        vendor: root.vendor().or_else(|| root.oem_names().into_iter().next()),
        product: root.product().or_else(|| root.name()),
        redfish_version: root.redfish_version(),
        equipment: observed.profile.equipment,
        manufacturer: of(System::manufacturer),
        model: of(System::model),
        system: system.as_ref().map(|system| system.path().to_owned()),
        bmc_model: manager.as_ref().and_then(Manager::model),
        bmc_firmware: manager.as_ref().and_then(Manager::firmware_version),
        bios_version: of(System::bios_version),
    }
}

fn verdict(observed: &Observed, capability: Capability) -> Verdict {
    use Capability as C;
    match capability {
        C::PowerOn => power(observed, PowerGoal::On),
        C::PowerOff => power(observed, PowerGoal::Off),
        C::PowerGracefulOff => power(observed, PowerGoal::GracefulOff),
        C::PowerRestart => power(observed, PowerGoal::Restart),
        C::AcCycle => ac_cycle(observed),
        C::BootPxe
        | C::BootHttp
        | C::BootHttpUri
        | C::BootDisk
        | C::BootCd
        | C::BootOnce
        | C::BootContinuous
        | C::BootMode => boot::verdict(observed, capability),
        C::MediaCd | C::MediaUsb => services::media(observed, capability),
        C::Bios => services::bios(observed),
        C::SecureBoot => services::secure_boot(observed),
        C::Accounts => services::accounts(observed),
        C::Sessions => services::sessions(observed),
        C::Sse => services::events(observed),
        C::UpdateMultipart | C::UpdatePush | C::UpdateSimple => services::update(observed, capability),
        C::Console => services::console(observed),
        C::EventLog => services::event_log(observed),
        C::Sensors => services::sensors(observed),
        C::Macs => match &observed.macs {
            Ok(0) => not_offered("no interface, no adapter and no boot option has an Ethernet address"),
            Ok(count) => pass(format!("{count} known")),
            Err(why) => fail(why),
        },
    }
}

/// The machine's system, or the verdict for all capabilities that need it.
pub(super) fn system_of(observed: &Observed) -> Result<System, Verdict> {
    match &observed.system {
        Reading::Read(system) => Ok(system.clone().into()),
        Reading::Absent => Err(not_offered("the BMC lists no system")),
        Reading::Failed(why) => Err(fail(why)),
    }
}

fn power(observed: &Observed, goal: PowerGoal) -> Verdict {
    let system = match system_of(observed) {
        Ok(system) => system,
        Err(verdict) => return verdict,
    };
    let Some(action) = system.reset() else {
        return not_offered("the system has no reset action");
    };
    let mut allowed = action.allowable("ResetType");
    if allowed.is_empty() {
        match &observed.reset_info {
            Reading::Read(info) => allowed = ActionInfo::from(info.clone()).allowable("ResetType"),
            // Without a list all types are assumed, as the standard states.
            Reading::Absent | Reading::Failed(_) => {}
        }
    }
    let avoided = &observed.profile.avoided_reset_types;
    let listed = (!allowed.is_empty()).then_some(allowed.as_slice());
    match choose(goal, listed, avoided).first() {
        Some(first) if listed.is_some() => pass(first),
        Some(first) => pass(format!("{first}, although the BMC lists no types")),
        None => not_offered(format!("it lists {}", allowed.join(", "))),
    }
}

fn ac_cycle(observed: &Observed) -> Verdict {
    let places = observed
        .system
        .resource()
        .into_iter()
        .chain(&observed.managers)
        .chain(&observed.chassis);
    for place in places {
        for wanted in &observed.profile.ac_cycle_actions {
            let Some(action) = Action::find(place, &wanted.action) else {
                continue;
            };
            let allowed = action.allowable("ResetType");
            if allowed.is_empty() || allowed.iter().any(|one| one.eq_ignore_ascii_case(&wanted.reset_type)) {
                return pass(format!("{} with {}", wanted.action, wanted.reset_type));
            }
        }
        let full = Action::find(place, "Chassis.Reset").map(|action| action.allowable("ResetType"));
        if full.is_some_and(|types| types.iter().any(|one| one == "FullPowerCycle")) {
            return pass("Chassis.Reset with FullPowerCycle");
        }
    }
    not_offered("no action that the profiles know, and no FullPowerCycle")
}

/// The capabilities that a network deployment needs and this BMC lacks.
fn missing(report: &Report) -> Vec<String> {
    match report.detected.equipment {
        Equipment::Machine => {}
        Equipment::Switch => return vec!["this is a switch, not a machine".to_owned()],
        Equipment::PowerShelf => return vec!["this is a power shelf, not a machine".to_owned()],
    }
    let lacks = |capability: Capability| {
        let finding = report.finding(capability)?;
        (finding.outcome != Outcome::Pass).then(|| format!("{capability}: {}, {}", finding.outcome, finding.detail))
    };
    let mut missing: Vec<String> = [Capability::PowerOn, Capability::PowerOff, Capability::BootOnce]
        .into_iter()
        .filter_map(lacks)
        .collect();
    let network = [Capability::BootPxe, Capability::BootHttp];
    if !network.into_iter().any(|one| report.passes(one)) {
        missing.extend(network.into_iter().filter_map(lacks));
    }
    missing.extend(lacks(Capability::Macs));
    missing
}
