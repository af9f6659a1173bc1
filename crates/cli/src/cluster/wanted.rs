//! The file of clusters that are asked for.

use std::collections::HashSet;
use std::path::Path;

use rackwright_site::model::{Site, SkuId};
use rackwright_site::placement::{Bandwidth, ClusterId, CustomerId, Request, SkuId as PlacedSku};
use serde::Deserialize;

use crate::error::CliError;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    clusters: Vec<Item>,
}

/// One cluster.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    name: String,
    customer: String,
    sku: String,
    nodes: u32,
    #[serde(default)]
    spares: u32,
    #[serde(default)]
    bandwidth: Option<String>,
}

/// A cluster that is asked for.
#[derive(Debug)]
pub struct Wanted {
    pub name: String,
    pub customer: String,
    pub sku: String,
    pub bandwidth: String,
    pub request: Request,
}

/// Reads the file, and tells everything in it that the site does not have.
pub fn read(path: &Path, text: &str, site: &Site) -> Result<Vec<Wanted>, CliError> {
    let shown = path.display();
    let file: File = serde_saphyr::from_str(text).map_err(|error| {
        let hint =
            "clusters: [{name: alpha, customer: acme, sku: dgx-h100, nodes: 48}]; docs/placement.md has all fields";
        CliError::usage(format!("{shown}: {error}"), hint)
    })?;
    let (mut wanted, mut faults, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    for (place, item) in file.clusters.into_iter().enumerate() {
        let path = format!("{shown}: clusters[{place}]");
        if !names.insert(item.name.clone()) {
            faults.push(CliError::usage(
                format!("{path}.name: there are two clusters {:?}", item.name),
                "",
            ));
        }
        match item.resolve(place, site) {
            Ok(one) => wanted.push(one),
            Err(found) => faults.extend(
                found
                    .into_iter()
                    .map(|(field, what, hint)| CliError::usage(format!("{path}.{field}: {what}"), hint)),
            ),
        }
    }
    CliError::gather(faults)?;
    Ok(wanted)
}

/// Field, what is wrong, and what to do.
type Fault = (&'static str, String, String);

impl Item {
    fn resolve(self, place: usize, site: &Site) -> Result<Wanted, Vec<Fault>> {
        let mut faults = Vec::new();
        let customer = site.customer_named(&self.customer);
        if customer.is_none() {
            let known = site.customers.iter().map(|customer| &*customer.name);
            faults.push((
                "customer",
                format!("the site has no customer {:?}", self.customer),
                has("customers", known),
            ));
        }
        let sku = site.skus.iter().position(|sku| *sku.name == *self.sku).map(SkuId::of);
        if sku.is_none() {
            let known = site.skus.iter().map(|sku| &*sku.name);
            faults.push(("sku", format!("the site has no SKU {:?}", self.sku), has("SKUs", known)));
        }
        if self.nodes == 0 {
            faults.push(("nodes", "must be at least 1".to_owned(), String::new()));
        }
        let words = self.bandwidth.unwrap_or_else(|| "non-blocking".to_owned());
        let bandwidth = bandwidth(&words);
        if bandwidth.is_none() {
            let hint = "say non-blocking, best-effort, or a ratio such as 2:1 (nodes to uplinks)".to_owned();
            faults.push(("bandwidth", format!("{words:?} is none"), hint));
        }
        let (Some(customer), Some(sku), Some(bandwidth), true) = (customer, sku, bandwidth, faults.is_empty()) else {
            return Err(faults);
        };
        let cluster = ClusterId(place as u64 + 1);
        let plain = Request::plain(cluster, CustomerId(customer.0), PlacedSku(sku.0), self.nodes);
        Ok(Wanted {
            name: self.name,
            customer: self.customer,
            sku: self.sku,
            bandwidth: words,
            request: Request {
                spares: self.spares,
                bandwidth,
                ..plain
            },
        })
    }
}

fn has<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.take(20).collect();
    if names.is_empty() {
        return format!(
            "it has no {what}; add a section `{}` to the site file",
            what.to_lowercase()
        );
    }
    format!("it has the {what} {}", names.join(", "))
}

fn bandwidth(words: &str) -> Option<Bandwidth> {
    match words {
        "non-blocking" => Some(Bandwidth::FULL),
        "best-effort" => Some(Bandwidth::BestEffort),
        _ => {
            let (down, up) = words.split_once(':')?;
            let (down, up): (u32, u32) = (down.trim().parse().ok()?, up.trim().parse().ok()?);
            ((1..=down).contains(&up) && down <= 1024).then_some(Bandwidth::Ratio { down, up })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_in_words() {
        assert_eq!(bandwidth("non-blocking"), Some(Bandwidth::FULL));
        assert_eq!(bandwidth("2:1"), Some(Bandwidth::Ratio { down: 2, up: 1 }));
        assert_eq!(bandwidth("best-effort"), Some(Bandwidth::BestEffort));
        for wrong in ["", "1:2", "0:0", "2:0", "fast", "2", "4000000:1"] {
            assert_eq!(bandwidth(wrong), None, "{wrong}");
        }
    }
}
