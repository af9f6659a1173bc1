//! A fresh database for a test, and rows for it.

use rackwright_lifecycle::{
    Attempt, Claim, Effect, EventKind, Evidence, Node, NodeId, Outcome, State, Timestamp, Wait, Wanted,
};
use rackwright_store::{
    AgentConnection, AgentSession, EffectRow, EventRow, Identity, MemberRow, NodeRecord, Readings, Scope, Spec, Store,
    StoreError,
};

use crate::database::Fresh;

/// A store and its database; both end together.
pub struct Lab {
    pub store: Store,
    pub database: Fresh,
}

impl Lab {
    pub async fn new() -> Self {
        Self::on(Fresh::with_schema().await).await
    }

    pub async fn on(database: Fresh) -> Self {
        let store = Store::open(database.database()).await.unwrap();
        Self { store, database }
    }

    /// Another store on the same database, as in another process.
    pub async fn other(&self) -> Store {
        Store::open(self.database.database()).await.unwrap()
    }

    /// Inserts nodes as given.
    pub async fn with(self, records: &[NodeRecord]) -> Self {
        let mut tx = self.store.write().await.unwrap();
        for record in records {
            tx.insert_node(record).await.unwrap();
        }
        tx.commit().await.unwrap();
        self
    }
}

/// Takes the schema back to the time before the fabric had rows.
pub const BEFORE_FABRIC_ROWS: &str = "DROP TABLE fabric; DROP TABLE fabric_keys; DROP TABLE fabric_comparison; \
     DROP TABLE fabric_faults; DROP TABLE fabric_broken_links; DROP TABLE fabric_impaired_nodes; \
     DROP TABLE fabric_check; DROP TABLE fabric_breaches; DROP TABLE usage_breaches; DROP TABLE sessions; \
     DROP INDEX members_origin; ALTER TABLE members DROP COLUMN issuer; ALTER TABLE members DROP COLUMN subject; \
     ALTER TABLE hall ADD COLUMN fabric TEXT NOT NULL DEFAULT ''; ";

pub fn at(us: i64) -> Timestamp {
    Timestamp(us)
}

/// A node in `state`, created and therefore due at 100.
pub fn node_in(id: &str, state: State) -> NodeRecord {
    NodeRecord {
        id: NodeId::stored(id.to_owned()),
        uid: format!("uid-{id}"),
        version: 1,
        node: Node {
            state,
            since: at(100),
            generation: 0,
            claim: None,
            wanted: Wanted::default(),
            evidence: Evidence::default(),
            doubt: None,
        },
        spec: Spec {
            bmc_address: format!("https://{id}.bmc"),
            sku: "default".into(),
            ..Spec::default()
        },
        labels: [].into(),
        identity: Identity::default(),
        reason: String::new(),
        readings: Readings::default(),
        hold: AgentConnection::default(),
        address: String::new(),
        address_witness: String::new(),
        wait: Wait::Rest,
        wait_until: at(0),
        due_at: at(100),
        created_at: at(100),
        updated_at: at(100),
    }
}

/// An agent's session in this claim generation.
pub fn session_of(generation: u64) -> AgentSession {
    AgentSession {
        generation,
        boot: "boot".into(),
    }
}

/// Puts an unchanged node to rest.
pub async fn rest(store: &Store, id: &str, wait: &Wait, until: Timestamp) {
    let record = store.node(&Scope::Site, &NodeId::stored(id)).await.unwrap();
    store.rest(&record, wait, until).await.unwrap();
}

pub fn node(id: &str) -> NodeRecord {
    node_in(id, State::Discovered)
}

pub fn claim(digest: &str) -> Claim {
    Claim {
        generation: 3,
        deployment: 2,
        image_digest: digest.to_owned(),
        image_name: "images/noble".into(),
        hostname: "web-1".into(),
        ssh_authorized_keys: vec!["ssh-ed25519 AAAA someone".into()],
        has_user_data: true,
        plain_user_data: String::new(),
        root_drive: "nvme0n1".into(),
        verify_whole_disk: true,
        release_requested: false,
        handed_over: Some(1),
        customer: "acme".into(),
        cluster: None,
    }
}

/// Attempt `number` of `effect`, begun at 100 + `number`.
pub fn try_of(node: &str, effect: Effect, number: i64) -> EffectRow {
    EffectRow {
        id: format!("{node}-{}-{number}", effect.as_str()),
        node_id: NodeId::stored(node.to_owned()),
        state_since: at(100),
        number,
        generation: 7,
        owner: "replica-1".into(),
        attempt: Attempt {
            effect,
            started_at: at(100 + number),
            ended_at: None,
            deadline: at(10_000),
            outcome: Outcome::Open,
            boot_id: Some("boot-1".into()),
        },
    }
}

pub fn event(kind: &str, target: &str, us: i64) -> EventRow {
    EventRow {
        position: 0,
        at: at(us),
        kind: EventKind::parse(kind),
        target: target.to_owned(),
        message: format!("{kind} of {target}"),
        attributes: [("by".to_owned(), "ops".to_owned())].into(),
    }
}

/// A member of the site.
pub fn member(role: &str) -> MemberRow {
    MemberRow {
        role: role.to_owned(),
        customer: "".into(),
    }
}

/// The rights of a stored member.
pub async fn given(store: &Store, name: &str) -> Option<MemberRow> {
    store.member(name).await.unwrap().map(|member| member.given)
}

pub fn is_conflict<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Conflict { .. }))
}

pub fn is_missing<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::NotFound { .. }))
}
