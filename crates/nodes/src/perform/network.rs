//! Moves the node's switch ports to a network and reads them back.

use rackwright_ground::core::Core;
use rackwright_lifecycle::{Network, Reading};
use rackwright_store::NodeRecord;

use crate::effect_result::EffectResult;
use crate::ethernet::ports::{MoveError, move_to};

pub(super) async fn set(core: &Core, record: &NodeRecord, network: Network) -> EffectResult {
    let Some(managed) = core.config.ethernet.managed() else {
        // The settings have named no switches since this was decided.
        return EffectResult::succeeded();
    };
    match move_to(core, managed, record, network).await {
        Ok(()) => {
            EffectResult::succeeded().seen(move |readings, at| readings.network = Reading::Known { value: network, at })
        }
        Err(MoveError::Store(error)) => EffectResult::unread(&error),
        Err(MoveError::Explained(words)) => EffectResult::failed_for_now("network", words),
    }
}
