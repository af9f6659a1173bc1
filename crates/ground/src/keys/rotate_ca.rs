//! `rackwrightd rotate-keys ca`: changes the site's authority with an overlap, on the control plane's own host, with or
//! without a running daemon.
//!
//! Only the database marks the end of a rotation. If a command is killed after that mark, the daemons or a repeated command
//! do the rest.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use rackwright_identity::{KeyFiles, SystemRng};
use rackwright_store::{ReplicaKeys, Store, StoreError};

use super::rotate::{RotateError, event, open, record, write_down};
use crate::clock;
use crate::config::Config;
use crate::invite::checked_reason;
use crate::share::alive_since;

/// How long the end of a rotation waits for running daemons.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(60);
/// Time between two reads of their state.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

fn reason_of(reason: &str) -> Result<&str, RotateError> {
    checked_reason(reason).map_err(|_| RotateError::NoReason)
}

/// Adds the next authority after an audit record and an event about it were stored. Returns the next steps for the
/// operator.
///
/// # Errors
/// [`RotateError`]. Without the event, no authority is made.
pub async fn begin(config: &Config, reason: &str) -> Result<String, RotateError> {
    let reason = reason_of(reason)?;
    let (keys, store) = open(config).await?;
    super::authority::begin(&store, &keys, &config.data_dir)
        .await
        .map_err(|error| RotateError::Start(error.to_string()))?;
    if keys.authority.next().is_some() {
        return Err(rackwright_identity::KeyFileError::AuthorityRotates.into());
    }
    let message = format!("the next authority is made: {reason}");
    record(config, &keys, &store, &message).await?;
    write_down(&store, &message).await?;
    let subject = format!("Rackwright {}", config.site);
    let now = clock::system_time(clock::now());
    let (file, hash) = KeyFiles::rotate_authority(&config.data_dir, &subject, now, Arc::new(SystemRng))?;
    store.close().await;
    Ok(format!(
        "the next authority is {hash}: {}\n\
         1. Back up the key folder. With several rackwrightd, copy the file to the key folder of each, with owner and mode.\n\
         2. Each running rackwrightd loads it within a minute. When all have it, it signs all new client certificates.\n   \
         A member gets a certificate with the next command of `rackwright`, an agent at once.\n\
         3. rackwrightd rotate-keys ca --status                  # names members and nodes without such a certificate\n\
         4. rackwrightd rotate-keys ca --finish --reason TEXT    # drops the former authority and removes its key\n",
        file.display()
    ))
}

/// The users of the present authority.
struct Remaining {
    /// Live replicas that do not issue client certificates with the next authority.
    replicas: Vec<String>,
    /// Members and nodes without a certificate of the next authority.
    names: Vec<String>,
    /// Unused tokens of members.
    tokens: i64,
}

async fn remaining(store: &Store, next: &str) -> Result<Remaining, StoreError> {
    let live = store.replica_keys(alive_since(clock::now())).await?;
    let behind = live.into_iter().filter(|one| one.issues_with != next);
    let members = store.members_without(next, clock::now()).await?;
    let nodes = store.agents_without(next).await?;
    let members = members.into_iter().map(|name| format!("members/{name}"));
    Ok(Remaining {
        replicas: behind.map(|one| one.replica).collect(),
        names: members
            .chain(nodes.into_iter().map(|id| format!("nodes/{id}")))
            .collect(),
        tokens: store.open_member_tokens(clock::now()).await?,
    })
}

/// The progress of the rotation.
///
/// # Errors
/// [`RotateError`].
pub async fn status(config: &Config) -> Result<String, RotateError> {
    let (keys, store) = open(config).await?;
    let present = keys.authority.ca_sha256();
    let needed = store.required_authority().await?;
    let Some(next) = keys.authority.next() else {
        store.close().await;
        return Ok(format!("the authority is {present}; no rotation is under way\n"));
    };
    if needed == next {
        store.close().await;
        return Ok(format!(
            "the rotation to {next} has ended, and the key of the former authority is still in the key folder; a running \
             rackwrightd removes it within a minute, and so does `rackwrightd rotate-keys ca --finish`\n"
        ));
    }
    let remaining = remaining(&store, &next).await?;
    store.close().await;
    let mut text = format!("the authority is {present}\nthe next authority is {next}\n");
    for replica in &remaining.replicas {
        let _ = writeln!(text, "replica {replica} does not use the next authority yet");
    }
    for name in &remaining.names {
        let _ = writeln!(text, "{name} has no certificate of the next authority yet");
    }
    if remaining.tokens > 0 {
        let _ = writeln!(
            text,
            "{} unused tokens of members contain the hash of the present authority and become invalid at the end of the \
             rotation",
            remaining.tokens
        );
    }
    if remaining.replicas.is_empty() && remaining.names.is_empty() {
        text.push_str("rackwrightd rotate-keys ca --finish --reason TEXT ends the rotation\n");
    }
    Ok(text)
}

/// Ends the rotation: only the next authority is trusted, and the key of the former one is removed. With `leave_behind`,
/// members or agents may still lack a certificate of the next one.
///
/// # Errors
/// [`RotateError`]. Then both authorities are still trusted, unless the error comes from the key folder.
pub async fn finish(config: &Config, reason: &str, leave_behind: bool) -> Result<String, RotateError> {
    let reason = reason_of(reason)?;
    let (keys, store) = open(config).await?;
    let next = keys.authority.next().ok_or(RotateError::NoRotation)?;
    let mut without = 0;
    // Already marked: an earlier command was killed before it finished.
    if store.required_authority().await? != next {
        let remaining = remaining(&store, &next).await?;
        if !remaining.replicas.is_empty() {
            return Err(RotateError::AuthorityBehind(remaining.replicas));
        }
        if !remaining.names.is_empty() && !leave_behind {
            return Err(RotateError::LeftBehind(remaining.names));
        }
        without = remaining.names.len();
        let message = format!(
            "the authority {} is dropped, {without} members and agents without a certificate of {next} are left behind: {reason}",
            keys.authority.ca_sha256()
        );
        record(config, &keys, &store, &message).await?;
        let mut tx = store.write().await?;
        tx.require_authority(&next).await?;
        tx.add_event(&event(&message)).await?;
        tx.commit().await?;
    }
    KeyFiles::retire_authorities(&config.data_dir, &next, Arc::new(SystemRng))?;
    let slow = until_followed(&store, &next).await?;
    store.close().await;
    let mut text = format!(
        "the authority is {next} now; the key of the former authority is removed. Earlier backups of the key folder \
         still contain it.\n"
    );
    if without > 0 {
        let _ = writeln!(text, "{without} members and agents were left behind.");
    }
    if !slow.is_empty() {
        let _ = writeln!(
            text,
            "These replicas have not dropped the former authority within {} s, and still trust it: {}",
            FOLLOWED_WITHIN.as_secs(),
            slow.join(", ")
        );
    }
    Ok(text)
}

/// Waits until every live replica trusts only this authority. Returns the replicas that do not in time.
async fn until_followed(store: &Store, authority: &str) -> Result<Vec<String>, StoreError> {
    let begun = std::time::Instant::now();
    loop {
        let live = store.replica_keys(alive_since(clock::now())).await?;
        let slow = |one: &ReplicaKeys| one.authorities != [authority];
        let slow: Vec<String> = live.into_iter().filter(slow).map(|one| one.replica).collect();
        if slow.is_empty() || begun.elapsed() > FOLLOWED_WITHIN {
            return Ok(slow);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
