//! The list `firmware` of a SKU.

use rackwright_yaml::Tree;

use super::fields::Fields;
use crate::model::{FirmwareActivation, FirmwareOrder, WantedFirmware};

/// Maximum number of entries of a SKU.
const MAX_ENTRIES: usize = 64;
/// Maximum length of a text in an entry, in characters.
const MAX_TEXT: usize = 128;

pub(super) fn read(fields: &mut Fields<'_, '_>) -> Vec<WantedFirmware> {
    let trees = fields.list("firmware");
    if trees.len() > MAX_ENTRIES {
        fields.error("firmware", format!("there are more than {MAX_ENTRIES} entries"), "");
        return Vec::new();
    }
    let mut all: Vec<WantedFirmware> = Vec::new();
    for (i, tree) in trees.iter().enumerate() {
        let path = format!("firmware[{i}]");
        let Some(one) = entry(fields, &path, tree) else {
            continue;
        };
        if all.iter().any(|other| other.component == one.component) {
            let at = fields.part(&path, tree.at);
            let what = format!("component {} is given twice", one.component);
            fields
                .sink
                .error(tree.at, at, what, "write one entry for each component");
            continue;
        }
        all.push(one);
    }
    all
}

fn entry<'t>(fields: &mut Fields<'t, '_>, path: &str, tree: &'t Tree) -> Option<WantedFirmware> {
    let mut entry = fields.nested_in(path, tree)?;
    let component = entry.need_text("component").map(str::to_owned);
    let version = entry.need_text("version").map(str::to_owned);
    let mut pattern = |name| entry.text(name).map(Into::into);
    let (id, name, software_id) = (pattern("id"), pattern("name"), pattern("software_id"));
    let file: Option<Box<str>> = entry.text("file").map(Into::into);
    if let Some(file) = &file
        && !is_digest(file)
    {
        let fix = "write `sha256:` and 64 lower-case hexadecimal digits, as `rackwright firmware list` prints them";
        entry.error("file", format!("`{file}` is not a digest"), fix);
    }
    let order = entry.choice("order", &FirmwareOrder::ALL, FirmwareOrder::name);
    let activation = entry.choice("activation", &FirmwareActivation::ALL, FirmwareActivation::name);
    let downgrade = entry.flag("downgrade").unwrap_or(false);
    for (field, text) in [("component", &component), ("version", &version)] {
        if let Some(text) = text
            && (text.chars().count() > MAX_TEXT || text.chars().any(char::is_control) || text.trim().is_empty())
        {
            let what = format!("the text must have 1 to {MAX_TEXT} printable characters");
            entry.error(field, what, "");
        }
    }
    entry.finish();
    let component = component?;
    Some(WantedFirmware {
        order: order.unwrap_or_else(|| FirmwareOrder::guess(&component)),
        component: component.into(),
        id,
        name,
        software_id,
        version: version?.into(),
        file,
        downgrade,
        activation,
    })
}

fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|digits| {
        digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}
