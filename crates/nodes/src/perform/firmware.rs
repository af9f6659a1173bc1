//! Brings the firmware of one machine to the wish of its SKU: one component after the other, the BMC first.
//!
//! The phases of a component, and how an update continues after this process or its machine ended in between:
//! - *stored, not sent or not answered*: if the BMC has a new task, that task is followed. Without a new task, the BMC holds
//!   nothing of the file that it would use, so the file is sent again.
//! - *sent and in progress*: the address of its task is stored and read. A BMC that restarts loses the task; then the
//!   version decides.
//! - *written and not running*: the activation is repeated, which is harmless.
//! - *running*: the version reads as wanted. This is checked first, and nothing else is done.
//!
//! A begun component is finished before anything else, even if the wish has changed. A claimed machine is not restarted
//! after its window: the component stays stored for the next window. A BMC that starts after its own update may refuse good
//! logins for a while: that says nothing about its account.

mod component_update;
mod permits;

use std::collections::BTreeSet;
use std::time::Duration;

use rackwright_ground::bmc::{BmcError, power_of};
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{EventKind, OperationKind, Outcome, Power, Reading, State};
use rackwright_redfish::{BmcClient, FirmwareState, PowerGoal};
use rackwright_site::firmware::{Row, Verdict};
use rackwright_site::model::{FirmwareOrder, WantedFirmware};
use rackwright_store::{EventRow, FirmwareFileRow, FirmwareSeenRow, NodeRecord, StoreError};

use self::component_update::{ComponentUpdate, Phase, TimeLimits};
use crate::effect_result::EffectResult;
use crate::firmware::Firmware;
use crate::firmware::{self, UpdateProgress};

/// Longest wait of a machine for its turn: the rest of its time is for the update.
const TURN: Duration = Duration::from_secs(30 * 60);
/// Pause before the next try after an obstacle that passes by itself: a BMC that starts, or an alarm. It is a minute for
/// the default limit of 4 h.
fn pause(all_s: u32) -> Duration {
    Duration::from_secs(all_s.into()) / 240
}

/// The code of a failure because an alarm forbids a power-on.
const ALARM: &str = "alarm";

/// The code of an update that was cancelled before its last component.
const CANCELLED: &str = "cancelled";

/// Whether another component is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestState {
    Valid,
    /// No request or wish is left.
    Withdrawn,
    /// The request was cancelled during a component.
    Cancelled,
}

/// Why an update ends early.
#[derive(Debug)]
enum EndReason {
    Bmc(BmcError),
    Store(StoreError),
    /// The BMC refused the login in the middle of an update, as a starting BMC does.
    Starting(String),
    /// A stable code, a sentence, and whether a retry may help.
    Failed(&'static str, String, bool),
    /// The window is over: the rest waits for the next one.
    WindowClosed,
    /// Other machines were first: the machine queues again.
    QueueTimeout,
}

impl From<StoreError> for EndReason {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<BmcError> for EndReason {
    fn from(error: BmcError) -> Self {
        Self::Bmc(error)
    }
}

impl From<rackwright_redfish::RedfishError> for EndReason {
    fn from(error: rackwright_redfish::RedfishError) -> Self {
        Self::Bmc(error.into())
    }
}

/// The updates of one machine.
struct FirmwareRun<'a> {
    core: &'a Core,
    record: &'a NodeRecord,
    wanted: Vec<WantedFirmware>,
    files: Vec<FirmwareFileRow>,
    limits: TimeLimits,
}

/// Makes all updates of a machine.
pub(super) async fn update(core: &Core, record: &NodeRecord) -> EffectResult {
    let ended = update_in_turn(core, record).await;
    core.feature::<Firmware>().set_progress(&record.id, None);
    // Other machines get their turn meanwhile.
    if matches!(&ended, Err(EndReason::Starting(_) | EndReason::Failed(ALARM, ..))) {
        tokio::time::sleep(pause(core.config.policy.firmware_s)).await;
    }
    match ended {
        Ok((power, events)) => {
            let mut done = EffectResult::succeeded().seen(move |readings, now| {
                readings.power = Reading::Known { value: power, at: now };
            });
            done.events = events;
            done
        }
        Err(EndReason::Store(error)) => EffectResult::unread(&error),
        Err(EndReason::WindowClosed | EndReason::QueueTimeout) => EffectResult::with_outcome(Outcome::Interrupted),
        Err(EndReason::Bmc(error)) => {
            core.bmcs.forget(&record.id).await;
            super::bmc::failed(core, record, &error)
        }
        Err(EndReason::Starting(message)) => {
            core.bmcs.forget(&record.id).await;
            EffectResult::failed_for_now("bmc-starting", message)
        }
        Err(EndReason::Failed(code, message, retryable)) => EffectResult::with_outcome(Outcome::Failed {
            code: code.to_owned(),
            message,
            retryable,
        }),
    }
}

async fn update_in_turn(core: &Core, record: &NodeRecord) -> Result<(Power, Vec<EventRow>), EndReason> {
    let waits = UpdateProgress {
        step: "waiting for its turn".to_owned(),
        percent: 0,
    };
    core.feature::<Firmware>().set_progress(&record.id, Some(waits));
    let time_limit = TURN.min(Duration::from_secs(u64::from(core.config.policy.firmware_s) / 4));
    let Ok(Ok(_turn)) = tokio::time::timeout(time_limit, core.feature::<Firmware>().turns.acquire()).await else {
        return Err(EndReason::QueueTimeout);
    };
    match begin(core, record).await {
        Err(EndReason::Bmc(error)) if error.is_refusal() && core.store.firmware_update(&record.id).await?.is_some() => {
            let message = error.description(&record.spec.bmc_address);
            let why = "an update is under way, and a BMC that restarts refuses logins for a while";
            Err(EndReason::Starting(format!("{message}; {why}")))
        }
        ended => ended,
    }
}

async fn begin(core: &Core, record: &NodeRecord) -> Result<(Power, Vec<EventRow>), EndReason> {
    let run = FirmwareRun {
        core,
        record,
        wanted: firmware::wanted_of(core, record).await?,
        files: core.store.firmware_files().await?,
        limits: TimeLimits::within(core.config.policy.firmware_s),
    };
    run.all().await
}

impl FirmwareRun<'_> {
    async fn all(&self) -> Result<(Power, Vec<EventRow>), EndReason> {
        let mut events = Vec::new();
        let was_on = match self.load().await? {
            Some(component_update) => {
                let was_on = component_update.was_on;
                events.push(self.finish(component_update).await?);
                Some(was_on)
            }
            None => None,
        };
        let was_on = match was_on {
            Some(was_on) => was_on,
            None => self.is_on().await?,
        };
        let mut done = BTreeSet::new();
        loop {
            self.show_progress("reading what is installed", 0);
            let state = self.read().await?;
            let rows = firmware::rows(&self.wanted, &state, &self.files);
            let Some(row) = rows.iter().find(|row| row.verdict == Verdict::Update) else {
                events.extend(self.left(&rows));
                break;
            };
            if !done.insert((row.component.clone(), row.id.clone())) {
                let what = format!(
                    "{} {} was installed, but the BMC reports {} again; look at the event log of the BMC",
                    row.component, row.wanted, row.installed
                );
                return Err(EndReason::Failed("firmware-not-applied", what, false));
            }
            self.check_window().await?;
            // An update must not begin if the machine could not be switched on again afterwards.
            self.check_alarms().await?;
            let component_update = self.plan(&state, row, was_on).await?;
            match self.begin(&component_update).await? {
                RequestState::Valid => events.push(self.finish(component_update).await?),
                RequestState::Withdrawn => break,
                RequestState::Cancelled => {
                    self.restore_power(was_on).await?;
                    let left: Vec<String> = rows
                        .iter()
                        .filter(|row| row.verdict == Verdict::Update)
                        .map(|row| format!("{} {}", row.component, row.wanted))
                        .collect();
                    let what = format!("cancelled; not begun: {}", left.join(", "));
                    return Err(EndReason::Failed(CANCELLED, what, false));
                }
            }
        }
        let power = self.restore_power(was_on).await?;
        Ok((power, events))
    }

    /// Stores that a component is begun, if it is still wanted. One change does both, so that a cancellation knows whether
    /// it came in time. On the way into the pool, the update needs no request.
    async fn begin(&self, component_update: &ComponentUpdate) -> Result<RequestState, EndReason> {
        let mut tx = self.core.store.write().await?;
        let record = tx.node(&self.record.id).await?;
        let request_state = match record.node.state {
            State::Inspecting | State::Reclaiming => RequestState::Valid,
            _ if record.node.wanted.firmware.is_none() => RequestState::Withdrawn,
            _ => {
                let open = tx.open_operations(&format!("nodes/{}", record.id)).await?;
                let mut requests = open.iter().filter(|one| one.kind == OperationKind::Firmware).peekable();
                match requests.peek().is_some() && requests.all(|one| one.cancel_requested) {
                    true => RequestState::Cancelled,
                    false => RequestState::Valid,
                }
            }
        };
        if request_state == RequestState::Valid {
            tx.put_firmware_update(&self.row(component_update)).await?;
            self.core.commit(tx).await?;
            self.core.feature::<Firmware>().note_begun(&self.record.id);
        }
        Ok(request_state)
    }

    fn show_progress(&self, step: &str, percent: u32) {
        let description = UpdateProgress {
            step: step.to_owned(),
            percent,
        };
        self.core
            .feature::<Firmware>()
            .set_progress(&self.record.id, Some(description));
    }

    /// Whether another component may begin: on a claimed machine, only in its open window.
    async fn check_window(&self) -> Result<(), EndReason> {
        let state = self.record.node.state;
        if matches!(state, State::Inspecting | State::Reclaiming) {
            return Ok(());
        }
        self.check_open().await
    }

    /// Whether a begun component may restart the machine: always on an unused machine, claimed or not; otherwise only in
    /// the open window of its claim.
    async fn check_restart(&self) -> Result<(), EndReason> {
        if self.record.node.state.is_unused() {
            return Ok(());
        }
        self.check_open().await
    }

    async fn check_open(&self) -> Result<(), EndReason> {
        let record = self
            .core
            .store
            .node(&rackwright_store::Scope::Site, &self.record.id)
            .await?;
        if record.node.claim.is_none() {
            return Ok(());
        }
        match firmware::window_of(self.core, &record).await?.open_until(clock::now()) {
            Some(_) => Ok(()),
            None => Err(EndReason::WindowClosed),
        }
    }

    /// The installed firmware, which is also stored for reports.
    async fn read(&self) -> Result<FirmwareState, EndReason> {
        let client = self.client().await?;
        let state = client.firmware().await?;
        let row = FirmwareSeenRow {
            node: self.record.id.clone(),
            at: clock::now(),
            body: serde_json::to_string(&state).unwrap_or_default(),
        };
        self.core.store.put_firmware_seen(&row).await?;
        Ok(state)
    }

    async fn is_on(&self) -> Result<bool, EndReason> {
        let client = self.client().await?;
        Ok(power_of(&client.power().await?) == Power::On)
    }

    /// Leaves the machine on or off as it was found.
    async fn restore_power(&self, was_on: bool) -> Result<Power, EndReason> {
        let client = self.client().await?;
        let power = power_of(&client.power().await?);
        let wanted = if was_on { Power::On } else { Power::Off };
        match wanted {
            same if same == power => {}
            Power::On => self.switch_on(&client).await?,
            _ => {
                client.set_power(PowerGoal::Off).await?;
                client.wait_power(PowerGoal::Off, self.limits.power).await?;
            }
        }
        Ok(wanted)
    }

    /// Switches the machine on after it got a place to start. An alarm stops the start of an unclaimed machine only.
    async fn switch_on(&self, client: &BmcClient) -> Result<(), EndReason> {
        self.take_permits().await?;
        if self.record.node.claim.is_none() {
            self.check_alarms().await?;
        }
        client.set_power(PowerGoal::On).await?;
        client.wait_power(PowerGoal::On, self.limits.power).await?;
        self.return_permits().await
    }

    async fn check_alarms(&self) -> Result<(), EndReason> {
        match self.core.store.power_block(&self.record.id).await? {
            None => Ok(()),
            Some(why) => {
                let what = format!("the machine must not be switched on before an alarm clears: {why}");
                Err(EndReason::Failed(ALARM, what, true))
            }
        }
    }

    /// An event with the wishes that cannot be fulfilled.
    fn left(&self, rows: &[Row]) -> Option<EventRow> {
        let left = rows.iter().filter(|row| row.verdict.is_drift());
        let words: Vec<String> = left
            .map(|row| format!("{} {} ({})", row.component, row.wanted, row.verdict.name()))
            .collect();
        let message = format!("not updated to the versions that the SKU wants: {}", words.join(", "));
        (!words.is_empty()).then(|| self.event(EventKind::FirmwareLeft, message))
    }

    fn event(&self, kind: EventKind, message: String) -> EventRow {
        EventRow {
            at: clock::now(),
            kind,
            target: format!("nodes/{}", self.record.id),
            message,
            ..EventRow::default()
        }
    }

    /// The update of one component, before it begins.
    async fn plan(&self, state: &FirmwareState, row: &Row, was_on: bool) -> Result<ComponentUpdate, EndReason> {
        let lost = || EndReason::Failed("bug", format!("{} is in no inventory", row.id), false);
        let entry = state.entries.iter().find(|entry| entry.id == row.id).ok_or_else(lost)?;
        let client = self.client().await?;
        Ok(ComponentUpdate {
            component: row.component.to_string(),
            entry: entry.clone(),
            to: row.wanted.to_string(),
            digest: row.file.as_deref().unwrap_or_default().to_owned(),
            is_bmc: row.order == FirmwareOrder::Bmc,
            was_on,
            phase: Phase::Sending,
            tasks_before: client.task_links().await?,
            ticket: None,
        })
    }
}
