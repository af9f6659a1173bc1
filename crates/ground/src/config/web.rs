//! Settings of the web console: its listener, its certificate, and how long a login lasts.

pub mod oidc;

use std::net::SocketAddr;
use std::path::PathBuf;

use rackwright_lifecycle::{Timestamp, minutes};
use serde::Deserialize;

/// Longest login in a browser, in hours: a week.
const SESSION_HOURS_MAX: u32 = 168;

/// The `web` section of the settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where the web console listens.
    pub listen: SocketAddr,
    /// PEM file with the certificate of the web console and its chain. `None`: the site's authority issues one.
    pub certificate: Option<PathBuf>,
    /// PEM file with the key of `certificate`.
    pub key: Option<PathBuf>,
    /// The address that browsers use, such as `https://rack.example`. `None`: the first name of `api.names` and the port of
    /// `listen`.
    pub public_url: Option<String>,
    /// A login in a browser ends after this time, in hours.
    pub session_hours: u32,
    /// A login in a browser ends after this time without a call, in minutes.
    pub idle_minutes: u32,
    /// Logins by an OpenID Connect provider. `None`: members log in only with a token of `rackwright console open`.
    pub oidc: Option<oidc::Settings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 7080)),
            certificate: None,
            key: None,
            public_url: None,
            session_hours: 12,
            idle_minutes: 60,
            oidc: None,
        }
    }
}

impl Settings {
    /// Adds one line to `faults` for each invalid setting.
    pub fn check(&self, faults: &mut Vec<String>) {
        match (&self.certificate, &self.key) {
            (Some(_), None) => faults.push("web.key: must be set, because web.certificate is set".into()),
            (None, Some(_)) => faults.push("web.certificate: must be set, because web.key is set".into()),
            _ => {}
        }
        if let Some(url) = &self.public_url {
            let host = url.strip_prefix("https://").unwrap_or_default();
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.:[]".contains(c);
            if host.is_empty() || !host.chars().all(is_plain) {
                faults.push(format!(
                    "web.public_url: {url:?} is not https://NAME or https://NAME:PORT, without a path"
                ));
            }
        }
        if !(1..=SESSION_HOURS_MAX).contains(&self.session_hours) {
            faults.push(format!("web.session_hours: 1 to {SESSION_HOURS_MAX}"));
        }
        if !(1..=self.session_hours.saturating_mul(60)).contains(&self.idle_minutes) {
            faults.push("web.idle_minutes: at least 1, and at most web.session_hours".into());
        }
        if let Some(oidc) = &self.oidc {
            oidc.check(faults);
        }
    }

    /// The address that browsers use; `names` are those of the server.
    #[must_use]
    pub fn url(&self, names: &[String]) -> String {
        self.public_url.clone().unwrap_or_else(|| {
            let name = names.first().map_or("localhost", String::as_str);
            let port = self.listen.port();
            match name.contains(':') {
                true => format!("https://[{name}]:{port}"),
                false => format!("https://{name}:{port}"),
            }
        })
    }

    /// Sessions of browsers without a call since this moment have ended.
    #[must_use]
    pub fn idle_since(&self, now: Timestamp) -> Timestamp {
        now.plus(-minutes(i64::from(self.idle_minutes)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Config, ConfigError};

    /// The faults of the block `web` in a file of settings.
    fn faults(web: &str) -> Vec<String> {
        let text = format!("data_dir: /srv/rackwright\nweb: {web}\n");
        match Config::parse(&text, Path::new("test.yaml")) {
            Ok(_) => Vec::new(),
            Err(ConfigError::Faults { faults, .. }) => faults,
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn each_wrong_value_is_a_fault_with_its_field() {
        assert_eq!(faults("{}"), Vec::<String>::new());
        for (yaml, fault) in [
            (
                "{certificate: /etc/c.pem}",
                "web.key: must be set, because web.certificate is set",
            ),
            (
                "{key: /etc/k.pem}",
                "web.certificate: must be set, because web.key is set",
            ),
            ("{session_hours: 0}", "web.session_hours: 1 to 168"),
            ("{session_hours: 169}", "web.session_hours: 1 to 168"),
            (
                "{session_hours: 1, idle_minutes: 61}",
                "web.idle_minutes: at least 1, and at most web.session_hours",
            ),
        ] {
            assert!(faults(yaml).contains(&fault.to_owned()), "{yaml}: {:?}", faults(yaml));
        }
        for url in [
            "http://a.example",
            "https://",
            "https://a.example/",
            "https://a b",
            "a.example",
        ] {
            let found = faults(&format!("{{public_url: {url:?}}}"));
            assert_eq!(found.len(), 1, "{url}: {found:?}");
        }
        for url in [
            "https://a.example",
            "https://a.example:8443",
            "https://[2001:db8::1]:8443",
        ] {
            assert_eq!(
                faults(&format!("{{public_url: {url:?}}}")),
                Vec::<String>::new(),
                "{url}"
            );
        }
    }

    #[test]
    fn the_address_is_the_public_one_or_the_first_name_with_the_port() {
        let settings = Settings::default();
        assert_eq!(settings.url(&["rack.example".into()]), "https://rack.example:7080");
        assert_eq!(settings.url(&["::1".into()]), "https://[::1]:7080");
        let settings = Settings {
            public_url: Some("https://console.example".into()),
            ..settings
        };
        assert_eq!(settings.url(&["rack.example".into()]), "https://console.example");
    }
}
