//! Periodic work: renews certificates, drops old rows, ends overdue operations.

use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::rights::CERTIFICATE_WARNING_S;
use rackwright_ground::start::restored;
use rackwright_ground::uploads;
use rackwright_identity::{ServerCertificate, Validity};
use rackwright_lifecycle::{EventKind, Timestamp, seconds};
use rackwright_store::{EventRow, StoreError};
use tonic::Code;

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(60);
/// Validity of the server's own certificate.
pub const SERVER_LIFETIME: Duration = Duration::from_secs(90 * 86400);
const DAY_S: i64 = 86_400;
/// Answers to requests are kept this long: a caller may repeat a request until then.
const REQUESTS_S: i64 = 2 * DAY_S;
/// Events are kept this long.
const EVENTS_S: i64 = 90 * DAY_S;
/// Boot stages are kept this long.
const STAGES_S: i64 = 30 * DAY_S;
/// Most stored boot stages: MAC addresses can be invented.
const STAGES_KEPT: i64 = 200_000;
/// An unfinished upload is dropped after this time.
const UPLOADS_S: i64 = 2 * DAY_S;

/// Runs until the core stops.
pub async fn run(core: Arc<Core>, certificate: Arc<ServerCertificate>, mut validity: Validity) {
    let mut authority = core.authority_changes.watch();
    let mut signed_by = core.keys.authority.ca_sha256();
    loop {
        if let Err(error) = round(&core).await {
            tracing::warn!(%error, "housekeeping was not finished; the next round continues");
        }
        if let Err(error) = restored::advance(&core, false).await {
            tracing::warn!(%error, "the age of the database could not be advanced");
        }
        let now = clock::system_time(clock::now());
        authority.mark_unchanged();
        let present = core.keys.authority.ca_sha256();
        if validity.is_reissue_due(now) || signed_by != present {
            match core
                .keys
                .authority
                .issue_server(&core.config.names, now, SERVER_LIFETIME)
            {
                Ok(fresh) => {
                    validity = fresh.validity;
                    signed_by = present;
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
            // The sender lives as long as the core.
            _ = authority.changed() => {}
        }
    }
}

async fn round(core: &Arc<Core>) -> Result<(), StoreError> {
    let now = clock::now();
    uploads::take_up_imports(core).await?;
    core.store.forget_tokens(now.plus(-seconds(DAY_S))).await?;
    let web = core.config.web.clone().unwrap_or_default();
    core.store.forget_sessions(now, web.idle_since(now)).await?;
    core.store.forget_requests(now.plus(-seconds(REQUESTS_S))).await?;
    core.store.forget_events(now.plus(-seconds(EVENTS_S))).await?;
    core.store
        .forget_boot_stages(now.plus(-seconds(STAGES_S)), STAGES_KEPT)
        .await?;
    warn_of_ending_certificates(core, now).await?;
    for operation in core.store.overdue_operations(now).await? {
        let mut tx = core.store.write().await?;
        tx.end_operation(
            &operation.id,
            Code::DeadlineExceeded as i32,
            "the operation did not end before its deadline",
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

/// Stores one event for each member's certificate that ends soon and was not renewed: after its end, the member needs a new
/// token.
async fn warn_of_ending_certificates(core: &Core, now: Timestamp) -> Result<(), StoreError> {
    for member in core
        .store
        .ending_members(now, now.plus(seconds(CERTIFICATE_WARNING_S)))
        .await?
    {
        let Some(ends_at) = member.certificate_ends_at else {
            continue;
        };
        let mut tx = core.store.write().await?;
        // Another replica may have been faster, or the member has renewed the certificate.
        if !tx.mark_end_warned(&member.name, ends_at).await? {
            continue;
        }
        let days = ends_at.since(now) / (DAY_S * 1_000_000);
        let message = format!(
            "the certificate of {} ends in {days} days and was not renewed: any command of `rackwright` renews it; after \
             its end {} needs a new token",
            member.name, member.name
        );
        tx.add_event(&EventRow {
            at: now,
            kind: EventKind::SecurityMemberCertificateEnds,
            target: format!("members/{}", member.name),
            message,
            ..EventRow::default()
        })
        .await?;
        core.commit(tx).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rackwright_ground::testing;
    use rackwright_store::{BootStageRow, MemberRow, Scope};

    use super::*;

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

    #[tokio::test]
    async fn a_certificate_that_ends_soon_is_warned_of_once() {
        let core = testing::core().await;
        let now = clock::now();
        let mut tx = core.store.write().await.unwrap();
        for (name, days) in [("late", -1), ("soon", 6), ("fresh", 8)] {
            let viewer = MemberRow {
                role: "viewer".into(),
                customer: "".into(),
            };
            tx.put_member(name, &viewer, 1, now).await.unwrap();
            let ends = now.plus(seconds(days * DAY_S + 60));
            assert!(tx.record_member_cert(name, 1, ends, "ca").await.unwrap());
        }
        tx.commit().await.unwrap();
        for _ in 0..2 {
            round(&core).await.unwrap();
            let events = core.store.events(&Scope::Site, 0, "", 9).await.unwrap();
            let kinds: Vec<_> = events.iter().map(|e| (e.kind.to_string(), e.target.as_str())).collect();
            assert_eq!(kinds, [("security.member-certificate-ends".to_owned(), "members/soon")]);
            assert!(events[0].message.contains("ends in 6 days"), "{events:?}");
        }
        let mut tx = core.store.write().await.unwrap();
        assert!(
            tx.record_member_cert("soon", 1, now.plus(seconds(5 * DAY_S)), "ca")
                .await
                .unwrap()
        );
        tx.commit().await.unwrap();
        round(&core).await.unwrap();
        let events = core.store.events(&Scope::Site, 0, "members/soon", 9).await.unwrap();
        assert_eq!(events.len(), 2, "of another certificate: {events:?}");
    }
}
