//! Fields `bios` and `secure_boot` of a SKU.

use std::collections::BTreeMap;

use rackwright_yaml::{Tree, Value};

use super::fields::Fields;
use crate::model::{WantedKey, WantedSettings};

/// Maximum number of attributes and of certificates of a SKU.
const MAX_WANTED: usize = 1024;
/// Maximum length of an attribute's name and value, in characters.
const MAX_TEXT: usize = 256;
/// Maximum length of a certificate, in bytes.
const MAX_PEM: usize = 16 << 10;

/// The Secure Boot databases of UEFI.
const DATABASES: [&str; 4] = ["PK", "KEK", "db", "dbx"];
const PEM_HEAD: &str = "-----BEGIN CERTIFICATE-----";
const PEM_TAIL: &str = "-----END CERTIFICATE-----";

pub(super) fn read(fields: &mut Fields<'_, '_>) -> WantedSettings {
    let bios = bios(fields);
    let mut wanted = WantedSettings {
        bios,
        ..WantedSettings::default()
    };
    let Some(tree) = fields.take("secure_boot") else {
        return wanted;
    };
    if let Value::Text(word) = &tree.value {
        wanted.secure_boot = enabled(fields, "secure_boot", word);
        return wanted;
    }
    let Some(mut nested) = fields.nested_in("secure_boot", tree) else {
        return wanted;
    };
    if let Some(word) = nested.text("state") {
        wanted.secure_boot = enabled(&mut nested, "state", word);
    }
    let items = nested.list("keys");
    if items.len() > MAX_WANTED {
        nested.error("keys", format!("there are more than {MAX_WANTED} certificates"), "");
    }
    for (i, tree) in items.iter().take(MAX_WANTED).enumerate() {
        wanted.keys.extend(key(&mut nested, &format!("keys[{i}]"), tree));
    }
    nested.finish();
    wanted
}

fn enabled(fields: &mut Fields<'_, '_>, name: &str, word: &str) -> Option<bool> {
    match word {
        "enabled" => Some(true),
        "disabled" => Some(false),
        _ => {
            let what = format!("`{word}` is neither enabled nor disabled");
            fields.error(name, what, "write enabled or disabled");
            None
        }
    }
}

fn bios(fields: &mut Fields<'_, '_>) -> BTreeMap<Box<str>, Box<str>> {
    let mut bios = BTreeMap::new();
    let Some(tree) = fields.take("bios") else {
        return bios;
    };
    let Some(nested) = fields.nested_in("bios", tree) else {
        return bios;
    };
    for (key, tree) in nested.pairs() {
        let path = fields.part(&format!("bios.{}", key.name), tree.at);
        let text = match &tree.value {
            Value::Text(text) => text,
            Value::Broken => continue,
            Value::Null | Value::List(_) | Value::Map(_) => {
                let fix = "write text, a number, true or false; an empty text is \"\"";
                fields.sink.error(tree.at, path, "this must be a single value", fix);
                continue;
            }
        };
        let too_long = |text: &str| text.chars().count() > MAX_TEXT || text.chars().any(char::is_control);
        if too_long(&key.name) || too_long(text) {
            let what = format!("the name or value has more than {MAX_TEXT} characters or a control character");
            fields.sink.error(
                tree.at,
                path,
                what,
                "copy the name and the value from `rackwright bmc bios`",
            );
        } else if bios.len() >= MAX_WANTED {
            let what = format!("there are more than {MAX_WANTED} attributes");
            fields
                .sink
                .error(tree.at, path, what, "list only the attributes that matter");
            break;
        } else {
            bios.insert(key.name.clone(), text.clone());
        }
    }
    bios
}

fn key<'t>(fields: &mut Fields<'t, '_>, path: &str, tree: &'t Tree) -> Option<WantedKey> {
    let mut key = fields.nested_in(path, tree)?;
    let database = key.need_text("database").unwrap_or_default();
    if !database.is_empty() && !DATABASES.contains(&database) {
        let what = format!("there is no database `{database}`");
        key.error("database", what, format!("write one of {}", DATABASES.join(", ")));
    }
    let sha256 = key.text("sha256").map(str::to_ascii_lowercase).unwrap_or_default();
    let sha256 = sha256.strip_prefix("sha256:").unwrap_or(&sha256).replace(':', "");
    let pem = key.text("pem");
    if !sha256.is_empty() && (sha256.len() != 64 || !sha256.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        key.error("sha256", "this is not a SHA-256 digest", "write 64 hexadecimal digits");
    }
    if let Some(pem) = pem {
        let body = pem.trim();
        if !body.starts_with(PEM_HEAD) || !body.ends_with(PEM_TAIL) {
            key.error(
                "pem",
                "this is not a PEM certificate",
                format!("write `pem: |`, then the lines from {PEM_HEAD} on"),
            );
        } else if body.len() > MAX_PEM {
            let what = format!("the certificate has {} bytes; the limit is {MAX_PEM} bytes", body.len());
            key.error("pem", what, "give one certificate without its chain");
        }
    }
    if sha256.is_empty() && pem.is_none() {
        let fix = "give `sha256`, or `pem` if the certificate must be added";
        key.error("", "the certificate is missing", fix);
    }
    let wanted = WantedKey {
        database: database.into(),
        sha256: sha256.into(),
        pem: pem.map(|pem| format!("{}\n", pem.trim()).into()),
    };
    key.finish();
    Some(wanted)
}
