//! Contexts and credentials on disk: `$RACKWRIGHT_CONFIG`, else `$XDG_CONFIG_HOME/rackwright`, else
//! `~/.config/rackwright`.
//!
//! `config.yaml` lists the contexts. Each context has `NAME.ca.pem` (the authorities that we trust) and `NAME.pem` (our
//! certificate and its private key, in one file so that a renewal replaces both at once). All have mode 0600 in a
//! directory of mode 0700, and are written to a new file first, then renamed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rackwright_yaml::Quote;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::mutation;

/// The content of `config.yaml`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The default context.
    #[serde(default)]
    pub current_context: String,
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// One server (or several replicas of it) and our identity there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Endpoints, tried in order.
    pub servers: Vec<String>,
    /// Name that the server's certificate must have, if it is not the endpoint's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_name: Option<String>,
    pub member: String,
    pub role: String,
    /// A login at the identity provider gave the certificate. It is not renewed: the provider decides about each login.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oidc: bool,
}

/// The PEM texts of a context.
#[derive(Debug, Clone)]
pub struct Credential {
    pub ca_pem: String,
    /// Certificate, then private key.
    pub identity_pem: SecretString,
}

/// The configuration directory.
#[derive(Debug)]
pub struct ConfigDir {
    path: PathBuf,
}

impl ConfigDir {
    /// The path of this user's configuration; reads and creates nothing.
    pub fn locate() -> Result<Self, CliError> {
        let set = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let path = set("RACKWRIGHT_CONFIG")
            .or_else(|| set("XDG_CONFIG_HOME").map(|base| base.join("rackwright")))
            .or_else(|| set("HOME").map(|home| home.join(".config/rackwright")));
        path.map(|path| Self { path }).ok_or_else(|| {
            CliError::credential(
                "no directory for the configuration is known",
                "set RACKWRIGHT_CONFIG to a directory",
            )
        })
    }

    /// Reads `config.yaml`; without the file, an empty configuration.
    pub fn load(&self) -> Result<Config, CliError> {
        let path = self.path.join("config.yaml");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
            Err(e) => return Err(CliError::file("read", &path, e)),
        };
        rackwright_yaml::read(&text, Quote::Lines).map_err(|e| {
            let first = e.to_string().lines().next().unwrap_or_default().to_owned();
            CliError::credential(
                format!("{} is not a valid configuration: {first}", path.display()),
                "correct the file, or remove it and log in again",
            )
        })
    }

    pub fn save(&self, config: &Config) -> Result<(), CliError> {
        let text = serde_saphyr::to_string(config)
            .map_err(|e| CliError::credential(format!("the configuration cannot be written: {e}"), ""))?;
        self.write("config.yaml", text.as_bytes())
    }

    /// The named context, or the current one.
    pub fn pick(&self, config: &Config, wanted: Option<&str>) -> Result<(String, Context), CliError> {
        let name = wanted.unwrap_or(&config.current_context);
        if let Some(context) = config.contexts.get(name) {
            return Ok((name.to_owned(), context.clone()));
        }
        if wanted.is_some() {
            let known: Vec<_> = config.contexts.keys().map(String::as_str).collect();
            return Err(CliError::credential(
                format!("there is no context `{name}` in {}", self.path.display()),
                if known.is_empty() {
                    "log in first".to_owned()
                } else {
                    format!("there are: {}", known.join(", "))
                },
            ));
        }
        Err(CliError::credential(
            format!(
                "not logged in: {} names no current context",
                self.path.join("config.yaml").display()
            ),
            "run `rackwright login --server URL --token TOKEN --ca-sha256 sha256:HEX`, \
             or choose a context with `rackwright context use`",
        ))
    }

    /// Reads the PEM files of a context; refuses a private key that other users can read.
    pub fn credential(&self, name: &str) -> Result<Credential, CliError> {
        let read = |file: PathBuf| {
            fs::read_to_string(&file).map_err(|e| {
                CliError::credential(
                    format!("cannot read {}: {e}", file.display()),
                    "log in again with a new token (`rackwright login`)",
                )
            })
        };
        let identity = self.path.join(format!("{name}.pem"));
        let identity_pem = SecretString::from(read(identity.clone())?);
        let mode = fs::metadata(&identity)
            .map_err(|e| CliError::file("read", &identity, e))?
            .permissions()
            .mode();
        if mode & 0o077 != 0 {
            return Err(CliError::credential(
                format!(
                    "{} contains a private key and other users can read the file (mode {:o})",
                    identity.display(),
                    mode & 0o777
                ),
                format!("run `chmod 600 {}`", identity.display()),
            ));
        }
        Ok(Credential {
            ca_pem: read(self.path.join(format!("{name}.ca.pem")))?,
            identity_pem,
        })
    }

    /// The certificates of the authorities that a context trusts, in PEM.
    pub fn authorities(&self, name: &str) -> Result<String, CliError> {
        let file = self.path.join(format!("{name}.ca.pem"));
        fs::read_to_string(&file).map_err(|error| CliError::file("read", &file, error))
    }

    pub fn store_credential(&self, name: &str, credential: &Credential) -> Result<(), CliError> {
        self.store_authorities(name, &credential.ca_pem)?;
        self.store_identity(name, &credential.identity_pem)
    }

    /// Writes the certificates of the authorities that a context trusts.
    pub fn store_authorities(&self, name: &str, ca_pem: &str) -> Result<(), CliError> {
        self.write(&format!("{name}.ca.pem"), ca_pem.as_bytes())
    }

    pub fn store_identity(&self, name: &str, identity_pem: &SecretString) -> Result<(), CliError> {
        self.write(&format!("{name}.pem"), identity_pem.expose_secret().as_bytes())
    }

    /// Removes the files of a context; missing files are ignored.
    pub fn remove_credential(&self, name: &str) -> Result<(), CliError> {
        for file in [format!("{name}.pem"), format!("{name}.ca.pem")] {
            let path = self.path.join(file);
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(CliError::file("remove", &path, e)),
            }
        }
        Ok(())
    }

    fn write(&self, file: &str, content: &[u8]) -> Result<(), CliError> {
        let target = self.path.join(file);
        let draft = self.path.join(format!(".{file}.{}", mutation::fresh_key()));
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path);
        made.map_err(|e| CliError::file("make", &self.path, e))?;
        let written = write_private(&draft, content).and_then(|()| fs::rename(&draft, &target));
        written.map_err(|e| {
            let _ = fs::remove_file(&draft);
            CliError::file("write", &target, e)
        })
    }
}

fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// A context's name is part of file names: 1 to 63 letters, digits, `-`, `_` and `.`, not beginning with a dot.
pub fn context_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=63).contains(&text.len()) && text.chars().all(fits) && !text.starts_with('.') {
        Ok(text.to_owned())
    } else {
        Err("a context's name is 1 to 63 letters, digits, '-', '_' and '.', not beginning with '.'".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_context_is_private_and_reads_back() {
        let temp = tempfile::tempdir().unwrap();
        let dir = ConfigDir {
            path: temp.path().join("a/b"),
        };
        assert!(dir.load().unwrap().contexts.is_empty());
        let context = Context {
            servers: vec!["https://h:7070".into()],
            tls_name: None,
            member: "ann".into(),
            role: "operator".into(),
            oidc: false,
        };
        let config = Config {
            current_context: "lab".into(),
            contexts: [("lab".to_owned(), context)].into(),
        };
        dir.save(&config).unwrap();
        let credential = Credential {
            ca_pem: "ca".into(),
            identity_pem: SecretString::from("id".to_owned()),
        };
        dir.store_credential("lab", &credential).unwrap();
        for file in ["config.yaml", "lab.pem", "lab.ca.pem"] {
            let mode = fs::metadata(dir.path.join(file)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        assert_eq!(fs::metadata(&dir.path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&dir.path).unwrap().count(), 3, "no drafts stay behind");
        let (name, context) = dir.pick(&dir.load().unwrap(), None).unwrap();
        assert_eq!((name.as_str(), context.member.as_str()), ("lab", "ann"));
        assert_eq!(dir.credential("lab").unwrap().identity_pem.expose_secret(), "id");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = ConfigDir {
            path: temp.path().to_owned(),
        };
        let credential = Credential {
            ca_pem: "ca".into(),
            identity_pem: SecretString::from("id".to_owned()),
        };
        dir.store_credential("lab", &credential).unwrap();
        fs::set_permissions(temp.path().join("lab.pem"), fs::Permissions::from_mode(0o640)).unwrap();
        assert!(dir.credential("lab").unwrap_err().to_string().contains("mode 640"));
    }

    #[test]
    fn context_names_stay_inside_the_directory() {
        assert!(context_name("lab-1.example_2").is_ok());
        for wrong in ["", "..", ".x", "a/b", "a b", &"x".repeat(64)] {
            assert!(context_name(wrong).is_err(), "{wrong}");
        }
    }
}
