//! The stored form of nodes' waits.

use rackwright_lifecycle::Wait;

use crate::Result;
use crate::error::corrupt;

/// The columns `wait` and `wait_kind`; both are empty at rest, the state of most nodes.
pub(crate) fn columns(id: &str, wait: &Wait) -> Result<(String, &'static str)> {
    match wait {
        Wait::Rest => Ok((String::new(), "")),
        wait => {
            let text = serde_json::to_string(wait).map_err(|e| corrupt("node", id, e))?;
            Ok((text, wait.label()))
        }
    }
}

/// Parses the column `wait`.
pub(crate) fn from_text(id: &str, text: &str) -> Result<Wait> {
    match text {
        "" => Ok(Wait::Rest),
        text => serde_json::from_str(text).map_err(|e| corrupt("node", id, format!("the wait: {e}"))),
    }
}
