//! Turns one resource of a BMC into an item of its state.

use std::net::IpAddr;

use rackwright_redfish_wire::address::last_segment;
use rackwright_redfish_wire::json;
use serde_json::{Map, Value, json};
use url::Url;

use super::{InBandSwitch, Remedy, StateItem, StatePart};
use crate::resource::Resource;
use crate::views::{Account, System, VirtualMedia};

pub(super) fn item(part: StatePart, name: String, detail: String, path: &str, remedy: Remedy) -> StateItem {
    StateItem {
        part,
        name,
        detail,
        path: path.to_owned(),
        user: String::new(),
        is_open: true,
        remedy,
    }
}

/// An account in use. A nameless slot counts only if it is enabled: a nameless user can log in by IPMI.
pub(super) fn account(resource: Resource) -> Option<StateItem> {
    let account = Account::from(resource);
    let user = account.user();
    if user.is_none() && account.resource().flag(&["Enabled"]) != Some(true) {
        return None;
    }
    let detail = account.role().unwrap_or_default();
    Some(StateItem {
        is_open: account.is_enabled(),
        ..item(
            StatePart::Accounts,
            user.unwrap_or_default(),
            detail,
            account.path(),
            Remedy::Account,
        )
    })
}

pub(super) fn directory(name: String, addresses: &[String], path: &str, write: Value) -> StateItem {
    let shown: Vec<String> = addresses.iter().take(4).map(|one| without_secrets(one)).collect();
    item(
        StatePart::Directories,
        name,
        shown.join(", "),
        path,
        Remedy::Write(write),
    )
}

/// A subscription that sends data to another host. A slot without a destination, a destination on the BMC itself, and a
/// stream, which ends with its session, do not count.
pub(super) fn subscription(resource: &Resource) -> Option<StateItem> {
    let kind = resource.text(&["SubscriptionType"]).unwrap_or_default();
    let destination = resource.text(&["Destination"])?;
    if kind == "SSE" || has_no_host(&destination) {
        return None;
    }
    let is_off = resource
        .text(&["Status", "State"])
        .is_some_and(|state| state == "Disabled");
    Some(StateItem {
        is_open: !is_off,
        ..item(
            StatePart::Subscriptions,
            without_secrets(&destination),
            resource.text(&["Protocol"]).unwrap_or_default(),
            resource.path(),
            Remedy::Delete,
        )
    })
}

/// Whether an enabled directory can admit a login: some are enabled by the factory, without an address.
pub(super) fn can_admit_logins(name: &str, provider: &Value) -> bool {
    let addresses = json::texts(provider, &["ServiceAddresses"]);
    let is_real = |address: &String| {
        let host = match address.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => address,
        };
        !host.trim().is_empty() && !has_no_host(host)
    };
    if addresses.iter().any(is_real) {
        return true;
    }
    match name {
        // OAuth2 needs a key or an issuer, and no address.
        "OAuth2" => {
            let has = |what| json::at(provider, &["OAuth2Service", what]).is_some_and(|value| *value != json!(""));
            has("Issuer") || has("OAuthServiceSigningKeys")
        }
        // Active Directory servers may be found by DNS.
        "ActiveDirectory" => true,
        _ => json::at(provider, &["ServiceAddresses"]).is_none(),
    }
}

fn has_no_host(destination: &str) -> bool {
    let host = Url::parse(destination)
        .ok()
        .and_then(|url| url.host_str().map(str::to_owned));
    let host = host.unwrap_or_else(|| destination.to_owned());
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    address.is_ok_and(|address| address.is_unspecified() || address.is_loopback())
}

pub(super) fn session(resource: &Resource) -> StateItem {
    let user = resource.text(&["UserName"]).unwrap_or_default();
    StateItem {
        user: user.clone(),
        ..item(
            StatePart::Sessions,
            last_segment(resource.path()).to_owned(),
            if user.is_empty() { user } else { format!("of {user}") },
            resource.path(),
            Remedy::Delete,
        )
    }
}

pub(super) fn medium(resource: Resource) -> Option<StateItem> {
    let slot = VirtualMedia::from(resource);
    let image = slot.image();
    if !slot.is_inserted() && image.is_none() {
        return None;
    }
    let detail = image.map(|image| without_secrets(&image)).unwrap_or_default();
    Some(item(StatePart::Media, slot.id(), detail, slot.path(), Remedy::Eject))
}

pub(super) fn host_interface(resource: &Resource) -> Option<StateItem> {
    if resource.flag(&["InterfaceEnabled"]) != Some(true) {
        return None;
    }
    let modes = resource.texts(&["AuthenticationModes"]).join(", ");
    let write = json!({"InterfaceEnabled": false});
    Some(item(
        StatePart::HostInterfaces,
        resource.id(),
        modes,
        resource.path(),
        Remedy::Write(write),
    ))
}

/// The path of the resource that holds the switch.
pub(super) fn switch_path(manager: &Resource, switch: &InBandSwitch) -> String {
    let manager = manager.path().trim_end_matches('/');
    match switch.resource.as_str() {
        "" => manager.to_owned(),
        below => format!("{manager}/{below}"),
    }
}

/// An item for a switch that is not closed.
pub(super) fn open_switch(switch: &InBandSwitch, names: &[&str], seen: &Value, path: &str) -> Option<StateItem> {
    if switch.closed.contains(seen) {
        return None;
    }
    let is_alike = |closed: &&Value| std::mem::discriminant(*closed) == std::mem::discriminant(seen);
    let closed = switch.closed.iter().find(is_alike).or(switch.closed.first())?;
    let remedy = Remedy::Write(nested(names, closed.clone()));
    let name = (*names.last()?).to_owned();
    Some(item(StatePart::Kcs, name, seen.to_string(), path, remedy))
}

pub(super) fn boot_override(system: &System) -> Vec<StateItem> {
    let boot = system.boot();
    let enabled = boot.enabled.unwrap_or_default();
    let target = boot.target.unwrap_or_default();
    if enabled.is_empty() || enabled == "Disabled" || target.is_empty() || target == "None" {
        return Vec::new();
    }
    vec![item(
        StatePart::BootOverride,
        target,
        enabled,
        system.path(),
        Remedy::ClearBoot,
    )]
}

/// An address without user, password and query, which may contain secrets.
pub(super) fn without_secrets(address: &str) -> String {
    match Url::parse(address) {
        Ok(url) if url.has_host() => {
            let host = url.host_str().unwrap_or_default();
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}://{host}{port}{}", url.scheme(), url.path())
        }
        // Not a URL: the text before an `@` may be a login.
        _ => address
            .rsplit('@')
            .next()
            .unwrap_or_default()
            .split('?')
            .next()
            .unwrap_or_default()
            .to_owned(),
    }
}

fn nested(names: &[&str], value: Value) -> Value {
    names.iter().rev().fold(value, |inner, name| {
        Value::Object(Map::from_iter([((*name).to_owned(), inner)]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_addresses_hold_no_secrets() {
        for (address, shown) in [
            ("https://user:pw@host:8443/path?token=x#y", "https://host:8443/path"),
            ("https://host/", "https://host/"),
            ("user:pw@10.0.0.1", "10.0.0.1"),
            ("10.0.0.1?community=x", "10.0.0.1"),
            ("//share/image.iso", "//share/image.iso"),
        ] {
            assert_eq!(without_secrets(address), shown);
        }
    }

    #[test]
    fn enabled_directories_without_an_address_are_none() {
        let addresses = |list: &[&str]| json!({"ServiceEnabled": true, "ServiceAddresses": list});
        for (name, provider, open) in [
            ("LDAP", addresses(&["0.0.0.0:389", ":389", ""]), false),
            ("LDAP", addresses(&["", "ldap.example:636"]), true),
            ("LDAP", addresses(&["ldaps://10.0.0.1"]), true),
            ("LDAP", json!({"ServiceEnabled": true}), true),
            ("ActiveDirectory", addresses(&[]), true),
            (
                "OAuth2",
                json!({"OAuth2Service": {"Issuer": "", "OAuthServiceSigningKeys": null}}),
                false,
            ),
            (
                "OAuth2",
                json!({"OAuth2Service": {"Issuer": "https://evil.example"}}),
                true,
            ),
            (
                "OAuth2",
                json!({"OAuth2Service": {"Issuer": "", "OAuthServiceSigningKeys": "k"}}),
                true,
            ),
        ] {
            assert_eq!(can_admit_logins(name, &provider), open, "{name} {provider}");
        }
    }

    #[test]
    fn slots_without_a_destination_are_no_subscriptions() {
        for (destination, nowhere) in [
            ("0.0.0.0", true),
            ("127.0.0.1", true),
            ("https://[::1]/x", true),
            ("https://0.0.0.0/", true),
            ("10.0.0.1", false),
            ("https://evil.example/", false),
        ] {
            assert_eq!(has_no_host(destination), nowhere, "{destination}");
        }
    }
}
