//! What the machines of a fleet share, and what follows from a machine's number alone: name, addresses, serial number.

use super::clock::{Clock, Timers};
use super::config::FleetConfig;
use super::dice::{Dice, Purpose};
use super::installed::Systems;
use super::node::Boot;
use super::profile::{Sku, Timing};
use super::tls::Tls;
use ring::digest::{SHA256, digest};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What machines boot into.
pub trait Payload: Send + Sync {
    /// A machine's firmware has handed over. Called in the middle of things: it must return at once.
    fn boots(&self, boot: &Boot);
}

/// What is counted about a fleet.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) boots: AtomicU64,
}

/// What the machines share.
pub(super) struct Shared {
    pub(super) config: FleetConfig,
    pub(super) dice: Dice,
    pub(super) timing: &'static Timing,
    pub(super) sku: &'static Sku,
    pub(super) clock: Clock,
    pub(super) timers: Timers,
    pub(super) tls: Option<Tls>,
    pub(super) payload: Option<Arc<dyn Payload>>,
    pub(super) systems: Option<Arc<dyn Systems>>,
    pub(super) counters: Counters,
}

impl Shared {
    /// A node id as the control plane takes it.
    pub(super) fn name(&self, index: usize) -> String {
        format!("sim-{index:05}")
    }

    pub(super) fn serial(&self, index: usize) -> String {
        format!("SIM{index:06}")
    }

    /// Its first group is the fleet's, so that two fleets of different seeds have no machine in common.
    pub(super) fn uuid(&self, index: usize) -> String {
        let fleet = self.dice.throw(0, Purpose::Uuid, 0) >> 32;
        format!("{fleet:08x}-0000-4000-8000-{index:012x}")
    }

    /// The id of a machine's boot, in the form of Linux's.
    pub(super) fn boot_id(&self, index: usize, boot: u32) -> String {
        let half = |count| u128::from(self.dice.throw(index, Purpose::BootId, count));
        let chance = half(u64::from(boot) * 2) << 64 | half(u64::from(boot) * 2 + 1);
        let version = chance & !(0xf000_c000 << 48) | 0x4000_8000 << 48;
        hyphened(version.to_be_bytes())
    }

    /// A locally administered MAC address for interface `nic` of a machine.
    pub(super) fn mac(&self, index: usize, nic: usize) -> String {
        format!(
            "02:{:02x}:57:{:02x}:{:02x}:{:02x}",
            nic & 0xff,
            index >> 16 & 0xff,
            index >> 8 & 0xff,
            index & 0xff
        )
    }

    /// 20 characters, a length that every vendor's BMC accepts. Made of the seed, so that it need not be kept: as secret as
    /// the seed is.
    pub(super) fn password(&self, index: usize) -> String {
        let text = format!("rackwright-sim BMC password {} {index}", self.dice.0);
        hex::encode(&digest(&SHA256, text.as_bytes()).as_ref()[..10])
    }
}

fn hyphened(bytes: [u8; 16]) -> String {
    let mut text = hex::encode(bytes);
    for at in [20, 16, 12, 8] {
        text.insert(at, '-');
    }
    text
}
