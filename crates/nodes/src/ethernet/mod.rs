//! Networks of nodes' switch ports: switches, and readings as proof.
//!
//! | module | what it does |
//! |---|---|
//! | `ports` | the ports of a node in the site file: moves them and reads them back |
//! | `watch` | reads all switches periodically, notices moved ports, frees VLANs |
//! | `cabling` | compares the cables with the site file, by the LLDP frames that agents receive |
//! | `explain` | the network state of a node as a sentence |

pub mod cabling;
pub mod explain;
pub mod ports;
pub mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use rackwright_ground::config::Config;
use rackwright_ground::config::ethernet::Managed;
use rackwright_ground::core::Core;
use rackwright_ground::features::FeatureState;
use rackwright_ground::hall::HallError;
use rackwright_ports::PortDriver;
use rackwright_site::model::Site;
use rackwright_store::StoreError;
use tokio::sync::Semaphore;

/// Parallel changes on one switch.
const CHANGES_AT_ONCE: usize = 4;

/// A switch from the settings.
#[derive(Debug)]
pub struct Switch {
    driver: Arc<dyn PortDriver>,
    room: Semaphore,
}

/// The switches from the settings, by name.
#[derive(Debug, Default)]
pub struct Switches(BTreeMap<String, Switch>);

impl FeatureState for Switches {
    fn new(config: &Config) -> Self {
        let settings = config.ethernet.managed();
        let switches = settings.map(Managed::drivers).unwrap_or_default();
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

/// The applied site, or why it cannot be read. `None`: no site is applied.
async fn applied_site(core: &Core) -> Result<Result<Option<Arc<Site>>, String>, StoreError> {
    match core.sites.current(&core.store).await {
        Ok(site) => Ok(Ok(site.map(|(_, site)| site))),
        Err(HallError::Store(error)) => Err(error),
        Err(error) => Ok(Err(error.to_string())),
    }
}
