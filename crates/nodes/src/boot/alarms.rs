//! Events about faults on the boot network: another DHCP server, or an address that two machines use.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_ground::text::{SENTENCE_MAX, cut};
use rackwright_lifecycle::EventKind;
use rackwright_netboot::Stage;
use rackwright_store::EventRow;
use tokio::sync::mpsc;

/// An alarm is not repeated within this time.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// Most different alarms within that time: a flood of packets does not fill the event log.
const ALARMS_MAX: usize = 32;

/// Queues alarms without blocking.
#[derive(Debug)]
pub(super) struct Alarms {
    events: mpsc::Sender<EventRow>,
    reported: Mutex<HashMap<(EventKind, IpAddr), Instant>>,
}

impl Alarms {
    pub(super) fn new() -> (Self, mpsc::Receiver<EventRow>) {
        let (events, receiver) = mpsc::channel(ALARMS_MAX);
        let reported = Mutex::default();
        (Self { events, reported }, receiver)
    }

    /// Queues a boot stage that is an alarm. For another DHCP server, `remote` is its address.
    pub(super) fn note(&self, stage: Stage, detail: &str, remote: IpAddr, now: Instant) {
        let kind = match stage {
            Stage::RogueDhcp => EventKind::SecurityRogueDhcp,
            Stage::DhcpDecline | Stage::AddressConflict => EventKind::SecurityAddressConflict,
            _ => return,
        };
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        reported.retain(|_, at| now.duration_since(*at) < REPEAT_AFTER);
        if reported.len() >= ALARMS_MAX || reported.contains_key(&(kind.clone(), remote)) {
            return;
        }
        let event = EventRow {
            at: clock::now(),
            kind: kind.clone(),
            target: "boot-network".to_owned(),
            message: cut(detail, SENTENCE_MAX),
            ..EventRow::default()
        };
        if self.events.try_send(event).is_ok() {
            reported.insert((kind, remote), now);
        }
    }
}

/// Stores alarms as they come. Runs until the senders are gone.
pub(super) async fn store(core: Arc<Core>, mut events: mpsc::Receiver<EventRow>) {
    while let Some(event) = events.recv().await {
        core.event(event.kind, &event.target, &event.message).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_reported_once_and_bounded() {
        let (alarms, mut events) = Alarms::new();
        let (now, server) = (Instant::now(), IpAddr::from([192, 0, 2, 1]));
        alarms.note(Stage::RogueDhcp, "another DHCP server", server, now);
        alarms.note(Stage::RogueDhcp, "another DHCP server", server, now);
        alarms.note(Stage::DhcpDiscover, "a machine", server, now);
        assert_eq!(events.try_recv().unwrap().kind, "security.rogue-dhcp");
        assert!(events.try_recv().is_err());
        // A machine that found its address in use, and the ARP watch of the server's own addresses.
        for (stage, last) in [(Stage::DhcpDecline, 2), (Stage::AddressConflict, 3)] {
            alarms.note(stage, "in use", IpAddr::from([192, 0, 2, last]), now);
            let event = events.try_recv().unwrap();
            let target = event.target.as_str();
            assert_eq!(
                (event.kind, target),
                (EventKind::SecurityAddressConflict, "boot-network")
            );
        }
        for last in 4..=255 {
            alarms.note(Stage::DhcpDecline, "in use", IpAddr::from([192, 0, 2, last]), now);
        }
        assert_eq!(std::iter::from_fn(|| events.try_recv().ok()).count(), ALARMS_MAX - 3);
        alarms.note(Stage::RogueDhcp, "another DHCP server", server, now + REPEAT_AFTER);
        assert!(events.try_recv().is_ok());
    }
}
