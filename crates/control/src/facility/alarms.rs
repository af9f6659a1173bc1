//! Compares readings with the site's limits: a violation is an alarm until a reading shows that the condition is over.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::clock;
use rackwright_ground::config::facility::Settings;
use rackwright_ground::core::Core;
use rackwright_ground::hall::{HallError, placement_of};
use rackwright_ground::share::alive_since;
use rackwright_ground::share::{Share, stable_hash};
use rackwright_ground::text::counted;
use rackwright_lifecycle::{ClusterId, EventKind, NodeId, Timestamp, seconds};
use rackwright_nodes::start_rooms::StartRoomsCache;
use rackwright_planner::planner::NamedPlacement;
use rackwright_site::model::{NodeId as SiteNode, Site};
use rackwright_site::power::readings::{Below, Finding, FindingKind, Judgement, Readings, judge};
use rackwright_store::{AlarmRow, EventRow, ReadingRow, Scope, StoreError, WriteTx};
use tokio::time::MissedTickBehavior;

/// Pause between two looks for new readings.
const TICK: Duration = Duration::from_secs(2);
/// Longest time between two judgements, because reservations change and readings become stale.
const REJUDGE_S: i64 = 60;
/// A lasting alarm is stored again after this time, to update its figures.
const REFRESH_S: i64 = 60;
/// Readings read per statement.
const PAGE: i64 = 2000;
/// Overlap of two reads of new rows. A row may appear behind later rows, because replicas set its time by their own
/// clocks and before they commit.
const OVERLAP_S: i64 = 120;
/// Readings of equipment that left the site are deleted after this time.
const FORGET_S: i64 = 7 * 86_400;
/// Most names of nodes in an event.
const NAMES_MAX: usize = 32;
/// Most open alarms. Further alarms open only when others are cleared.
const ALARMS_MAX: i64 = 20_000;

/// Runs until the core stops.
pub(super) async fn run(core: Arc<Core>) {
    let mut alarm_judge = AlarmJudge::default();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        if let Err(error) = alarm_judge.tick(&core, core.config.facility.as_ref()).await {
            tracing::warn!(%error, "the readings could not be judged; the next attempt follows shortly");
        }
    }
}

/// State between two ticks of the judging replica.
#[derive(Default)]
struct AlarmJudge {
    site: Option<(i64, Arc<Site>, Arc<Below>)>,
    readings: Readings,
    /// Time of the newest reading that was loaded.
    since: Timestamp,
    judged_at: Timestamp,
    forgot_at: Timestamp,
}

impl AlarmJudge {
    async fn tick(&mut self, core: &Core, settings: Option<&Settings>) -> Result<(), HallError> {
        let now = clock::now();
        // Set first, so that the number of parallel starts and the existence of alarms are known before a start asks.
        let site = core
            .feature::<StartRoomsCache>()
            .rooms(core)
            .await?
            .map(|(site, _)| site);
        let has_alarms = !core.store.alarms("", 1).await?.is_empty();
        if has_alarms {
            core.feature::<StartRoomsCache>().note_lines();
        }
        if settings.is_none() && !has_alarms {
            return Ok(());
        }
        let alive = core.store.replicas(alive_since(now)).await?;
        let share = Share::new(&core.replica, alive.into_iter().map(|replica| replica.id));
        if !share.has("facility") {
            *self = Self::default();
            return Ok(());
        }
        let Some(settings) = settings else {
            return Ok(clear_all(core, now).await?);
        };
        let Some(site) = site else {
            return Ok(());
        };
        let version = core.store.site_version().await?;
        if self.site.as_ref().is_none_or(|(known, ..)| *known != version) {
            let below = Arc::new(Below::new(&site));
            (self.readings, self.since) = (Readings::default(), Timestamp::default());
            (self.site, self.judged_at) = (Some((version, site, below)), Timestamp::default());
        }
        let has_changes = self.take_up(core, now).await?;
        if has_changes || now >= self.judged_at.plus(seconds(REJUDGE_S)) {
            self.judge_readings(core, settings, now).await?;
            self.judged_at = now;
        }
        if now >= self.forgot_at.plus(seconds(3600)) {
            self.forgot_at = now;
            self.forget(core, now).await?;
        }
        Ok(())
    }

    /// Deletes old readings, and the pins of equipment that left the site. Equipment in the site keeps its pin even if
    /// it stays silent: no other machine must receive the password meanwhile.
    async fn forget(&self, core: &Core, now: Timestamp) -> Result<(), StoreError> {
        let Some((_, site, _)) = &self.site else {
            return Ok(());
        };
        let pins = core.store.facility_pins().await?;
        let mut tx = core.store.write().await?;
        tx.forget_facility_readings(now.plus(-seconds(FORGET_S))).await?;
        for (kind, name) in pins {
            let is_in_site = match kind.as_str() {
                "cooling" => site.cooling_units.iter().any(|unit| *unit.name == *name),
                _ => site.domain_named(&name).is_some(),
            };
            if !is_in_site {
                tx.forget_facility_pin(&kind, &name).await?;
            }
        }
        tx.commit().await
    }

    /// Loads the readings stored since the last call. Returns whether any of them is new.
    async fn take_up(&mut self, core: &Core, now: Timestamp) -> Result<bool, StoreError> {
        let Some((_, site, _)) = &self.site else {
            return Ok(false);
        };
        let mut has_changes = false;
        let mut from = self.since.plus(-seconds(OVERLAP_S));
        loop {
            // Starts at the same moment again: later rows of that moment must not be missed.
            let rows = core.store.facility_readings(from, PAGE).await?;
            for row in &rows {
                has_changes |= put(&mut self.readings, site, row);
            }
            let last = rows.last().map_or(from, |row| row.stored_at);
            // Limited to the present: a clock that is ahead must not hide rows from other replicas.
            self.since = self.since.max(last.min(now));
            if (rows.len() as i64) < PAGE || last <= from {
                return Ok(has_changes);
            }
            from = last;
        }
    }

    async fn judge_readings(&self, core: &Core, settings: &Settings, now: Timestamp) -> Result<(), HallError> {
        let Some((_, site, below)) = &self.site else {
            return Ok(());
        };
        let live = placements(core).await?;
        let held = reserved(site, live.values());
        let (rules, readings) = (settings.rules(), self.readings.clone());
        let (of, under) = (site.clone(), below.clone());
        let found = tokio::task::spawn_blocking(move || {
            judge(&of, &under, &readings, &|node| held.get(&node).copied(), &rules, now.0)
        });
        let found = found
            .await
            .map_err(|e| HallError::Broken(format!("readings were not judged: {e}")))?;
        let mut stored: BTreeMap<String, AlarmRow> = BTreeMap::new();
        for row in core.store.alarms("", ALARMS_MAX).await? {
            stored.insert(row.id.clone(), row);
        }
        let update = AlarmUpdate {
            core,
            site,
            settings,
            live: &live,
            now,
        };
        update.close(&found, &stored).await?;
        update.ignore(&mut stored).await?;
        update.open(&found, &stored).await?;
        Ok(())
    }
}

/// Adds one stored reading. Returns false if it is unreadable or not new.
fn put(readings: &mut Readings, site: &Site, row: &ReadingRow) -> bool {
    match serde_json::from_str(&row.body) {
        Ok(reading) => readings.put(site, &row.name, row.at.0, reading),
        Err(error) => {
            tracing::warn!(
                kind = row.kind,
                name = row.name,
                %error,
                "a stored reading cannot be parsed; the device is read again"
            );
            false
        }
    }
}

/// Loads all readings of a site.
pub async fn load(core: &Core, site: &Site) -> Result<Readings, StoreError> {
    let (mut readings, mut since) = (Readings::default(), Timestamp::default());
    loop {
        let rows = core.store.facility_readings(since, PAGE).await?;
        for row in &rows {
            put(&mut readings, site, row);
        }
        match rows.last() {
            Some(last) if rows.len() as i64 == PAGE && last.stored_at > since => since = last.stored_at,
            _ => return Ok(readings),
        }
    }
}

/// The placements of clusters, by cluster id.
async fn placements(core: &Core) -> Result<BTreeMap<ClusterId, NamedPlacement>, HallError> {
    let released = rackwright_lifecycle::cluster::State::Released.as_str();
    let filter = vec![rackwright_store::Term::is_not("state", released)];
    let live = core.store.clusters(&Scope::Site, &filter, "", i64::MAX).await?;
    live.iter()
        .map(|record| Ok((record.id.clone(), placement_of(record)?)))
        .collect()
}

/// The power reserved for each node, in watts.
pub fn reserved<'a>(site: &Site, live: impl IntoIterator<Item = &'a NamedPlacement>) -> HashMap<SiteNode, f64> {
    let names = live.into_iter().flat_map(|one| one.nodes.iter().chain(&one.spares));
    let nodes = names.filter_map(|name| site.node_named(name));
    nodes.map(|node| (node, site.sku_of(node).power.max_watts)).collect()
}

/// Opens and clears alarms according to a judgement.
struct AlarmUpdate<'a> {
    core: &'a Core,
    site: &'a Site,
    settings: &'a Settings,
    live: &'a BTreeMap<ClusterId, NamedPlacement>,
    now: Timestamp,
}

fn id(kind: FindingKind, subject: &str) -> String {
    format!("{} {subject}", kind.name())
}

/// Clears an alarm; nodes that waited for it become due.
async fn clear(core: &Core, row: &AlarmRow, why: &str, now: Timestamp) -> Result<(), StoreError> {
    let mut tx = core.store.write().await?;
    tx.clear_alarm(&row.id, now).await?;
    let event = EventRow {
        at: now,
        kind: EventKind::Facility(format!("{}-cleared", row.kind)),
        target: row.subject.clone(),
        message: format!("cleared: {}: {why}", row.message),
        attributes: [("nodes".to_owned(), row.nodes.to_string())].into(),
        ..EventRow::default()
    };
    tracing::info!(alarm = row.id, why, "cleared");
    tx.add_event(&event).await?;
    core.commit(tx).await?;
    wake(core);
    Ok(())
}

fn wake(core: &Core) {
    core.running_steps.due.notify_one();
    core.store.notify_due();
}

/// Clears all alarms, because without readings no alarm could end.
async fn clear_all(core: &Core, now: Timestamp) -> Result<(), StoreError> {
    for row in core.store.alarms("", ALARMS_MAX).await? {
        clear(
            core,
            &row,
            "`facility` is not in the settings any more, so nothing is read",
            now,
        )
        .await?;
    }
    Ok(())
}

impl AlarmUpdate<'_> {
    /// Clears alarms with a condition that is over, and alarms about subjects that left the site or are not read any
    /// more.
    async fn close(&self, found: &Judgement, stored: &BTreeMap<String, AlarmRow>) -> Result<(), StoreError> {
        let right: HashSet<String> = found
            .right
            .iter()
            .map(|(kind, subject)| id(*kind, &subject.name(self.site)))
            .collect();
        let wrong = found.findings.iter();
        let wrong: HashSet<String> = wrong.map(|one| id(one.kind, &one.subject.name(self.site))).collect();
        for row in stored.values() {
            let why = if right.contains(&row.id) {
                "the readings are normal again"
            } else if !self.is_in_site(&row.subject) {
                "the subject of the alarm is no longer in the site"
            } else if !self.is_read(row) && !wrong.contains(&row.id) {
                "the subject of the alarm has no `bmc` in the site any more, so it is not read"
            } else {
                continue;
            };
            clear(self.core, row, why, self.now).await?;
        }
        Ok(())
    }

    /// Alarms about subjects in `facility.ignore` stop holding nodes. They stay open while their condition lasts.
    async fn ignore(&self, stored: &mut BTreeMap<String, AlarmRow>) -> Result<(), StoreError> {
        for row in stored.values_mut() {
            let name = row.subject.split_once('/').map_or("", |(_, name)| name);
            if !(row.blocks || row.cordons) || !self.settings.ignore.contains(name) {
                continue;
            }
            (row.blocks, row.cordons) = (false, false);
            let mut tx = self.core.store.write().await?;
            tx.put_alarm(row, &[]).await?;
            let event = EventRow {
                at: self.now,
                kind: EventKind::Facility(format!("{}-ignored", row.kind)),
                target: row.subject.clone(),
                message: format!(
                    "holds no nodes any more, because facility.ignore names the subject: {}",
                    row.message
                ),
                ..EventRow::default()
            };
            tracing::info!(alarm = row.id, "ignored");
            tx.add_event(&event).await?;
            self.core.commit(tx).await?;
            wake(self.core);
        }
        Ok(())
    }

    /// False if the alarm depends on readings of its subject, and the site has no BMC address for the subject.
    fn is_read(&self, row: &AlarmRow) -> bool {
        let name = row.subject.split_once('/').map_or("", |(_, name)| name);
        match FindingKind::named(&row.kind) {
            Some(FindingKind::Breaker | FindingKind::FeedLost) => {
                let domain = self.site.domain_named(name).map(|id| self.site.domain(id));
                domain.is_some_and(|domain| domain.bmc.is_some())
            }
            Some(FindingKind::Leak | FindingKind::Supply | FindingKind::Flow) if !row.subject.starts_with("nodes/") => {
                let mut units = self.site.cooling_units.iter();
                units.any(|unit| *unit.name == *name && unit.bmc.is_some())
            }
            _ => true,
        }
    }

    fn is_in_site(&self, subject: &str) -> bool {
        let Some((kind, name)) = subject.split_once('/') else {
            return false;
        };
        let is_unit = || {
            let mut units = self.site.cooling_units.iter();
            units.any(|unit| *unit.name == *name && unit.kind.name() == kind)
        };
        let is_domain = || {
            let domain = self.site.domain_named(name).map(|id| self.site.domain(id));
            domain.is_some_and(|domain| domain.kind.name() == kind)
        };
        match kind {
            "nodes" => self.site.node_named(name).is_some(),
            _ => is_domain() || is_unit(),
        }
    }

    /// Opens new alarms and updates lasting ones.
    async fn open(&self, found: &Judgement, stored: &BTreeMap<String, AlarmRow>) -> Result<(), StoreError> {
        let mut room = usize::try_from(ALARMS_MAX)
            .unwrap_or(usize::MAX)
            .saturating_sub(stored.len());
        for finding in &found.findings {
            let row = self.row(finding);
            let before = stored.get(&row.id);
            let is_same = before.is_some_and(|before| {
                let same = |row: &AlarmRow| (row.severity.clone(), row.nodes_digest.clone(), row.blocks, row.cordons);
                same(before) == same(&row)
            });
            if is_same && before.is_some_and(|before| self.now < before.seen_at.plus(seconds(REFRESH_S))) {
                continue;
            }
            if before.is_none() {
                if room == 0 {
                    tracing::warn!(alarm = row.id, "there are too many alarms: this alarm is not stored");
                    continue;
                }
                room -= 1;
            }
            let nodes: Vec<NodeId> = finding
                .nodes
                .iter()
                .map(|id| NodeId::stored(&*self.site.node(*id).name))
                .collect();
            let mut tx = self.core.store.write().await?;
            let are_due = tx.put_alarm(&row, &nodes).await?;
            if !is_same {
                tracing::warn!(alarm = row.id, message = row.message, nodes = row.nodes, "alarm");
                self.add_events(&mut tx, &row, &nodes).await?;
            }
            self.core.commit(tx).await?;
            if are_due {
                wake(self.core);
            }
            if row.blocks {
                self.core.feature::<StartRoomsCache>().note_lines();
            }
        }
        Ok(())
    }

    fn row(&self, finding: &Finding) -> AlarmRow {
        let subject = finding.subject.name(self.site);
        let name = subject.split_once('/').map_or("", |(_, name)| name);
        let holds = !self.settings.ignore.contains(name);
        let names = finding.nodes.iter().map(|id| self.site.node(*id).name.as_bytes());
        let thousandths = |figure: f64| (figure * 1000.0).round() as i64;
        AlarmRow {
            id: id(finding.kind, &subject),
            kind: finding.kind.name().to_owned(),
            severity: finding.severity.name().to_owned(),
            message: finding.message(self.site),
            advice: finding.kind.advice().to_owned(),
            measured: finding.measured.map(thousandths),
            limit: finding.limit.map(thousandths),
            unit: finding.kind.unit().to_owned(),
            nodes_digest: format!("{:016x}", stable_hash(names)),
            nodes: i64::try_from(finding.nodes.len()).unwrap_or(i64::MAX),
            blocks: finding.blocks && holds,
            cordons: finding.cordons && holds,
            opened_at: self.now,
            seen_at: self.now,
            subject,
        }
    }

    /// Adds events for the alarm's subject, and for each cluster with nodes under a blocking alarm.
    async fn add_events(&self, tx: &mut WriteTx, row: &AlarmRow, nodes: &[NodeId]) -> Result<(), StoreError> {
        let consequence = match (row.blocks, row.cordons) {
            (true, _) => "; its nodes are not switched on and not given to new clusters",
            (false, true) => "; its nodes are not given to new clusters",
            (false, false) => "",
        };
        let event = EventRow {
            at: self.now,
            kind: EventKind::Facility(row.kind.clone()),
            target: row.subject.clone(),
            message: format!("{}{consequence}. {}", row.message, row.advice),
            attributes: [
                ("severity".to_owned(), row.severity.clone()),
                ("nodes".to_owned(), named(nodes)),
                ("count".to_owned(), nodes.len().to_string()),
                ("blocks".to_owned(), row.blocks.to_string()),
                ("cordons".to_owned(), row.cordons.to_string()),
            ]
            .into(),
            ..EventRow::default()
        };
        tx.add_event(&event).await?;
        if !row.blocks {
            return Ok(());
        }
        let held: HashSet<&str> = nodes.iter().map(NodeId::as_str).collect();
        for (cluster, placement) in self.live {
            let of_it = placement.nodes.iter().chain(&placement.spares);
            let of_it: Vec<NodeId> = of_it
                .filter(|name| held.contains(name.as_str()))
                .map(|name| NodeId::stored(name.as_str()))
                .collect();
            if of_it.is_empty() {
                continue;
            }
            let event = EventRow {
                at: self.now,
                kind: EventKind::FacilityCluster,
                target: format!("clusters/{cluster}"),
                // Customers read this message: it names the kind of alarm, not the place in the building.
                message: format!(
                    "{} of the cluster must not be switched on until an alarm of the building clears ({}); nodes \
                     that are on stay on",
                    counted(of_it.len(), "node"),
                    row.kind
                ),
                attributes: [
                    ("nodes".to_owned(), named(&of_it)),
                    ("alarm".to_owned(), row.kind.clone()),
                ]
                .into(),
                ..EventRow::default()
            };
            tx.add_event(&event).await?;
        }
        Ok(())
    }
}

/// Names joined by commas, at most as many as fit an event.
fn named(nodes: &[NodeId]) -> String {
    let mut list = nodes
        .iter()
        .take(NAMES_MAX)
        .map(NodeId::as_str)
        .collect::<Vec<_>>()
        .join(",");
    if nodes.len() > NAMES_MAX {
        list.push_str(",…");
    }
    list
}

/// Judges once, like a process that has just started.
#[cfg(test)]
pub(super) async fn judge_once(core: &Core) -> Result<(), HallError> {
    judge_with_settings(core, core.config.facility.as_ref()).await
}

/// Does the same with other settings, like a process that was restarted.
#[cfg(test)]
pub(super) async fn judge_with_settings(core: &Core, settings: Option<&Settings>) -> Result<(), HallError> {
    AlarmJudge::default().tick(core, settings).await
}

/// Judges twice in one process; `between` runs between the two looks.
#[cfg(test)]
pub(super) async fn judge_around(core: &Core, between: impl AsyncFnOnce()) -> Result<(), HallError> {
    let (mut alarm_judge, settings) = (AlarmJudge::default(), core.config.facility.as_ref());
    alarm_judge.tick(core, settings).await?;
    between().await;
    alarm_judge.tick(core, settings).await
}
