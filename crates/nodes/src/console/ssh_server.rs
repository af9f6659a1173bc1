//! `ssh NODE@SERVER`: the member behind an SSH key, and the server's host key, which all replicas share.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use rackwright_ground::api_error::ApiError;
use rackwright_ground::audit::call::{self, Call, Recorded};
use rackwright_ground::config::console::SshSettings;
use rackwright_ground::core::Core;
use rackwright_ground::rights::{of_member, word};
use rackwright_ground::text::{NAME_MAX, cut};
use rackwright_identity::SshKeyPair;
use rackwright_lifecycle::NodeId;
use rackwright_serial::{Authorizer, ConsoleChannels, ConsoleServer, Entry, LoginProof};
use secrecy::SecretString;
use tokio::net::TcpListener;

use super::{session, token};

/// The host key's name in the database, and its sealing purpose.
const HOST_KEY: &str = "console-ssh-host-key";

/// Admits members by their registered keys, and by one-time tokens if the settings allow it.
struct SshMembers(Arc<Core>);

#[async_trait]
impl Authorizer for SshMembers {
    async fn is_registered(&self, key: &str) -> bool {
        let known = self.0.store.ssh_key(key).await;
        known
            .inspect_err(|error| tracing::warn!(%error, "an SSH key cannot be looked up"))
            .is_ok_and(|key| key.is_some())
    }

    async fn redeem(&self, node: &str, shown: &str) -> Option<String> {
        let redeemed = token::redeem(&self.0, &NodeId::named(node), shown).await;
        let redeemed = redeemed.inspect_err(|error| tracing::warn!(%error, "a console token cannot be looked up"));
        let (name, epoch) = redeemed.ok()??;
        Some(format!("{name}/{epoch}"))
    }

    async fn enter(
        &self,
        node: &str,
        proof: &LoginProof,
        entry: Entry,
        from: SocketAddr,
    ) -> Result<ConsoleChannels, String> {
        let core = &self.0;
        let (member, epoch) = match proof {
            LoginProof::Member(member) => redeemed(member).ok_or("the token names no member")?,
            LoginProof::Key(key) => {
                let known = core.store.ssh_key(key).await.map_err(|error| error.to_string())?;
                let known = known.ok_or("this SSH key is no longer registered")?;
                (known.member, known.epoch)
            }
        };
        tracing::info!(member, node, %from, "a member attaches to a console by SSH");
        let call = Arc::new(login(core, &member, epoch, from));
        let entered = call.clone().run(async {
            let caller = of_member(core, &member, epoch).await?;
            call::note_member(&member, epoch, word(caller.role), &caller.customer());
            // A viewer who requests no mode gets read-only.
            let entry = match (caller.role, entry) {
                (rackwright_api::v1::Role::Viewer, Entry::Write) => Entry::ReadOnly,
                (_, entry) => entry,
            };
            session::enter(core, caller, &NodeId::named(node), entry, (None, None)).await
        });
        let entered = entered.await;
        if let Err(error) = &entered {
            record_refused(core, &call, error).await;
        }
        entered.map_err(|error| {
            let hint = match &error {
                ApiError::Precondition { hint, .. } => format!(" ({hint})"),
                _ => String::new(),
            };
            format!("{error}{hint}")
        })
    }
}

/// The SSH login as a call of the audit.
fn login(core: &Core, member: &str, epoch: u64, from: SocketAddr) -> Call {
    let mut call = Call::new(core.new_id(), "ssh/AttachConsole".into(), Recorded::WithChange);
    call.address = from.ip().to_canonical().to_string();
    call.client = "ssh".into();
    call.set_caller(format!("members/{member}"), Some(epoch));
    call
}

/// Records a refused login. The refusal stands even if the record cannot be stored.
async fn record_refused(core: &Core, call: &Call, error: &ApiError) {
    if !core.audit.budget.allows(&call.caller(), &call.address) {
        return;
    }
    let record = call.record("PERMISSION_DENIED", &cut(&error.to_string(), NAME_MAX));
    if let Err(error) = core.audit(record).await {
        tracing::error!(%error, "a refused SSH login could not be recorded in the audit");
    }
}

/// Parses member and epoch from the answer of `redeem`. A member's name contains no slash.
fn redeemed(text: &str) -> Option<(String, u64)> {
    let (member, epoch) = text.split_once('/')?;
    Some((member.to_owned(), epoch.parse().ok()?))
}

/// The site's host key. The first replica that starts creates it.
async fn host_key(core: &Core) -> Result<SecretString, String> {
    let fault = |error: &dyn std::fmt::Display| format!("the console's SSH host key: {error}");
    let pair = SshKeyPair::generate(core.rng.as_ref(), "rackwright-console").map_err(|e| fault(&e))?;
    let kept = core.store.sealed_key(HOST_KEY).await.map_err(|e| fault(&e))?;
    let sealed = match kept {
        Some(sealed) => sealed,
        None => {
            let sealed = core
                .keys
                .sealer
                .seal(pair.private_key(), HOST_KEY)
                .map_err(|e| fault(&e))?;
            let mut tx = core.store.write().await.map_err(|e| fault(&e))?;
            tx.keep_sealed_key(HOST_KEY, &sealed).await.map_err(|e| fault(&e))?;
            core.commit(tx).await.map_err(|e| fault(&e))?;
            // Another replica may have stored a key first: the stored key counts.
            let kept = core.store.sealed_key(HOST_KEY).await.map_err(|e| fault(&e))?;
            kept.unwrap_or(sealed)
        }
    };
    core.keys.sealer.open(&sealed, HOST_KEY).map_err(|e| fault(&e))
}

/// Listens, and returns the server that admits clients.
///
/// # Errors
/// The server cannot listen on the address, or the host key is unavailable; a sentence.
pub async fn start(core: Arc<Core>, settings: &SshSettings) -> Result<impl Future<Output = ()> + use<>, String> {
    let key = host_key(&core).await?;
    let listener = TcpListener::bind(settings.listen)
        .await
        .map_err(|error| format!("console_ssh.listen {}: {error}", settings.listen))?;
    let stop = core.stop.clone();
    let ssh_server = ConsoleServer::new(&key, settings.limits(), Arc::new(SshMembers(core)))?;
    Ok(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = ssh_server.run(listener) => {}
        }
    })
}
