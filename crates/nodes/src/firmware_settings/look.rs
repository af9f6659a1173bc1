//! One machine's settings compared with the wish.

use std::collections::BTreeMap;

use rackwright_redfish::{BiosRules, BiosState, BmcClient, RedfishError, SecureBootState};
use rackwright_site::model::{SeenSecureBoot, SeenSettings, SettingRow, SettingStatus, WantedSettings, compare};

use super::wanted::bare;

/// The result of a reading.
#[derive(Debug, Clone)]
pub struct SettingsReading {
    /// Every wanted setting with the value that was read.
    pub rows: Vec<SettingRow>,
    /// The BIOS. `None`: no BIOS setting is wanted, or the BMC does not offer it.
    bios: Option<BiosState>,
    secure_boot: Option<SecureBootState>,
}

/// Reads only the wanted parts.
///
/// # Errors
/// The BMC failed.
pub async fn look(client: &BmcClient, wanted: &WantedSettings) -> Result<SettingsReading, RedfishError> {
    let bios = if wanted.bios.is_empty() {
        None
    } else {
        client.bios().await?
    };
    let secure_boot = match wanted.secure_boot {
        Some(_) => client.secure_boot().await?,
        None => None,
    };
    let keys = if wanted.keys.is_empty() {
        None
    } else {
        client.secure_boot_certificates().await?
    };
    let texts = |map: &BTreeMap<String, _>| map.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    let mut seen = SeenSettings {
        current: bios.as_ref().map(|bios| texts(&bios.current)).unwrap_or_default(),
        pending: bios.as_ref().map(|bios| texts(&bios.pending)).unwrap_or_default(),
        secure_boot: secure_boot.as_ref().map(|secure| SeenSecureBoot {
            enabled: secure.enabled,
            in_force: secure.in_force,
        }),
        keys: keys.map(|keys| {
            let known = keys
                .into_iter()
                .filter_map(|key| Some((key.database, bare(&key.sha256?.to_string()))));
            known.collect()
        }),
        ..SeenSettings::default()
    };
    let mut rows = compare(wanted, &seen);
    // The list of display names and read-only settings is long, so it is read only if a setting differs.
    let is_differing_bios = |row: &SettingRow| row.standing == SettingStatus::Differs && row.name.starts_with("bios/");
    if let Some(bios) = bios.as_ref().filter(|_| rows.iter().any(is_differing_bios)) {
        let rules = client.bios_rules(bios).await?.unwrap_or_default();
        adopt_names(&mut seen, wanted, &rules);
        let fixed = rules.into_iter().filter(|(_, rule)| rule.read_only);
        seen.read_only = fixed.map(|(name, _)| name).collect();
        rows = compare(wanted, &seen);
    }
    Ok(SettingsReading {
        rows,
        bios,
        secure_boot,
    })
}

/// Writes values that were read as the wish writes them, where both name the same value: one by its name, the other by its
/// display name.
fn adopt_names(seen: &mut SeenSettings, wanted: &WantedSettings, rules: &BiosRules) {
    for (name, wanted_value) in &wanted.bios {
        let Some(rule) = rules.get(&**name) else { continue };
        for values in [&mut seen.current, &mut seen.pending] {
            if let Some(value) = values.get_mut(&**name)
                && rule.is_same(value, wanted_value)
            {
                *value = wanted_value.to_string();
            }
        }
    }
}

fn text(value: &rackwright_redfish::BiosValue) -> String {
    value.to_string()
}

/// The result of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Names of the written settings.
    pub names: Vec<String>,
    /// The addresses of the BMC's job that applies them.
    pub job: Vec<String>,
}

/// Reads the settings and writes those that differ from the wish. They take effect at the machine's next start.
///
/// # Errors
/// The BMC failed. [`RedfishError::UnfitSettings`] and [`RedfishError::NotOffered`] are permanent, and no setting was
/// written then.
pub async fn apply(client: &BmcClient, wanted: &WantedSettings) -> Result<Written, RedfishError> {
    let seen = look(client, wanted).await?;
    let not_offered = |what: &str| RedfishError::NotOffered {
        bmc: client.address(),
        what: what.to_owned(),
        offered: "nothing of the kind".to_owned(),
    };
    let mut certificates = Vec::new();
    for (key, row) in wanted.keys.iter().zip(keys_of(&seen.rows)) {
        match (row.standing, &key.pem) {
            (SettingStatus::AsWanted, _) => {}
            (SettingStatus::Missing, _) => return Err(not_offered("a list of Secure Boot certificates")),
            (_, Some(pem)) => certificates.push((&key.database, pem, &row.name)),
            (_, None) => {
                return Err(RedfishError::UnfitSettings {
                    bmc: client.address(),
                    faults: vec![format!(
                        "{}: the certificate is missing on the machine, and the site does not give it as PEM",
                        row.name
                    )],
                });
            }
        }
    }
    if wanted.secure_boot.is_some() && seen.secure_boot.is_none() {
        return Err(not_offered("Secure Boot"));
    }
    let mut written = Written::default();
    if !wanted.bios.is_empty() {
        let bios = seen.bios.as_ref().ok_or_else(|| not_offered("BIOS settings"))?;
        // Before its first start a machine may have reported no settings to its BMC; then there is nothing to compare.
        if !bios.current.is_empty() {
            let wanted_value = wanted
                .bios
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()));
            let change = client.set_bios(bios, &wanted_value.collect()).await?;
            written.names.extend(change.written.into_keys());
            written.job = change.job;
        }
    }
    // Certificates first: some BMCs refuse Secure Boot without any.
    for (database, pem, name) in certificates {
        client.enrol_secure_boot_certificate(database, pem).await?;
        written.names.push(name.clone());
    }
    if let Some(enabled) = wanted.secure_boot
        && client.set_secure_boot(enabled).await?
    {
        written.names.push("secure-boot".to_owned());
    }
    Ok(written)
}

/// The rows of keys, which come last and in their order.
fn keys_of(rows: &[SettingRow]) -> impl Iterator<Item = &SettingRow> {
    rows.iter().filter(|row| row.name.starts_with("secure-boot/"))
}

#[cfg(test)]
mod tests {
    use rackwright_redfish::{AttributeKind, AttributeRule};

    use super::*;

    #[test]
    fn a_bmc_that_shows_display_names_does_not_drift() {
        let rule = AttributeRule {
            kind: AttributeKind::Enumeration,
            read_only: false,
            words: ["1", "0", "On", "Off"].map(str::to_owned).to_vec(),
            names: [("1", "On"), ("0", "Off")]
                .map(|(value, shown)| (value.to_owned(), shown.to_owned()))
                .to_vec(),
            least: None,
            most: None,
            shortest: None,
            longest: None,
            display_name: None,
        };
        let rules: BiosRules = [("E".to_owned(), rule)].into();
        for (wanted_value, read, standing) in [
            ("0", "Off", SettingStatus::AsWanted),
            ("Off", "0", SettingStatus::AsWanted),
            ("Off", "1", SettingStatus::Differs),
        ] {
            let wanted = WantedSettings {
                bios: [("E".into(), wanted_value.into())].into(),
                ..WantedSettings::default()
            };
            let mut seen = SeenSettings {
                current: [("E".to_owned(), read.to_owned())].into(),
                ..SeenSettings::default()
            };
            adopt_names(&mut seen, &wanted, &rules);
            assert_eq!(compare(&wanted, &seen)[0].standing, standing, "{wanted_value} {read}");
        }
    }
}
