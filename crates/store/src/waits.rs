//! What nodes wait for, as columns.

use rackwright_lifecycle::Wait;

use crate::Result;
use crate::error::corrupt;

/// The columns `wait` and `wait_kind`; both are empty at rest, as most nodes are.
pub(crate) fn columns(id: &str, wait: &Wait) -> Result<(String, &'static str)> {
    match wait {
        Wait::Rest => Ok((String::new(), "")),
        wait => {
            let text = serde_json::to_string(wait).map_err(|e| corrupt("node", id, e))?;
            Ok((text, wait.label()))
        }
    }
}

/// The column `wait`.
pub(crate) fn from_text(id: &str, text: &str) -> Result<Wait> {
    match text {
        "" => Ok(Wait::Rest),
        text => serde_json::from_str(text).map_err(|e| corrupt("node", id, format!("what it waits for: {e}"))),
    }
}
