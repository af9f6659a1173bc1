//! Open calls, streams and console sessions of members, and the end of their rights.
//!
//! Each of them holds a [`Grant`]. A grant ends when the member is deleted or revoked, when the role shrinks, or when the
//! certificate, session or API key of the call ends: at once after a change on this replica, and within [`ROUND`] after a
//! change on another replica.

mod caller;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rackwright_api::v1::Role;
use rackwright_identity::Validity;
use rackwright_lifecycle::{Timestamp, seconds};
use rackwright_store::{MemberRecord, Scope};
use tokio::sync::{Notify, watch};

use crate::api_error::ApiError;
use crate::clock;
use crate::core::Core;

pub use caller::{Caller, is_customers, limited, look_up, new_member_token, of_member, rights_of, word};

/// Interval of the checks of members with open grants, because another replica may have changed them.
const ROUND: Duration = Duration::from_secs(5);
/// Why the grants of a session end with it.
const SESSION_ENDED: &str = "the session or API key of this call has ended; log in again, or use another key";
/// A member's certificate that was not renewed gives a warning when it ends within this time. `rackwright` renews one in
/// its last 10 days.
pub const CERTIFICATE_WARNING_S: i64 = 7 * 86_400;
/// Least time between two writes of a member's last use.
const USE_S: i64 = 3600;

/// Why a grant has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The member was deleted, or the certificate's epoch is over; a sentence.
    Revoked(String),
    /// The member's rights have shrunk; a sentence.
    Reduced(String),
    /// The certificate of the connection has ended.
    Expired,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Revoked(why) | Self::Reduced(why) => f.write_str(why),
            Self::Expired => {
                f.write_str("the certificate of this connection has expired; connect again with a valid certificate")
            }
        }
    }
}

impl From<End> for tonic::Status {
    fn from(end: End) -> Self {
        match end {
            End::Revoked(why) => ApiError::Unauthenticated(why).into(),
            End::Reduced(why) => ApiError::Forbidden(why).into(),
            // A client with a renewed certificate connects again, as after a lost connection.
            End::Expired => Self::unavailable(End::Expired.to_string()),
        }
    }
}

/// The end of a certificate's validity.
#[must_use]
pub fn end_of(leaf: &[u8]) -> Option<Timestamp> {
    Validity::of(leaf)
        .ok()
        .map(|validity| clock::timestamp(validity.not_after))
}

/// All open grants of this process.
#[derive(Debug, Default)]
pub struct Rights {
    open: Mutex<HashMap<u64, Open>>,
    next: AtomicU64,
    /// Grows with each change of members on this replica.
    changes: AtomicU64,
    changed: Notify,
    /// When this process last noted the use of each member.
    noted: Mutex<HashMap<String, Timestamp>>,
}

#[derive(Debug)]
struct Open {
    name: String,
    epoch: u64,
    /// Id of the session or API key of the call; none: the caller has a certificate.
    session: Option<String>,
    /// Role and scope at the admission of the call; none before it.
    admitted: Option<(Role, Scope)>,
    end: watch::Sender<Option<End>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right of one member, in one epoch, to keep one thing open. Clones are the same grant.
#[derive(Debug, Clone)]
pub struct Grant(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rights: Arc<Rights>,
    id: u64,
    end: watch::Receiver<Option<End>>,
    /// The end of the certificate's validity, or of the session.
    until: Option<Timestamp>,
    is_of_session: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        lock(&self.rights.open).remove(&self.id);
    }
}

impl Grant {
    /// Stores the rights at admission: the grant ends when the member has less.
    pub fn admit(&self, caller: &Caller) {
        if let Some(open) = lock(&self.0.rights.open).get_mut(&self.0.id) {
            open.admitted = Some((caller.role, caller.scope.clone()));
        }
    }

    /// Lets the open thing finish by itself: no later change of the member ends it.
    pub fn detach(&self) {
        lock(&self.0.rights.open).remove(&self.0.id);
    }

    /// Waits until the grant ends.
    pub fn ended(&self) -> impl Future<Output = End> + Send + use<> {
        let (mut end, until) = (self.0.end.clone(), self.0.until);
        let at_until = match self.0.is_of_session {
            true => End::Revoked(SESSION_ENDED.into()),
            false => End::Expired,
        };
        async move {
            let expired = async {
                match until {
                    Some(until) => tokio::time::sleep(time_until(until)).await,
                    None => std::future::pending().await,
                }
            };
            let changed = async {
                let end = end.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
                match end {
                    Some(end) => end,
                    // The open thing may finish by itself.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                end = changed => end,
                () = expired => at_until,
            }
        }
    }
}

/// From now until this moment; zero when it has passed.
fn time_until(until: Timestamp) -> Duration {
    Duration::from_micros(u64::try_from(until.0.saturating_sub(clock::now().0)).unwrap_or(0))
}

impl Rights {
    /// Opens a grant for a member. `until` is the end of the member's certificate.
    #[must_use]
    pub fn open(self: &Arc<Self>, name: &str, epoch: u64, until: Option<Timestamp>) -> Grant {
        self.insert((name, epoch), None, until)
    }

    /// Opens a grant for a member under a session or an API key, which ends at `until`.
    #[must_use]
    pub fn open_session(self: &Arc<Self>, name: &str, epoch: u64, session: &str, until: Timestamp) -> Grant {
        self.insert((name, epoch), Some(session.to_owned()), Some(until))
    }

    fn insert(
        self: &Arc<Self>,
        (name, epoch): (&str, u64),
        session: Option<String>,
        until: Option<Timestamp>,
    ) -> Grant {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (end, receiver) = watch::channel(None);
        let is_of_session = session.is_some();
        let open = Open {
            name: name.to_owned(),
            epoch,
            session,
            admitted: None,
            end,
        };
        lock(&self.open).insert(id, open);
        Grant(Arc::new(Inner {
            rights: Arc::clone(self),
            id,
            end: receiver,
            until,
            is_of_session,
        }))
    }

    /// A number that changes with each change of members on this replica.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Called after a change of members is stored.
    pub fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_one();
    }

    /// Number of open grants.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.open).len()
    }

    fn members(&self) -> HashSet<(String, u64)> {
        let open = lock(&self.open);
        open.values().map(|open| (open.name.clone(), open.epoch)).collect()
    }

    fn sessions(&self) -> HashSet<String> {
        lock(&self.open)
            .values()
            .filter_map(|open| open.session.clone())
            .collect()
    }

    /// Ends the grants of a session.
    fn end_session(&self, session: &str) {
        let open = lock(&self.open);
        for open in open.values().filter(|open| open.session.as_deref() == Some(session)) {
            open.end.send_replace(Some(End::Revoked(SESSION_ENDED.into())));
        }
    }

    /// Ends the grants of a member that exceed the member's present rights.
    fn compare(&self, name: &str, epoch: u64, present: Result<&Caller, &str>) {
        let open = lock(&self.open);
        for open in open
            .values()
            .filter(|open| (open.name.as_str(), open.epoch) == (name, epoch))
        {
            let end = match (present, &open.admitted) {
                (Err(why), _) => End::Revoked(why.to_owned()),
                (Ok(present), Some((role, scope))) if !covers(present, *role, scope) => End::Reduced(format!(
                    "the role of {name:?} gives fewer rights than before; call again"
                )),
                _ => continue,
            };
            open.end.send_replace(Some(end));
        }
    }

    /// Whether to store the use of a member: the stored time is old, and this process has not just stored one.
    fn is_use_due(&self, record: &MemberRecord, now: Timestamp) -> bool {
        let old = now.plus(-seconds(USE_S));
        if record.used_at.is_some_and(|at| at >= old) {
            return false;
        }
        let mut noted = lock(&self.noted);
        if noted.get(&record.name).is_some_and(|at| *at >= old) {
            return false;
        }
        noted.insert(record.name.clone(), now);
        true
    }
}

/// Whether a caller still has all rights of `role` and `scope`.
fn covers(present: &Caller, role: Role, scope: &Scope) -> bool {
    let has_grown = matches!(
        (role, present.role),
        (Role::Viewer, Role::Operator) | (Role::CustomerUser, Role::CustomerAdmin)
    );
    present.scope == *scope && (present.role == role || has_grown)
}

/// Admits a member under a grant with the present rights. Any later loss of them ends the grant.
///
/// # Errors
/// As [`look_up`].
pub async fn admit(core: &Core, name: &str, epoch: u64, grant: &Grant) -> Result<Caller, ApiError> {
    loop {
        let before = core.rights.changes();
        let (caller, record) = look_up(core, name, epoch).await?;
        grant.admit(&caller);
        // A change in between compared the grant before it had the role: read again.
        if core.rights.changes() == before {
            record_use(core, &record);
            return Ok(caller);
        }
    }
}

/// Notes a member's call: one write for each member and hour, apart from the call.
pub fn record_use(core: &Core, record: &MemberRecord) {
    let now = clock::now();
    if !core.rights.is_use_due(record, now) {
        return;
    }
    let (store, name, epoch) = (core.store.clone(), record.name.clone(), record.epoch);
    tokio::spawn(async move {
        if let Err(error) = store.record_use(&name, epoch, now, now.plus(-seconds(USE_S))).await {
            tracing::debug!(name, %error, "the last use of a member could not be stored");
        }
    });
}

async fn compare_all(core: &Core) {
    for (name, epoch) in core.rights.members() {
        match look_up(core, &name, epoch).await {
            Ok((caller, _)) => core.rights.compare(&name, epoch, Ok(&caller)),
            // Grants stay open while the database is unavailable.
            Err(ApiError::Store(error)) => tracing::warn!(name, %error, "the rights of a member cannot be read"),
            Err(error) => core.rights.compare(&name, epoch, Err(&error.to_string())),
        }
    }
    for session in core.rights.sessions() {
        match core.store.session_is_open(&session, clock::now()).await {
            Ok(true) => {}
            Ok(false) => core.rights.end_session(&session),
            Err(error) => tracing::warn!(session, %error, "a session cannot be read"),
        }
    }
}

/// Ends grants until the core stops.
pub async fn run(core: Arc<Core>) {
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.rights.changed.notified() => {}
            () = tokio::time::sleep(ROUND) => {}
        }
        compare_all(&core).await;
    }
}
