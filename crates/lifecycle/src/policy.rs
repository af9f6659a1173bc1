//! Time limits and retry budgets.

use serde::{Deserialize, Serialize};

use crate::chart::State;
use crate::effect::Effect;
use crate::time::Timestamp;

/// Time limits in seconds and retry budgets of one site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// From power-on until the agent reports.
    pub agent_boot_s: u32,
    /// Least time from power-on until the agent gets a job or its report counts. A second machine with the same MAC address
    /// shows itself within this time. A node waits at least as long as its last boot took.
    pub agent_quiet_s: u32,
    /// Least time for which a machine is off between a customer's system and the agent that erases, as read from its BMC.
    /// Memory of the host and of GPUs loses its content meanwhile.
    pub power_off_s: u32,
    /// From power-on until the installed system accepts the provisioning key.
    pub host_boot_s: u32,
    /// Writing one image.
    pub write_image_s: u32,
    /// Erasing all drives of one machine.
    pub erase_s: u32,
    /// Checking one installed system.
    pub validate_s: u32,
    /// One conversation with a BMC, power transitions included.
    pub bmc_s: u32,
    /// Bringing the firmware of one machine to the SKU's versions, all components together.
    pub firmware_s: u32,
    /// How long a lost agent may take to come back before it counts as gone.
    pub agent_grace_s: u32,
    /// How old a reading of the power may be before the power is read again.
    pub power_age_s: u32,
    /// Tries of one effect before its state gives up.
    pub tries: u32,
    /// Boots into the agent or the installed system before the state gives up.
    pub boots: u32,
    /// Starts after which firmware settings may still differ from the wanted ones before the state gives up.
    pub settings_tries: u32,
    /// First pause after a failed try; it doubles with every further failure.
    pub backoff_s: u32,
    /// Longest pause between tries.
    pub backoff_max_s: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            agent_boot_s: 900,
            agent_quiet_s: 0,
            power_off_s: 10,
            host_boot_s: 900,
            write_image_s: 3600,
            erase_s: 6 * 3600,
            validate_s: 600,
            bmc_s: 240,
            firmware_s: 4 * 3600,
            agent_grace_s: 60,
            power_age_s: 300,
            tries: 4,
            boots: 3,
            settings_tries: 3,
            backoff_s: 2,
            backoff_max_s: 120,
        }
    }
}

const fn us(s: u32) -> i64 {
    s as i64 * 1_000_000
}

impl Policy {
    /// The pause after the `failures`-th failure in a row, in microseconds.
    #[must_use]
    pub fn backoff_us(&self, failures: usize) -> i64 {
        let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(20).min(20);
        us(self.backoff_s)
            .saturating_mul(1 << doublings)
            .min(us(self.backoff_max_s))
    }

    /// How long one try of `effect` may take, in microseconds.
    #[must_use]
    pub fn effect_us(&self, effect: Effect) -> i64 {
        us(match effect {
            Effect::Identify | Effect::ObservePower | Effect::SetBoot(_) | Effect::PowerOn | Effect::PowerOff => {
                self.bmc_s
            }
            Effect::ProvePowerOff => self.bmc_s,
            Effect::ReadDrives | Effect::ReadBmcState | Effect::ApplySettings | Effect::VerifySettings => self.bmc_s,
            Effect::SetNetwork(_) => self.bmc_s,
            // A cleaning reads everything twice.
            Effect::CleanBmc => self.bmc_s.saturating_mul(2),
            // A change logs in several times, and waits in line for a while.
            Effect::ChangePassword => self.bmc_s.saturating_mul(3),
            Effect::WriteImage => self.write_image_s,
            Effect::EraseDrives => self.erase_s,
            Effect::UpdateFirmware => self.firmware_s,
            Effect::AwaitHost | Effect::ValidateFromOutside => self.host_boot_s,
            Effect::Validate | Effect::HandOver => self.validate_s,
        })
    }

    /// When a node that entered `state` at `since` is overdue. None for states of rest.
    #[must_use]
    pub fn state_deadline(&self, state: State, since: Timestamp) -> Option<Timestamp> {
        let boots = us(self.agent_boot_s) * i64::from(self.boots) + us(self.bmc_s) * 4;
        let span = match state {
            State::Inspecting => boots,
            State::Allocated => us(60),
            State::Imaging => boots + us(self.write_image_s) * i64::from(self.tries),
            State::Rebooting => us(self.host_boot_s) * i64::from(self.boots) + us(self.bmc_s) * 4,
            State::Validating => us(self.validate_s.max(self.host_boot_s)) * i64::from(self.tries) + us(self.bmc_s) * 4,
            State::Reclaiming => {
                let off = us(self.power_off_s) * i64::from(self.boots);
                boots + off + us(self.erase_s) * i64::from(self.tries)
            }
            State::Discovered
            | State::Available
            | State::Active
            | State::Failed
            | State::Quarantined
            | State::Maintenance => return None,
        };
        Some(since.plus(span))
    }

    #[must_use]
    pub fn agent_grace_us(&self) -> i64 {
        us(self.agent_grace_s)
    }

    /// How long a boot into the agent may take, in microseconds.
    #[must_use]
    pub fn agent_boot_us(&self) -> i64 {
        us(self.agent_boot_s)
    }

    /// Microseconds after its power-on before an agent is believed, where the last boot took `usual_us`. At most the time
    /// that a boot may take.
    #[must_use]
    pub fn agent_quiet_us(&self, usual_us: i64) -> i64 {
        us(self.agent_quiet_s).max(usual_us).min(self.agent_boot_us())
    }

    /// How long a machine is off before it boots into the agent that erases, in microseconds.
    #[must_use]
    pub fn power_off_us(&self) -> i64 {
        us(self.power_off_s)
    }

    /// How old a power reading may be, in microseconds.
    #[must_use]
    pub fn power_age_us(&self) -> i64 {
        us(self.power_age_s)
    }
}
