//! Boot options and Secure Boot: compared with the inspection, and corrected over the BMC.

use rackwright_ground::bmc_state;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::text::{NAME_MAX, cut};
use rackwright_lifecycle::bmc_state::uefi::{
    Baseline, BootOption, Key, Keys, SecureBoot, Shown, Uefi, UefiRules, differences, expected_order,
    expected_secure_boot,
};
use rackwright_lifecycle::bmc_state::{BmcReading, BmcRules, Item, Part};
use rackwright_redfish::{BmcClient, BmcState, KeysReset, RedfishError, Shown as Seen, UefiState};
use rackwright_store::{NodeRecord, StoreError};

use crate::firmware_settings::WantedCache;

/// The longest UEFI device path that is stored.
const DEVICE_MAX: usize = 1024;

/// The wish and the baseline for one node's boot options and Secure Boot.
pub(super) struct Against {
    /// Whether they are read.
    pub(super) is_read: bool,
    rules: UefiRules,
    baseline: Option<Baseline>,
}

impl Against {
    pub(super) async fn of(core: &Core, record: &NodeRecord) -> Result<Self, StoreError> {
        let settings = &core.config.bmc_state;
        let is_read = settings.uefi == bmc_state::Uefi::Restore;
        let baseline = match is_read {
            true => core.store.uefi_baseline(&record.id).await?,
            false => None,
        };
        let mut rules = UefiRules {
            keep_boot_options: settings.keep_boot_options.clone(),
            ..UefiRules::default()
        };
        if let Some(site) = core.feature::<WantedCache>().of(core, record).await? {
            rules.secure_boot = site.secure_boot;
            let keys = site.keys.iter();
            rules.keys = keys
                .map(|key| (key.database.to_string(), key.sha256.to_string()))
                .collect();
        }
        Ok(Self {
            is_read,
            rules,
            baseline,
        })
    }

    /// The parts of a reading that differ from the wish; empty without a baseline.
    pub(super) fn differences(&self, state: &BmcState) -> BmcReading {
        match (&state.uefi, &self.baseline) {
            (Some(seen), Some(baseline)) => differences(&uefi(seen), &baseline.seen, &self.rules),
            _ => Vec::new(),
        }
    }

    /// The new baseline from an inspection's reading.
    pub(super) fn of_inspection(&self, state: &BmcState) -> Option<Box<Baseline>> {
        let seen = uefi(state.uefi.as_ref()?);
        let baseline = Baseline::of_inspection(seen, clock::now(), self.baseline.clone());
        Some(Box::new(baseline))
    }

    /// The baseline, completed from the last reading, if parts are missing: nodes inspected by an older version have no
    /// baseline.
    pub(super) fn first_seen(&self, state: &BmcState, rules: &BmcRules) -> Option<Box<Baseline>> {
        let seen = uefi(state.uefi.as_ref().filter(|_| !rules.starts_again)?);
        let mut baseline = self.baseline.clone().unwrap_or_default();
        baseline.fill(&seen, clock::now()).then(|| Box::new(baseline))
    }

    /// Corrects one difference.
    pub(super) async fn restore(&self, client: &BmcClient, state: &BmcState, item: &Item) -> Result<(), RedfishError> {
        let (Some(raw), Some(baseline)) = (&state.uefi, &self.baseline) else {
            return Ok(());
        };
        match item.part {
            Part::BootOptions => {
                let Seen::Known(options) = &raw.options else {
                    return Ok(());
                };
                match options.iter().find(|option| option.path == item.path) {
                    Some(option) => client.remove_boot_option(option).await,
                    None => Ok(()),
                }
            }
            Part::BootOrder => {
                let first = expected_order(&uefi(raw), &baseline.seen);
                client.put_boot_order(&first).await
            }
            Part::SecureBoot if item.path == "SecureBootMode" => {
                client.reset_secure_boot_keys(KeysReset::ToDefault).await
            }
            Part::SecureBoot => match expected_secure_boot(&uefi(raw), &baseline.seen, &self.rules) {
                Some(wanted) => client.set_secure_boot(wanted).await.map(drop),
                None => Ok(()),
            },
            Part::SecureBootKeys => restore_keys(client, raw, item).await,
            _ => Ok(()),
        }
    }
}

async fn restore_keys(client: &BmcClient, raw: &UefiState, item: &Item) -> Result<(), RedfishError> {
    let Seen::Known(keys) = &raw.keys else { return Ok(()) };
    // A missing key carries the name of its database.
    if !item.user.is_empty() {
        return match item.path.as_str() {
            "" => client.reset_secure_boot_keys(KeysReset::ToDefault).await,
            database => client.reset_secure_boot_database(database).await,
        };
    }
    let Some(key) = keys.entries.iter().find(|key| key.path == item.path) else {
        return Ok(());
    };
    let database = keys.databases.iter().find(|(id, _)| *id == key.database);
    let path = database.map(|(_, path)| path.as_str()).unwrap_or_default();
    client.remove_secure_boot_key(key, path).await
}

fn shown<T, U>(seen: &Seen<T>, then: impl FnOnce(&T) -> U) -> Shown<U> {
    match seen {
        Seen::Known(it) => Shown::Known(then(it)),
        Seen::NotOffered => Shown::NotOffered,
        Seen::Unread(why) => Shown::Unread(cut(why, NAME_MAX)),
    }
}

fn uefi(state: &UefiState) -> Uefi {
    Uefi {
        options: shown(&state.options, |options| {
            let option = |one: &rackwright_redfish::UefiBootOption| BootOption {
                reference: one.reference.clone(),
                name: cut(&one.name, NAME_MAX),
                device: cut(&one.device, DEVICE_MAX),
                path: one.path.clone(),
            };
            options.iter().map(option).collect()
        }),
        order: shown(&state.order, Clone::clone),
        secure_boot: shown(&state.secure_boot, |seen| SecureBoot {
            enabled: seen.enabled,
            mode: seen.mode.clone(),
        }),
        keys: shown(&state.keys, |keys| {
            let key = |one: &rackwright_redfish::UefiKey| Key {
                database: one.database.clone(),
                name: cut(&one.name, NAME_MAX),
                identity: one.identity.clone(),
                path: one.path.clone(),
            };
            Keys {
                entries: keys.entries.iter().map(key).collect(),
                revoked: keys.revoked,
                databases: keys.databases.iter().cloned().collect(),
            }
        }),
    }
}
