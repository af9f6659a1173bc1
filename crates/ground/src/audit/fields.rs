//! The fields of requests that the audit shows.

use std::collections::HashSet;
use std::sync::LazyLock;

/// The list. Each line has `+` (shown) or `-` (hidden), a blank, and `Message.field`.
pub const LIST: &str = include_str!("fields.txt");

static SHOWN: LazyLock<HashSet<&str>> =
    LazyLock::new(|| LIST.lines().filter_map(|line| line.strip_prefix("+ ")).collect());

/// Whether a field is shown. A field that is not in the list is hidden.
pub fn is_shown(message: &str, field: &str) -> bool {
    SHOWN.contains(format!("{message}.{field}").as_str())
}
