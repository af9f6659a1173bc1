//! The seed: files on a partition labelled CIDATA that give an installed system its name, its host key, its login keys and
//! the marker of its image.
//!
//! It serves two readers. cloud-init's NoCloud source reads `meta-data`, `user-data` and `network-config`; images without
//! cloud-init read the plain files below `rackwright/`, one value in each file.
//!
//! Decisions, each checked against cloud-init 22.4:
//!
//! - The keys are in `meta-data` (`public-keys`), one in each line: the customer's user data cannot replace them, and the
//!   hand-over can remove a line and leave valid YAML.
//! - All other settings of the control plane are user data, not vendor data, because the customer's user data overrides
//!   vendor data. If the customer has user data, the control plane's come last in a MIME archive, in two parts. The first,
//!   `write_files`, is appended to the customer's list (`merge_how`); the second (host key, host name, root login)
//!   replaces, which is cloud-init's default.
//! - Interfaces are matched by MAC address with `set-name`. Patterns such as `en*` work only with netplan: the renderers
//!   for ifupdown, systemd-networkd and NetworkManager use the entry's id as the interface's name. Without MAC addresses
//!   there is no `network-config`, and cloud-init falls back to DHCP on the first interface with a link.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use russh::keys::{Algorithm, PublicKey};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

const KEYS_MAX: usize = 100;
const KEY_LINE_MAX: usize = 8 * 1024;
const USER_DATA_MAX: usize = 256 * 1024;
const NICS_MAX: usize = 64;
/// Linux's limit for a host name, in bytes.
const HOSTNAME_MAX: usize = 64;
/// Cannot occur in base64, the encoding of everything between the boundaries except the fixed text.
const BOUNDARY: &str = "==rackwright-seed==";

/// The values of a seed.
#[derive(Debug, Clone)]
pub struct SeedSpec {
    /// New for each installation: cloud-init acts only on a new id.
    pub instance_id: String,
    /// The machine's name, with or without a domain.
    pub hostname: String,
    /// The public key line of the provisioning key.
    pub provisioning_public_key: String,
    /// Public key lines of the customer.
    pub customer_keys: Vec<String>,
    /// The private half of the host key, in OpenSSH's format.
    pub host_private_key: SecretString,
    /// The public half, as a key line.
    pub host_public_key: String,
    /// MAC addresses of the interfaces for DHCP, first the one that booted.
    pub macs: Vec<String>,
    /// Digest of the image version: `b3-` and 64 hex digits.
    pub image_digest: String,
    /// Generation of the claim.
    pub generation: u64,
    /// The customer's own user data, in any form that cloud-init accepts, except compressed.
    pub user_data: Option<String>,
}

/// The fault of a seed's values. Permanent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeedError {
    /// The name is not a valid host name.
    #[error(
        "{0:?} is not a host name: use labels of 1 to 63 characters of a-z 0-9 - joined by dots, at most 64 characters \
         in all; a label neither begins nor ends with -, and the name has a character other than digits and dots"
    )]
    Hostname(String),
    /// The instance id has unsafe characters.
    #[error("{0:?} is not an instance id: use 1 to 64 characters of a-z A-Z 0-9 . _ -")]
    InstanceId(String),
    /// A key line that sshd would refuse, or that contains more than a key.
    #[error("{which} is refused: {why}")]
    Key {
        /// Names the key.
        which: String,
        /// The fault and its remedy.
        why: &'static str,
    },
    #[error("{0} SSH keys are too many: give at most {KEYS_MAX}")]
    TooManyKeys(usize),
    /// Not a digest.
    #[error("{0:?} is not an image digest: write b3- and 64 hex digits in lower case")]
    Digest(String),
    /// Not a MAC address in the usual form.
    #[error("{0:?} is not a MAC address in the form 52:54:00:77:00:01")]
    Mac(String),
    /// Too many interfaces.
    #[error("{0} network interfaces are too many: a seed describes at most {NICS_MAX}")]
    TooManyNics(usize),
    /// User data that cannot be embedded.
    #[error("the user data is refused: {0}")]
    UserData(&'static str),
}

/// Makes the files of a seed: content by path below the partition's root.
pub fn seed(spec: &SeedSpec) -> Result<BTreeMap<String, Vec<u8>>, SeedError> {
    let keys = authorized_keys(spec)?;
    check_hostname(&spec.hostname)?;
    check_token(&spec.instance_id).ok_or_else(|| SeedError::InstanceId(cut(&spec.instance_id)))?;
    check_digest(&spec.image_digest)?;
    let host_public = host_key(spec)?;
    let host_private = with_newline(spec.host_private_key.expose_secret());
    let marker = format!("digest={}\ngeneration={}\n", spec.image_digest, spec.generation);

    let mut files = BTreeMap::from([
        ("meta-data".to_owned(), meta_data(spec, &keys)),
        (
            "user-data".to_owned(),
            user_data(spec, &host_private, &host_public, &marker)?,
        ),
        ("rackwright/authorized_keys".to_owned(), with_newline(&keys.join("\n"))),
        ("rackwright/ssh_host_ed25519_key".to_owned(), host_private),
        (
            "rackwright/ssh_host_ed25519_key.pub".to_owned(),
            with_newline(&host_public),
        ),
        ("rackwright/hostname".to_owned(), with_newline(&spec.hostname)),
        ("rackwright/instance-id".to_owned(), with_newline(&spec.instance_id)),
        ("rackwright/image".to_owned(), marker),
    ]);
    if let Some(network) = network_config(&spec.macs)? {
        files.insert("network-config".to_owned(), network);
    }
    Ok(files
        .into_iter()
        .map(|(path, text)| (path, text.into_bytes()))
        .collect())
}

fn meta_data(spec: &SeedSpec, keys: &[String]) -> String {
    let mut text = format!(
        "instance-id: {}\nlocal-hostname: {}\n",
        quoted(&spec.instance_id),
        quoted(&spec.hostname)
    );
    text.push_str("public-keys:\n");
    for key in keys {
        text.push_str(&format!("  - {}\n", quoted(key)));
    }
    text
}

fn user_data(spec: &SeedSpec, host_private: &str, host_public: &str, marker: &str) -> Result<String, SeedError> {
    let files = json!([{
        "path": "/etc/rackwright/image",
        "owner": "root:root",
        "permissions": "0644",
        "content": marker,
    }]);
    let mut ours = json!({
        "hostname": spec.hostname,
        "preserve_hostname": false,
        "allow_public_ssh_keys": true,
        "disable_root": false,
        "ssh_deletekeys": true,
        "ssh_keys": { "ed25519_private": host_private, "ed25519_public": with_newline(host_public) },
    });
    let Some(customers) = &spec.user_data else {
        ours["write_files"] = files;
        return Ok(cloud_config(&ours));
    };
    check_user_data(customers)?;
    let appended = json!({
        "merge_how": "dict(no_replace,recurse_list)+list(append)+str()",
        "write_files": files,
    });
    let mut text = format!("Content-Type: multipart/mixed; boundary=\"{BOUNDARY}\"\nMIME-Version: 1.0\n");
    // For text/plain, cloud-init detects the format from the first line.
    push_part(&mut text, "text/plain", "customer", customers);
    push_part(
        &mut text,
        "text/cloud-config",
        "rackwright-files",
        &cloud_config(&appended),
    );
    push_part(&mut text, "text/cloud-config", "rackwright", &cloud_config(&ours));
    text.push_str(&format!("\n--{BOUNDARY}--\n"));
    Ok(text)
}

/// JSON is valid YAML, with a single way of quoting.
fn cloud_config(value: &serde_json::Value) -> String {
    format!("#cloud-config\n{value:#}\n")
}

fn push_part(text: &mut String, kind: &str, name: &str, body: &str) {
    text.push_str(&format!(
        "\n--{BOUNDARY}\nContent-Type: {kind}; charset=\"utf-8\"\nMIME-Version: 1.0\n\
         Content-Transfer-Encoding: base64\nContent-Disposition: attachment; filename=\"{name}\"\n\n"
    ));
    let encoded = BASE64_STANDARD.encode(body);
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(76));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
}

fn network_config(macs: &[String]) -> Result<Option<String>, SeedError> {
    if macs.is_empty() {
        return Ok(None);
    }
    if macs.len() > NICS_MAX {
        return Err(SeedError::TooManyNics(macs.len()));
    }
    let mut ethernets = serde_json::Map::new();
    for (n, mac) in macs.iter().enumerate() {
        let mac = mac.to_ascii_lowercase();
        let hex = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        if mac.split(':').count() != 6 || !mac.split(':').all(hex) {
            return Err(SeedError::Mac(cut(&mac)));
        }
        let name = format!("net{n}");
        // The boot does not wait for interfaces after the first.
        let entry = json!({ "match": { "macaddress": mac }, "set-name": name, "dhcp4": true, "optional": n > 0 });
        ethernets.insert(name, entry);
    }
    Ok(Some(format!("{:#}\n", json!({ "version": 2, "ethernets": ethernets }))))
}

fn authorized_keys(spec: &SeedSpec) -> Result<Vec<String>, SeedError> {
    if spec.customer_keys.len() > KEYS_MAX {
        return Err(SeedError::TooManyKeys(spec.customer_keys.len()));
    }
    let mut keys = vec![key_line("the provisioning key", &spec.provisioning_public_key)?];
    let provisioning = blob(&keys[0]).to_owned();
    for (n, line) in spec.customer_keys.iter().enumerate() {
        let which = format!("SSH key {}", n + 1);
        let line = key_line(&which, line)?;
        if blob(&line) == provisioning {
            return Err(SeedError::Key {
                which,
                why: "it is the provisioning key, which is removed at hand-over",
            });
        }
        if !keys.contains(&line) {
            keys.push(line);
        }
    }
    Ok(keys)
}

/// A printable line with a key and nothing else: no options before the key.
fn key_line(which: &str, line: &str) -> Result<String, SeedError> {
    let refuse = |why| {
        Err(SeedError::Key {
            which: which.into(),
            why,
        })
    };
    let line = line.trim();
    if is_private_key(line) {
        return refuse("it is a private key; give the public half, and consider the private half disclosed");
    }
    if line.len() > KEY_LINE_MAX {
        return refuse("it is longer than 8 KiB");
    }
    if line.is_empty() {
        return refuse("it is empty");
    }
    if !line.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
        return refuse("it must be one line of printable ASCII");
    }
    let Ok(key) = PublicKey::from_openssh(line) else {
        return refuse("it is not a public key line, such as \"ssh-ed25519 AAAA… comment\" (options are not allowed)");
    };
    if matches!(key.algorithm(), Algorithm::Dsa) {
        return refuse("DSA keys are no longer accepted by SSH servers");
    }
    Ok(line.into())
}

/// Whether the text begins as the file of a private key, of any number of lines. The comment of a public key may contain
/// the same words.
fn is_private_key(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    (first.starts_with('-') && first.contains("PRIVATE KEY")) || first.starts_with("PuTTY-User-Key-File-")
}

fn blob(line: &str) -> &str {
    line.split(' ').nth(1).unwrap_or("")
}

fn host_key(spec: &SeedSpec) -> Result<String, SeedError> {
    let which = "the host key";
    let refuse = |why| {
        Err(SeedError::Key {
            which: which.into(),
            why,
        })
    };
    let line = key_line(which, &spec.host_public_key)?;
    let Ok(public) = PublicKey::from_openssh(&line) else {
        return refuse("it is not a public key line");
    };
    if public.algorithm() != Algorithm::Ed25519 {
        return refuse("it must be an Ed25519 key");
    }
    let Ok(private) = russh::keys::decode_secret_key(spec.host_private_key.expose_secret(), None) else {
        return refuse("its private half is not an unencrypted OpenSSH key");
    };
    if private.public_key().key_data() != public.key_data() {
        return refuse("its private half belongs to another key");
    }
    Ok(line)
}

fn check_hostname(name: &str) -> Result<(), SeedError> {
    let fine = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let numeric = name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if name.len() <= HOSTNAME_MAX && name.split('.').all(fine) && !numeric {
        Ok(())
    } else {
        Err(SeedError::Hostname(cut(name)))
    }
}

fn check_token(text: &str) -> Option<()> {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    ((1..=64).contains(&text.len()) && text.bytes().all(fine)).then_some(())
}

fn check_digest(digest: &str) -> Result<(), SeedError> {
    let lower_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let fine = digest
        .strip_prefix("b3-")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(lower_hex));
    if fine {
        Ok(())
    } else {
        Err(SeedError::Digest(cut(digest)))
    }
}

fn check_user_data(text: &str) -> Result<(), SeedError> {
    if text.len() > USER_DATA_MAX {
        return Err(SeedError::UserData("it is larger than 256 KiB"));
    }
    if text.contains('\0') {
        return Err(SeedError::UserData(
            "it is not text (compressed user data is not supported)",
        ));
    }
    let first = text.trim_start().to_ascii_lowercase();
    if first.starts_with("content-type:") || first.starts_with("mime-version:") {
        return Err(SeedError::UserData(
            "a MIME archive cannot be embedded; give the user data as a #cloud-config-archive",
        ));
    }
    if !(text.starts_with('#')) {
        return Err(SeedError::UserData(
            "its first line must name its type, such as #cloud-config or #!/bin/sh; otherwise cloud-init ignores the \
             user data",
        ));
    }
    Ok(())
}

/// A double-quoted YAML scalar: every JSON string is one.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn with_newline(text: &str) -> String {
    format!("{}\n", text.trim_end_matches('\n'))
}

fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests;
