//! Well-formed reference sites of any size, as the text of a site file: rooms, racks, power with two or three feeds,
//! cooling, and a rail-optimised fat-tree in which every cable has a label. The same request gives the same text.
//!
//! The wiring is that of NVIDIA's SuperPOD reference: scalable units of 32 nodes, one 64-port leaf for each of their rails
//! (32 ports down, 32 up), one level of spines while they join all leaves, else pods of spines below cores. What three
//! levels cannot join becomes several fabrics.

mod fabric;
mod plant;
mod skus;

use serde::Serialize;

pub use fabric::{Shape, shape};

use crate::model::Redundancy;
use crate::text::Writer;

/// Most nodes of a generated site.
pub const MAX_NODES: usize = 200_000;

/// Nodes that a site can be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReferenceSku {
    /// NVIDIA DGX H100: 10.2 kW, 6 PSUs of which 4 must live, cooled by air.
    DgxH100,
    /// NVIDIA DGX B200: 14.3 kW, 6 PSUs of which 5 must live, cooled by air.
    DgxB200,
    /// A compute tray of NVIDIA GB200 NVL72: 18 in a rack of about 131 kW on 8 power shelves, cooled by liquid.
    Gb200Nvl72,
}

impl ReferenceSku {
    /// All.
    pub const ALL: [Self; 3] = [Self::DgxH100, Self::DgxB200, Self::Gb200Nvl72];

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DgxH100 => "dgx-h100",
            Self::DgxB200 => "dgx-b200",
            Self::Gb200Nvl72 => "gb200-nvl72",
        }
    }

    /// Feeds where none are asked for: as many as let a node survive the loss of one, or the usual number.
    #[must_use]
    pub fn usual_feeds(self) -> usize {
        match self {
            Self::DgxH100 | Self::DgxB200 => 3,
            Self::Gb200Nvl72 => 2,
        }
    }
}

/// What to generate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Name of the site.
    pub name: String,
    /// All nodes are of this class.
    pub sku: ReferenceSku,
    /// 1 to [`MAX_NODES`].
    pub nodes: usize,
    /// 1 to 4; PSUs are dealt out to them in turn.
    pub feeds: usize,
    /// Sites with different seeds share no GUID.
    pub seed: u8,
    /// Customers, each with a redundancy class and circuits of their own or not.
    pub customers: Vec<(String, Redundancy, bool)>,
}

impl Request {
    /// A site with the usual feeds and without customers.
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

/// Why nothing is generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// Too few or too many.
    #[error("{0} nodes: between 1 and {MAX_NODES} can be generated")]
    Nodes(usize),
    /// Too few or too many.
    #[error("{0} feeds: between 1 and 4 can be generated")]
    Feeds(usize),
}

/// The text of a site file.
///
/// # Errors
/// The numbers are out of range.
pub fn site_file(request: &Request) -> Result<String, GenerateError> {
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
    plant::write(&mut text, request, &sku);
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
    Ok(text.finish())
}

/// Digits of a number.
fn digits(number: usize) -> usize {
    number.max(1).ilog10() as usize + 1
}

/// `07` or `[07-12]`: numbers `first` to `first + count - 1`.
fn span(first: usize, count: usize, width: usize) -> String {
    match count {
        1 => format!("{first:0width$}"),
        _ => format!("[{first:0width$}-{:0width$}]", first + count - 1),
    }
}

/// `total` things in groups: those in full groups, and the rest; each as its first (from 0) and how many.
fn split(total: usize, group: usize) -> impl Iterator<Item = (usize, usize)> {
    let full = total / group * group;
    [(0, full), (full, total - full)]
        .into_iter()
        .filter(|(_, count)| *count > 0)
}

/// Each name of a pattern so many times.
fn times(pattern: String, count: usize) -> String {
    if count == 1 || !pattern.contains('[') {
        pattern
    } else {
        format!("{pattern}*{count}")
    }
}
