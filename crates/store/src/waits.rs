//! The stored form of nodes' and clusters' waits.

use rackwright_lifecycle::{Wait, cluster};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::error::corrupt;

/// The columns `wait` and `wait_kind` of a node; both are empty at rest, the state of most nodes.
pub(crate) fn columns(id: &str, wait: &Wait) -> Result<(String, &'static str)> {
    match wait {
        Wait::Rest => Ok((String::new(), "")),
        wait => Ok((to_text("node", id, wait)?, wait.label())),
    }
}

/// Parses the column `wait` of a node.
pub(crate) fn from_text(id: &str, text: &str) -> Result<Wait> {
    parse("node", id, text)
}

/// The columns `wait` and `wait_kind` of a cluster; both are empty at rest.
pub(crate) fn cluster_columns(id: &str, wait: &cluster::Wait) -> Result<(String, &'static str)> {
    match wait {
        cluster::Wait::Rest => Ok((String::new(), "")),
        wait => Ok((to_text("cluster", id, wait)?, wait.kind().as_str())),
    }
}

/// Parses the columns `wait` and `wait_kind` of a cluster. Each change writes both.
pub(crate) fn cluster_from_columns(id: &str, text: &str, kind: &str) -> Result<cluster::Wait> {
    let wait = parse("cluster", id, text)?;
    let (_, of_wait) = cluster_columns(id, &wait)?;
    match kind == of_wait {
        true => Ok(wait),
        false => Err(corrupt(
            "cluster",
            id,
            format!("its wait is {of_wait:?}, and the kind beside it {kind:?}"),
        )),
    }
}

fn to_text(what: &'static str, id: &str, wait: &impl Serialize) -> Result<String> {
    serde_json::to_string(wait).map_err(|e| corrupt(what, id, e))
}

fn parse<W: Default + DeserializeOwned>(what: &'static str, id: &str, text: &str) -> Result<W> {
    match text {
        "" => Ok(W::default()),
        text => serde_json::from_str(text).map_err(|e| corrupt(what, id, format!("the wait: {e}"))),
    }
}
