//! The update of one component, from its sending to its running version.

use std::sync::Arc;
use std::time::Duration;

use rackwright_ground::bmc::BmcError;
use rackwright_ground::clock;
use rackwright_ground::stored;
use rackwright_lifecycle::EventKind;
use rackwright_redfish::{
    Activation, BmcClient, ErrorKind, FirmwareEntry, FirmwareImage, PowerGoal, RedfishError, UpdateLook, UpdateTicket,
};
use rackwright_site::firmware::same;
use rackwright_site::model::FirmwareActivation;
use rackwright_store::{EventRow, FirmwareUpdateRow};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::{EndReason, FirmwareRun};
use crate::firmware::Firmware;
use crate::firmware::link;

/// How long each part of an update may take.
pub(super) struct TimeLimits {
    /// From sending a component to the end of its task (Ironic's limit for a whole update is 2 h).
    task: Duration,
    /// For a restart of a BMC: some take ten minutes.
    away: Duration,
    /// From the task's end until the version reads without an activation.
    settles: Duration,
    /// From the activation until the version reads.
    version: Duration,
    /// For a change of power.
    pub(super) power: Duration,
    /// Pause between two reads.
    pub(super) look: Duration,
}

impl TimeLimits {
    /// The limits of updates that may take `all_s` in total. With the default of 4 h: 2 h for a component, 15 min for an
    /// absent BMC or for a version to read, 4 min for a change of power, and 20 s for a version to read by itself.
    pub(super) fn within(all_s: u32) -> Self {
        let all = Duration::from_secs(all_s.into());
        Self {
            task: all / 2,
            away: all / 16,
            settles: all / 720,
            version: all / 16,
            power: (all / 60).max(Duration::from_secs(30)),
            look: Duration::from_secs(2),
        }
    }
}

/// The progress of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Phase {
    /// The file may have been sent.
    Sending,
    /// The BMC has the file.
    Tracking,
    /// The BMC has written it, and it does not run yet.
    Activating,
}

/// The update of one component, as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ComponentUpdate {
    pub(super) component: String,
    pub(super) entry: FirmwareEntry,
    pub(super) to: String,
    pub(super) digest: String,
    pub(super) is_bmc: bool,
    pub(super) was_on: bool,
    pub(super) phase: Phase,
    pub(super) tasks_before: Vec<String>,
    pub(super) ticket: Option<UpdateTicket>,
}

impl FirmwareRun<'_> {
    pub(super) async fn load(&self) -> Result<Option<ComponentUpdate>, EndReason> {
        let row = self.core.store.firmware_update(&self.record.id).await?;
        let row = row.filter(|row| !row.body.is_empty());
        let read = |row: FirmwareUpdateRow| stored::present("firmware update", self.record.id.as_str(), &row.body);
        Ok(row.map(read).transpose()?)
    }

    pub(super) fn row(&self, component_update: &ComponentUpdate) -> FirmwareUpdateRow {
        FirmwareUpdateRow {
            node: self.record.id.clone(),
            digest: component_update.digest.clone(),
            changed_at: clock::now(),
            body: serde_json::to_string(component_update).unwrap_or_default(),
        }
    }

    async fn store(&self, component_update: &ComponentUpdate) -> Result<(), EndReason> {
        self.core.feature::<Firmware>().note_begun(&self.record.id);
        Ok(self.core.store.put_firmware_update(&self.row(component_update)).await?)
    }

    async fn end_update(&self) -> Result<(), EndReason> {
        self.core.store.end_firmware_update(&self.record.id).await?;
        self.core.feature::<Firmware>().note_ended(&self.record.id);
        Ok(())
    }

    /// The client, as soon as the BMC answers: it restarts in the middle of its own update.
    pub(super) async fn client(&self) -> Result<Arc<BmcClient>, EndReason> {
        let since = Instant::now();
        loop {
            match self.core.bmcs.client(self.record, &self.core.keys.sealer).await {
                Ok(client) => return Ok(client),
                Err(error) if is_away(&error) && since.elapsed() < self.limits.away => {}
                Err(error) => return Err(error.into()),
            }
            sleep(self.limits.look).await;
        }
    }

    /// Finishes an update from any phase.
    pub(super) async fn finish(&self, mut component_update: ComponentUpdate) -> Result<EventRow, EndReason> {
        let ended = self.advance(&mut component_update).await;
        let is_over = match &ended {
            Ok(()) => true,
            // A permanent refusal or failure of the BMC ends the update. After any other failure the state is unknown: a
            // task that takes too long may still write.
            Err(EndReason::Failed(_, _, is_retryable)) => !is_retryable,
            Err(EndReason::Bmc(BmcError::Redfish(error))) => error.kind() == ErrorKind::Permanent,
            Err(_) => false,
        };
        let is_written = ended.is_ok() || component_update.phase == Phase::Activating;
        if is_over && is_written && !component_update.is_bmc {
            // Explains why the TPM measures something else at the next start.
            let (id, to) = (
                &self.record.id,
                format!("{} to {}", component_update.component, component_update.to),
            );
            self.core.store.record_firmware_update(id, clock::now(), &to).await?;
        }
        if is_over {
            self.end_update().await?;
        }
        // An update that will be retried continues in its phase.
        if is_over && ended.is_err() && component_update.phase == Phase::Activating {
            let _ = self.restore_power(component_update.was_on).await;
        }
        ended?;
        let message = format!(
            "{} went from {} to {}",
            component_update.component, component_update.entry.version, component_update.to
        );
        Ok(self.event(EventKind::FirmwareUpdated, message))
    }

    async fn advance(&self, component_update: &mut ComponentUpdate) -> Result<(), EndReason> {
        if self.has_wanted_version(component_update).await? == Some(true) {
            return Ok(());
        }
        if component_update.phase == Phase::Sending {
            self.send(component_update).await?;
        }
        if component_update.phase == Phase::Tracking {
            self.track(component_update).await?;
        }
        if self.wait_for_version(component_update, self.limits.settles).await? {
            return Ok(());
        }
        let activated = self.try_activate(component_update).await;
        if activated.is_err() {
            self.after_failed_restart(component_update).await;
        }
        activated?;
        if self.wait_for_version(component_update, self.limits.version).await? {
            return Ok(());
        }
        let what = format!(
            "{}: the BMC accepted version {} but reports another version; the new version may need an AC cycle",
            component_update.component, component_update.to
        );
        Err(EndReason::Failed("firmware-not-applied", what, false))
    }

    /// Activates the component if a restart is allowed now.
    async fn try_activate(&self, component_update: &mut ComponentUpdate) -> Result<(), EndReason> {
        self.check_restart().await?;
        component_update.phase = Phase::Activating;
        self.store(component_update).await?;
        self.activate(component_update).await
    }

    /// Switches on again a machine that ran and was switched off in vain. The first failure stays the result of the update.
    async fn after_failed_restart(&self, component_update: &mut ComponentUpdate) {
        if component_update.phase != Phase::Activating || !component_update.was_on {
            return;
        }
        if self.restore_power(true).await.is_ok() {
            // The machine is as before: the next try leaves it so if it must no longer be restarted.
            component_update.phase = Phase::Tracking;
            let _ = self.store(component_update).await;
        }
    }

    fn what(&self, component_update: &ComponentUpdate, doing: &str) -> String {
        format!("{doing} {} {}", component_update.component, component_update.to)
    }

    /// Sends the file, unless the BMC already has a task for it.
    async fn send(&self, component_update: &mut ComponentUpdate) -> Result<(), EndReason> {
        let client = self.client().await?;
        let mut tasks = client.task_links().await?;
        tasks.retain(|task| !component_update.tasks_before.contains(task));
        let ticket = match tasks.pop() {
            Some(task) => UpdateTicket {
                method: None,
                places: vec![task],
            },
            None => {
                self.show_progress(&self.what(component_update, "sending"), 0);
                client
                    .start_update(&component_update.entry, &self.image(component_update).await?)
                    .await?
            }
        };
        component_update.ticket = Some(ticket);
        component_update.phase = Phase::Tracking;
        self.store(component_update).await
    }

    async fn image(&self, component_update: &ComponentUpdate) -> Result<FirmwareImage, EndReason> {
        let broken = |why| EndReason::Failed("firmware-file", why, false);
        let (file, bytes) = self
            .core
            .firmware_files
            .check(&component_update.digest)
            .await
            .map_err(broken)?;
        let row = self.files.iter().find(|row| row.digest == component_update.digest);
        let name = row.map_or_else(|| "firmware.bin".to_owned(), |row| row.name.clone());
        Ok(FirmwareImage {
            file,
            bytes,
            url: link::make(self.core, &component_update.digest, &name, clock::now()),
            name,
        })
    }

    /// Waits for the end of the BMC's task.
    async fn track(&self, component_update: &ComponentUpdate) -> Result<(), EndReason> {
        let Some(ticket) = component_update
            .ticket
            .as_ref()
            .filter(|ticket| !ticket.places.is_empty())
        else {
            return Ok(());
        };
        let begun = Instant::now();
        let mut answered = begun;
        loop {
            let client = self.client().await?;
            match client.look_at_update(ticket).await? {
                UpdateLook::Done(_) | UpdateLook::Forgotten => return Ok(()),
                UpdateLook::Failed { state, messages } => {
                    let what = format!(
                        "{}: the BMC's task ended as {state}{messages}",
                        self.what(component_update, "update of")
                    );
                    return Err(EndReason::Failed("firmware-failed", what, false));
                }
                UpdateLook::Running(progress) => {
                    answered = Instant::now();
                    let percent = progress.percent.unwrap_or(0).min(100) as u32;
                    self.show_progress(
                        &self.what(component_update, &format!("BMC: {},", progress.state)),
                        percent,
                    );
                }
                UpdateLook::Away(why) => {
                    self.show_progress(&self.what(component_update, "the BMC restarts:"), 99);
                    if answered.elapsed() > self.limits.away {
                        let what = format!(
                            "{}: {why}",
                            self.what(component_update, "the BMC did not come back during")
                        );
                        return Err(EndReason::Failed("bmc-unreachable", what, true));
                    }
                }
            }
            if begun.elapsed() > self.limits.task {
                let what = self.what(component_update, "the BMC's task did not end: update of");
                return Err(EndReason::Failed("deadline", what, true));
            }
            sleep(self.limits.look).await;
        }
    }

    /// Whether the wanted version reads. `None`: the BMC does not answer. Some inventories put the version into the name of
    /// an entry: then it is another entry.
    async fn has_wanted_version(&self, component_update: &ComponentUpdate) -> Result<Option<bool>, EndReason> {
        let client = self.client().await?;
        match client.firmware_entry(&component_update.entry.path).await {
            Ok(entry) => Ok(Some(same(&entry.version, &component_update.to))),
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => {
                let wanted = self
                    .wanted
                    .iter()
                    .find(|one| *one.component == *component_update.component);
                let state = client.firmware().await?;
                let mut meant = state
                    .entries
                    .iter()
                    .filter(|e| wanted.is_some_and(|one| one.is_for(&e.id, &e.name, &e.software_id)));
                Ok(Some(meant.any(|entry| same(&entry.version, &component_update.to))))
            }
            Err(failure) if failure.kind() == ErrorKind::Retryable => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn wait_for_version(&self, component_update: &ComponentUpdate, limit: Duration) -> Result<bool, EndReason> {
        self.show_progress(&self.what(component_update, "waiting for"), 99);
        let first = Instant::now();
        let mut begun = first;
        loop {
            match self.has_wanted_version(component_update).await? {
                Some(true) => return Ok(true),
                Some(false) if begun.elapsed() >= limit => return Ok(false),
                None if first.elapsed() >= limit + self.limits.away => return Ok(false),
                Some(false) => {}
                // A BMC that restarts by itself must not be restarted again: its time begins when it is back.
                None => begun = Instant::now(),
            }
            sleep(self.limits.look).await;
        }
    }

    /// The activation: from the SKU's wish, else from the profile of the BMC, else a restart of the BMC or the host.
    async fn activation(
        &self,
        client: &BmcClient,
        component_update: &ComponentUpdate,
    ) -> Result<Activation, EndReason> {
        let wanted = self
            .wanted
            .iter()
            .find(|one| *one.component == *component_update.component);
        if let Some(configured) = wanted.and_then(|one| one.activation) {
            return Ok(match configured {
                FirmwareActivation::None => Activation::None,
                FirmwareActivation::BmcReset => Activation::BmcReset,
                FirmwareActivation::HostReset => Activation::HostReset,
                FirmwareActivation::AcCycle => Activation::AcCycle,
            });
        }
        let known = client.profile().await?.update.activation_of(&component_update.entry.id);
        Ok(known.unwrap_or(match component_update.is_bmc {
            true => Activation::BmcReset,
            false => Activation::HostReset,
        }))
    }

    /// Activates the component.
    async fn activate(&self, component_update: &ComponentUpdate) -> Result<(), EndReason> {
        let client = self.client().await?;
        let by = self.activation(&client, component_update).await?;
        self.show_progress(&self.what(component_update, "restarting for"), 99);
        match by {
            Activation::None => {}
            Activation::BmcReset => client.reset_bmc().await?,
            Activation::HostReset => {
                self.switch_off(&client).await?;
                self.switch_on(&client).await?;
            }
            Activation::AcCycle => self.ac_cycle(&client, component_update).await?,
        }
        Ok(())
    }

    /// Switches the machine off, unless it could not be switched on again.
    async fn switch_off(&self, client: &BmcClient) -> Result<(), EndReason> {
        let Ok(placed) = timeout(super::TURN, self.take_permits()).await else {
            return Err(EndReason::QueueTimeout);
        };
        placed?;
        self.check_alarms().await?;
        client.set_power(PowerGoal::Off).await?;
        client.wait_power(PowerGoal::Off, self.limits.power).await?;
        Ok(())
    }

    /// Runs an AC cycle if the BMC supports it: some versions read only after that. The machine is off before and on
    /// afterwards, as after any other restart.
    async fn ac_cycle(&self, client: &BmcClient, component_update: &ComponentUpdate) -> Result<(), EndReason> {
        match client.check_ac_cycle().await {
            Ok(()) => {}
            Err(RedfishError::NotOffered { .. }) => {
                let what = format!(
                    "{} {} is installed and runs only after an AC cycle: switch the machine's outlets off and on",
                    component_update.component, component_update.to
                );
                return Err(EndReason::Failed("firmware-needs-ac-cycle", what, false));
            }
            Err(failure) => return Err(failure.into()),
        }
        self.switch_off(client).await?;
        self.show_progress(&self.what(component_update, "AC cycle for"), 99);
        let cycled = client.ac_cycle(self.limits.away).await?;
        let message = format!(
            "AC cycle by {} for {} {}: the BMC was away for {} s",
            cycled.action,
            component_update.component,
            component_update.to,
            cycled.away.as_secs()
        );
        let mut tx = self.core.store.write().await?;
        tx.add_event(&self.event(EventKind::BmcAcCycle, message)).await?;
        self.core.commit(tx).await?;
        self.switch_on(client).await
    }
}

/// The BMC does not answer now; a retry may help.
fn is_away(error: &BmcError) -> bool {
    matches!(error, BmcError::Redfish(error) if error.kind() == ErrorKind::Retryable)
}
