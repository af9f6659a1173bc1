//! The configuration file: as written, then checked. Every fault is reported at once, and an unknown field is a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rackwright_lifecycle::{Limits, Policy};
use rackwright_netboot::{ConfigFaults, NetbootConfig};
use rackwright_store::Database;
use serde::Deserialize;

use crate::clusters::manager;
use crate::{telemetry, watch_power};

/// Replicas that agents are told of: the list stands on their kernel's command line.
const ENDPOINTS_MAX: usize = 8;

/// The database's file in the data folder.
const DATABASE: &str = "rackwright.db";

/// As written. Not to be shown: the database's URL may hold a password.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    data_dir: PathBuf,
    #[serde(default)]
    shared_dir: Option<PathBuf>,
    #[serde(default)]
    database: Option<String>,
    #[serde(default)]
    database_password_file: Option<PathBuf>,
    #[serde(default = "default_site")]
    site: String,
    #[serde(default)]
    api: WireApi,
    #[serde(default)]
    store: WireStore,
    #[serde(default)]
    boot: Option<WireBoot>,
    #[serde(default)]
    images: Images,
    #[serde(default)]
    policy: Policy,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    profiles: BTreeMap<String, PathBuf>,
    #[serde(default = "default_ssh_port")]
    ssh_port: u16,
    #[serde(default)]
    telemetry: Option<telemetry::Settings>,
    #[serde(default)]
    power_watch: watch_power::Settings,
    #[serde(default)]
    fabric: Option<manager::Settings>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WireApi {
    listen: SocketAddr,
    names: Vec<String>,
    endpoints: Vec<String>,
}

impl Default for WireApi {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 7070)),
            names: vec!["localhost".into(), "127.0.0.1".into()],
            endpoints: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WireStore {
    listen: SocketAddr,
    urls: Vec<String>,
    caches: Vec<String>,
}

impl Default for WireStore {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 7443)),
            urls: Vec::new(),
            caches: Vec::new(),
        }
    }
}

/// How images are taken in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Images {
    /// minisign public keys (the base64 line) whose signatures count.
    pub trusted_keys: Vec<String>,
    /// Refuse images without a signature by one of them.
    pub require_signature: bool,
}

/// How machines are told to boot over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootMethod {
    /// PXE.
    #[default]
    Pxe,
    /// UEFI HTTP Boot.
    UefiHttp,
}

/// The ramdisk that machines are booted into.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ramdisk {
    /// Its kernel.
    pub kernel: PathBuf,
    /// The initial ramdisk with the agent.
    pub initrd: PathBuf,
    /// Added to the kernel's command line, such as `console=ttyS1,115200`.
    #[serde(default)]
    pub arguments: String,
}

/// As written: boot services and what they hand out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireBoot {
    #[serde(default)]
    method: BootMethod,
    ramdisk: Ramdisk,
    network: NetbootConfig,
}

/// Boot services, checked.
#[derive(Debug, Clone)]
pub struct Boot {
    /// How machines are told to boot.
    pub method: BootMethod,
    /// What they are booted into.
    pub ramdisk: Ramdisk,
    /// DHCP, TFTP and boot HTTP.
    pub network: NetbootConfig,
}

/// Checked settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where keys and, if nothing else is said, images and the database are kept.
    pub data_dir: PathBuf,
    /// Where images and uploads are kept, which replicas share.
    pub shared_dir: PathBuf,
    /// The database.
    pub database: Database,
    /// The site's name.
    pub site: String,
    /// Where the API listens.
    pub api_listen: SocketAddr,
    /// Names and addresses the server is known by; the first is told to agents.
    pub names: Vec<String>,
    /// URLs of every replica's API, as agents are told them; this one's first.
    pub endpoints: Vec<String>,
    /// Where the image store listens.
    pub store_listen: SocketAddr,
    /// URLs agents fetch images from, in order.
    pub store_urls: Vec<String>,
    /// Members that may fetch every image: caching proxies.
    pub store_caches: BTreeSet<String>,
    /// Boot services; none: this process offers none.
    pub boot: Option<Boot>,
    /// Images.
    pub images: Images,
    /// Time limits and budgets.
    pub policy: Policy,
    /// How many machines may do at once what burdens what they share.
    pub limits: Limits,
    /// Validation profiles by SKU.
    pub profiles: BTreeMap<String, PathBuf>,
    /// Where installed systems are logged in to.
    pub ssh_port: u16,
    /// Where traces go; none: nowhere.
    pub telemetry: Option<telemetry::Settings>,
    /// How often nodes at rest are looked at.
    pub power_watch: watch_power::Settings,
    /// Who manages the InfiniBand fabric; none: clusters get no partitions.
    pub fabric: Option<manager::Settings>,
}

/// Why a configuration is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not what it should be; names line and field.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        message: String,
    },
    /// Its values do not fit together; every fault, a line each.
    #[error("{}:\n  {}", path.display(), faults.join("\n  "))]
    Faults {
        /// The file.
        path: PathBuf,
        /// `field: what is wrong`.
        faults: Vec<String>,
    },
}

fn default_site() -> String {
    "rackwright".into()
}

/// IANA's port for SSH.
fn default_ssh_port() -> u16 {
    22
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// It cannot be read, is not YAML of this form, or its values do not fit together.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        // The lines around a fault are not shown where one of them may hold the database's or the collector's password.
        let holds_secrets = text.contains("postgres") || text.contains("headers");
        let options = serde_saphyr::options! { with_snippet: !holds_secrets };
        let wire: Wire = serde_saphyr::from_str_with_options(text, options).map_err(|e| ConfigError::Syntax {
            path: path.to_owned(),
            message: e.to_string(),
        })?;
        let mut faults = Vec::new();
        let config = wire.check(&mut faults);
        if faults.is_empty() {
            Ok(config)
        } else {
            Err(ConfigError::Faults {
                path: path.to_owned(),
                faults,
            })
        }
    }
}

impl Wire {
    fn check(self, faults: &mut Vec<String>) -> Config {
        if !self.data_dir.is_absolute() {
            faults.push("data_dir: must be an absolute path".into());
        }
        if self.shared_dir.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            faults.push("shared_dir: must be an absolute path".into());
        }
        let database = match &self.database {
            Some(text) => Database::parse(text, self.database_password_file),
            None if self.database_password_file.is_some() => Err("is needed: there is a database_password_file".into()),
            None => Ok(Database::from(&self.data_dir.join(DATABASE))),
        };
        let database = database.unwrap_or_else(|fault| {
            faults.push(format!("database: {fault}"));
            Database::from(DATABASE)
        });
        if self.api.names.is_empty() {
            faults.push("api.names: at least one name or address by which clients reach this server".into());
        }
        let first = self.api.names.first().cloned().unwrap_or_default();
        let endpoints = self.api.endpoints(faults);
        let mut urls = self.store.urls;
        if urls.is_empty() {
            urls.push(format!("https://{first}:{}/store/v1", self.store.listen.port()));
        }
        for url in &urls {
            if !url.starts_with("https://") && !url.starts_with("http://") {
                faults.push(format!("store.urls: {url:?} is neither http:// nor https://"));
            }
        }
        if self.images.require_signature && self.images.trusted_keys.is_empty() {
            faults.push("images.require_signature: no image could ever be added without images.trusted_keys".into());
        }
        for (field, value) in [("policy.tries", self.policy.tries), ("policy.boots", self.policy.boots)] {
            if value == 0 {
                faults.push(format!("{field}: must be at least 1"));
            }
        }
        faults.extend(self.limits.faults());
        if self.ssh_port == 0 {
            faults.push("ssh_port: must be the port of the installed systems' SSH servers; leave it out for 22".into());
        }
        if let Some(telemetry) = &self.telemetry {
            telemetry.check(faults);
        }
        self.power_watch.check(faults);
        if let Some(fabric) = &self.fabric {
            fabric.check(faults);
        }
        Config {
            shared_dir: self.shared_dir.unwrap_or_else(|| self.data_dir.clone()),
            data_dir: self.data_dir,
            database,
            site: self.site,
            api_listen: self.api.listen,
            names: self.api.names,
            endpoints,
            store_listen: self.store.listen,
            store_urls: urls,
            store_caches: self.store.caches.into_iter().collect(),
            boot: self.boot.map(|b| b.check(faults)),
            images: self.images,
            policy: self.policy,
            limits: self.limits,
            profiles: self.profiles,
            ssh_port: self.ssh_port,
            telemetry: self.telemetry,
            power_watch: self.power_watch,
            fabric: self.fabric,
        }
    }
}

impl WireApi {
    /// This replica's own URL, then the others as they are listed.
    fn endpoints(&self, faults: &mut Vec<String>) -> Vec<String> {
        let first = self.names.first().map_or("", String::as_str);
        let own = format!("https://{first}:{}", self.listen.port());
        if self.endpoints.is_empty() {
            return vec![own];
        }
        if self.endpoints.len() > ENDPOINTS_MAX {
            faults.push(format!("api.endpoints: at most {ENDPOINTS_MAX}"));
        }
        for endpoint in &self.endpoints {
            let address = endpoint.strip_prefix("https://").map(str::parse::<SocketAddr>);
            if !matches!(address, Some(Ok(_))) {
                faults.push(format!(
                    "api.endpoints: {endpoint:?} is not https://ADDRESS:PORT; agents resolve no names"
                ));
            }
        }
        if !self.endpoints.contains(&own) {
            faults.push(format!(
                "api.endpoints: this replica is missing: {own}, of api.listen and the first of api.names"
            ));
        }
        let others = self.endpoints.iter().filter(|endpoint| **endpoint != own).cloned();
        std::iter::once(own.clone()).chain(others).collect()
    }
}

impl WireBoot {
    fn check(self, faults: &mut Vec<String>) -> Boot {
        for (field, path) in [("kernel", &self.ramdisk.kernel), ("initrd", &self.ramdisk.initrd)] {
            if !path.is_file() {
                faults.push(format!(
                    "boot.ramdisk.{field}: {} is not a file; `make ramdisk` builds it",
                    path.display()
                ));
            }
        }
        if self.ramdisk.arguments.chars().any(char::is_control) {
            faults.push("boot.ramdisk.arguments: control characters are not allowed".into());
        }
        if let Err(ConfigFaults(more)) = self.network.clone().check() {
            faults.extend(more.into_iter().map(|fault| format!("boot.network.{fault}")));
        }
        Boot {
            method: self.method,
            ramdisk: self.ramdisk,
            network: self.network,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        match Config::parse(text, Path::new("test.yaml")) {
            Err(ConfigError::Faults { faults, .. }) => faults,
            Err(other) => vec![other.to_string()],
            Ok(_) => Vec::new(),
        }
    }

    #[test]
    fn every_fault_is_reported_at_once() {
        let text = "data_dir: var\nimages: {require_signature: true}\nboot:\n  ramdisk: {kernel: /no/such, initrd: /no/such}\n  \
                    network:\n    server_ip: 0.0.0.0\n    dhcp: off\n    first_stages: {}\n";
        let faults = faults(text);
        for word in [
            "data_dir",
            "trusted_keys",
            "server_ip",
            "ramdisk.kernel",
            "ramdisk.initrd",
        ] {
            assert!(faults.iter().any(|f| f.contains(word)), "{word} not in {faults:?}");
        }
    }

    #[test]
    fn an_unknown_field_names_its_line() {
        let faults = faults("data_dir: /x\nboot_interface: br0\n");
        assert!(
            faults[0].contains("boot_interface") && faults[0].contains('2'),
            "{faults:?}"
        );
    }

    #[test]
    fn a_fault_in_each_part_is_reported_with_its_field_and_a_line_each() {
        let text = "data_dir: var\napi: {names: []}\nstore: {urls: [\"https://a/store\", \"ftp://b\", \"c\"]}\n\
                    images: {require_signature: true}\npolicy: {tries: 0, boots: 0}\n\
                    limits: {power_on: {per_rack: 0}, image: {per_node_mb_s: 100}}\nssh_port: 0\n\
                    power_watch: {interval_s: 0, recheck_s: 9, streamed_s: 100000, streams: 99999, at_once: 0}\nboot:\n  \
                    ramdisk: {kernel: /no/such, initrd: /no/such, arguments: \"quiet\\nsplash\"}\n  \
                    network:\n    server_ip: 0.0.0.0\n    dhcp: off\n    first_stages: {}\n";
        let found = faults(text);
        let fields: Vec<_> = found.iter().filter_map(|f| f.split(':').next()).collect();
        let own = [
            "data_dir",
            "api.names",
            "store.urls",
            "store.urls",
            "images.require_signature",
            "policy.tries",
            "policy.boots",
            "limits.power_on.per_rack",
            "limits.image.per_node_mb_s",
            "ssh_port",
            "power_watch.interval_s",
            "power_watch.streamed_s",
            "power_watch.recheck_s",
            "power_watch.streams",
            "power_watch.at_once",
            "boot.ramdisk.kernel",
            "boot.ramdisk.initrd",
            "boot.ramdisk.arguments",
        ];
        assert_eq!(fields[..own.len()], own, "{found:?}");
        let network = &fields[own.len()..];
        assert!(!network.is_empty() && network.iter().all(|f| f.starts_with("boot.network.")));
        assert!(found.iter().any(|f| f.contains("\"ftp://b\"")));
        let shown = Config::parse(text, Path::new("test.yaml")).unwrap_err().to_string();
        assert_eq!(shown.lines().count(), 1 + found.len(), "{shown}");
        assert!(shown.starts_with("test.yaml:\n  data_dir: "), "{shown}");
    }

    #[test]
    fn where_traces_go_is_checked_and_their_headers_are_secrets() {
        for (telemetry, fault) in [
            (
                "{otlp: collector:4317}",
                "telemetry.otlp: \"collector:4317\" is no http://",
            ),
            (
                "{otlp: \"https://a:4317\"}",
                "telemetry.ca_file: is needed with https://",
            ),
            (
                "{otlp: \"https://a:4317\", ca_file: /no/such}",
                "telemetry.ca_file: /no/such is not a file",
            ),
            (
                "{otlp: \"http://a:4317\", ca_file: /dev/null}",
                "telemetry.ca_file: means nothing",
            ),
            (
                "{otlp: \"http://a:4317\", sample: 1.5}",
                "telemetry.sample: must be from 0 to 1",
            ),
            (
                "{otlp: \"http://a:4317\", sample: .nan}",
                "telemetry.sample: must be from 0 to 1",
            ),
            (
                "{otlp: \"http://a:4317\", headers: {\"a b\": sesame}}",
                "telemetry.headers: \"a b\" is no header",
            ),
            ("{otlp: \"http://a:4317\", headers: {a: sesame}, ratio: 1}", "ratio"),
        ] {
            let found = faults(&format!("data_dir: /x\ntelemetry: {telemetry}\n"));
            assert!(found.len() == 1 && found[0].contains(fault), "{telemetry}: {found:?}");
            assert!(!found[0].contains("sesame"), "{found:?}");
        }
        let text = "data_dir: /x\ntelemetry: {otlp: \"http://a:4317\", headers: {a: sesame}, sample: 0.5}\n";
        let config = Config::parse(text, Path::new("test.yaml")).unwrap();
        assert!(!format!("{config:?}").contains("sesame"));
    }

    #[test]
    fn an_unknown_field_names_its_line_in_every_part() {
        for (text, field, line) in [
            ("data_dir: /x\nboot_interface: br0\n", "boot_interface", 2),
            ("data_dir: /x\napi:\n  name: [a]\n", "name", 3),
            ("data_dir: /x\nstore:\n  url: [a]\n", "url", 3),
            ("data_dir: /x\n\nimages:\n  trusted_key: [a]\n", "trusted_key", 4),
            ("data_dir: /x\npolicy:\n  tries: 1\n  retries: 3\n", "retries", 4),
            ("data_dir: /x\nlimits:\n  power_on: {per_row: 3}\n", "per_row", 3),
            (
                "data_dir: /x\nboot:\n  ramdisk:\n    kernel: /a\n    initrd: /b\n    cmdline: c\n",
                "cmdline",
                6,
            ),
        ] {
            let found = faults(text);
            let place = format!("line {line}");
            assert!(found[0].contains(field) && found[0].contains(&place), "{found:?}");
        }
    }

    #[test]
    fn what_is_missing_or_of_another_kind_is_named() {
        for (text, word) in [
            ("site: x\n", "data_dir"),
            ("", "line 1"),
            ("data_dir: /x\napi: {listen: nowhere}\n", "socket address"),
            ("data_dir: /x\npolicy: {tries: -1}\n", "-1"),
            ("data_dir: /x\nboot: {}\n", "ramdisk"),
            ("data_dir: /x\nssh_port: 65536\n", "65536"),
            ("data_dir: [\n", "test.yaml"),
        ] {
            let found = faults(text);
            assert!(found[0].contains(word), "{text:?}: {found:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_its_cause() {
        let error = Config::load(Path::new("/no/such/rackwright.yaml")).unwrap_err();
        assert_eq!(error.to_string(), "/no/such/rackwright.yaml cannot be read");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn what_is_given_is_taken() {
        let text = "data_dir: /x\nsite: lab\napi: {listen: \"127.0.0.1:1\", names: [a, b]}\n\
                    store: {listen: \"127.0.0.1:2\"}\npolicy: {tries: 1}\nssh_port: 8022\n";
        let config = Config::parse(text, Path::new("t")).unwrap();
        assert_eq!(
            config.store_urls,
            ["https://a:2/store/v1"],
            "the first name, the store's port"
        );
        assert_eq!(config.names, ["a", "b"]);
        assert_eq!(config.ssh_port, 8022);
        assert_eq!((config.site.as_str(), config.policy.tries), ("lab", 1));
        assert_eq!(config.policy.boots, Policy::default().boots);
        assert!(config.boot.is_none());
    }

    #[test]
    fn the_database_is_a_file_or_a_server_and_its_password_is_not_shown() {
        let good = |more: &str| Config::parse(&format!("data_dir: /x\n{more}"), Path::new("t")).unwrap();
        assert_eq!(good("").database.to_string(), "/x/rackwright.db");
        assert_eq!(good("database: /y/site.db\n").database.to_string(), "/y/site.db");
        let server = good("database: postgres://u:hunter2@db.example/site\n");
        assert_eq!(server.database.to_string(), "postgres://u@db.example/site");
        assert!(!format!("{server:?}").contains("hunter2"));
        good("database: postgres://u@db.example/site\ndatabase_password_file: /etc/rackwright/password\n");
        for (text, word) in [
            ("database: site.db\n", "absolute path"),
            ("database: postgres://u:hunter2@db.example:port/site\n", "URL"),
            (
                "database: postgres://u:hunter2@h/site\ndatabase_password_file: /p\n",
                "keep one",
            ),
            ("database_password_file: /p\n", "is needed"),
        ] {
            let found = faults(&format!("data_dir: /x\n{text}"));
            assert!(
                found[0].starts_with("database: ") && found[0].contains(word),
                "{found:?}"
            );
            assert!(!found[0].contains("hunter2"), "{found:?}");
        }
        // A fault of another line does not show this one either.
        let found = faults("data_dir: /x\ndatabase: postgres://u:hunter2@h/site\nsiet: x\n");
        assert!(found[0].contains("siet") && !found[0].contains("hunter2"), "{found:?}");
    }

    #[test]
    fn agents_are_told_of_every_replica_and_of_this_one_first() {
        let api = |endpoints: &str| {
            format!("data_dir: /x\napi: {{names: [10.0.0.2], listen: \"0.0.0.0:7070\", endpoints: [{endpoints}]}}\n")
        };
        let good = |text: &str| Config::parse(text, Path::new("t")).unwrap().endpoints;
        let (a, b) = ("https://10.0.0.1:7070", "https://10.0.0.2:7070");
        assert_eq!(good(&api(&format!("{a:?}, {b:?}"))), [b, a]);
        assert_eq!(good(&api("")), [b], "the only one");
        for (list, word) in [
            (format!("{a:?}"), "this replica is missing: https://10.0.0.2:7070"),
            (format!("{b:?}, \"https://replica:7070\""), "resolve no names"),
            (format!("{b:?}, \"http://10.0.0.1:7070\""), "https://ADDRESS:PORT"),
            (vec![format!("{b:?}"); 9].join(", "), "at most 8"),
        ] {
            let found = faults(&api(&list));
            assert!(
                found[0].starts_with("api.endpoints: ") && found[0].contains(word),
                "{found:?}"
            );
        }
    }

    #[test]
    fn little_is_needed() {
        let config = Config::parse("data_dir: /x\n", Path::new("t")).unwrap();
        assert_eq!(config.store_urls, ["https://localhost:7443/store/v1"]);
        assert_eq!(config.shared_dir, Path::new("/x"));
        let config = Config::parse("data_dir: /x\nshared_dir: /y\n", Path::new("t")).unwrap();
        assert_eq!(config.shared_dir, Path::new("/y"));
        assert_eq!(
            faults("data_dir: /x\nshared_dir: y\n"),
            ["shared_dir: must be an absolute path"]
        );
        assert_eq!(config.ssh_port, 22);
    }
}
