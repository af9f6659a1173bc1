//! A node in every state, and every request about a node.

use rackwright_api::v1::{Deployment, PowerAction};
use rackwright_lifecycle::{Claim, Evidence, Node, State, Timestamp};
use rackwright_store::NodeRecord;

use self::Shape::{Claimed, Dirty, Free};
use crate::api_error::ApiError;
use crate::intent::{self, Image};

/// The time of all requests here.
pub const NOW: Timestamp = Timestamp(900);

/// Claim and content of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Unclaimed, without data.
    Free,
    /// Unclaimed, with data that was written and not erased.
    Dirty,
    Claimed,
}

/// The shapes that a node may have in a state.
fn shapes(state: State) -> &'static [Shape] {
    match state {
        State::Discovered | State::Inspecting => &[Free],
        // Claimed: the deployment was requested a moment ago.
        State::Available => &[Free, Claimed],
        State::Allocated | State::Imaging | State::Rebooting | State::Validating | State::Active => &[Claimed],
        State::Reclaiming | State::Failed | State::Quarantined | State::Maintenance => &[Free, Dirty, Claimed],
    }
}

fn written(at: i64) -> Evidence {
    Evidence {
        written_at: Some(Timestamp(at)),
        erased_at: Some(Timestamp(10)),
        image_digest: Some("b3-old".into()),
        deployment: Some(4),
        ..Evidence::default()
    }
}

/// The claim of a claimed node here: generation 7, deployment 4, customer `old-co`.
pub fn held_claim() -> Claim {
    Claim {
        generation: 7,
        deployment: 4,
        image_digest: "b3-old".into(),
        image_name: "images/old".into(),
        hostname: "web-1".into(),
        ssh_authorized_keys: vec!["ssh-ed25519 OLD".into()],
        has_user_data: true,
        plain_user_data: String::new(),
        root_drive: "sda".into(),
        verify_whole_disk: false,
        release_requested: false,
        handed_over: None,
        customer: "old-co".into(),
        cluster: None,
    }
}

/// The node `n1` in a state and shape, since 100.
pub fn record(state: State, shape: Shape) -> NodeRecord {
    let (mut claim, evidence) = match shape {
        Free => (None, Evidence::default()),
        Dirty => (None, written(50)),
        Claimed => (Some(held_claim()), written(50)),
    };
    if let Some(claim) = claim.as_mut().filter(|_| state == State::Active) {
        claim.handed_over = Some(claim.deployment);
    }
    let plain = super::node("n1", state, None);
    NodeRecord {
        uid: "uid".into(),
        version: 3,
        node: Node {
            since: Timestamp(100),
            generation: 7,
            claim,
            evidence,
            ..plain.node
        },
        wait_until: Timestamp::default(),
        due_at: Timestamp::default(),
        updated_at: Timestamp(100),
        ..plain
    }
}

/// Every state in every shape that it can have.
pub fn all_nodes() -> impl Iterator<Item = (State, Shape, NodeRecord)> {
    State::ALL.iter().flat_map(|state| {
        shapes(*state)
            .iter()
            .map(|shape| (*state, *shape, record(*state, *shape)))
    })
}

/// The image of [`deployment`].
pub fn image() -> Image {
    Image {
        name: "images/noble".into(),
        digest: "b3-new".into(),
    }
}

/// A deployment with every field, for customer `new-co`.
pub fn deployment() -> Deployment {
    Deployment {
        image: "images/noble".into(),
        hostname: "db-1".into(),
        ssh_authorized_keys: vec!["ssh-ed25519 NEW".into()],
        user_data: "#cloud-config\nnew".into(),
        root_drive: "nvme0n1".into(),
        verify_whole_disk: true,
        customer: "new-co".into(),
        has_user_data: false,
    }
}

/// The same for the present customer of the node.
pub fn same_customer() -> Deployment {
    Deployment {
        customer: "old-co".into(),
        ..deployment()
    }
}

/// Makes the request with that name about a node. `None`: there is no such request, because the command only reads.
pub fn request(verb: &str, record: &mut NodeRecord) -> Option<Result<(), ApiError>> {
    Some(match verb {
        "deploy" => intent::deploy(record, &deployment(), image()).map(drop),
        "reimage" => intent::reimage(record, &same_customer(), image()).map(drop),
        "release" => intent::release(record),
        "hold" => intent::hold(record, " fan \n"),
        "resume" => intent::resume(record, true),
        "quarantine" => intent::quarantine(record, "odd"),
        "readmit" => intent::readmit(record, true),
        "retry" => intent::retry(record),
        "settings" => intent::apply_settings(record),
        "power" => intent::power(record, PowerAction::Cycle, NOW),
        "delete" => intent::delete(record),
        _ => return None,
    })
}
