//! Firmware measurements of a machine's components, read before its agent's session counts.

use rackwright_ground::core::Core;
use rackwright_nodes::agent_boot;
use rackwright_nodes::agent_session::ArrivingAgent;
use rackwright_nodes::golden_firmware::components;
use rackwright_store::{Scope, StoreError};

use super::Gate;

/// Reads the measurements of a machine's components, if the session is valid so far. This may take minutes, so the
/// agent's stream is opened first.
pub(super) async fn read(core: &Core, agent: &mut ArrivingAgent, gate: &mut Gate) -> Result<(), StoreError> {
    let record = match core.store.node(&Scope::Site, &agent.node).await {
        Err(StoreError::NotFound { .. }) => return Ok(()),
        other => other?,
    };
    if !components::is_asked(core, &record).await? {
        return Ok(());
    }
    let mut tx = core.store.write().await?;
    let admitted = agent_boot::admit(&mut tx, &record, &agent.of, &agent.hello.boot_id).await?;
    drop(tx);
    if admitted.is_err() {
        return Ok(());
    }
    gate.open();
    tokio::select! {
        reading = components::read(core, &record) => agent.reading = Some(reading),
        () = core.stop.cancelled() => {}
    }
    Ok(())
}
