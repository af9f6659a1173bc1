//! Assesses boot overrides.

use super::assess::system_of;
use super::observe::Observed;
use super::{Capability, Verdict, not_offered, pass};
use crate::boot::{BootTarget, choose_target};
use crate::views::BootView;

/// The resource for overrides and its allowed values: the settings object if it holds overrides, otherwise the system.
fn place(observed: &Observed) -> Result<(String, BootView), Verdict> {
    let system = system_of(observed)?;
    let own = system.boot();
    let settings = observed
        .settings
        .resource()
        .map(|settings| (settings, BootView::read(settings)));
    match settings {
        Some((settings, view)) if view.holds_override => Ok((settings.path().to_owned(), view.completed_by(&own))),
        settings if own.holds_override => {
            let own = match settings {
                Some((_, view)) => own.completed_by(&view),
                None => own,
            };
            Ok((system.path().to_owned(), own))
        }
        _ => Err(not_offered("the system has no boot override")),
    }
}

pub(super) fn verdict(observed: &Observed, capability: Capability) -> Verdict {
    let (path, view) = match place(observed) {
        Ok(place) => place,
        Err(verdict) => return verdict,
    };
    let target = |target| match choose_target(target, &view.allowed_targets, &observed.profile) {
        Some(word) if view.allowed_targets.contains(&word) => pass(format!("{word} at {path}")),
        Some(word) if view.allowed_targets.is_empty() => pass(format!("{word}, although the BMC lists no targets")),
        Some(word) => pass(format!("{word}, although the BMC does not list it")),
        None => not_offered(format!("it lists {}", view.allowed_targets.join(", "))),
    };
    let enabled = |word: &str| {
        if view.allowed_enabled.is_empty() {
            pass(format!("{word}, although the BMC lists no values"))
        } else if view.allowed_enabled.iter().any(|one| one.eq_ignore_ascii_case(word)) {
            pass(word)
        } else {
            not_offered(format!("it lists {}", view.allowed_enabled.join(", ")))
        }
    };
    match capability {
        Capability::BootPxe => target(BootTarget::Pxe),
        Capability::BootHttp => target(BootTarget::UefiHttp),
        Capability::BootDisk => target(BootTarget::Disk),
        Capability::BootCd => target(BootTarget::Cd),
        Capability::BootOnce => enabled("Once"),
        Capability::BootContinuous => enabled("Continuous"),
        Capability::BootHttpUri if view.knows_http_boot_uri => pass("HttpBootUri"),
        Capability::BootHttpUri => not_offered("there is no HttpBootUri: the URI comes by DHCP"),
        _ if !view.allowed_modes.is_empty() => pass(view.allowed_modes.join(", ")),
        _ => match &view.mode {
            Some(mode) => pass(format!("{mode} now, although the BMC lists no modes")),
            None => not_offered("there is no BootSourceOverrideMode"),
        },
    }
}
