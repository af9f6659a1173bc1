//! What has to be done now and then: certificates renewed, old rows dropped, overdue operations ended.

use std::sync::Arc;
use std::time::Duration;

use rackwright_identity::{ServerCertificate, Validity};
use rackwright_lifecycle::seconds;
use rackwright_store::StoreError;
use tonic::Code;

use crate::clock;
use crate::core::Core;
use crate::uploads;

/// Between rounds.
const ROUND: Duration = Duration::from_secs(60);
/// How long our own certificate is good.
pub const SERVER_LIFETIME: Duration = Duration::from_secs(90 * 86400);
const DAY_S: i64 = 86_400;
/// Answers to requests are kept this long: a caller may repeat a request as late as that.
const REQUESTS_S: i64 = 2 * DAY_S;
/// Events are kept this long.
const EVENTS_S: i64 = 90 * DAY_S;
/// Boot stages are kept this long, ...
const STAGES_S: i64 = 30 * DAY_S;
/// ... and in all no more than these: MAC addresses can be made up.
const STAGES_KEPT: i64 = 200_000;
/// An upload nobody finished is dropped after this.
const UPLOADS_S: i64 = 2 * DAY_S;

/// Runs for ever.
pub async fn run(core: Arc<Core>, certificate: Arc<ServerCertificate>, mut validity: Validity) {
    loop {
        if let Err(error) = round(&core).await {
            tracing::warn!(%error, "housekeeping was not finished; the next round goes on");
        }
        let now = clock::system_time(clock::now());
        if validity.reissue_due(now) {
            match core
                .keys
                .authority
                .issue_server(&core.config.names, now, SERVER_LIFETIME)
            {
                Ok(fresh) => {
                    validity = fresh.validity;
                    match certificate.replace(fresh) {
                        Ok(()) => tracing::info!("the server's certificate was renewed"),
                        Err(error) => tracing::error!(%error, "the renewed certificate cannot be used"),
                    }
                }
                Err(error) => tracing::error!(%error, "the server's certificate could not be renewed"),
            }
        }
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

async fn round(core: &Arc<Core>) -> Result<(), StoreError> {
    let now = clock::now();
    uploads::take_up_imports(core).await?;
    core.store.forget_tokens(now.plus(-seconds(DAY_S))).await?;
    core.store.forget_requests(now.plus(-seconds(REQUESTS_S))).await?;
    core.store.forget_events(now.plus(-seconds(EVENTS_S))).await?;
    core.store
        .forget_boot_stages(now.plus(-seconds(STAGES_S)), STAGES_KEPT)
        .await?;
    for operation in core.store.overdue_operations(now).await? {
        let mut tx = core.store.write().await?;
        tx.end_operation(
            &operation.id,
            Code::DeadlineExceeded as i32,
            "it was not done by its deadline",
            now,
        )
        .await?;
        core.commit(tx).await?;
    }
    for upload in core.store.old_uploads(now.plus(-seconds(UPLOADS_S))).await? {
        if upload.operation.is_none() {
            let mut tx = core.store.write().await?;
            tx.delete_upload(&upload.id).await?;
            core.commit(tx).await?;
            core.uploads.discard(&upload.id);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rackwright_store::BootStageRow;

    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn old_boot_stages_are_dropped() {
        let core = testing::core().await;
        let stage = |mac: &str, days: i64| BootStageRow {
            mac: mac.into(),
            at: clock::now().plus(-seconds(days * DAY_S)),
            stage: "dhcp-discover".into(),
            detail: String::new(),
            remote: String::new(),
        };
        let mut tx = core.store.write().await.unwrap();
        tx.add_boot_stage(&stage("old", 31)).await.unwrap();
        tx.add_boot_stage(&stage("new", 29)).await.unwrap();
        tx.commit().await.unwrap();
        round(&core).await.unwrap();
        assert!(core.store.boot_stages("old").await.unwrap().is_empty());
        assert_eq!(core.store.boot_stages("new").await.unwrap().len(), 1);
    }
}
