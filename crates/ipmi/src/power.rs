//! Power: read, change, read again.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::Ipmi;
use crate::error::IpmiError;

/// Interval between two reads of the power. IPMI has no notification.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time within which a restarting machine shows its power off. A shorter dip may stay unseen.
const OFF_LIMIT: Duration = Duration::from_secs(10);

/// The power state of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// The machine is on.
    On,
    /// The machine is off. Its BMC still runs.
    Off,
}

impl Power {
    fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// The actions of IPMI's Chassis Control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerAction {
    /// Switches on.
    On,
    /// Switches off at once.
    Off,
    /// Presses the power button. The operating system decides what happens.
    SoftOff,
    /// Switches off and, after a pause, on.
    Cycle,
    /// Pulls the reset line.
    Reset,
}

impl PowerAction {
    fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::SoftOff => "soft",
            Self::Cycle => "cycle",
            Self::Reset => "reset",
        }
    }
}

fn parse(answer: &str) -> Option<Power> {
    answer.lines().find_map(|line| match line.trim() {
        "Chassis Power is on" => Some(Power::On),
        "Chassis Power is off" => Some(Power::Off),
        _ => None,
    })
}

impl Ipmi {
    /// Reads the power.
    ///
    /// # Errors
    /// The BMC or the connection failed.
    pub async fn power(&self) -> Result<Power, IpmiError> {
        let words = ["chassis", "power", "status"];
        let answer = self.ask(&words).await?;
        parse(&answer).ok_or_else(|| self.unreadable(&words, &answer))
    }

    /// Sends an action to the BMC. The caller must read the power to see the result.
    ///
    /// # Errors
    /// The BMC or the connection failed. The BMC may also refuse an action that does not fit the present power.
    pub async fn act(&self, action: PowerAction) -> Result<(), IpmiError> {
        self.ask(&["chassis", "power", action.word()]).await.map(drop)
    }

    /// Switches the power and waits until it reads as `wanted`, for at most `limit`. Sends nothing if it already does.
    /// If `how` is [`PowerAction::SoftOff`], the operating system decides.
    ///
    /// # Errors
    /// The BMC or the connection failed; [`IpmiError::NotApplied`]: the power did not change within `limit`.
    pub async fn set_power(&self, wanted: Power, how: PowerAction, limit: Duration) -> Result<(), IpmiError> {
        if self.power().await? == wanted {
            return Ok(());
        }
        self.act(how).await?;
        self.wait_power(wanted, limit).await
    }

    /// Waits until the power reads as `wanted`.
    ///
    /// # Errors
    /// The BMC or the connection failed; [`IpmiError::NotApplied`]: the power did not change within `limit`.
    pub async fn wait_power(&self, wanted: Power, limit: Duration) -> Result<(), IpmiError> {
        let until = Instant::now() + limit;
        loop {
            let seen = self.power().await?;
            if seen == wanted {
                return Ok(());
            }
            if Instant::now() + POLL_INTERVAL > until {
                return Err(IpmiError::NotApplied {
                    bmc: self.place(),
                    wanted: format!("power {}", wanted.as_str()),
                    seen: format!("power {} after {} s", seen.as_str(), limit.as_secs()),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Switches off and on again, with the BMC's own command if it has one, and waits until the machine is on. A
    /// machine that is off is switched on.
    ///
    /// # Errors
    /// Those of [`Ipmi::set_power`].
    pub async fn power_cycle(&self, limit: Duration) -> Result<(), IpmiError> {
        if self.power().await? == Power::Off {
            return self.set_power(Power::On, PowerAction::On, limit).await;
        }
        match self.act(PowerAction::Cycle).await {
            Ok(()) => {
                // The power read as off, or the dip was too short to be seen.
                match self.wait_power(Power::Off, OFF_LIMIT.min(limit)).await {
                    Ok(()) | Err(IpmiError::NotApplied { .. }) => {}
                    Err(error) => return Err(error),
                }
                self.wait_power(Power::On, limit).await
            }
            // The command is optional (IPMI 2.0, table 28-4).
            Err(IpmiError::Failed { .. }) => {
                self.set_power(Power::Off, PowerAction::Off, limit).await?;
                self.set_power(Power::On, PowerAction::On, limit).await
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_power_states_count() {
        assert_eq!(parse("Chassis Power is on\n"), Some(Power::On));
        assert_eq!(parse("\nChassis Power is off\n"), Some(Power::Off));
        for other in ["", "Chassis Power is on fire", "power: on", "Chassis Power is unknown"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
