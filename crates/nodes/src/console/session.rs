//! A client's session at a console, by gRPC or SSH.

use std::sync::Arc;
use std::time::Duration;

use rackwright_api::v1::Role;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::audit::call;
use rackwright_ground::core::Core;
use rackwright_ground::rights;
use rackwright_ground::rights::{Caller, Grant};
use rackwright_lifecycle::{EventKind, NodeId};
use rackwright_serial::{ConsoleChannels, ConsoleOutput, Entry};
use rackwright_store::Scope;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;

use super::AttachRefused;
use super::access::ConsoleAccess;
use super::hub::{Attachment, LineState};
use crate::console::Consoles;

/// Interval of checks of the client's permission; it is also checked when the node changes hands.
const RECHECK: Duration = Duration::from_secs(2);
/// Messages that a slow client may lag behind.
const QUEUE: usize = 64;

/// Attaches a member to a console. `grant` is that of the call, if it has one: the console ends with the call's login.
/// `key_role` is the role of an API key: the member has no more rights than that.
///
/// # Errors
/// The member has no permission, or another client types.
pub async fn enter(
    core: &Arc<Core>,
    caller: Caller,
    node: &NodeId,
    entry: Entry,
    (grant, key_role): (Option<Grant>, Option<Role>),
) -> Result<ConsoleChannels, ApiError> {
    call::note_target(&format!("nodes/{node}"));
    let grant = grant.unwrap_or_else(|| core.rights.open(&caller.name, caller.epoch, None));
    // Checked under the grant: from here on a loss of rights ends the session.
    let caller = rights::admit(core, &caller.name, caller.epoch, &grant).await?;
    let caller = match key_role {
        Some(role) => rights::limited(caller, role)?,
        None => caller,
    };
    let access = ConsoleAccess::new(core, caller, node, entry != Entry::ReadOnly).await?;
    let access = access.of_key(key_role);
    let caller_name = access.caller.name.clone();
    // Recorded before the console opens, because input cannot be undone.
    core.audit_now().await?;
    let attached = core
        .feature::<Consoles>()
        .attach(&access.record, entry, &caller_name)
        .map_err(|why| {
            let (message, advice) = match why {
                AttachRefused::KeyboardTaken(other) => (
                    format!("{other} types at the console of {node}"),
                    "attach read-only, or take over",
                ),
                AttachRefused::BmcChanged => (
                    format!("the BMC of {node} was changed just now: the connection to the former BMC is being closed"),
                    "try again in a few seconds",
                ),
            };
            ApiError::precondition(format!("nodes/{node}"), message, advice)
        })?;
    let verb = match entry {
        Entry::ReadOnly => "is attached read-only to",
        Entry::Write => "is attached to",
        Entry::TakeOver => "has taken over",
    };
    let (target, message) = (format!("nodes/{node}"), format!("{caller_name} {verb} the console"));
    core.event(EventKind::ConsoleAttached, &target, &message).await;
    let (input, typed) = mpsc::channel(QUEUE);
    let (sender, output) = mpsc::channel(QUEUE);
    let core = Arc::clone(core);
    tokio::spawn(async move {
        let end = tokio::select! {
            () = core.stop.cancelled() => Some("the server is stopping; connect again".to_owned()),
            end = grant.ended() => Some(end.to_string()),
            end = serve(&core, &access, attached, typed, &sender) => end,
        };
        if let Some(end) = end {
            let _ = sender.send(ConsoleOutput::End(end)).await;
        }
    });
    Ok(ConsoleChannels { input, output })
}

/// Runs the session. Returns `None` when the client leaves, otherwise the reason why the session has to end.
async fn serve(
    core: &Core,
    access: &ConsoleAccess,
    mut at: Attachment,
    mut typed: mpsc::Receiver<Vec<u8>>,
    sender: &mpsc::Sender<ConsoleOutput>,
) -> Option<String> {
    let mut recheck = tokio::time::interval(RECHECK);
    let (mut may_type, mut holder) = (at.types(), at.demand.borrow().holder.clone());
    let (mut last_notice, is_site) = (None, access.caller.scope == Scope::Site);
    at.state.mark_changed();
    loop {
        let next = tokio::select! {
            biased;
            // First in the order: output for the next holder must not reach this client.
            changed = at.demand.changed() => {
                let now = at.demand.borrow_and_update().holder.clone();
                if changed.is_err() {
                    return Some("the console is closed".into());
                }
                if now == holder {
                    continue;
                }
                holder = now;
                if let Err(why) = access.recheck(core, false).await {
                    return Some(why);
                }
                continue;
            }
            _ = recheck.tick() => match access.recheck(core, may_type).await {
                Ok(()) => continue,
                Err(why) => return Some(why),
            },
            _ = at.typist.changed() => match at.displaced() {
                Some(other) => {
                    may_type = false;
                    ConsoleOutput::Notice(format!("{other} has taken over; your session is read-only now"))
                }
                None => continue,
            },
            _ = at.state.changed() => match line_notice(&at.state.borrow_and_update().clone(), is_site, &mut last_notice) {
                Some(notice) => notice,
                None => continue,
            },
            bytes = typed.recv() => match bytes {
                None => return None,
                Some(bytes) if may_type => {
                    at.type_in(bytes).await;
                    continue;
                }
                Some(_) => continue,
            },
            piece = at.output.recv() => match piece {
                Ok(bytes) => ConsoleOutput::Data(bytes.to_vec()),
                Err(RecvError::Lagged(count)) => ConsoleOutput::Notice(format!("{count} pieces of output came too fast and are lost")),
                Err(RecvError::Closed) => return Some("the console is closed".into()),
            },
        };
        if sender.send(next).await.is_err() {
            return None;
        }
    }
}

/// The notice when the line's state changes; a lasting failure is reported once. Only members of the site see the
/// reason: it names addresses and users of BMCs, and replicas.
pub(super) fn line_notice(state: &LineState, is_site: bool, last_notice: &mut Option<String>) -> Option<ConsoleOutput> {
    let notice = match state {
        LineState::Opening => return None,
        LineState::Open => "the console is open".to_owned(),
        LineState::Broken(why) if is_site => format!("{why}; another attempt follows"),
        LineState::Broken(_) => "the console cannot be reached now; another attempt follows".to_owned(),
    };
    if last_notice.as_ref() == Some(&notice) {
        return None;
    }
    *last_notice = Some(notice.clone());
    Some(ConsoleOutput::Notice(notice))
}
