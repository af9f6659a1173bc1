//! Brings partitions to the fabric: one replica at a time, after every change and every breach of isolation, and at
//! intervals.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rackwright_fabric::{Applied, FabricManager, Fence, Proof, Reading};
use rackwright_ground::clock;
use rackwright_ground::config::fabric::Settings;
use rackwright_ground::core::Core;
use rackwright_ground::hall::{HallError, work};
use rackwright_ground::text::{chain, counted};
use rackwright_infiniband::{Guid, Partitions};
use rackwright_lifecycle::{EventKind, Timestamp, seconds};
use rackwright_site::model::{FabricPurpose, Site};
use rackwright_store::{EventRow, Store, StoreError};

use super::breach::{Finding, judge_ports};
use super::breach_check;
use super::partitions::{Fabric, loaded};
use super::watch;
use crate::clusters::Clusters;

/// Interval of the checks for changes by other replicas.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Another replica takes over after this time without a sign of this one, in seconds: longer than any change takes.
pub(super) const LEASE_S: i64 = 900;
/// First and longest pause after failures, in seconds. While a breach is open no pause is longer than `check_s`.
const RETRY_S: i64 = 2;
const LONGEST_RETRY_S: i64 = 60;
/// Tries to store a reading while partitions change.
const TRIES: usize = 8;

/// The rounds of one process.
pub struct Rounds {
    settings: Settings,
    manager: Arc<dyn FabricManager>,
    last: Schedule,
    checked: breach_check::Schedule,
    looked: watch::Schedule,
}

/// The result of the last try.
#[derive(Debug, Default)]
struct Schedule {
    failures: u32,
    next: Timestamp,
}

/// Runs until the core stops. Started only with a configured fabric manager.
pub async fn run(core: Arc<Core>, settings: Settings) {
    let manager = match settings.manager() {
        Ok(manager) => manager,
        Err(fault) => {
            tracing::error!(fault, "the fabric manager cannot be used: no partition is set up");
            return core.stop.cancelled().await;
        }
    };
    warn_of_fabrics_without_manager(&core).await;
    let mut rounds = Rounds::new(settings, manager);
    loop {
        tokio::select! {
            () = core.stop.cancelled() => return,
            () = core.feature::<Clusters>().partitions.notified() => {}
            () = tokio::time::sleep(rounds.checked.pause(POLL_INTERVAL)) => {}
        }
        rounds.run(&core).await;
    }
}

/// Logs at the start which compute fabrics of the site have no manager. A later version of the site is warned of when it is
/// planned and applied.
async fn warn_of_fabrics_without_manager(core: &Core) {
    match core.sites.current(&core.store).await {
        Ok(Some((_, site))) => {
            for (fabric, warning) in core.sites.managed.warnings(&site) {
                tracing::warn!(fabric, "{warning}");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "the site could not be compared with the managers of its fabrics"),
    }
}

impl Rounds {
    /// The rounds of a process that has just started.
    #[must_use]
    pub fn new(settings: Settings, manager: Arc<dyn FabricManager>) -> Self {
        Self {
            settings,
            manager,
            last: Schedule::default(),
            checked: breach_check::Schedule::default(),
            looked: watch::Schedule::default(),
        }
    }

    /// Looks for breaches of isolation, brings wanted partitions to the fabric, and compares the fabric with the site,
    /// where that is due. Logs failures.
    pub async fn run(&mut self, core: &Arc<Core>) {
        let Self {
            settings,
            manager,
            last,
            checked,
            looked,
        } = self;
        match core.store.is_restored().await {
            Ok(false) => {}
            // Restored from a copy: the fabric may serve clusters that this database does not know.
            Ok(true) => return,
            Err(error) => {
                tracing::warn!(%error, "the database does not answer; partitions are not changed until it answers");
                return;
            }
        }
        if let Err(error) = breach_check::run_round(core, settings, manager, checked).await {
            tracing::warn!(%error, "the isolation of clusters could not be checked");
        }
        if let Err(error) = run_round(core, settings, manager, last).await {
            tracing::warn!(%error, "the state of the fabric could not be read or stored");
        }
        if let Err(error) = watch::run_round(core, settings, manager, looked).await {
            tracing::warn!(%error, "the fabric could not be compared with the site");
        }
    }
}

async fn run_round(
    core: &Arc<Core>,
    settings: &Settings,
    manager: &Arc<dyn FabricManager>,
    last: &mut Schedule,
) -> Result<(), HallError> {
    // Without a row no partition was ever requested.
    let Some(state) = loaded(core.store.fabric().await)?.filter(|state| state.wanted > 0) else {
        return Ok(());
    };
    let now = clock::now();
    let proof_us = seconds(settings.proof_s.into());
    let is_old = state.proven_at.is_none_or(|at| now.since(at) >= proof_us);
    let is_proven = state.wanted <= state.applied && state.fault.is_empty() && !is_old;
    if is_proven && !core.store.has_draining_keys().await? && core.store.count_open_breaches().await? == 0 {
        return Ok(());
    }
    if now < last.next {
        return Ok(());
    }
    if !core
        .store
        .lease_fabric(&core.replica, now, now.plus(seconds(LEASE_S)))
        .await?
    {
        return Ok(());
    }
    apply_partitions(core, settings, manager, last).await
}

/// Brings the wanted partitions to the fabric and stores the result.
async fn apply_partitions(
    core: &Arc<Core>,
    settings: &Settings,
    manager: &Arc<dyn FabricManager>,
    last: &mut Schedule,
) -> Result<(), HallError> {
    let Some(fabric) = Fabric::load(&core.store).await? else {
        return Ok(());
    };
    let site = core.sites.current(&core.store).await?.map(|(_, site)| site);
    let has_several = settings.fabrics().next().is_some();
    let (of_site, several) = (site.clone(), has_several);
    let (fabric, wanted) = work(move || {
        let mut wanted = fabric.partitions();
        if let (Some(site), true) = (of_site, several) {
            wanted.fabric_of = fabric_of_ports(&wanted, &site);
        }
        (fabric, wanted)
    })
    .await?;
    let written = breach_check::before_change(core, manager, &fabric, &wanted).await?;
    let begun = clock::now();
    let lease = Lease {
        store: core.store.clone(),
        replica: core.replica.clone(),
    };
    let other = site.as_ref().and_then(|site| other_fabrics(settings.fabrics(), site));
    let applied = match other {
        Some(fault) => Err(Failure::of(fault)),
        None => apply(manager, wanted, lease).await,
    };
    match applied {
        // Another replica brings the partitions to the fabric, and stores their state.
        Err(failure) if failure.is_fenced => {
            tracing::warn!(
                fault = failure.fault,
                "another replica may bring the partitions to the fabric"
            );
            return Ok(());
        }
        Ok(applied) => {
            let is_draining = record_proof(core, fabric, (applied, site), (begun, written)).await?;
            *last = Schedule::default();
            if is_draining {
                last.next = clock::now().plus(seconds(RETRY_S));
            }
        }
        Err(Failure { fault, repaired, .. }) => {
            tracing::warn!(fault, "partitions are not in place");
            if let Some(before) = repaired {
                breach_check::record_repaired(core, fabric, before).await?;
            }
            last.failures = last.failures.saturating_add(1);
            let pause = RETRY_S.saturating_mul(1 << last.failures.min(5));
            let longest = match core.store.count_open_breaches().await? {
                0 => LONGEST_RETRY_S,
                _ => i64::from(settings.check_s).clamp(RETRY_S, LONGEST_RETRY_S),
            };
            last.next = clock::now().plus(seconds(pause.min(longest)));
            record_fault(core, fault).await?;
        }
    }
    core.store.wake_clusters(clock::now()).await?;
    core.clusters_due.notify_one();
    Ok(())
}

/// A change that failed.
struct Failure {
    /// The cause, in words.
    fault: String,
    /// The tables that the change repaired in fabrics without a fault.
    repaired: Option<Reading>,
    /// This replica's lease of the fabric is over.
    is_fenced: bool,
}

impl Failure {
    fn of(fault: String) -> Self {
        Self {
            fault,
            repaired: None,
            is_fenced: false,
        }
    }
}

/// The lease of the fabric. A replica that was paused past the end of its lease stops before its next write: another
/// replica may have brought newer partitions to the fabric.
#[derive(Debug, Clone)]
struct Lease {
    store: Store,
    replica: String,
}

#[async_trait]
impl Fence for Lease {
    async fn check(&self) -> Result<(), String> {
        match self.store.has_fabric_lease(&self.replica, clock::now()).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(format!("the lease of replica {} for the fabric is over", self.replica)),
            Err(error) => Err(format!("the lease for the fabric cannot be checked: {}", chain(&error))),
        }
    }
}

/// A task of its own, which finishes even if the caller is dropped. Its result counts only within the lease: a fault past
/// its end may come from a write or a rollback that the fence refused.
async fn apply(manager: &Arc<dyn FabricManager>, wanted: Partitions, lease: Lease) -> Result<Applied, Failure> {
    let (manager, fence) = (manager.clone(), lease.clone());
    let applied = match tokio::spawn(async move { manager.apply(&wanted, &fence).await }).await {
        Ok(applied) => applied.map_err(|error| Failure {
            fault: chain(&error),
            repaired: error.repaired().cloned(),
            is_fenced: error.is_fenced(),
        }),
        Err(error) => Err(Failure::of(format!("the fabric manager's task ended: {error}"))),
    };
    lease.check().await.map_err(|fault| Failure {
        is_fenced: true,
        ..Failure::of(fault)
    })?;
    applied
}

/// The name of the fabric that each port of a partition is cabled to.
fn fabric_of_ports(wanted: &Partitions, site: &Site) -> BTreeMap<Guid, Box<str>> {
    let members: HashSet<Guid> = wanted.members().collect();
    let cabled = site.cabled_hcas().filter_map(|(node, hca, switch)| {
        let guid = Guid::new(site.node(node).port_guids.get(hca).copied().flatten()?)?;
        let fabric = site.switch(switch).fabric.filter(|_| members.contains(&guid))?;
        Some((guid, site.fabric(fabric).name.clone()))
    });
    cabled.collect()
}

/// All ports of adapters that the site has.
fn ports_of(site: &Site) -> BTreeSet<Guid> {
    let ports = site.nodes.iter().flat_map(|node| node.port_guids.iter().flatten());
    ports.filter_map(|guid| Guid::new(*guid)).collect()
}

/// Why the managers of these fabrics must not change the fabrics of the site. `None`: each has a compute fabric of the site.
fn other_fabrics<'a>(mut fabrics: impl Iterator<Item = &'a str>, site: &Site) -> Option<String> {
    fabrics.find_map(|name| {
        let Some(fabric) = site.fabrics.iter().find(|fabric| *fabric.name == *name) else {
            let known: Vec<&str> = site.fabrics.iter().map(|fabric| &*fabric.name).collect();
            let known = match known.is_empty() {
                true => "the site file names no fabrics".to_owned(),
                false => format!("the fabrics of the site file are {}", known.join(", ")),
            };
            return Some(format!("fabric.managers.{name} in the settings: {known}"));
        };
        (fabric.purpose == FabricPurpose::Storage).then(|| {
            format!(
                "fabric.managers.{name} in the settings: the site file gives this fabric the purpose storage, and a \
                 manager closes the default partition of its fabric; remove the manager from the settings"
            )
        })
    })
}

/// Stores that the partitions of `fabric` were brought to the fabric and read back. Returns whether returned keys may still
/// be in ports.
///
/// The rows to write are computed before the change. The change writes them if no partition has changed since the keys were
/// read; else the keys are read again.
async fn record_proof(
    core: &Core,
    mut fabric: Fabric,
    (applied, site): (Applied, Option<Arc<Site>>),
    (begun, written): (Timestamp, Option<String>),
) -> Result<bool, HallError> {
    let version = fabric.state.wanted;
    let repaired: Vec<Finding> = match &applied.before {
        Some(before) => judge_ports(&fabric.port_keys(), before),
        None => Vec::new(),
    };
    let ids = match repaired.is_empty() && core.store.count_open_breaches().await? == 0 {
        true => BTreeMap::new(),
        false => breach_check::ids(&core.store).await?,
    };
    let applied = Arc::new(applied);
    for _ in 0..TRIES {
        let now = clock::now();
        let read = (fabric.state.wanted, fabric.state.reading);
        let (proof, site) = (applied.clone(), site.clone());
        let (changes, is_draining) = work(move || {
            let is_of_ports = proof.reading.proof == Proof::Ports;
            let tables = is_of_ports.then_some(&proof.reading.tables);
            if let (Some(tables), Some(site)) = (tables, site) {
                fabric.give_up_replaced(&ports_of(&site), tables);
            }
            fabric.record_proof(version, proof.absent.clone(), tables, now);
            (fabric.changes(), fabric.is_draining())
        })
        .await?;
        let mut tx = core.store.write().await?;
        tx.hall().await?;
        let state = loaded(tx.fabric().await)?;
        let Some(state) = state.filter(|state| (state.wanted, state.reading) == read) else {
            drop(tx);
            let Some(newer) = Fabric::load(&core.store).await? else {
                return Ok(false);
            };
            fabric = newer;
            continue;
        };
        let breach_changes = breach_check::record_proof(&mut tx, written.as_ref(), &repaired, &ids).await?;
        changes.store(&mut tx).await?;
        if applied.changed || !state.fault.is_empty() {
            let ports = counted(applied.reading.tables.read.len(), "port");
            let ms = now.since(begun) / 1000;
            let message = format!("partitions of version {version} are in place: {ports} read in {ms} ms");
            tx.add_event(&event(EventKind::FabricProven, &message, now)).await?;
        }
        let report = breach_check::store_changes(core, &mut tx, &breach_changes).await?;
        core.commit(tx).await?;
        report.committed(core);
        return Ok(is_draining);
    }
    let (kind, id) = ("fabric", String::new());
    Err(StoreError::Conflict { kind, id }.into())
}

/// Stores why the partitions were not brought to the fabric.
async fn record_fault(core: &Core, fault: String) -> Result<(), HallError> {
    let now = clock::now();
    let mut tx = core.store.write().await?;
    tx.hall().await?;
    let Some(mut state) = loaded(tx.fabric().await)? else {
        return Ok(());
    };
    if state.fault != fault {
        tx.add_event(&event(EventKind::FabricFault, &fault, now)).await?;
    }
    state.fault = fault;
    tx.put_fabric(&state).await?;
    Ok(core.commit(tx).await?)
}

fn event(kind: EventKind, message: &str, at: Timestamp) -> EventRow {
    EventRow {
        at,
        kind,
        target: "fabric".to_owned(),
        message: message.to_owned(),
        ..EventRow::default()
    }
}

#[cfg(test)]
mod tests {
    use rackwright_site::file::{Source, check};

    use super::*;

    #[test]
    fn managers_must_have_compute_fabrics_of_the_site() {
        let text = "site: {name: s}
fabrics: [{name: east}, {name: west}, {name: disks, purpose: storage}]
switches:
- {name: 'leaf-[1-3]', role: leaf, ports: 8, fabric: [east, west, disks]}
";
        let of = |text: &str, fabrics: &[&str]| {
            let checked = check(&[Source { name: "s.yaml", text }]);
            let site = checked.site.unwrap_or_else(|| panic!("{:?}", checked.findings.list));
            other_fabrics(fabrics.iter().copied(), &site)
        };
        assert_eq!(of(text, &[]), None);
        assert_eq!(of(text, &["east", "west"]), None);
        assert_eq!(
            of(text, &["east", "wset"]).unwrap(),
            "fabric.managers.wset in the settings: the fabrics of the site file are east, west, disks"
        );
        let why = of(text, &["disks"]).unwrap();
        assert!(
            why.contains("fabric.managers.disks") && why.contains("purpose storage"),
            "{why}"
        );
        let plain = "site: {name: s}\n";
        assert!(
            of(plain, &["east"])
                .unwrap()
                .ends_with("the site file names no fabrics")
        );
    }
}
