//! A file with SKUs: power, PSUs and height, which neither NetBox nor a dump has.

use rackwright_site::file::{Source, check};
use rackwright_site::finding::Findings;
use rackwright_site::model::{Site, Sku};

/// A checked file with the `skus` that an import uses.
#[derive(Debug, Clone)]
pub struct SkuFile {
    name: String,
    text: String,
    site: Site,
}

impl SkuFile {
    /// Reads a site file with `skus` that refers only to objects within itself.
    ///
    /// # Errors
    /// All faults of the file.
    pub fn read(name: &str, text: &str) -> Result<Self, Findings> {
        let header = Source {
            name: "",
            text: "site: {name: skus}\n",
        };
        let checked = check(&[Source { name, text }, header]);
        match checked.site {
            Some(site) => Ok(Self {
                name: name.to_owned(),
                text: text.to_owned(),
                site,
            }),
            None => Err(checked.findings),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The SKU with this name.
    pub(super) fn named(&self, name: &str) -> Option<&Sku> {
        self.site.skus.iter().find(|sku| *sku.name == *name)
    }

    /// Whether these are HCAs of a SKU, and more than half of its HCAs. A host with less is no node of that SKU.
    pub(super) fn has_most(sku: &Sku, hcas: &[String]) -> bool {
        let are_own = hcas.iter().all(|hca| sku.hcas.iter().any(|own| *own.name == **hca));
        are_own && hcas.len() * 2 > sku.hcas.len()
    }

    /// The SKU for nodes with these HCAs: the only one with exactly these, otherwise the only one with all of them and
    /// less than twice as many.
    pub(super) fn with_hcas(&self, hcas: &[String]) -> Option<&Sku> {
        let skus = self.site.skus.iter();
        let fitting: Vec<&Sku> = skus.filter(|sku| Self::has_most(sku, hcas)).collect();
        let exact: Vec<&Sku> = fitting
            .iter()
            .copied()
            .filter(|sku| sku.hcas.len() == hcas.len())
            .collect();
        match (&*exact, &*fitting) {
            ([one], _) | ([], [one]) => Some(one),
            _ => None,
        }
    }
}
