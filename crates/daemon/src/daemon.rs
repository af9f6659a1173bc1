//! Assembles the parts and runs them until the daemon is stopped.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rackwright_control::{clusters, discovery, facility, watch_power};
use rackwright_ground::audit;
use rackwright_ground::config::Config;
use rackwright_ground::core::Core;
use rackwright_ground::invite::{login_command, operator};
use rackwright_ground::open::{OpenError, load_keys, open};
use rackwright_ground::parts::{PartEnded, Parts};
use rackwright_ground::rights::{self, new_member_token};
use rackwright_ground::start::Start;
use rackwright_ground::start::lock::{self, LockError};
use rackwright_ground::start::other::{self, OtherError};
use rackwright_ground::start::pause::Pause;
use rackwright_ground::start::restored::{self, AgeError};
use rackwright_ground::telemetry::Traces;
use rackwright_ground::{clock, keys, login_provider, uploads, user_data};
use rackwright_identity::{ClientAuth, ServerCertificate, server_config};
use rackwright_lifecycle::seconds;
use rackwright_nodes::{bmc_work, boot, console, ethernet, firmware_settings, replicas, runner};
use rackwright_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::housekeeping::SERVER_LIFETIME;
use crate::web_certificate::FromFiles;
use crate::{hardening, housekeeping, image_http};

const FIRST_OPERATOR: &str = "operator";
/// Validity of the first operator's token. Each start makes a new one as long as there is no member.
const BOOTSTRAP_S: i64 = 24 * 3600;

/// How long open connections may take to end after the daemon is stopped.
const ORDERLY_END: Duration = Duration::from_secs(3);

/// Why the daemon cannot start, or why it ended.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A folder or file of the data folder failed.
    #[error("{what}: {source}")]
    Data {
        /// The folder or file.
        what: String,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// An address or port cannot be bound.
    #[error("{0}")]
    Listen(String),
    /// The state of the site cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Another daemon holds the lock of the database.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Another daemon serves this site from another database.
    #[error(transparent)]
    Other(#[from] OtherError),
    /// The age of the database is unknown.
    #[error(transparent)]
    Age(#[from] AgeError),
    /// A part ended that should run on. Its work is no longer done, so the daemon ends, to be started again.
    #[error(transparent)]
    Part(#[from] PartEnded),
}

fn data(what: impl Into<String>) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> DaemonError {
    let what = what.into();
    move |source| DaemonError::Data { what, source }
}

/// Opens keys, database and folders, and creates missing ones. Refuses if another daemon serves this site from the same
/// database, where that is SQLite, or from another database.
async fn start(config: Config, how: Start, traces: Traces, stop: CancellationToken) -> Result<Arc<Core>, DaemonError> {
    let keys = load_keys(&config)?;
    let lock = lock::take(&config.database, &keys.authority.site_id(), how.paused)?;
    let closed = hardening::close_files(&config);
    let closed = closed.map_err(|e| data("modes of the files of the database and below shared_dir")(e.into()))?;
    if let Some(first) = closed.first() {
        tracing::warn!(files = closed.len(), first = %first.display(), "other users could read files; modes are corrected");
    }
    let core = open(config, keys, Pause::new(how.paused, lock), traces, stop).await?;
    if !how.paused {
        other::ask(&core.config, &core.keys, &core.store, core.rng.as_ref()).await?;
    }
    restored::advance(&core, how.restored).await?;
    let mode = match (how.paused, how.restored) {
        (true, _) => "paused",
        (_, true) => "with --restored",
        _ => "",
    };
    audit::begin(&core, mode).await?;
    Ok(core)
}

/// Makes a one-time token for the first operator, as long as there is no member. Each start prints a new one.
async fn invite_first_operator(core: &Core) -> Result<Option<String>, DaemonError> {
    let fail = |e: Box<dyn std::error::Error + Send + Sync>| data("the first operator's token")(e);
    let mut tx = core.store.write().await.map_err(|e| fail(e.into()))?;
    if tx.member_count().await.map_err(|e| fail(e.into()))? > 0 {
        return Ok(None);
    }
    let expires_at = clock::now().plus(seconds(BOOTSTRAP_S));
    tx.revoke_tokens("member", FIRST_OPERATOR)
        .await
        .map_err(|e| fail(e.into()))?;
    let rng = core.rng.as_ref();
    let token = new_member_token(rng, &mut tx, FIRST_OPERATOR, &operator(), expires_at, "").await;
    let token = token.map_err(|e| fail(e.into()))?;
    tx.commit().await.map_err(|e| fail(e.into()))?;
    Ok(Some(token))
}

fn print_invitation(core: &Core, token: &str) {
    println!("No operator has joined this site yet. The first operator joins, once and within 24 hours, with:");
    println!();
    println!(
        "{}",
        login_command(&core.config, &core.keys.authority.ca_sha256(), token)
    );
}

/// Runs until `stop`, and sends traces to `traces`. A paused daemon serves only the API until an operator resumes it.
///
/// # Errors
/// The resource that is missing, with the remedy if it is known.
pub async fn run(
    config: Config,
    how: Start,
    traces: Traces,
    ready: Option<&Path>,
    stop: CancellationToken,
) -> Result<(), DaemonError> {
    let core = start(config, how, traces, stop.clone()).await?;
    for warning in core.config.ethernet.warnings() {
        tracing::warn!("{warning}");
    }
    let names = &core.config.names;
    let now = clock::system_time(clock::now());
    let credential = core.keys.authority.issue_server(names, now, SERVER_LIFETIME);
    let credential = credential.map_err(|e| data("the server's certificate")(e.into()))?;
    let validity = credential.validity;
    let certificate = ServerCertificate::new(credential).map_err(|e| data("the server's certificate")(e.into()))?;
    let tls = |auth| {
        server_config(certificate.clone(), core.keys.authority.client_trust(), auth)
            .map_err(|e| data("TLS settings")(e.into()))
    };
    let (api_tls, images_tls) = (tls(ClientAuth::Optional)?, tls(ClientAuth::Required)?);
    let api = image_http::bind(core.config.api_listen, "the API")
        .await
        .map_err(DaemonError::Listen)?;
    let images = image_http::bind(core.config.store_listen, "the image store")
        .await
        .map_err(DaemonError::Listen)?;
    let mut parts = Parts::new(core.health.clone());
    parts.begin("audit", audit::run(core.clone()));
    audit::export::begin(&core, &mut parts);
    let web = web_console(&core, &certificate, &mut parts).await?;
    let serve_api = rackwright_grpc::run(core.clone(), (api, api_tls), web);
    if core.pause.is_on() {
        invite(&core).await?;
        parts.begin("API", serve_api);
        announce(&core, ready)?;
        tokio::select! {
            ended = until_stopped(&core, &mut parts) => return end(&core, parts, ended).await,
            () = core.pause.ending() => tracing::info!("an operator ended the pause"),
        }
        take_up(&core, &mut parts).await?;
    } else {
        take_up(&core, &mut parts).await?;
        invite(&core).await?;
        parts.begin("API", serve_api);
    }
    parts.begin("images", image_http::run(core.clone(), images, images_tls));
    begin_work(&core, &mut parts);
    parts.begin(
        "housekeeping",
        housekeeping::run(core.clone(), certificate.clone(), validity),
    );
    if core.pause.is_on() {
        core.pause.lift();
    } else {
        announce(&core, ready)?;
    }
    let ended = until_stopped(&core, &mut parts).await;
    end(&core, parts, ended).await
}

/// The listener of the web console. `None`: the settings have none.
async fn web_console(
    core: &Core,
    certificate: &Arc<ServerCertificate>,
    parts: &mut Parts,
) -> Result<Option<rackwright_grpc::Listening>, DaemonError> {
    let Some(web) = &core.config.web else {
        return Ok(None);
    };
    let certificate = match (&web.certificate, &web.key) {
        (Some(chain), Some(key)) => {
            let files = FromFiles::read(chain.clone(), key.clone()).await;
            let files = files.map_err(data("web.certificate and web.key"))?;
            let certificate = files.certificate();
            parts.begin("web certificate", files.follow(core.stop.clone()));
            certificate
        }
        _ => certificate.clone(),
    };
    let checked = login_provider::check_files(core).await;
    checked.map_err(data("the login provider"))?;
    let tls = server_config(certificate, core.keys.authority.client_trust(), ClientAuth::Off);
    let tls = tls.map_err(|e| data("TLS settings")(e.into()))?;
    let listener = image_http::bind(web.listen, "the web console").await;
    Ok(Some((listener.map_err(DaemonError::Listen)?, tls)))
}

/// Waits until the daemon is stopped. If a part ends before that, it stops the other parts.
async fn until_stopped(core: &Core, parts: &mut Parts) -> Result<(), PartEnded> {
    tokio::select! {
        biased;
        () = core.stop.cancelled() => Ok(()),
        ended = parts.first_end() => {
            tracing::error!(part = ended.part, why = ended.why, "a part of the daemon ended; the daemon stops");
            core.stop.cancel();
            Err(ended)
        }
    }
}

/// Starts the boot services, and resumes the unfinished work of a former run.
async fn take_up(core: &Arc<Core>, parts: &mut Parts) -> Result<(), DaemonError> {
    if let Some(boot) = core.config.boot.clone() {
        let boot = boot::start(core.clone(), boot).await;
        parts.begin("boot", boot.map_err(DaemonError::Listen)?);
    }
    if let Some(ssh) = core.config.console_ssh.clone() {
        let ssh_server = console::ssh_server::start(core.clone(), &ssh).await;
        parts.begin("console by SSH", ssh_server.map_err(DaemonError::Listen)?);
    }
    user_data::seal_plain_rows(core)
        .await
        .map_err(|e| data("user data that an older version stored in the clear")(e.into()))?;
    replicas::recover(core)
        .await
        .map_err(|e| data("nodes left by a former run")(e.into()))?;
    uploads::take_up_imports(core)
        .await
        .map_err(|e| data("imports left by a former run")(e.into()))
}

/// Starts every part that works by itself.
fn begin_work(core: &Arc<Core>, parts: &mut Parts) {
    parts.begin("runner", runner::run(core.clone(), core.stop.clone()));
    parts.begin("clusters", clusters::run(core.clone()));
    if let Some(fabric) = core.config.fabric.clone() {
        parts.begin("fabric", clusters::reconcile::run(core.clone(), fabric));
    }
    parts.begin("replicas", replicas::run(core.clone()));
    parts.begin("keys", keys::run(core.clone()));
    parts.begin("hints of replicas", replicas::forward_hints(core.clone()));
    parts.begin("rights", rights::run(core.clone()));
    parts.begin("power of nodes", watch_power::run(core.clone()));
    parts.begin("work at BMCs", bmc_work::run(core.clone()));
    facility::begin(core, parts);
    parts.begin("firmware settings", firmware_settings::run(core.clone()));
    parts.begin("switch ports", ethernet::watch::run(core.clone()));
    parts.begin("consoles", console::run(core.clone()));
    parts.begin("discovery", discovery::run(core.clone()));
    let tidied = core.clone();
    parts.begin("sessions of BMCs", async move {
        tidied.bmcs.tidy(tidied.stop.clone()).await;
    });
    let tidied = core.clone();
    parts.begin("logins", async move { tidied.logins.tidy(tidied.stop.clone()).await });
    if core.config.telemetry.is_some() {
        let (traces, stop) = (core.traces.clone(), core.stop.clone());
        parts.begin("sender of traces", async move {
            // The last spans are sent after all parts have ended.
            tokio::select! {
                () = traces.ended() => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

/// Ends everything in order, and reports which part had ended before.
async fn end(core: &Arc<Core>, parts: Parts, ended: Result<(), PartEnded>) -> Result<(), DaemonError> {
    // Connections of machines that were switched off never close by themselves.
    if !parts.end(ORDERLY_END).await {
        tracing::info!("connections that did not end in {} s were cut", ORDERLY_END.as_secs());
    }
    core.bmcs.close_all().await;
    // A copy that was made before this is then known to be older.
    if !core.pause.is_on()
        && let Err(error) = restored::advance(core, false).await
    {
        tracing::warn!(%error, "the age of the database could not be advanced at the end");
    }
    audit::end(core).await;
    if let Err(error) = core.store.end_replica(&core.replica).await {
        tracing::warn!(
            %error,
            "the end of this replica could not be stored; other replicas take over only after its heartbeat is too old"
        );
    }
    core.store.close().await;
    Ok(ended?)
}

async fn invite(core: &Core) -> Result<(), DaemonError> {
    if let Some(token) = invite_first_operator(core).await? {
        print_invitation(core, &token);
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "called at the start")]
fn announce(core: &Core, ready: Option<&Path>) -> Result<(), DaemonError> {
    if core.pause.is_on() {
        println!(
            "rackwrightd is paused: the API on {} answers read requests, and no operation runs on any machine. An \
             operator ends the pause with `rackwright control resume`",
            core.config.api_listen
        );
    } else {
        println!(
            "rackwrightd is ready: API on {}, images on {}",
            core.config.api_listen, core.config.store_listen
        );
    }
    if let Some(web) = &core.config.web {
        println!(
            "The web console is at {}; `rackwright console open` logs a member in",
            web.url(&core.config.names)
        );
    }
    if let Some(path) = ready {
        std::fs::write(path, "ready\n").map_err(|e| data(format!("{}", path.display()))(e.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;

    use super::*;

    #[tokio::test]
    async fn a_part_that_ends_stops_the_daemon_and_is_named() {
        async fn panics() {
            panic!("there is a bug")
        }
        let core = testing::core().await;
        let mut parts = Parts::new(core.health.clone());
        begin_work(&core, &mut parts);
        parts.begin("odd", panics());
        let ended = until_stopped(&core, &mut parts).await;
        let why = "it panicked: there is a bug".to_owned();
        assert_eq!(ended, Err(PartEnded { part: "odd", why }));
        assert!(core.stop.is_cancelled());
        // The others end in order, as on any stop.
        assert!(parts.end(Duration::from_secs(60)).await);
        // A part that ends after the stop is not a failure.
        let mut parts = Parts::new(core.health.clone());
        begin_work(&core, &mut parts);
        assert_eq!(until_stopped(&core, &mut parts).await, Ok(()));
    }
}
