//! Whether an effect may begin now. `decide` looks at one node alone. If an effect loads a shared resource, a circuit or
//! the image servers, the node first takes a permit for it, or queues for one.

use rackwright_ground::core::Core;
use rackwright_lifecycle::{Decision, Effect, Kind, Need, Resource, Scope, Timestamp, Wait, seconds};
use rackwright_store::{NodeRecord, Permit, PermitRequest, StoreError, WriteTx};

use crate::start_rooms::StartRoomsCache;

/// The time since which a node has requested its effect's permits. `None`: it has no request.
#[must_use]
pub fn asked_at(permits: &[Permit]) -> Option<Timestamp> {
    let unused = permits.iter().filter(|permit| permit.effect.is_none());
    unused.map(|permit| permit.asked_at).min()
}

/// The needs of `effect` on a node: the limits of the settings, and a place on each power domain without room for all boot
/// peaks.
///
/// Where agents serve each other, a write needs no permit. Instead each replica's claim table grants at most four chunks of
/// an image from the image servers at once, or fewer if `at_once` or the bandwidth allow fewer machines (the crate `spread`).
/// Nothing limits agents that write without others (old ramdisk, port in use, too little memory), indexes, and agents that
/// have not reached the control plane for 30 s.
pub async fn needs(core: &Core, record: &NodeRecord, effect: Effect) -> Vec<Need> {
    if effect == Effect::WriteImage && core.config.images.peers {
        return Vec::new();
    }
    let mut needs = core.config.limits.needs(effect, &record.labels);
    if effect != Effect::PowerOn {
        return needs;
    }
    match core.feature::<StartRoomsCache>().rooms(core).await {
        Ok(Some((site, rooms))) => {
            let Some(node) = site.node_named(record.id.as_str()) else {
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
        // An unreadable site blocks no start; the limits of the settings still apply.
        Err(error) => tracing::warn!(%error, "the limits of the site for simultaneous starts are not known"),
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

/// Stops a power-on during an open alarm about the node's supply, in the change that would begin the power-on. The node
/// queues in a line of its own, so that the wait counts as queueing time, and leaves all other lines, so that it blocks no
/// other node. Returns the reason of the wait.
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
    core.feature::<StartRoomsCache>().note_lines();
    if why.is_some() {
        tx.leave_for_alarm(&record.id, now).await?;
    }
    tx.request_permits(request(record, permits, now), &[line], now).await?;
    let wait = why.map(|why| Wait::Alarm { why });
    if let Some(wait) = &wait {
        tx.wait_in_queue(&record.id, wait).await?;
    }
    Ok(wait)
}

fn request<'a>(record: &'a NodeRecord, permits: &[Permit], now: Timestamp) -> PermitRequest<'a> {
    PermitRequest {
        node: &record.id,
        customer: record.node.claim.as_ref().map(|claim| &claim.customer),
        is_urgent: record.node.wanted.power.is_some(),
        asked_at: asked_at(permits).unwrap_or(now),
    }
}

/// Whether the node has requested permits that its next effect does not need. A step on the way, such as another power
/// reading before the power-on, keeps the requests.
pub async fn is_request_stale(core: &Core, record: &NodeRecord, permits: &[Permit], decision: &Decision) -> bool {
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

/// Drops the requests that the node no longer needs.
pub async fn leave(core: &Core, record: &NodeRecord, now: Timestamp) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    tx.node(&record.id).await?;
    tx.leave_queues(&record.id, now).await?;
    core.commit(tx).await
}

/// Takes an effect's permits in the change that begins it. Otherwise returns the reason of the wait: the same change queues
/// the node, and the effect does not begin.
pub async fn admit(
    tx: &mut WriteTx,
    record: &NodeRecord,
    permits: &[Permit],
    needs: &[Need],
    now: Timestamp,
) -> Result<Option<Wait>, StoreError> {
    let Some(in_line) = tx.request_permits(request(record, permits, now), needs, now).await? else {
        return Ok(None);
    };
    let wait = Wait::Turn {
        resource: in_line.resource,
        taken: in_line.taken,
        room: in_line.room,
    };
    tx.wait_in_queue(&record.id, &wait).await?;
    Ok(Some(wait))
}

#[cfg(test)]
mod tests {
    use rackwright_ground::{clock, testing};
    use rackwright_lifecycle::{NodeId, PowerGoal, PowerRequest, State};
    use rackwright_store::Scope;

    use super::*;
    use crate::runner::step_until_rest;

    async fn step(core: &testing::TestCore, node: &str) -> NodeRecord {
        let nudge = core.running_steps.begin(&NodeId::stored(node)).unwrap();
        step_until_rest((*core).clone(), NodeId::stored(node), nudge).await;
        core.store.node(&Scope::Site, &NodeId::stored(node)).await.unwrap()
    }

    /// Takes a node's place on its circuit, as for a power-on.
    async fn take(core: &Core, node: &str) {
        let record = core.store.node(&Scope::Site, &NodeId::stored(node)).await.unwrap();
        let needs = needs(core, &record, Effect::PowerOn).await;
        let mut tx = core.store.write().await.unwrap();
        let wait = admit(&mut tx, &record, &[], &needs, clock::now()).await.unwrap();
        assert_eq!(wait, None);
        tx.use_permits(&NodeId::stored(node), "an effect", 0).await.unwrap();
        tx.commit().await.unwrap();
    }

    #[tokio::test]
    async fn a_node_without_a_permit_rests_in_the_queue_shows_that_and_leaves_it_when_the_request_ends() {
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

        let mut tx = core.store.write().await.unwrap();
        let mut record = tx.node(&"n2".into()).await.unwrap();
        record.node.wanted.power = None;
        tx.save_node(&mut record, clock::now()).await.unwrap();
        tx.commit().await.unwrap();
        let record = step(&core, "n2").await;
        assert_eq!(record.wait, Wait::Rest);
        assert!(core.store.permits(&"n2".into()).await.unwrap().is_empty());
        assert_eq!(core.store.permits(&"n1".into()).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_write_takes_no_permit_where_agents_serve_each_other() {
        let limits = "limits: {image: {at_once: 1}, power_on: {at_once: 1}}\n";
        for (images, permits) in [("", 1), ("images: {peers: true}\n", 0)] {
            let core = testing::core_with(&format!("{limits}{images}")).await;
            let record = testing::node("n1", State::Imaging, Some("b3-1"));
            assert_eq!(
                needs(&core, &record, Effect::WriteImage).await.len(),
                permits,
                "{images}"
            );
            assert_eq!(needs(&core, &record, Effect::PowerOn).await.len(), 1);
            // A node that waited before the setting was changed leaves the line.
            let waiting = Permit {
                resource: Resource {
                    kind: Kind::Image,
                    scope: rackwright_lifecycle::Scope::Site,
                },
                is_taken: false,
                effect: None,
                free_at: None,
                asked_at: Timestamp(1),
            };
            let decision = Decision::Act(Effect::WriteImage);
            let is_stale = is_request_stale(&core, &record, &[waiting], &decision).await;
            assert_eq!(is_stale, permits == 0);
        }
    }
}
