//! A file with SKUs: power, PSUs and height, which neither NetBox nor a dump has.

use rackwright_site::file::{Source, check};
use rackwright_site::finding::Findings;
use rackwright_site::model::{Site, Sku};

/// A checked file whose `skus` an import uses.
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

    /// The SKU for nodes with these HCAs: the only one with exactly these, otherwise the only one with all of them.
    pub(super) fn with_hcas(&self, hcas: &[String]) -> Option<&Sku> {
        let has_all = |sku: &&Sku| hcas.iter().all(|hca| sku.hcas.iter().any(|own| *own.name == **hca));
        let fitting: Vec<&Sku> = self.site.skus.iter().filter(has_all).collect();
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
