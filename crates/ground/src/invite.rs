//! `rackwrightd invite-operator` invites an operator on the control plane's own host, also while the daemon is down.
//!
//! It serves a site where no operator can log in. The holder of a control plane's keys and database can do anything with
//! the site anyway. This command leaves a trace: it stores an event before it makes a token.

use std::path::PathBuf;
use std::sync::Arc;

use rackwright_identity::{ClientIdentity, KeyFiles, SystemRng};
use rackwright_lifecycle::{EventKind, Timestamp, seconds};
use rackwright_store::{BackupError, EventRow, MemberRow, Store, StoreError};

use crate::api_error::ApiError;
use crate::audit::local::{self, LocalError};
use crate::clock;
use crate::config::Config;
use crate::local_user::LocalUser;
use crate::rights::new_member_token;

/// Validity of the token.
const LIFETIME_S: i64 = 3600;

/// Why the invitation failed.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// The database failed.
    #[error("the database does not answer, so the event cannot be stored")]
    Store(#[from] StoreError),
    /// This host has no keys of a control plane.
    #[error("{} is not a folder: run this command on a host with the keys of a control plane", .0.display())]
    NoKeys(PathBuf),
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(#[from] rackwright_identity::KeyFileError),
    /// No reason is given.
    #[error("--reason TEXT is needed, 1 to 1000 characters: the event of this command contains the reason")]
    NoReason,
    /// The name is not valid.
    #[error("--name: {0}")]
    Name(String),
    /// The database cannot be read.
    #[error(transparent)]
    Unread(#[from] BackupError),
    /// The database has no site.
    #[error(
        "the database {0} contains no site, so no operator can be invited to it, and nothing was changed: name the right \
         --config; at its first start with an empty database rackwrightd prints a token for the first operator"
    )]
    NoSite(String),
    /// The database is of another site.
    #[error(
        "the database belongs to the site with authority {site}, and the keys here belong to authority {ours}: name the \
         right --config"
    )]
    OtherSite {
        /// The authority of the database's site.
        site: String,
        /// The authority of the keys.
        ours: String,
    },
    /// The audit failed.
    #[error(transparent)]
    Audit(#[from] LocalError),
    /// The token was not made.
    #[error("the token could not be created; the event of the invitation is already stored")]
    Token(#[from] ApiError),
}

/// Invites an operator after an event about it is stored. Returns lines for the terminal, which contain the token.
///
/// # Errors
/// [`InviteError`]. Without the event, there is no token.
pub async fn invite(config: &Config, name: &str, reason: &str) -> Result<String, InviteError> {
    let reason = checked_reason(reason)?;
    ClientIdentity::member(name, 0).map_err(|error| InviteError::Name(error.to_string()))?;
    let folder = config.data_dir.join("keys");
    if !folder.is_dir() {
        return Err(InviteError::NoKeys(folder));
    }
    // Read before the database is opened, which would make its tables.
    let site = config.database.authority().await?;
    let site = site.ok_or_else(|| InviteError::NoSite(config.database.to_string()))?;
    let now = clock::now();
    let keys = KeyFiles::load_or_create(&config.data_dir, "", clock::system_time(now), Arc::new(SystemRng))?;
    let ours = keys.authority.site_id();
    if site != ours {
        return Err(InviteError::OtherSite { site, ours });
    }
    let store = Store::open(config.database.clone()).await?;
    let user = LocalUser::present();
    // The audit record comes before the event, and both before the token.
    let what = ("invite-operator", &*format!("members/{name}"), reason);
    let recorded = local::record(config, &keys, &store, &user, what).await;
    let token = match recorded {
        Ok(()) => invite_from(&store, name, reason, &user, now).await,
        Err(error) => Err(error.into()),
    };
    store.close().await;
    let token = token?;
    Ok(format!(
        "{name} can log in as an operator once within {} minutes with:\n\n{}",
        LIFETIME_S / 60,
        login_command(config, &keys.authority.ca_sha256(), &token)
    ))
}

pub(crate) fn checked_reason(reason: &str) -> Result<&str, InviteError> {
    let reason = reason.trim();
    if reason.is_empty() || reason.chars().count() > 1000 || reason.chars().any(char::is_control) {
        return Err(InviteError::NoReason);
    }
    Ok(reason)
}

/// The same with an open database. Returns the token.
///
/// # Errors
/// As [`invite`].
pub async fn invite_from(
    store: &Store,
    name: &str,
    reason: &str,
    user: &LocalUser,
    now: Timestamp,
) -> Result<String, InviteError> {
    let reason = checked_reason(reason)?;
    let present = store.member(name).await?;
    if present.as_ref().is_some_and(|present| present.origin.is_some()) {
        return Err(InviteError::Name(format!(
            "{name:?} is a member who logs in by the identity provider; choose another name"
        )));
    }
    if present.is_some_and(|present| !present.given.customer.is_empty()) {
        return Err(InviteError::Name(format!(
            "{name:?} is a member of a customer; choose another name"
        )));
    }
    let mut attributes = vec![
        ("reason".to_owned(), reason.to_owned()),
        ("uid".to_owned(), user.uid.to_string()),
        ("user".to_owned(), user.name.clone()),
    ];
    attributes.extend(user.login_uid.map(|uid| ("login_uid".to_owned(), uid.to_string())));
    // A change of its own, before the change with the token: the event is visible before the token can be used.
    let mut tx = store.write().await?;
    tx.add_event(&EventRow {
        at: now,
        kind: EventKind::SecurityOperatorInvitedLocally,
        target: format!("members/{name}"),
        message: format!(
            "{name} was invited as an operator on the control plane's host by {}: {reason}",
            user.description()
        ),
        attributes: attributes.into_iter().collect(),
        ..EventRow::default()
    })
    .await?;
    tx.commit().await?;
    let mut tx = store.write().await?;
    let ends = now.plus(seconds(LIFETIME_S));
    let token = new_member_token(&SystemRng, &mut tx, name, &operator(), ends, "").await?;
    tx.commit().await?;
    Ok(token)
}

/// The rights of an operator of the site.
#[must_use]
pub fn operator() -> MemberRow {
    MemberRow {
        role: "operator".into(),
        customer: "".into(),
    }
}

/// The command that redeems a token, as text for people.
#[must_use]
pub fn login_command(config: &Config, ca_sha256: &str, token: &str) -> String {
    let name = config.names.first().map_or("localhost", String::as_str);
    let port = config.api_listen.port();
    format!(
        "  rackwright login --server https://{name}:{port} \\\n    --ca-sha256 {ca_sha256} \\\n    --token {token}\n"
    )
}

#[cfg(test)]
mod tests {
    use rackwright_identity::TokenHash;
    use rackwright_store::Scope;

    use super::*;
    use crate::testing;

    fn user() -> LocalUser {
        LocalUser {
            uid: 0,
            name: "root".into(),
            login_uid: Some(1000),
        }
    }

    #[tokio::test]
    async fn an_invitation_leaves_an_event_and_a_token_for_an_hour() {
        let core = testing::core().await;
        let now = clock::now();
        let token = invite_from(&core.store, "ann", " nobody can log in ", &user(), now)
            .await
            .unwrap();
        let events = core.store.events(&Scope::Site, 0, "members/ann", 9).await.unwrap();
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!(event.kind, "security.operator-invited-locally");
        assert!(
            event
                .message
                .ends_with("by root, uid 0, logged in as uid 1000: nobody can log in"),
            "{event:?}"
        );
        assert_eq!(
            (event.attributes["uid"].as_str(), event.attributes["reason"].as_str()),
            ("0", "nobody can log in")
        );
        assert!(!format!("{events:?}").contains(&token), "the event repeats the token");
        let hash = TokenHash::of(&token).unwrap().to_hex();
        let mut tx = core.store.write().await.unwrap();
        let (row, is_used) = tx.token(&hash, "member").await.unwrap().unwrap();
        assert!(!is_used);
        assert_eq!(
            (row.body.as_str(), row.expires_at),
            ("operator", now.plus(seconds(3600)))
        );
    }

    #[tokio::test]
    async fn a_database_of_no_site_or_another_one_is_refused_and_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let config = testing::config(dir.path(), "");
        let now = clock::system_time(clock::now());
        KeyFiles::load_or_create(&config.data_dir, "Rackwright test", now, Arc::new(SystemRng)).unwrap();
        let refused = invite(&config, "ann", "no operator can log in").await.unwrap_err();
        assert!(matches!(refused, InviteError::NoSite(_)), "{refused}");
        assert!(!config.database.file().unwrap().exists(), "no database was made");

        let store = Store::open(config.database.clone()).await.unwrap();
        let refused = invite(&config, "ann", "no operator can log in").await.unwrap_err();
        assert!(matches!(refused, InviteError::NoSite(_)), "{refused}");
        let site = store.site_authority("theirs").await.unwrap();
        assert_eq!(site, "theirs", "the command stored no authority");

        let refused = invite(&config, "ann", "no operator can log in").await.unwrap_err();
        assert!(
            matches!(&refused, InviteError::OtherSite { site, .. } if site == "theirs"),
            "{refused}"
        );
        assert_eq!(store.events(&Scope::Site, 0, "", 9).await.unwrap(), []);
        assert_eq!(
            store.member_tokens(&Scope::Site, clock::now(), "", 9).await.unwrap(),
            []
        );
        store.close().await;
    }

    #[tokio::test]
    async fn without_a_reason_or_with_a_customers_name_nothing_is_stored() {
        let core = testing::core().await;
        let mut tx = core.store.write().await.unwrap();
        let customers = MemberRow {
            role: "customer-user".into(),
            customer: "acme".into(),
        };
        tx.put_member("ann", &customers, 1, Timestamp(1)).await.unwrap();
        tx.commit().await.unwrap();
        for (name, reason) in [("bob", ""), ("bob", " \t"), ("bob", "a\nb"), ("ann", "why not")] {
            let refused = invite_from(&core.store, name, reason, &user(), clock::now()).await;
            assert!(refused.is_err(), "{name} {reason:?}");
        }
        assert_eq!(core.store.events(&Scope::Site, 0, "", 9).await.unwrap(), []);
        let tokens = core.store.member_tokens(&Scope::Site, clock::now(), "", 9).await;
        assert_eq!(tokens.unwrap(), []);
    }
}
