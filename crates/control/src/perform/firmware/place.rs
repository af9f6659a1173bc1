//! A place to start in. A start in the middle of an update draws as much power as any other (`runner::admission`), so it
//! takes the same places and joins the same queues.
//!
//! A place belongs to the effect: if this process ends meanwhile, the place becomes free with the effect.

use rackwright_lifecycle::{Effect, Kind, Wait};
use tokio::time::sleep;

use super::{Run, Stop};
use crate::clock;
use crate::runner::admission;

impl Run<'_> {
    /// Takes the places that a start needs, and waits for them in the queues.
    pub(super) async fn take_place(&self) -> Result<(), Stop> {
        while let Some(wait) = self.ask_for_place().await? {
            self.say(&format!("waiting for {wait}"), 99);
            sleep(self.patience.look).await;
        }
        Ok(())
    }

    async fn ask_for_place(&self) -> Result<Option<Wait>, Stop> {
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
            return Err(Stop::NoTurn);
        };
        let wait = admission::admit(&mut tx, &record, &permits, &needs, now).await?;
        if wait.is_none() {
            let in_line_us = admission::asked_at(&permits).map_or(0, |asked| now.since(asked).max(0));
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
    pub(super) async fn leave_place(&self) -> Result<(), Stop> {
        let core = self.core;
        let mut tx = core.store.write().await?;
        tx.node(&self.record.id).await?;
        if let Some(open) = tx.open_effect(&self.record.id).await? {
            tx.give_permits_back(&open.id, clock::now()).await?;
        }
        core.commit(tx).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rackwright_lifecycle::{Attempt, Outcome, State, Timestamp};
    use rackwright_store::{EffectRow, NodeRecord};

    use super::super::flight::Patience;
    use super::*;
    use crate::core::Core;
    use crate::testing::{self, TestCore};

    /// Two nodes on one circuit during their firmware updates.
    async fn bench(settle_s: u32) -> (TestCore, [NodeRecord; 2]) {
        let limits = format!("limits: {{power_on: {{per_circuit: 1, settle_s: {settle_s}}}}}\n");
        let core = testing::core_with(&limits).await;
        let mut records = ["n1", "n2"].map(|id| testing::node(id, State::Available, None));
        for record in &mut records {
            record.labels = [("circuit".to_owned(), "C7".to_owned())].into();
            testing::add(&core, record).await;
            begin(&core, &record.id).await;
        }
        (core, records)
    }

    async fn begin(core: &Core, node: &str) {
        let row = EffectRow {
            id: format!("update of {node}"),
            node_id: node.to_owned(),
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

    fn run<'a>(core: &'a Core, record: &'a NodeRecord) -> Run<'a> {
        Run {
            core,
            record,
            wanted: Vec::new(),
            files: Vec::new(),
            patience: Patience::within(core.config.policy.firmware_s),
        }
    }

    #[tokio::test]
    async fn one_after_the_other_starts_and_who_waits_says_for_what() {
        let (core, [first, second]) = bench(0).await;
        let (first, second) = (run(&core, &first), run(&core, &second));
        assert_eq!(first.ask_for_place().await.unwrap(), None);
        assert_eq!(first.ask_for_place().await.unwrap(), None, "it has it");
        let waits = second.ask_for_place().await.unwrap().unwrap();
        let expected = "its turn to be switched on, in line at circuit C7: 1 of 1 in use";
        assert_eq!(waits.to_string(), expected);
        let node = core.store.node(&rackwright_store::Scope::Site, "n2").await.unwrap();
        assert_eq!(node.wait, waits);
        first.leave_place().await.unwrap();
        second.take_place().await.unwrap();
        let node = core.store.node(&rackwright_store::Scope::Site, "n2").await.unwrap();
        assert_ne!(node.wait, waits);
        assert!(first.ask_for_place().await.unwrap().is_some(), "others have their turn");
    }

    #[tokio::test]
    async fn a_place_settles_and_comes_free_with_its_effect() {
        let (core, [first, second]) = bench(3600).await;
        let (first, second) = (run(&core, &first), run(&core, &second));
        first.take_place().await.unwrap();
        first.leave_place().await.unwrap();
        assert!(
            second.ask_for_place().await.unwrap().is_some(),
            "its start has not settled"
        );
        first.take_place().await.unwrap();
        assert!(core.store.permits("n1").await.unwrap()[0].free_at.is_none());
        // As if the process had ended in the middle.
        end(&core, "n1").await;
        assert!(core.store.permits("n1").await.unwrap()[0].free_at.is_some());
        assert!(matches!(first.take_place().await, Err(Stop::NoTurn)), "nobody's effect");
    }

    #[tokio::test]
    async fn where_nothing_is_bounded_nobody_asks() {
        let core = testing::core().await;
        let record = testing::node("n1", State::Available, None);
        testing::add(&core, &record).await;
        run(&core, &record).take_place().await.unwrap();
        assert!(core.store.permits("n1").await.unwrap().is_empty());
    }
}
