//! Networks of nodes' switch ports: the settings, the switches, and the proof.
//!
//! | module | what it does |
//! |---|---|
//! | `settings` | which VLANs the networks have, and where the switches are |
//! | `ports` | the ports of a node by the site file, moved and read back |
//! | `watch` | reads every switch from time to time, notices ports that were moved, frees VLANs |
//! | `cabling` | whether the cables are on these ports, by what the agents hear by LLDP |
//! | `explain` | how the network of a node stands, in a sentence |

pub mod cabling;
pub mod explain;
pub mod ports;
pub mod settings;
pub mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use rackwright_ports::PortDriver;
use tokio::sync::Semaphore;

pub use settings::Settings;

/// Changes that one switch makes at the same time.
const CHANGES_AT_ONCE: usize = 4;

/// A switch of the settings.
#[derive(Debug)]
pub struct Switch {
    driver: Arc<dyn PortDriver>,
    room: Semaphore,
}

/// The switches of the settings, by name.
#[derive(Debug, Default)]
pub struct Switches(BTreeMap<String, Switch>);

impl Switches {
    /// Those of the settings. None where the control plane sets no ports.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let switches = settings.managed().map(settings::Managed::drivers).unwrap_or_default();
        let switch = |driver: Arc<dyn PortDriver>| Switch {
            driver,
            room: Semaphore::new(CHANGES_AT_ONCE),
        };
        Self(
            switches
                .into_iter()
                .map(|(name, driver)| (name, switch(driver)))
                .collect(),
        )
    }
}
