//! A place to start in. A start in the middle of an update draws as much power as any other (`runner::admission`), so it
//! takes the same places and joins the same queues.
//!
//! A place belongs to the effect: if this process ends meanwhile, the place becomes free with the effect.

use rackwright_ground::clock;
use rackwright_lifecycle::{Effect, Kind, Wait};
use tokio::time::sleep;

use super::{EndReason, FirmwareRun};
use crate::runner::admission;

impl FirmwareRun<'_> {
    /// Takes the places that a start needs, and waits for them in the queues.
    pub(super) async fn take_permits(&self) -> Result<(), EndReason> {
        while let Some(wait) = self.request_permits().await? {
            self.show_progress(&format!("waiting for {wait}"), 99);
            sleep(self.limits.look).await;
        }
        Ok(())
    }

    async fn request_permits(&self) -> Result<Option<Wait>, EndReason> {
        let (core, id) = (self.core, &self.record.id);
        let needs = admission::needs(core, self.record, Effect::PowerOn).await;
        if needs.is_empty() {
            return Ok(None);
        }
        let now = clock::now();
        let permits = core.store.permits(id).await?;
        let mut tx = core.store.write().await?;
        let record = tx.node(id).await?;
        let Some(open) = tx.open_effect(id).await? else {
            return Err(EndReason::QueueTimeout);
        };
        let wait = admission::admit(&mut tx, &record, &permits, &needs, now).await?;
        if wait.is_none() {
            let in_line_us = admission::asked_at(&permits).map_or(0, |since| now.since(since).max(0));
            tx.use_permits(id, &open.id, in_line_us).await?;
            core.metrics.admitted(Kind::PowerOn, in_line_us);
        }
        // The node waits for this effect, with any reason inside: it must not become due before the effect's end.
        let stored = wait.clone().unwrap_or(Wait::Effect(open.attempt.effect));
        tx.wait(id, &stored, open.attempt.deadline, &record.readings).await?;
        core.commit(tx).await?;
        Ok(wait)
    }

    /// The machine reads on: others get their turn when its start has settled.
    pub(super) async fn return_permits(&self) -> Result<(), EndReason> {
        let core = self.core;
        let mut tx = core.store.write().await?;
        tx.node(&self.record.id).await?;
        if let Some(open) = tx.open_effect(&self.record.id).await? {
            tx.release_permits(&open.id, clock::now()).await?;
        }
        core.commit(tx).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rackwright_ground::core::Core;
    use rackwright_ground::testing::{self, TestCore};
    use rackwright_lifecycle::{Attempt, NodeId, Outcome, State, Timestamp};
    use rackwright_store::{EffectRow, NodeRecord};

    use super::super::component_update::TimeLimits;
    use super::*;

    /// Two nodes on one circuit during their firmware updates.
    async fn bench(settle_s: u32) -> (TestCore, [NodeRecord; 2]) {
        let limits = format!("limits: {{power_on: {{per_circuit: 1, settle_s: {settle_s}}}}}\n");
        let core = testing::core_with(&limits).await;
        let mut records = ["n1", "n2"].map(|id| testing::node(id, State::Available, None));
        for record in &mut records {
            record.labels = [("circuit".to_owned(), "C7".to_owned())].into();
            testing::add(&core, record).await;
            begin(&core, record.id.as_str()).await;
        }
        (core, records)
    }

    async fn begin(core: &Core, node: &str) {
        let row = EffectRow {
            id: format!("update of {node}"),
            node_id: NodeId::stored(node.to_owned()),
            state_since: Timestamp(1),
            number: 1,
            generation: 0,
            owner: core.replica.clone(),
            attempt: Attempt {
                effect: Effect::UpdateFirmware,
                started_at: clock::now(),
                ended_at: None,
                deadline: clock::now().plus(rackwright_lifecycle::seconds(3600)),
                outcome: Outcome::Open,
                boot_id: None,
            },
        };
        let mut tx = core.store.write().await.unwrap();
        tx.begin_effect(&row).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn end(core: &Core, node: &str) {
        let mut tx = core.store.write().await.unwrap();
        let id = format!("update of {node}");
        tx.end_effect(&id, &Outcome::Interrupted, clock::now()).await.unwrap();
        tx.commit().await.unwrap();
    }

    fn run<'a>(core: &'a Core, record: &'a NodeRecord) -> FirmwareRun<'a> {
        FirmwareRun {
            core,
            record,
            wanted: Vec::new(),
            files: Vec::new(),
            limits: TimeLimits::within(core.config.policy.firmware_s),
        }
    }

    #[tokio::test]
    async fn starts_take_turns_and_waits_are_reported() {
        let (core, [first, second]) = bench(0).await;
        let (first, second) = (run(&core, &first), run(&core, &second));
        assert_eq!(first.request_permits().await.unwrap(), None);
        assert_eq!(first.request_permits().await.unwrap(), None, "it has it");
        let waits = second.request_permits().await.unwrap().unwrap();
        let expected = "its turn to be switched on, in line at circuit C7: 1 of 1 in use";
        assert_eq!(waits.to_string(), expected);
        let node = core
            .store
            .node(&rackwright_store::Scope::Site, &"n2".into())
            .await
            .unwrap();
        assert_eq!(node.wait, waits);
        first.return_permits().await.unwrap();
        second.take_permits().await.unwrap();
        let node = core
            .store
            .node(&rackwright_store::Scope::Site, &"n2".into())
            .await
            .unwrap();
        assert_ne!(node.wait, waits);
        assert!(
            first.request_permits().await.unwrap().is_some(),
            "others have their turn"
        );
    }

    #[tokio::test]
    async fn a_permit_settles_and_ends_with_its_effect() {
        let (core, [first, second]) = bench(3600).await;
        let (first, second) = (run(&core, &first), run(&core, &second));
        first.take_permits().await.unwrap();
        first.return_permits().await.unwrap();
        assert!(
            second.request_permits().await.unwrap().is_some(),
            "its start has not settled"
        );
        first.take_permits().await.unwrap();
        assert!(core.store.permits(&"n1".into()).await.unwrap()[0].free_at.is_none());
        // As if the process had ended in the middle.
        end(&core, "n1").await;
        assert!(core.store.permits(&"n1".into()).await.unwrap()[0].free_at.is_some());
        assert!(
            matches!(first.take_permits().await, Err(EndReason::QueueTimeout)),
            "the effect has ended"
        );
    }

    #[tokio::test]
    async fn without_limits_no_permit_is_requested() {
        let core = testing::core().await;
        let record = testing::node("n1", State::Available, None);
        testing::add(&core, &record).await;
        run(&core, &record).take_permits().await.unwrap();
        assert!(core.store.permits(&"n1".into()).await.unwrap().is_empty());
    }
}
