//! State that the machines of a fleet share, and values derived from a machine's number: name, addresses, serial number.

use super::clock::{Clock, Timers};
use super::config::FleetConfig;
use super::dice::{Dice, Purpose};
use super::installed::Systems;
use super::node::Boot;
use super::profile::{Sku, Timing};
use super::ramdisk::Ramdisk;
use super::tls::Tls;
use ring::digest::{SHA256, digest};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::watch;

/// The software that machines boot into.
pub trait Payload: Send + Sync {
    /// A machine's firmware has handed over. Called synchronously: it must return at once.
    fn boots(&self, boot: &Boot);
}

/// The counters of a fleet.
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
    pub(super) ramdisk: Option<Ramdisk>,
    /// Closed when the fleet ends.
    pub(super) ended: watch::Receiver<()>,
    pub(super) counters: Counters,
}

impl Shared {
    /// A node id that the control plane accepts.
    pub(super) fn name(&self, index: usize) -> String {
        format!("sim-{index:05}")
    }

    pub(super) fn serial(&self, index: usize) -> String {
        format!("SIM{index:06}")
    }

    /// The first group is the fleet's, so that fleets with different seeds have no machine in common.
    pub(super) fn uuid(&self, index: usize) -> String {
        hyphened(self.uuid_bytes(index))
    }

    /// The UUID's bytes, in the order in which they are written.
    pub(super) fn uuid_bytes(&self, index: usize) -> [u8; 16] {
        let fleet = u128::from(self.dice.draw(0, Purpose::Uuid, 0) >> 32);
        (fleet << 96 | 0x4000_8000 << 48 | index as u128).to_be_bytes()
    }

    /// The id of a machine's boot, in Linux's format.
    pub(super) fn boot_id(&self, index: usize, boot: u32) -> String {
        let half = |count| u128::from(self.dice.draw(index, Purpose::BootId, count));
        let chance = half(u64::from(boot) * 2) << 64 | half(u64::from(boot) * 2 + 1);
        let version = chance & !(0xf000_c000 << 48) | 0x4000_8000 << 48;
        hyphened(version.to_be_bytes())
    }

    /// A locally administered MAC address for interface `nic` of a machine.
    pub(super) fn mac(&self, index: usize, nic: usize) -> String {
        self.mac_bytes(index, nic).map(|byte| format!("{byte:02x}")).join(":")
    }

    pub(super) fn mac_bytes(&self, index: usize, nic: usize) -> [u8; 6] {
        let byte = |number: usize, shift: usize| (number >> shift & 0xff) as u8;
        [
            0x02,
            byte(nic, 0),
            0x57,
            byte(index, 16),
            byte(index, 8),
            byte(index, 0),
        ]
    }

    /// 20 characters, a length that every vendor's BMC accepts. Derived from the seed, so that it need not be stored: as
    /// secret as the seed.
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
