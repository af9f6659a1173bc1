//! The update of one component, from its sending to its running version.

use std::sync::Arc;
use std::time::Duration;

use rackwright_lifecycle::EventKind;
use rackwright_redfish::{
    Activation, BmcClient, ErrorKind, FirmwareEntry, FirmwareImage, PowerGoal, RedfishError, UpdateLook, UpdateTicket,
};
use rackwright_site::firmware::same;
use rackwright_site::model::FirmwareActivation;
use rackwright_store::{EventRow, FirmwareUpdateRow};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use super::{Run, Stop};
use crate::bmc::BmcError;
use crate::clock;
use crate::firmware::link;
use crate::stored;

/// Time limits.
pub(super) struct Patience {
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

impl Patience {
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
pub(super) struct Flight {
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

impl Run<'_> {
    pub(super) async fn load(&self) -> Result<Option<Flight>, Stop> {
        let row = self.core.store.firmware_update(&self.record.id).await?;
        let row = row.filter(|row| !row.body.is_empty());
        let read = |row: FirmwareUpdateRow| stored::present("firmware update", &self.record.id, &row.body);
        Ok(row.map(read).transpose()?)
    }

    pub(super) fn row(&self, flight: &Flight) -> FirmwareUpdateRow {
        FirmwareUpdateRow {
            node: self.record.id.clone(),
            digest: flight.digest.clone(),
            changed_at: clock::now(),
            body: serde_json::to_string(flight).unwrap_or_default(),
        }
    }

    async fn store(&self, flight: &Flight) -> Result<(), Stop> {
        self.core.firmware.note_begun(&self.record.id, true);
        Ok(self.core.store.put_firmware_update(&self.row(flight)).await?)
    }

    async fn over(&self) -> Result<(), Stop> {
        self.core.store.end_firmware_update(&self.record.id).await?;
        self.core.firmware.note_begun(&self.record.id, false);
        Ok(())
    }

    /// The client, as soon as the BMC answers: it restarts in the middle of its own update.
    pub(super) async fn client(&self) -> Result<Arc<BmcClient>, Stop> {
        let since = Instant::now();
        loop {
            match self.core.bmcs.client(self.record, &self.core.keys.sealer).await {
                Ok(client) => return Ok(client),
                Err(error) if is_away(&error) && since.elapsed() < self.patience.away => {}
                Err(error) => return Err(error.into()),
            }
            sleep(self.patience.look).await;
        }
    }

    /// Finishes an update from any phase.
    pub(super) async fn finish(&self, mut flight: Flight) -> Result<EventRow, Stop> {
        let ended = self.go_on(&mut flight).await;
        let is_over = match &ended {
            Ok(()) => true,
            // A permanent refusal or failure of the BMC ends the update. After any other failure the state is unknown: a
            // task that takes too long may still write.
            Err(Stop::Failed(_, _, is_retryable)) => !is_retryable,
            Err(Stop::Bmc(BmcError::Redfish(error))) => error.kind() == ErrorKind::Permanent,
            Err(_) => false,
        };
        let is_written = ended.is_ok() || flight.phase == Phase::Activating;
        if is_over && is_written && !flight.is_bmc {
            // Explains why the TPM measures something else at the next start.
            let (id, to) = (&self.record.id, format!("{} to {}", flight.component, flight.to));
            self.core.store.note_firmware_updated(id, clock::now(), &to).await?;
        }
        if is_over {
            self.over().await?;
        }
        // An update that will be retried continues in its phase.
        if is_over && ended.is_err() && flight.phase == Phase::Activating {
            let _ = self.put_back(flight.was_on).await;
        }
        ended?;
        let message = format!(
            "{} went from {} to {}",
            flight.component, flight.entry.version, flight.to
        );
        Ok(self.event(EventKind::FirmwareUpdated, message))
    }

    async fn go_on(&self, flight: &mut Flight) -> Result<(), Stop> {
        if self.reads(flight).await? == Some(true) {
            return Ok(());
        }
        if flight.phase == Phase::Sending {
            self.send(flight).await?;
        }
        if flight.phase == Phase::Tracking {
            self.track(flight).await?;
        }
        if self.waits_for_version(flight, self.patience.settles).await? {
            return Ok(());
        }
        let activated = self.try_activate(flight).await;
        if activated.is_err() {
            self.after_failed_restart(flight).await;
        }
        activated?;
        if self.waits_for_version(flight, self.patience.version).await? {
            return Ok(());
        }
        let what = format!(
            "{}: the BMC took version {} and still reads another; it may run only after an AC cycle",
            flight.component, flight.to
        );
        Err(Stop::Failed("firmware-not-applied", what, false))
    }

    /// Activates the component if a restart is allowed now.
    async fn try_activate(&self, flight: &mut Flight) -> Result<(), Stop> {
        self.check_restart().await?;
        flight.phase = Phase::Activating;
        self.store(flight).await?;
        self.activate(flight).await
    }

    /// Switches on again a machine that ran and was switched off in vain. The first failure stays the result of the update.
    async fn after_failed_restart(&self, flight: &mut Flight) {
        if flight.phase != Phase::Activating || !flight.was_on {
            return;
        }
        if self.put_back(true).await.is_ok() {
            // The machine is as before: the next try leaves it so if it must no longer be restarted.
            flight.phase = Phase::Tracking;
            let _ = self.store(flight).await;
        }
    }

    fn what(&self, flight: &Flight, doing: &str) -> String {
        format!("{doing} {} {}", flight.component, flight.to)
    }

    /// Sends the file, unless the BMC already has a task for it.
    async fn send(&self, flight: &mut Flight) -> Result<(), Stop> {
        let client = self.client().await?;
        let mut tasks = client.task_links().await?;
        tasks.retain(|task| !flight.tasks_before.contains(task));
        let ticket = match tasks.pop() {
            Some(task) => UpdateTicket {
                way: None,
                places: vec![task],
            },
            None => {
                self.say(&self.what(flight, "sending"), 0);
                client.start_update(&flight.entry, &self.image(flight).await?).await?
            }
        };
        flight.ticket = Some(ticket);
        flight.phase = Phase::Tracking;
        self.store(flight).await
    }

    async fn image(&self, flight: &Flight) -> Result<FirmwareImage, Stop> {
        let broken = |why| Stop::Failed("firmware-file", why, false);
        let (file, bytes) = self.core.firmware.files.check(&flight.digest).await.map_err(broken)?;
        let row = self.files.iter().find(|row| row.digest == flight.digest);
        let name = row.map_or_else(|| "firmware.bin".to_owned(), |row| row.name.clone());
        Ok(FirmwareImage {
            file,
            bytes,
            url: link::make(self.core, &flight.digest, &name, clock::now()),
            name,
        })
    }

    /// Waits for the end of the BMC's task.
    async fn track(&self, flight: &Flight) -> Result<(), Stop> {
        let Some(ticket) = flight.ticket.as_ref().filter(|ticket| !ticket.places.is_empty()) else {
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
                        self.what(flight, "update of")
                    );
                    return Err(Stop::Failed("firmware-failed", what, false));
                }
                UpdateLook::Running(progress) => {
                    answered = Instant::now();
                    let percent = progress.percent.unwrap_or(0).min(100) as u32;
                    self.say(&self.what(flight, &format!("BMC: {},", progress.state)), percent);
                }
                UpdateLook::Away(why) => {
                    self.say(&self.what(flight, "the BMC restarts:"), 99);
                    if answered.elapsed() > self.patience.away {
                        let what = format!("{}: {why}", self.what(flight, "the BMC did not come back during"));
                        return Err(Stop::Failed("bmc-unreachable", what, true));
                    }
                }
            }
            if begun.elapsed() > self.patience.task {
                let what = self.what(flight, "the BMC's task did not end: update of");
                return Err(Stop::Failed("deadline", what, true));
            }
            sleep(self.patience.look).await;
        }
    }

    /// Whether the wanted version reads. `None`: the BMC does not answer. Some inventories put the version into the name of
    /// an entry: then it is another entry.
    async fn reads(&self, flight: &Flight) -> Result<Option<bool>, Stop> {
        let client = self.client().await?;
        match client.firmware_entry(&flight.entry.path).await {
            Ok(entry) => Ok(Some(same(&entry.version, &flight.to))),
            Err(failure) if matches!(failure.status(), Some(404 | 410)) => {
                let wanted = self.wanted.iter().find(|one| *one.component == *flight.component);
                let state = client.firmware().await?;
                let mut meant = state
                    .entries
                    .iter()
                    .filter(|e| wanted.is_some_and(|one| one.is_for(&e.id, &e.name, &e.software_id)));
                Ok(Some(meant.any(|entry| same(&entry.version, &flight.to))))
            }
            Err(failure) if failure.kind() == ErrorKind::Retryable => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn waits_for_version(&self, flight: &Flight, limit: Duration) -> Result<bool, Stop> {
        self.say(&self.what(flight, "waiting for"), 99);
        let first = Instant::now();
        let mut begun = first;
        loop {
            match self.reads(flight).await? {
                Some(true) => return Ok(true),
                Some(false) if begun.elapsed() >= limit => return Ok(false),
                None if first.elapsed() >= limit + self.patience.away => return Ok(false),
                Some(false) => {}
                // A BMC that restarts by itself must not be restarted again: its time begins when it is back.
                None => begun = Instant::now(),
            }
            sleep(self.patience.look).await;
        }
    }

    /// The activation: from the SKU's wish, else from the profile of the BMC, else a restart of the BMC or the host.
    async fn activation(&self, client: &BmcClient, flight: &Flight) -> Result<Activation, Stop> {
        let wanted = self.wanted.iter().find(|one| *one.component == *flight.component);
        if let Some(said) = wanted.and_then(|one| one.activation) {
            return Ok(match said {
                FirmwareActivation::None => Activation::None,
                FirmwareActivation::BmcReset => Activation::BmcReset,
                FirmwareActivation::HostReset => Activation::HostReset,
                FirmwareActivation::AcCycle => Activation::AcCycle,
            });
        }
        let known = client.profile().await?.update.activation_of(&flight.entry.id);
        Ok(known.unwrap_or(match flight.is_bmc {
            true => Activation::BmcReset,
            false => Activation::HostReset,
        }))
    }

    /// Activates the component.
    async fn activate(&self, flight: &Flight) -> Result<(), Stop> {
        let client = self.client().await?;
        let by = self.activation(&client, flight).await?;
        self.say(&self.what(flight, "restarting for"), 99);
        match by {
            Activation::None => {}
            Activation::BmcReset => client.reset_bmc().await?,
            Activation::HostReset => {
                self.switch_off(&client).await?;
                self.switch_on(&client).await?;
            }
            Activation::AcCycle => self.ac_cycle(&client, flight).await?,
        }
        Ok(())
    }

    /// Switches the machine off, unless it could not be switched on again.
    async fn switch_off(&self, client: &BmcClient) -> Result<(), Stop> {
        let Ok(placed) = timeout(super::TURN, self.take_place()).await else {
            return Err(Stop::NoTurn);
        };
        placed?;
        self.check_alarms().await?;
        client.set_power(PowerGoal::Off).await?;
        client.wait_power(PowerGoal::Off, self.patience.power).await?;
        Ok(())
    }

    /// Runs an AC cycle if the BMC supports it: some versions read only after that. The machine is off before and on
    /// afterwards, as after any other restart.
    async fn ac_cycle(&self, client: &BmcClient, flight: &Flight) -> Result<(), Stop> {
        match client.ac_cycle_way().await {
            Ok(_) => {}
            Err(RedfishError::NotOffered { .. }) => {
                let what = format!(
                    "{} {} is put on and runs after an AC cycle: switch the machine's outlets off and on",
                    flight.component, flight.to
                );
                return Err(Stop::Failed("firmware-needs-ac-cycle", what, false));
            }
            Err(failure) => return Err(failure.into()),
        }
        self.switch_off(client).await?;
        self.say(&self.what(flight, "AC cycle for"), 99);
        let cycled = client.ac_cycle(self.patience.away).await?;
        let message = format!(
            "AC cycle by {} for {} {}: the BMC was away for {} s",
            cycled.action,
            flight.component,
            flight.to,
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
