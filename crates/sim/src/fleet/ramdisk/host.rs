//! The host of an agent on a simulated machine: values instead of a kernel.

use super::{mac, seconds_since};
use crate::fleet::inventory::inventory;
use crate::fleet::node::Node;
use rackwright_agent::cmdline::Mac;
use rackwright_agent::drives::Drives;
use rackwright_agent::efi::vars::EfiVars;
use rackwright_agent::host::{Host, Presence};
use rackwright_agent::identity::{Identity, IdentityError};
use rackwright_agent::jobs::power::{Power, PowerAction};
use rackwright_agent::ledger::{Ledger, LedgerError};
use rackwright_api::v1::Inventory;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The host during one boot.
pub(super) struct SimHost {
    node: Arc<Node>,
    number: u32,
    address: Ipv4Addr,
    since_ms: u64,
}

impl SimHost {
    pub(super) fn new(node: Arc<Node>, number: u32, address: Ipv4Addr) -> Self {
        Self {
            since_ms: node.shared.clock.now_ms(),
            node,
            number,
            address,
        }
    }
}

impl Host for SimHost {
    fn boot_id(&self) -> String {
        self.node.shared.boot_id(self.node.index(), self.number)
    }

    fn uptime_s(&self) -> f64 {
        seconds_since(self.node.shared.clock, self.since_ms)
    }

    fn system_uuid(&self) -> String {
        self.node.shared.uuid(self.node.index())
    }

    fn inventory(&self, drives: &dyn Drives) -> Inventory {
        inventory(&self.node, drives)
    }

    fn presence(&self, _server: &str, named: Option<Mac>) -> Presence {
        Presence {
            address: Some(self.address.into()),
            mac: Some(named.unwrap_or_else(|| mac(&self.node))),
        }
    }

    fn source_address(&self) -> Option<IpAddr> {
        Some(self.address.into())
    }

    /// The simulated machines go by this computer's clock, which is not theirs to set.
    fn set_clock(&self, _unix_s: i64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn mark(&self, stage: &str) {
        tracing::debug!(uptime_s = self.uptime_s(), "MARK {stage}");
    }

    fn ledger(&self) -> Result<Ledger, LedgerError> {
        Ok(Ledger::in_memory())
    }

    fn kept_identity(&self) -> Option<Identity> {
        None
    }

    fn keep_identity(&self, _: &Identity) -> Result<(), IdentityError> {
        Ok(())
    }

    fn efivars(&self) -> Option<EfiVars> {
        None
    }
}

/// The power switch of a machine, in the hands of what runs in one boot.
pub(super) struct SimPower(pub(super) Arc<SimHost>);

impl Power for SimPower {
    fn perform(&self, action: PowerAction) -> io::Result<()> {
        let SimHost { node, number, .. } = &*self.0;
        let acted = match action {
            PowerAction::Reset => node.restart_of(*number),
            PowerAction::PowerOff => node.switch_off_of(*number),
        };
        if acted {
            Ok(())
        } else {
            Err(io::Error::other("this boot of the machine is over"))
        }
    }
}
