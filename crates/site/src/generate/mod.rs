//! Well-formed reference sites of any size, as the text of a site file: rooms, racks, power with two or three feeds,
//! cooling, and a rail-optimised fat-tree with a label on every cable. The same request gives the same text.
//!
//! The wiring follows NVIDIA's SuperPOD reference: scalable units of 32 nodes, one 64-port leaf per rail (32 ports
//! down, 32 up), and one level of spines while it can join all leaves, otherwise pods of spines below cores. Sites
//! beyond three levels get several fabrics.

mod fabric;
mod facility;
mod skus;

use serde::Serialize;

pub use fabric::{Shape, shape};

use crate::file::{MAX_TOTAL_BYTES, TooLarge};
use crate::model::Redundancy;
use crate::text::Writer;

/// Maximum number of nodes of a generated site.
pub const MAX_NODES: usize = 200_000;

/// The SKUs for generated sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReferenceSku {
    /// NVIDIA DGX H100: 10.2 kW, 6 PSUs of which 4 must work, air-cooled.
    DgxH100,
    /// NVIDIA DGX B200: 14.3 kW, 6 PSUs of which 5 must work, air-cooled.
    DgxB200,
    /// A compute tray of NVIDIA GB200 NVL72: 18 per rack, about 131 kW per rack from 8 power shelves, liquid-cooled.
    Gb200Nvl72,
}

impl ReferenceSku {
    /// All SKUs.
    pub const ALL: [Self; 3] = [Self::DgxH100, Self::DgxB200, Self::Gb200Nvl72];

    /// The name in requests.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DgxH100 => "dgx-h100",
            Self::DgxB200 => "dgx-b200",
            Self::Gb200Nvl72 => "gb200-nvl72",
        }
    }

    /// The default number of feeds: enough for a node to survive the loss of one, or the usual number.
    #[must_use]
    pub fn usual_feeds(self) -> usize {
        match self {
            Self::DgxH100 | Self::DgxB200 => 3,
            Self::Gb200Nvl72 => 2,
        }
    }
}

/// A request for a generated site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The site's name.
    pub name: String,
    /// The SKU of all nodes.
    pub sku: ReferenceSku,
    /// Number of nodes, 1 to [`MAX_NODES`].
    pub nodes: usize,
    /// Number of feeds, 1 to 4. PSUs are assigned to them in turn.
    pub feeds: usize,
    /// Sites with different seeds share no GUID.
    pub seed: u8,
    /// Customers: name, redundancy, and whether the customer has dedicated circuits.
    pub customers: Vec<(String, Redundancy, bool)>,
}

impl Request {
    /// A site with the default number of feeds and without customers.
    #[must_use]
    pub fn new(sku: ReferenceSku, nodes: usize) -> Self {
        Self {
            name: "reference".to_owned(),
            sku,
            nodes,
            feeds: sku.usual_feeds(),
            seed: 0,
            customers: Vec::new(),
        }
    }
}

/// Why no site is generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// Too few or too many nodes.
    #[error("{0} nodes: between 1 and {MAX_NODES} can be generated")]
    Nodes(usize),
    /// Too few or too many feeds.
    #[error("{0} feeds: between 1 and 4 can be generated")]
    Feeds(usize),
    /// The file would be larger than a site may be.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

/// Generates the text of a site file.
///
/// # Errors
/// A number is out of range, or the text is larger than a site may be.
pub fn site_file(request: &Request) -> Result<String, GenerateError> {
    site_file_within(request, MAX_TOTAL_BYTES)
}

/// The same with a text of at most `limit` bytes.
fn site_file_within(request: &Request, limit: usize) -> Result<String, GenerateError> {
    if !(1..=MAX_NODES).contains(&request.nodes) {
        return Err(GenerateError::Nodes(request.nodes));
    }
    if !(1..=4).contains(&request.feeds) {
        return Err(GenerateError::Feeds(request.feeds));
    }
    let sku = skus::reference(request.sku);
    let mut text = Writer::default();
    text.line(format!(
        "# {} nodes {}, feeds: {}",
        request.nodes, sku.name, request.feeds
    ));
    text.line("site:");
    text.line(format!("  name: {}", request.name));
    facility::write(&mut text, request, &sku);
    fabric::write(&mut text, request, &sku);
    if !request.customers.is_empty() {
        text.section("customers");
    }
    for (name, redundancy, dedicated) in &request.customers {
        text.item(&[
            ("name", name.clone()),
            ("redundancy", redundancy.name().to_owned()),
            ("dedicated_circuits", dedicated.to_string()),
        ]);
    }
    let text = text.finish();
    TooLarge::check_within(text.len() as u64, limit as u64)?;
    Ok(text)
}

/// Number of digits.
fn digits(number: usize) -> usize {
    number.max(1).ilog10() as usize + 1
}

/// Such as `07` or `[07-12]`: the numbers `first` to `first + count - 1`.
fn span(first: usize, count: usize, width: usize) -> String {
    match count {
        1 => format!("{first:0width$}"),
        _ => format!("[{first:0width$}-{:0width$}]", first + count - 1),
    }
}

/// Splits `total` into full groups and the rest. Each part has its first index (from 0) and its length.
fn split(total: usize, group: usize) -> impl Iterator<Item = (usize, usize)> {
    let full = total / group * group;
    [(0, full), (full, total - full)]
        .into_iter()
        .filter(|(_, count)| *count > 0)
}

/// Repeats each name of a pattern.
fn times(pattern: String, count: usize) -> String {
    if count == 1 || !pattern.contains('[') {
        pattern
    } else {
        format!("{pattern}*{count}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_above_the_limit_is_not_returned() {
        let request = Request::new(ReferenceSku::DgxH100, 40);
        let text = site_file(&request).unwrap();
        let bytes = text.len();
        assert_eq!(site_file_within(&request, bytes), Ok(text));
        let limit = bytes as u64 - 1;
        let refused = Err(GenerateError::TooLarge(TooLarge {
            bytes: bytes as u64,
            limit,
        }));
        assert_eq!(site_file_within(&request, bytes - 1), refused);
    }
}
