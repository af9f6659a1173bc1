//! `rackwright bmc bios`: shows the BIOS settings and the state of Secure Boot, as a BMC reports them.

use clap::Args;
use rackwright_cli_context::Cx;
use rackwright_cli_context::error::CliError;
use rackwright_cli_context::output::table::Cell;
use rackwright_cli_context::output::{Format, Paint, Table, Tone, clean};
use rackwright_redfish::{AttributeKind, AttributeRule, BiosRules, BiosState, RedfishError, SecureBootState};
use serde_json::json;

use super::access::{Access, AccessArgs, explain};

/// `rackwright bmc bios`
#[derive(Debug, Args)]
pub struct BiosArgs {
    #[command(flatten)]
    access: AccessArgs,
}

/// The firmware settings of a machine. `None`: the BMC does not offer them.
struct FirmwareSettings {
    bios: Option<BiosState>,
    /// The rules of the attribute registry, which list the allowed values. `None`: the registry cannot be read.
    rules: Option<BiosRules>,
    secure_boot: Option<SecureBootState>,
}

/// Reads the settings and shows them.
pub async fn run(cx: &Cx, args: BiosArgs) -> Result<(), CliError> {
    let access = Access::open(cx, args.access).await?;
    let settings = read(&access).await;
    access.close(cx).await;
    let settings = settings.map_err(explain)?;
    match cx.ui.format() {
        Format::Json | Format::Yaml => {
            let value = json!({
                "address": access.client.address(), "bios": settings.bios, "rules": settings.rules,
                "secure_boot": settings.secure_boot,
            });
            cx.ui.value(&value)
        }
        Format::Name => {
            let mut names = settings.bios.iter().flat_map(|bios| bios.current.keys());
            names.try_for_each(|name| cx.ui.line(&clean(name)))
        }
        Format::Table => cx.ui.line(screen(&settings, cx.ui.paint(), cx.ui.width()).trim_end()),
    }
}

async fn read(access: &Access) -> Result<FirmwareSettings, RedfishError> {
    let bios = access.client.bios().await?;
    let rules = match &bios {
        Some(bios) => access.client.bios_rules(bios).await?,
        None => None,
    };
    Ok(FirmwareSettings {
        bios,
        rules,
        secure_boot: access.client.secure_boot().await?,
    })
}

/// The text for people: properties first, then one row for each attribute.
fn screen(settings: &FirmwareSettings, paint: Paint, width: Option<usize>) -> String {
    let mut head = Table::pairs();
    let mut pair = |name: &str, value: String| {
        head.row([Cell::toned(name, Tone::Dim), Cell::from(value)]);
    };
    match &settings.secure_boot {
        None => pair("Secure Boot", "not offered".to_owned()),
        Some(secure) => {
            let word = |on: Option<bool>| match on {
                Some(true) => "enabled",
                Some(false) => "disabled",
                None => "not reported",
            };
            let mode = secure.mode.clone().unwrap_or_else(|| "mode not reported".to_owned());
            let (now, next) = (word(secure.in_force), word(secure.enabled));
            pair("Secure Boot", format!("{now}, {next} after a restart, {mode}"));
        }
    }
    let Some(bios) = &settings.bios else {
        pair("BIOS settings", "not offered".to_owned());
        return head.render(paint, width);
    };
    pair("settings path", bios.settings_path.clone());
    let registry = bios.registry.clone().unwrap_or_default();
    let note = if settings.rules.is_none() {
        " (cannot be read)"
    } else {
        ""
    };
    pair("registry", format!("{registry}{note}"));
    if bios.current.is_empty() {
        pair(
            "attributes",
            "none reported; the machine may need to be started once".to_owned(),
        );
        return head.render(paint, width);
    }
    let mut table = Table::new(&["ATTRIBUTE", "VALUE", "AFTER START", "ALLOWED"]);
    for (name, value) in &bios.current {
        let next = bios.pending.get(name).map(ToString::to_string).unwrap_or_default();
        let rule = settings.rules.as_ref().and_then(|rules| rules.get(name));
        table.row([
            Cell::from(name),
            Cell::from(value.to_string()),
            Cell::toned(next, Tone::Busy),
            Cell::from(rule.map(allowed_values).unwrap_or_default()),
        ]);
    }
    format!("{}\n{}", head.render(paint, width), table.render(paint, width))
}

/// The allowed values of an attribute in words; empty if they are not known.
fn allowed_values(rule: &AttributeRule) -> String {
    if rule.read_only {
        return "read-only".to_owned();
    }
    match rule.kind {
        AttributeKind::Enumeration => rule.words.join(", "),
        AttributeKind::Integer => {
            let bound = |bound: Option<i64>| bound.map_or_else(|| "any".to_owned(), |bound| bound.to_string());
            format!("{} to {}", bound(rule.least), bound(rule.most))
        }
        AttributeKind::Boolean => "true, false".to_owned(),
        AttributeKind::String => match rule.longest {
            Some(longest) => format!("text of up to {longest} characters"),
            None => "text".to_owned(),
        },
        AttributeKind::Password | AttributeKind::Unknown => String::new(),
    }
}
