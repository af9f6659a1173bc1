//! The Ethernet cable of a machine, and the LLDP messages of the switch at its other end.

use rackwright_agent::net::neighbours::NeighbourReport;
use rackwright_api::v1::{Neighbour, Neighbours};
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;

/// The cable of a machine's first card; at first it is connected to a switch that sends no LLDP.
#[derive(Default)]
pub(super) struct Cabling(Mutex<Option<Box<CableState>>>);

#[derive(Default)]
struct CableState {
    announced: NeighbourReport,
    /// Agents that are notified.
    subscribers: Vec<watch::Sender<NeighbourReport>>,
}

impl Cabling {
    pub(super) fn plug(&self, mac: &str, switch: &str, port: &str) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = state.get_or_insert_default();
        let neighbour = Neighbour {
            nic: "net0".to_owned(),
            mac: mac.to_owned(),
            chassis_id: "02:00:00:00:00:01".to_owned(),
            port_id: port.to_owned(),
            port_description: String::new(),
            system_name: switch.to_owned(),
        };
        state.announced = Some(Neighbours {
            neighbours: vec![neighbour],
        });
        state
            .subscribers
            .retain(|subscriber| subscriber.send(state.announced.clone()).is_ok());
    }

    /// Notifies an agent of the current and all later LLDP messages.
    pub(super) fn subscribe(&self, subscriber: watch::Sender<NeighbourReport>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = state.get_or_insert_default();
        state.subscribers.retain(|subscriber| !subscriber.is_closed());
        subscriber.send_replace(state.announced.clone());
        state.subscribers.push(subscriber);
    }
}
