//! The options of every mutating command: an idempotency key and, optionally, the version on which the decision is based.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use clap::Args;
use rackwright_api::v1::Mutation;
use ring::rand::SecureRandom as _;

use crate::error::CliError;
use crate::{random, units};

/// The two options every mutating command has.
#[derive(Debug, Clone, Default, Args)]
pub struct MutationArgs {
    /// Idempotency key: a repeat of the same request with the same key gets the first answer (default: a new UUID)
    #[arg(long, value_name = "KEY", value_parser = key, help_heading = "Safety")]
    pub idempotency_key: Option<String>,
    /// Make the change only if the resource still has this metadata.resource_version
    #[arg(long, value_name = "VERSION", help_heading = "Safety")]
    pub resource_version: Option<String>,
}

/// 1 to 64 printable ASCII characters; the API accepts 128, the rest is for the suffixes of `part` and `of`.
fn key(text: &str) -> Result<String, String> {
    if !(1..=64).contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("a key is 1 to 64 printable ASCII characters without spaces".to_owned());
    }
    Ok(text.to_owned())
}

impl MutationArgs {
    /// The mutation of a command with one call.
    pub fn once(&self) -> Mutation {
        Mutation {
            idempotency_key: self.idempotency_key.clone().unwrap_or_else(fresh_key),
            resource_version: self.resource_version.clone().unwrap_or_default(),
        }
    }

    /// The mutations of a command with one call for each target: every call has its own key.
    pub fn each(&self, targets: usize) -> Result<EachMutation, CliError> {
        if targets > 1 && self.resource_version.is_some() {
            return Err(CliError::usage(
                "--resource-version applies to one resource, but several are given",
                "run the command once for each resource",
            ));
        }
        Ok(EachMutation {
            base: self.once(),
            several: targets > 1,
            versions: BTreeMap::new(),
        })
    }

    /// Like [`each`](Self::each) for selected targets, by name with their versions. Their keys have the names of the
    /// targets, also for one target: a repeat of the command may select fewer targets.
    ///
    /// A call changes only the shown version of its target. With a given key it changes any version: a repeat must be the
    /// same call.
    pub fn each_selected(&self, versions: BTreeMap<String, String>) -> Result<EachMutation, CliError> {
        let mut each = self.each(versions.len())?;
        each.several = true;
        if self.idempotency_key.is_none() && self.resource_version.is_none() {
            each.versions = versions;
        }
        Ok(each)
    }

    /// The mutation of a command with several different calls: `part` distinguishes their keys, equally in every run.
    pub fn part(&self, base: &str, part: &str) -> Mutation {
        Mutation {
            idempotency_key: format!("{base}.{part}"),
            resource_version: self.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// Mutations for several targets under one key.
#[derive(Debug)]
pub struct EachMutation {
    base: Mutation,
    several: bool,
    /// Versions of targets, by name.
    versions: BTreeMap<String, String>,
}

impl EachMutation {
    /// The mutation for one target; a repeat with fewer targets uses the same keys.
    pub fn of(&self, id: &str) -> Mutation {
        let mut mutation = self.base.clone();
        if self.several {
            mutation.idempotency_key = format!("{}.{id}", mutation.idempotency_key);
        }
        if let Some(version) = self.versions.get(id) {
            mutation.resource_version.clone_from(version);
        }
        mutation
    }
}

/// A random UUID (version 4).
pub fn fresh_key() -> String {
    let mut bytes = [0u8; 16];
    if random::source().fill(&mut bytes).is_err() {
        // The kernel's random source does not fail on a running machine; a key from the clock is still usable.
        let since = units::system_time().duration_since(UNIX_EPOCH);
        bytes = since.unwrap_or_default().as_nanos().to_le_bytes();
    }
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_keys_differ_and_given_ones_stay() {
        let args = MutationArgs::default();
        assert_ne!(args.once().idempotency_key, args.once().idempotency_key);
        let args = MutationArgs {
            idempotency_key: Some("k".into()),
            resource_version: None,
        };
        assert_eq!(args.once().idempotency_key, "k");
        let each = args.each(2).unwrap();
        assert_eq!(
            (each.of("a").idempotency_key, each.of("b").idempotency_key),
            ("k.a".into(), "k.b".into())
        );
        assert_eq!(args.each(1).unwrap().of("a").idempotency_key, "k");
        let shown = BTreeMap::from([("a".to_owned(), "7".to_owned())]);
        let kept = args.each_selected(shown.clone()).unwrap().of("a");
        assert_eq!(
            (kept.idempotency_key, kept.resource_version),
            ("k.a".into(), String::new())
        );
        let fresh = MutationArgs::default().each_selected(shown).unwrap();
        assert_eq!(
            (fresh.of("a").resource_version, fresh.of("b").resource_version),
            ("7".into(), String::new())
        );
    }

    #[test]
    fn one_version_for_several_resources_is_refused() {
        let args = MutationArgs {
            idempotency_key: None,
            resource_version: Some("7".into()),
        };
        assert!(args.each(2).is_err());
        assert_eq!(args.each(1).unwrap().of("a").resource_version, "7");
    }

    #[test]
    fn keys_are_checked() {
        assert!(key("ok-1").is_ok());
        for wrong in ["", "a b", "ü", &"x".repeat(65)] {
            assert!(key(wrong).is_err(), "{wrong}");
        }
    }
}
