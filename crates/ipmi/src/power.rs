//! Power: read, changed, read again.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::Ipmi;
use crate::error::IpmiError;

/// Between two looks while something is awaited: nothing tells of it.
const LOOK: Duration = Duration::from_secs(1);
/// A machine that was told to restart has gone off by then, or does so without its power being seen off.
const DIP: Duration = Duration::from_secs(10);

/// Whether the machine is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// It is on.
    On,
    /// It is off, but for its BMC.
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

/// What IPMI's Chassis Control can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerAction {
    /// On.
    On,
    /// Off at once.
    Off,
    /// The power button: what happens is up to the operating system.
    SoftOff,
    /// Off and, after a pause, on.
    Cycle,
    /// The reset line.
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
    /// The BMC, or the way there.
    pub async fn power(&self) -> Result<Power, IpmiError> {
        let words = ["chassis", "power", "status"];
        let answer = self.ask(&words).await?;
        parse(&answer).ok_or_else(|| self.unreadable(&words, &answer))
    }

    /// Tells the BMC to do something; what comes of it is to be read.
    ///
    /// # Errors
    /// The BMC, or the way there; it may refuse what does not fit the present power.
    pub async fn act(&self, action: PowerAction) -> Result<(), IpmiError> {
        self.ask(&["chassis", "power", action.word()]).await.map(drop)
    }

    /// Switches on or off and sees it so, within `limit`. Nothing is sent where it is so. With [`PowerAction::SoftOff`] as
    /// `how` the operating system is asked.
    ///
    /// # Errors
    /// The BMC, or the way there; [`IpmiError::NotTaken`] when it is not seen within `limit`.
    pub async fn set_power(&self, wanted: Power, how: PowerAction, limit: Duration) -> Result<(), IpmiError> {
        if self.power().await? == wanted {
            return Ok(());
        }
        self.act(how).await?;
        self.wait_power(wanted, limit).await
    }

    /// Waits until the power is seen as wanted.
    ///
    /// # Errors
    /// The BMC, or the way there; [`IpmiError::NotTaken`] when it is not seen within `limit`.
    pub async fn wait_power(&self, wanted: Power, limit: Duration) -> Result<(), IpmiError> {
        let until = Instant::now() + limit;
        loop {
            let seen = self.power().await?;
            if seen == wanted {
                return Ok(());
            }
            if Instant::now() + LOOK > until {
                return Err(IpmiError::NotTaken {
                    bmc: self.place(),
                    wanted: format!("power {}", wanted.as_str()),
                    seen: format!("power {} after {} s", seen.as_str(), limit.as_secs()),
                });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Switches off and on again, by the BMC's own way where it has one, and sees it on; a machine that is off is switched on.
    ///
    /// # Errors
    /// As of [`Ipmi::set_power`].
    pub async fn power_cycle(&self, limit: Duration) -> Result<(), IpmiError> {
        if self.power().await? == Power::Off {
            return self.set_power(Power::On, PowerAction::On, limit).await;
        }
        match self.act(PowerAction::Cycle).await {
            Ok(()) => {
                // Seen off, or so quick that nobody saw it.
                match self.wait_power(Power::Off, DIP.min(limit)).await {
                    Ok(()) | Err(IpmiError::NotTaken { .. }) => {}
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
    fn only_the_known_words_count() {
        assert_eq!(parse("Chassis Power is on\n"), Some(Power::On));
        assert_eq!(parse("\nChassis Power is off\n"), Some(Power::Off));
        for other in ["", "Chassis Power is on fire", "power: on", "Chassis Power is unknown"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
