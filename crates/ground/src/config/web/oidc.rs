//! Settings of logins by an OpenID Connect provider: the provider, and the table from its groups to roles.

use std::path::PathBuf;

use rackwright_lifecycle::CustomerId;
use rackwright_store::MemberRow;
use serde::Deserialize;
use url::{Host, Url};

const SITE_ROLES: &[&str] = &["operator", "viewer", "auditor"];
const CUSTOMER_ROLES: &[&str] = &["customer-admin", "customer-user"];
/// The scope that requests the identity of the person.
const OPENID: &str = "openid";
/// Longest text of the button, in characters.
const NAME_MAX: usize = 40;

/// The `web.oidc` section of the settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The URL that names the provider in its tokens (`iss`).
    pub issuer: String,
    /// The id under which the control plane is registered at the provider.
    pub client_id: String,
    /// File with the control plane's secret at the provider. `None`: a public client, which only PKCE protects.
    pub client_secret_file: Option<PathBuf>,
    /// The provider's name on the login page.
    #[serde(default = "name")]
    pub name: String,
    /// The scopes of a login request.
    #[serde(default = "scopes")]
    pub scopes: Vec<String>,
    /// The claim with the name of a new member.
    #[serde(default = "member_claim")]
    pub member_claim: String,
    /// The claim with the groups of the person.
    #[serde(default = "groups_claim")]
    pub groups_claim: String,
    /// Table from groups to roles. The first row with a group of the person gives the role and the customer.
    #[serde(default)]
    pub members: Vec<Row>,
    /// PEM file with the authorities of the provider's certificate. `None`: those that this host trusts.
    pub ca_file: Option<PathBuf>,
    /// Whether `rackwright login --oidc` gives certificates to members of the provider.
    #[serde(default)]
    pub device_login: bool,
}

/// A row of the table: the role of the people in a group.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The name of the group, as the provider writes it.
    pub group: String,
    /// `operator`, `viewer`, `auditor`, `customer-admin` or `customer-user`.
    pub role: String,
    /// The customer, for the roles of customers.
    #[serde(default)]
    pub customer: String,
}

fn name() -> String {
    "your organisation".to_owned()
}

fn scopes() -> Vec<String> {
    [OPENID, "profile", "email", "groups"].map(str::to_owned).into()
}

fn member_claim() -> String {
    "preferred_username".to_owned()
}

fn groups_claim() -> String {
    "groups".to_owned()
}

impl Settings {
    /// Adds one line to `faults` for each invalid setting.
    pub fn check(&self, faults: &mut Vec<String>) {
        let mut fault = |field: &str, text: String| faults.push(format!("web.oidc.{field}: {text}"));
        if let Err(why) = check_issuer(&self.issuer) {
            fault("issuer", format!("{:?} {why}", self.issuer));
        }
        for (field, text) in [
            ("client_id", &self.client_id),
            ("member_claim", &self.member_claim),
            ("groups_claim", &self.groups_claim),
        ] {
            if text.trim().is_empty() {
                fault(field, "must be set".into());
            }
        }
        for (field, file) in [
            ("client_secret_file", &self.client_secret_file),
            ("ca_file", &self.ca_file),
        ] {
            if let Some(path) = file.as_ref().filter(|path| !path.is_file()) {
                fault(field, format!("{} is not a file", path.display()));
            }
        }
        let length = self.name.trim().chars().count();
        if !(1..=NAME_MAX).contains(&length) || self.name.chars().any(char::is_control) {
            fault("name", format!("must be 1 to {NAME_MAX} characters"));
        }
        if !self.scopes.iter().any(|scope| scope == OPENID) {
            fault("scopes", format!("must contain {OPENID}"));
        }
        if self.scopes.iter().any(|scope| !is_scope(scope)) {
            fault("scopes", "a scope is a word without spaces and quotes".into());
        }
        if self.members.is_empty() {
            fault("members", "without a row, no member can log in".into());
        }
        for (number, row) in self.members.iter().enumerate() {
            for (field, text) in row.faults() {
                fault(&format!("members[{number}].{field}"), text);
            }
            let earlier = self.members.iter().take(number);
            if let Some(first) = earlier.clone().position(|earlier| earlier.group == row.group) {
                let text = format!(
                    "{:?} is in members[{first}] already, and the first row decides",
                    row.group
                );
                fault(&format!("members[{number}].group"), text);
            }
        }
    }

    /// The rights of a person with these groups: the first row of the table that fits. `None`: no row fits.
    #[must_use]
    pub fn rights(&self, groups: &[String]) -> Option<MemberRow> {
        let row = self.members.iter().find(|row| groups.contains(&row.group))?;
        Some(MemberRow {
            role: row.role.clone(),
            customer: CustomerId::named(&row.customer),
        })
    }
}

impl Row {
    fn faults(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.group.is_empty() {
            faults.push(("group", "must be set".to_owned()));
        }
        let is_customers = CUSTOMER_ROLES.contains(&self.role.as_str());
        if !is_customers && !SITE_ROLES.contains(&self.role.as_str()) {
            let roles = [SITE_ROLES, CUSTOMER_ROLES].concat().join(", ");
            faults.push(("role", format!("{:?} is not one of {roles}", self.role)));
        } else if is_customers && self.customer.is_empty() {
            faults.push((
                "customer",
                format!("must be set: {} is a role of a customer", self.role),
            ));
        } else if !is_customers && !self.customer.is_empty() {
            let text = format!("must not be set: {} is a role of the site", self.role);
            faults.push(("customer", text));
        }
        faults
    }
}

fn is_scope(scope: &str) -> bool {
    !scope.is_empty() && scope.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\')
}

fn check_issuer(issuer: &str) -> Result<(), &'static str> {
    let url = Url::parse(issuer).map_err(|_| "is not a URL")?;
    let is_local = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    match url.scheme() {
        "https" => {}
        "http" if is_local => {}
        _ => return Err("must begin with https://; http:// is only for a provider on this host"),
    }
    if url.query().is_some() || url.fragment().is_some() || !url.username().is_empty() || url.password().is_some() {
        return Err("must have no user, query or fragment");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, ConfigError};

    const ROW: &str = "members: [{group: ops, role: operator}]";

    fn parsed(oidc: &str) -> Result<Settings, Vec<String>> {
        let text = format!("data_dir: /srv/rackwright\nweb: {{oidc: {{{oidc}}}}}\n");
        match Config::parse(&text, Path::new("test.yaml")) {
            Ok(config) => Ok(config.web.and_then(|web| web.oidc).expect("settings")),
            Err(ConfigError::Faults { faults, .. }) => Err(faults),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_short_section_has_the_usual_values() {
        let oidc = parsed(&format!(
            "issuer: 'https://login.example/realms/lab', client_id: rackwright, {ROW}"
        ))
        .unwrap();
        assert_eq!(oidc.scopes, ["openid", "profile", "email", "groups"]);
        assert_eq!(
            (oidc.member_claim.as_str(), oidc.groups_claim.as_str()),
            ("preferred_username", "groups")
        );
        assert_eq!((oidc.client_secret_file, oidc.ca_file), (None, None));
        assert!(!oidc.device_login, "only if the settings say so");
    }

    #[test]
    fn each_wrong_value_is_a_fault_with_its_field() {
        let good = "issuer: 'https://login.example', client_id: rackwright";
        for (yaml, fault) in [
            (
                format!("{good}, members: []"),
                "web.oidc.members: without a row, no member can log in",
            ),
            (
                format!("{good}, {ROW}, scopes: [profile]"),
                "web.oidc.scopes: must contain openid",
            ),
            (
                format!("{good}, {ROW}, scopes: [openid, 'a b']"),
                "web.oidc.scopes: a scope is a word without spaces and quotes",
            ),
            (
                format!("{good}, {ROW}, name: ''"),
                "web.oidc.name: must be 1 to 40 characters",
            ),
            (
                format!("{good}, {ROW}, member_claim: ''"),
                "web.oidc.member_claim: must be set",
            ),
            (
                format!("{good}, {ROW}, ca_file: /no/such"),
                "web.oidc.ca_file: /no/such is not a file",
            ),
            (
                format!("{good}, {ROW}, client_secret_file: /no/such"),
                "web.oidc.client_secret_file: /no/such is not a file",
            ),
            (
                format!("{good}, members: [{{group: a, role: root}}]"),
                "web.oidc.members[0].role: \"root\" is not one of operator, viewer, auditor, customer-admin, customer-user",
            ),
            (
                format!("{good}, members: [{{group: a, role: viewer}}, {{group: '', role: viewer}}]"),
                "web.oidc.members[1].group: must be set",
            ),
            (
                format!("{good}, members: [{{group: a, role: customer-user}}]"),
                "web.oidc.members[0].customer: must be set: customer-user is a role of a customer",
            ),
            (
                format!("{good}, members: [{{group: a, role: viewer, customer: acme}}]"),
                "web.oidc.members[0].customer: must not be set: viewer is a role of the site",
            ),
            (
                format!("{good}, members: [{{group: a, role: viewer}}, {{group: a, role: operator}}]"),
                "web.oidc.members[1].group: \"a\" is in members[0] already, and the first row decides",
            ),
        ] {
            assert_eq!(parsed(&yaml).unwrap_err(), [fault], "{yaml}");
        }
    }

    #[test]
    fn a_provider_has_an_https_address_or_is_on_this_host() {
        let check = |issuer: &str| parsed(&format!("issuer: '{issuer}', client_id: rackwright, {ROW}"));
        for issuer in [
            "https://login.example",
            "https://login.example:8443/realms/a",
            "http://127.0.0.1:9000",
            "http://[::1]:9000",
            "http://localhost:9000",
        ] {
            assert!(check(issuer).is_ok(), "{issuer}");
        }
        for issuer in [
            "http://login.example",
            "http://127.0.0.1.example",
            "http://10.0.0.1",
            "ftp://login.example",
            "login.example",
            "https://a@login.example",
            "https://login.example?a=b",
            "https://login.example#a",
        ] {
            let faults = check(issuer).unwrap_err();
            assert!(
                faults.len() == 1 && faults[0].starts_with("web.oidc.issuer: "),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn the_first_row_with_a_group_of_the_person_decides() {
        let table = "members: [{group: night, role: viewer}, {group: ops, role: operator}, \
                     {group: acme, role: customer-admin, customer: acme}]";
        let oidc = parsed(&format!(
            "issuer: 'https://login.example', client_id: rackwright, {table}"
        ))
        .unwrap();
        let rights = |groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            oidc.rights(&groups).map(|row| (row.role, row.customer.to_string()))
        };
        let row = |role: &str, customer: &str| Some((role.to_owned(), customer.to_owned()));
        assert_eq!(rights(&["ops"]), row("operator", ""));
        assert_eq!(
            rights(&["ops", "night"]),
            row("viewer", ""),
            "the order of the table, not of the groups"
        );
        assert_eq!(rights(&["acme", "guests"]), row("customer-admin", "acme"));
        assert_eq!(rights(&["OPS", "ops "]), None, "groups are compared as they are");
        assert_eq!(rights(&[]), None);
    }
}
