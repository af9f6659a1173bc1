//! The reader of all YAML files: settings of the daemon and of the tools, site files, manifests, profiles, scripts.
//!
//! [`documents`] reads a text as trees in which every value has its place, and reports every fault. [`read`] reads a text
//! into a type and ends at the first fault. The same rules hold for both:
//!
//! - Anchors, aliases and tags are refused, so a value is never larger than its text.
//! - Values are nested at most [`MAX_DEPTH`] deep.
//! - A key is given once in a mapping. [`read`] refuses a second one; [`documents`] keeps both, and the caller, which knows
//!   the name of the field, refuses the second.
//! - A fault names its place by line and column.
//!
//! [`read`] refuses a text above [`MAX_BYTES`]. The caller of [`documents`] limits the size before it reads the file.

mod quote;
mod read;
mod tree;

pub use read::{MAX_BYTES, Quote, ReadError, read};
pub use serde_saphyr::Spanned;
pub use tree::{Fault, FaultKind, Key, MAX_DEPTH, Spot, Tree, Value, documents};
