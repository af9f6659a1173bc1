//! For tests of this crate and of the crates above: an agent that arrives, and single steps inside features. The core of a
//! test, and its records, are in `rackwright_ground::testing`.

use rackwright_api::v1;
use rackwright_ground::clock;
use rackwright_ground::core::Core;
use rackwright_lifecycle::{Effect, Need, NodeId, Wait};
use rackwright_store::{AgentSession, NodeRecord, StoreError, WriteTx};

use crate::agent_session::ArrivingAgent;
use crate::runner::admission;

pub use crate::perform::drives::recorded as drives_recorded;

/// The needs of a power-on.
pub async fn power_needs(core: &Core, record: &NodeRecord) -> Vec<Need> {
    admission::needs(core, record, Effect::PowerOn).await
}

/// Takes those needs, as in the change that begins the effect.
pub async fn power_admit(tx: &mut WriteTx, record: &NodeRecord, needs: &[Need]) -> Result<Option<Wait>, StoreError> {
    admission::admit(tx, record, &[], needs, clock::now()).await
}

/// An agent that asks to be admitted with that session and kernel.
pub fn arriving_agent(id: &str, of: AgentSession, kernel_boot_id: &str) -> ArrivingAgent {
    ArrivingAgent {
        node: NodeId::stored(id.to_owned()),
        of,
        remote: "10.0.0.9".into(),
        hello: v1::Hello {
            boot_id: kernel_boot_id.to_owned(),
            ..v1::Hello::default()
        },
        reading: None,
        secret: None,
    }
}
