//! Whether an effect may begin now. `decide` says what comes next for a node by itself; where that burdens what others
//! share, a circuit or the image servers, the node takes a permit for it first, or stands in line for one.

use rackwright_lifecycle::{Decision, Effect, Kind, Need, Resource, Scope, Timestamp, Wait, seconds};
use rackwright_store::{Asker, NodeRecord, Permit, StoreError, WriteTx};

use crate::core::Core;

/// Since when a node asks for what its effect needs; none: it asks for nothing.
#[must_use]
pub fn asked_at(permits: &[Permit]) -> Option<Timestamp> {
    let unused = permits.iter().filter(|permit| permit.effect.is_none());
    unused.map(|permit| permit.asked_at).min()
}

/// What `effect` needs on a node: what the settings bound, and where boot peaks do not all fit on what feeds it, a place there.
pub async fn needs(core: &Core, record: &NodeRecord, effect: Effect) -> Vec<Need> {
    let mut needs = core.config.limits.needs(effect, &record.labels);
    if effect != Effect::PowerOn {
        return needs;
    }
    match core.facility.rooms(core).await {
        Ok(Some((site, rooms))) => {
            let Some(node) = site.node_named(&record.id) else {
                return needs;
            };
            let settle_us = seconds(i64::from(core.config.limits.power_on.settle_s));
            needs.extend(rooms.of(&site, node).into_iter().map(|(domain, room)| Need {
                resource: power_on(Scope::Power(site.domain(domain).name.to_string())),
                room,
                settle_us,
            }));
            needs.sort_by(|a, b| a.resource.cmp(&b.resource));
        }
        Ok(None) => {}
        // A site that does not read any more keeps nobody off; the settings' own bounds hold.
        Err(error) => tracing::warn!(%error, "how many may start at once is not known"),
    }
    needs
}

fn power_on(scope: Scope) -> Resource {
    Resource {
        kind: Kind::PowerOn,
        scope,
    }
}

fn is_alarm(resource: &Resource) -> bool {
    matches!(resource.scope, Scope::Alarm(_))
}

/// Keeps a node from being switched on while an alarm about what it hangs on is open, in the change that would begin it. The
/// node stands in a line of its own, so that the time counts as time in line, and in no other: nobody waits for its place
/// elsewhere. Answers what it waits for.
///
/// # Errors
/// The database failed.
pub async fn hold(
    core: &Core,
    tx: &mut WriteTx,
    record: &NodeRecord,
    permits: &[Permit],
    effect: Effect,
    now: Timestamp,
) -> Result<Option<Wait>, StoreError> {
    if effect != Effect::PowerOn {
        return Ok(None);
    }
    let why = tx.power_block(&record.id).await?;
    if why.is_none() && !permits.iter().any(|permit| is_alarm(&permit.resource)) {
        return Ok(None);
    }
    let line = Need {
        resource: power_on(Scope::Alarm(record.id.clone())),
        room: u32::from(why.is_none()),
        settle_us: 0,
    };
    core.facility.note_lines();
    if why.is_some() {
        tx.leave_for_alarm(&record.id, now).await?;
    }
    tx.ask(asker(record, permits, now), &[line], now).await?;
    let wait = why.map(|why| Wait::Alarm { why });
    if let Some(wait) = &wait {
        tx.rest_in_line(&record.id, wait).await?;
    }
    Ok(wait)
}

fn asker<'a>(record: &'a NodeRecord, permits: &[Permit], now: Timestamp) -> Asker<'a> {
    Asker {
        node: &record.id,
        customer: record.node.claim.as_ref().map_or("", |claim| &claim.customer),
        is_urgent: record.node.wanted.power.is_some(),
        asked_at: asked_at(permits).unwrap_or(now),
    }
}

/// True when what a node asked for is not what comes next any more. On the way to it, as while the power is read once more
/// before it is switched on, it is still wanted.
pub async fn is_over(core: &Core, record: &NodeRecord, permits: &[Permit], decision: &Decision) -> bool {
    let mut unused = permits.iter().filter(|permit| permit.effect.is_none());
    match decision {
        Decision::Act(effect) if Kind::of(*effect).is_none() => false,
        Decision::Act(effect) => {
            let unused: Vec<&Permit> = unused.collect();
            if unused.is_empty() {
                return false;
            }
            let needs = needs(core, record, *effect).await;
            let is_needed = |permit: &&Permit| {
                let is_held = is_alarm(&permit.resource) && *effect == Effect::PowerOn;
                is_held || needs.iter().any(|need| need.resource == permit.resource)
            };
            !unused.iter().all(is_needed)
        }
        Decision::Wait {
            why: Wait::Effect(_), ..
        } => false,
        Decision::Wait { .. } | Decision::Move { .. } => unused.next().is_some(),
    }
}

/// Gives back what the node asked for and does not want any more.
///
/// # Errors
/// The database failed.
pub async fn leave(core: &Core, record: &NodeRecord, now: Timestamp) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    tx.node(&record.id).await?;
    tx.leave_lines(&record.id, now).await?;
    core.commit(tx).await
}

/// Takes what an effect needs, in the change that begins it. Answers what the node has to wait for; then it rests in line
/// by that change, and the effect does not begin.
///
/// # Errors
/// The database failed.
pub async fn admit(
    tx: &mut WriteTx,
    record: &NodeRecord,
    permits: &[Permit],
    needs: &[Need],
    now: Timestamp,
) -> Result<Option<Wait>, StoreError> {
    let Some(in_line) = tx.ask(asker(record, permits, now), needs, now).await? else {
        return Ok(None);
    };
    let wait = Wait::Turn {
        resource: in_line.resource,
        taken: in_line.taken,
        room: in_line.room,
    };
    tx.rest_in_line(&record.id, &wait).await?;
    Ok(Some(wait))
}

#[cfg(test)]
mod tests {
    use rackwright_lifecycle::{PowerGoal, PowerRequest, State};
    use rackwright_store::Scope;

    use super::*;
    use crate::grpc::explain::explain;
    use crate::runner::step_until_rest;
    use crate::{clock, testing};

    async fn step(core: &testing::TestCore, node: &str) -> NodeRecord {
        let nudge = core.runs.begin(node).unwrap();
        step_until_rest((*core).clone(), node.into(), nudge).await;
        core.store.node(&Scope::Site, node).await.unwrap()
    }

    /// Takes the place of a node on its circuit, as if it were being switched on.
    async fn take(core: &Core, node: &str) {
        let record = core.store.node(&Scope::Site, node).await.unwrap();
        let needs = needs(core, &record, Effect::PowerOn).await;
        let mut tx = core.store.write().await.unwrap();
        let wait = admit(&mut tx, &record, &[], &needs, clock::now()).await.unwrap();
        assert_eq!(wait, None);
        tx.use_permits(node, "an effect", 0).await.unwrap();
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn a_node_without_room_rests_in_line_says_so_and_leaves_when_it_is_not_wanted_any_more() {
        let core = testing::core_with("limits: {power_on: {per_circuit: 1}}\n").await;
        for id in ["n1", "n2"] {
            let mut record = testing::node(id, State::Available, None);
            record.labels = [("circuit".to_owned(), "C7".to_owned())].into();
            record.node.wanted.power = Some(PowerRequest {
                goal: PowerGoal::On,
                at: Timestamp(1),
            });
            testing::add(&core, &record).await;
        }
        take(&core, "n1").await;
        let record = step(&core, "n2").await;
        assert_eq!(
            record.wait.to_string(),
            "its turn to be switched on, in line at circuit C7: 1 of 1 in use"
        );
        assert!(core.store.open_effects().await.unwrap().is_empty());
        let told = explain(&core, "n2").await.unwrap();
        assert_eq!(
            told.summary.split_once(", waiting for ").unwrap().1,
            format!(
                "{}, 1 in line, of which 0 asked before it; customers take turns",
                record.wait
            )
        );

        let mut tx = core.store.write().await.unwrap();
        let mut record = tx.node("n2").await.unwrap();
        record.node.wanted.power = None;
        tx.save_node(&mut record, clock::now()).await.unwrap();
        tx.commit().await.unwrap();
        let record = step(&core, "n2").await;
        assert_eq!(record.wait, Wait::Rest);
        assert!(core.store.permits("n2").await.unwrap().is_empty());
        assert_eq!(core.store.permits("n1").await.unwrap().len(), 1);
    }
}
