//! The SKUs of the nodes of a dump, by their HCAs. What is assumed is marked.

use std::collections::BTreeMap;

use super::draft::{Remarks, Sku};
use super::names::Namer;
use super::sku::SkuFile;
use rackwright_infiniband::adapter::{self, Scheme};
use rackwright_infiniband::rail::{Doubt, NodeRails};
use rackwright_site::model::{self, Speed};

/// A node as a dump shows it.
pub(super) struct Seen<'a> {
    /// The names of its adapters, in order.
    pub(super) adapters: &'a [&'a str],
    /// The rails of these adapters. `None`: the descriptions do not name the host.
    pub(super) rails: Option<&'a NodeRails<'a>>,
    /// The names of its HCAs: of each used port.
    pub(super) hcas: &'a [String],
    /// The speed of its first adapter.
    pub(super) speed: Option<Speed>,
}

impl Seen<'_> {
    /// The HCAs of the other nodes of its kind, if the node lacks some of these and the rest is certain.
    fn whole(&self) -> Option<Vec<String>> {
        let rails = self
            .rails
            .filter(|rails| rails.are_known() && !rails.lacking.is_empty())?;
        let mut names: Vec<&str> = self.adapters.iter().chain(&rails.lacking).copied().collect();
        names.sort_by(|a, b| adapter::in_order(a, b));
        are_plain(self.adapters, self.hcas).then(|| names.into_iter().map(str::to_owned).collect())
    }
}

/// Whether each adapter is one HCA of the same name.
fn are_plain(adapters: &[&str], hcas: &[String]) -> bool {
    hcas.iter().map(String::as_str).eq(adapters.iter().copied())
}

/// The names of a SKU's HCAs for adapters and HCAs with other names, by rail.
///
/// `None` unless the rails are certain, the SKU has as many HCAs, each on a rail of its own, and no name is the same.
pub(super) fn by_rail(
    (adapters, hcas): (&[&str], &[String]),
    rails: Option<&NodeRails<'_>>,
    sku: &model::Sku,
) -> Option<Vec<String>> {
    let rails = rails.filter(|rails| rails.are_known() && rails.lacking.is_empty())?;
    let is_other = |name: &&str| sku.hcas.iter().all(|hca| *hca.name != **name);
    if !are_plain(adapters, hcas) || adapters.len() != sku.hcas.len() || !adapters.iter().all(is_other) {
        return None;
    }
    let of_rail = |rail: &Option<u16>| {
        let mut hcas = sku.hcas.iter().filter(|hca| Some(u16::from(hca.rail)) == *rail);
        hcas.next()
            .filter(|_| hcas.next().is_none())
            .map(|hca| hca.name.to_string())
    };
    rails.rails.iter().map(of_rail).collect()
}

/// The SKUs of a dump's nodes.
pub(super) struct Kinds<'a> {
    /// SKUs derived from the HCAs of nodes.
    pub(super) list: Vec<Sku>,
    by_hcas: BTreeMap<(Vec<String>, Option<Speed>), String>,
    names: Namer,
    file: Option<&'a SkuFile>,
    /// The SKU that was given for the nodes.
    wanted: Option<&'a str>,
}

impl<'a> Kinds<'a> {
    pub(super) fn new(file: Option<&'a SkuFile>, wanted: Option<&'a str>) -> Self {
        Self {
            list: Vec::new(),
            by_hcas: BTreeMap::new(),
            names: Namer::default(),
            file,
            wanted,
        }
    }

    /// The SKU that was given, if the SKU file describes it.
    pub(super) fn given(&self) -> Option<&'a model::Sku> {
        self.file.and_then(|file| file.named(self.wanted?))
    }

    /// The SKU of a node: the given one, or the one of the SKU file, if the node has most of its HCAs; else a new one.
    /// `sku_remarks` go to a new one.
    pub(super) fn sku_of(&mut self, seen: &Seen<'_>, remarks: &mut Remarks, sku_remarks: Remarks) -> String {
        if let Some(wanted) = self.wanted {
            let Some(sku) = self.given() else {
                return wanted.to_owned();
            };
            if SkuFile::has_most(sku, seen.hcas) {
                lacks(seen, sku, remarks);
                return wanted.to_owned();
            }
            let what = format!("it has not most of the HCAs of {wanted}, and is taken for another kind of host");
            remarks.assumed("sku", what, "describe an SKU with its HCAs, or remove the host");
        } else if let Some(sku) = self.file.and_then(|file| file.with_hcas(seen.hcas)) {
            lacks(seen, sku, remarks);
            return sku.name.to_string();
        }
        let hcas = match seen.whole() {
            Some(whole) => {
                let lacking = seen.rails.map(|rails| rails.lacking.join(", ")).unwrap_or_default();
                let what = format!(
                    "{} of the {} HCAs of its kind are in the dump, {lacking} not",
                    seen.hcas.len(),
                    whole.len()
                );
                remarks.assumed("sku", what, "check the adapter and its cable");
                whole
            }
            None => seen.hcas.to_vec(),
        };
        self.derived(seen, hcas, sku_remarks)
    }

    fn derived(&mut self, seen: &Seen<'_>, hcas: Vec<String>, mut remarks: Remarks) -> String {
        let key = (hcas, seen.speed);
        if let Some(name) = self.by_hcas.get(&key) {
            return name.clone();
        }
        let wanted = format!("hcas-{}", key.0.len());
        let mut name = self.names.unique_name(&wanted, &[]);
        while self.file.is_some_and(|file| file.named(&name).is_some()) {
            name = self.names.unique_name(&wanted, &[]);
        }
        let fix = "give it here, or describe an SKU with these HCAs in the SKU file";
        for field in ["power", "psus", "height_units"] {
            remarks.missing(field, format!("a dump has no `{field}` of nodes"), fix);
        }
        let are_known = rail_remarks(seen, &mut remarks);
        self.list.push(Sku {
            name: name.clone(),
            hcas: key.0.clone(),
            has_unknown_rails: !are_known,
            speed: seen.speed,
            remarks,
            ..Sku::default()
        });
        self.by_hcas.insert(key, name.clone());
        name
    }
}

/// Marks how the order of a new SKU's rails was found. False: the rails are unknown.
fn rail_remarks(seen: &Seen<'_>, remarks: &mut Remarks) -> bool {
    if seen.hcas.len() < 2 {
        return true;
    }
    let fix = "write the HCAs in the order of the rails";
    let what = match seen.rails.map(|rails| rails.doubt) {
        None => "its adapters have no names: the rails are unknown".to_owned(),
        Some(Some(doubt)) => format!("the rails are unknown: {doubt}"),
        Some(None) => {
            let numbered = |name: &&str| adapter::place(name).is_some_and(|place| place.scheme == Scheme::Kernel);
            if !seen.adapters.iter().all(numbered) {
                let what = "the rails are in the order of the places in the adapters' names";
                remarks.assumed("hcas", what, fix);
            }
            return true;
        }
    };
    remarks.assumed("hcas", what, fix);
    false
}

/// Marks that a node lacks HCAs of its SKU.
fn lacks(seen: &Seen<'_>, sku: &model::Sku, remarks: &mut Remarks) {
    let has = |name: &str| seen.hcas.iter().any(|own| own == name);
    let lacking: Vec<&str> = sku
        .hcas
        .iter()
        .map(|hca| &*hca.name)
        .filter(|name| !has(name))
        .collect();
    if lacking.is_empty() {
        return;
    }
    let mut what = format!(
        "{} of the {} HCAs of {} are in the dump, {} not",
        seen.hcas.len(),
        sku.hcas.len(),
        sku.name,
        lacking.join(", ")
    );
    if seen.rails.is_some_and(|rails| rails.doubt == Some(Doubt::Renumbered)) {
        what.push_str(", and the kernel may have numbered them anew");
    }
    remarks.assumed("sku", what, "check the adapter and its cable");
}
